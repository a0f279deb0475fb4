"""The eviction rules compiled by numba, over numpy arrays. Needs the extra `simulator`."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
from numba import njit


class Arrays:
    """Working memory of the rules, and the rules themselves. Compiled code is kept in numba's cache if there is one."""

    def of(self, values: Iterable[int]) -> Any:
        return np.asarray(values, dtype=np.int64)

    def ones(self, length: int) -> Any:
        return np.ones(length, dtype=np.int64)

    def zeros(self, length: int) -> Any:
        return np.zeros(length, dtype=np.int64)

    def flags(self, length: int) -> Any:
        return np.zeros(length, dtype=np.uint8)

    def total(self, values: Any) -> int:
        return int(values.sum())

    def function(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        return _compiled(rule)


@cache
def _compiled(rule: Callable[..., Any]) -> Callable[..., Any]:
    try:
        compiled: Callable[..., Any] = njit(cache=True)(rule)
    except RuntimeError:  # neither the package's folder nor the user's cache folder can be written
        compiled = njit(rule)
    return compiled

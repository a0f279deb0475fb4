"""The eviction rules run as they stand, over Python lists."""

from collections.abc import Callable, Iterable
from typing import Any


class Arrays:
    """Working memory of the rules, and the rules themselves."""

    def of(self, values: Iterable[int]) -> list[int]:
        return list(values)

    def ones(self, length: int) -> list[int]:
        return [1] * length

    def zeros(self, length: int) -> list[int]:
        return [0] * length

    def flags(self, length: int) -> bytearray:
        return bytearray(length)

    def total(self, values: Iterable[int]) -> int:
        return sum(values)

    def function(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        return rule

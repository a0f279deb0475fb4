"""What has to be true before torch is imported."""

import os
from importlib.util import find_spec

from simulator.errors import MissingExtraError


def require_torch(*others: str) -> None:
    """Call before the first import of torch. Raises MissingExtraError where the extra `simulator` is not installed.

    Waiting OpenMP threads spin by default, which makes small matrices many times slower on a busy machine.
    """
    missing = [name for name in ("torch", "transformers", *others) if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"this command runs a model and needs {' and '.join(missing)}",
            "pip install 'claude-ccache[simulator]'",
        )
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

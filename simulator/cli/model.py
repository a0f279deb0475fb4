"""`ccache simulate model`: which weights are used."""


def model() -> None:
    """Which model is used, where it is and what it is made of."""
    from simulator.runtime import require_torch

    require_torch()

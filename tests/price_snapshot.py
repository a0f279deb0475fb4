"""The frozen copy of the library's Claude prices that tests use, so that a newer library moves no expected figure.

`python tests/price_snapshot.py` writes it anew from the library that is installed.
"""

import json
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from genai_prices import types
from genai_prices.data_snapshot import DataSnapshot, get_snapshot, set_custom_snapshot

FROZEN = Path(__file__).parents[1] / "fixtures/prices/anthropic.json"
SCALARS = {Decimal: Decimal, date: date.fromisoformat, time: time.fromisoformat}


def use_frozen_prices() -> None:
    """Let the library answer from the frozen copy for the rest of this process."""
    models = [_thaw(model) for model in json.loads(FROZEN.read_text("utf-8"))]
    own = next(provider for provider in get_snapshot().providers if provider.id == "anthropic")
    set_custom_snapshot(DataSnapshot([_copy(own, models=models)], from_auto_update=False))


def _copy(provider: types.Provider, **changed: Any) -> types.Provider:
    kept = {field.name: getattr(provider, field.name) for field in fields(provider) if field.init}
    return types.Provider(**{**kept, **changed})


def _freeze(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_freeze(item) for item in value]
    if isinstance(value, dict):
        return {key: _freeze(item) for key, item in value.items()}
    if type(value) in SCALARS:
        return {"is": type(value).__name__, "value": str(value)}
    if is_dataclass(value) or isinstance(value, types.ModelPrice):
        kept = {key: item for key, item in vars(value).items() if item is not None and not key.startswith("_")}
        kept.pop("description", None)
        return {"is": type(value).__name__, **{key: _freeze(item) for key, item in kept.items()}}
    return value


def _thaw(value: Any) -> Any:
    if isinstance(value, list):
        return [_thaw(item) for item in value]
    if not isinstance(value, dict):
        return value
    given = {key: _thaw(item) for key, item in value.items() if key != "is"}
    name = value.get("is")
    if name is None:
        return given
    scalar = next((read for kind, read in SCALARS.items() if kind.__name__ == name), None)
    return scalar(given["value"]) if scalar else getattr(types, name)(**given)


if __name__ == "__main__":
    anthropic = next(provider for provider in get_snapshot().providers if provider.id == "anthropic")
    FROZEN.write_text(json.dumps(_freeze(anthropic.models), indent=1) + "\n", "utf-8")

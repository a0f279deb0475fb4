"""The user's own prices: a TOML file that replaces the standard rate of the models it names."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from analyzer.errors import PricesError
from analyzer.prices.listed import Rates
from analyzer.prices.model_ids import parse_model_id
from analyzer.prices.overlay import COLUMNS, instant, overlay, within


@dataclass(frozen=True, slots=True)
class PriceEntry:
    """One row of the user's own price file; `until` is exclusive."""

    model: str
    rates: Rates
    valid_from: datetime | None = None
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class PriceTable:
    """The user's own prices; the last matching entry wins."""

    entries: tuple[PriceEntry, ...]
    source: str

    def find(self, model: str, at: datetime) -> Rates | None:
        """The entry for exactly this id, else for the model behind it."""
        parsed = parse_model_id(model)
        names = (model,) if parsed is None else (model, parsed.canonical)
        for name in names:
            for entry in reversed(self.entries):
                if entry.model == name and within(at, entry.valid_from, entry.valid_until):
                    return entry.rates
        return None


SMALLEST_USD, LARGEST_USD = Decimal("0.000001"), Decimal(10_000)
_REQUIRED = ("model", *COLUMNS)


_OPTIONAL = ("from", "until", "web_search_usd")


def load_price_file(path: str | Path) -> PriceTable:
    """Read the user's own prices: TOML `[[rates]]` with the five token columns and optional `from` / `until` dates."""
    file = Path(path)
    try:
        raw = tomllib.loads(file.read_text("utf-8-sig"), parse_float=Decimal)
    except OSError as error:
        raise PricesError(f"{file}: {error.strerror or error}", "name a readable TOML file") from error
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise PricesError(f"{file}: not valid TOML: {error}", "see the example in the documentation") from error
    rows = raw.get("rates")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise PricesError(f"{file}: no [[rates]] entry", f"each entry needs {', '.join(_REQUIRED)}")
    entries = []
    for number, row in enumerate(rows, 1):
        missing = [name for name in _REQUIRED if name not in row]
        unknown = sorted(set(row) - {*_REQUIRED, *_OPTIONAL})
        if missing or unknown:
            what = f"missing {', '.join(missing)}" if missing else f"unknown key {', '.join(unknown)}"
            raise PricesError(f"{file}: entry {number}: {what}", f"keys: {', '.join((*_REQUIRED, *_OPTIONAL))}")
        if not isinstance(row["model"], str) or not row["model"]:
            raise PricesError(f"{file}: entry {number}: model is not a name", "give the model id as it is logged")
        try:
            start, end = instant(row.get("from")), instant(row.get("until"))
        except (ValueError, OverflowError) as error:
            raise PricesError(f"{file}: entry {number}: {error}", "write dates as 2026-11-01") from error
        if any(at is not None and (at.minute or at.second or at.microsecond) for at in (start, end)):
            raise PricesError(
                f"{file}: entry {number}: from and until must be full hours of UTC", "prices are looked up by the hour"
            )
        if start is not None and end is not None and start >= end:
            raise PricesError(f"{file}: entry {number}: from is not before until", "until is exclusive")
        search = _price(file, number, row, "web_search_usd") if "web_search_usd" in row else overlay().web_search_usd
        columns = {name: _price(file, number, row, name) for name in COLUMNS}
        rates = Rates(**columns, web_search_usd=search, source=f"price file {file.name}")
        entries.append(PriceEntry(row["model"], rates, start, end))
    return PriceTable(tuple(entries), f"price file {file.name}")


def _price(path: Path, number: int, row: Mapping[str, Any], name: str) -> Decimal:
    value = row[name]
    try:
        price = Decimal(value) if isinstance(value, str | int | Decimal) and not isinstance(value, bool) else None
    except (ValueError, ArithmeticError):
        price = None
    if price is None or not price.is_finite() or not (price == 0 or SMALLEST_USD <= price <= LARGEST_USD):
        shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]}..."
        raise PricesError(
            f"{path}: entry {number}: {name} is not a price: {shown}",
            f"USD per million tokens: 0, or {SMALLEST_USD} to {LARGEST_USD:,}",
        )
    return price

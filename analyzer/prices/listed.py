"""List prices: the library's bundled snapshot, corrected and completed by the overlay, before any modifier.

genai-prices is imported inside functions only, because the import alone takes a fifth of a second.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING

from analyzer.prices.model_ids import parse_model_id
from analyzer.prices.overlay import COLUMNS, Period, overlay, within

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

BAND_SAMPLE = (0, 100_001, 200_001)
EARLIEST = datetime(2023, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per million tokens for one request, every modifier applied; web search is USD per request."""

    input: Decimal
    cache_read: Decimal
    cache_creation_5m: Decimal
    cache_creation_1h: Decimal
    output: Decimal
    web_search_usd: Decimal
    source: str


@lru_cache(maxsize=1)
def library_label() -> str:
    return f"genai-prices {metadata.version('genai-prices')}"


@lru_cache(maxsize=512)
def library_model(canonical: str) -> "ModelInfo | None":
    """The library's row for a canonical id.

    The library matches many ids by their beginning, so a future `claude-opus-4-10` would get the price of 4.1:
    a row counts only if its own id is the same model.
    """
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, found = get_snapshot().find_provider_model(canonical, None, "anthropic", None)
    except LookupError:
        return None
    own = parse_model_id(found.id)
    return found if own is not None and own.generation is not None and own.canonical == canonical else None


def _column(price: "ModelPrice", name: str, sample: int) -> Decimal | None:
    """One price of the library's row; a tier holds when the prompt is strictly greater than its start."""
    from genai_prices.types import TieredPrices

    value = getattr(price, name)
    if isinstance(value, TieredPrices):
        chosen = value.base
        for tier in sorted(value.tiers, key=lambda tier: tier.start):
            if sample > tier.start:
                chosen = tier.price
        return chosen
    return value if isinstance(value, Decimal) else None


def _from_library(price: "ModelPrice", band: int, source: str) -> Rates | None:
    sample = BAND_SAMPLE[band]
    names = ("input_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok", "output_mtok")
    columns = {own: _column(price, name, sample) for own, name in zip(COLUMNS, names, strict=True)}
    values = {name: value for name, value in columns.items() if value is not None}
    if len(values) < len(names):
        return None
    search = _column(price, "web_searches_kcount", sample)
    per_search = overlay().web_search_usd if search is None else search / 1000
    return Rates(**values, web_search_usd=per_search, source=source)


def scaled(rates: Rates, input_x: Decimal, output_x: Decimal, note: str) -> Rates:
    """Token columns multiplied; web search never is (batch, geography and speed leave it alone)."""
    return Rates(
        input=rates.input * input_x,
        cache_read=rates.cache_read * input_x,
        cache_creation_5m=rates.cache_creation_5m * input_x,
        cache_creation_1h=rates.cache_creation_1h * input_x,
        output=rates.output * output_x,
        web_search_usd=rates.web_search_usd,
        source=f"{rates.source}; {note}",
    )


def _fast_period(canonical: str, at: datetime) -> Period | None:
    """The overlay's fast rate in force, else the last one that had begun, else the first.

    `usage.speed` says what ran, so a request logged `fast` outside the published dates keeps a fast rate.
    """
    rows = [row for row in overlay().fast if row.model == canonical]
    begun = [row for row in rows if row.valid_from is None or row.valid_from <= at]
    return begun[-1] if begun else rows[0] if rows else None


@lru_cache(maxsize=512)
def change_points(canonical: str) -> list[datetime] | None:
    """Instants at which this model's price may change, oldest first; None where it depends on the time of day."""
    from genai_prices.types import StartDateConstraint

    model = library_model(canonical)
    conditional = model.prices if model is not None and isinstance(model.prices, list) else []
    variants = (model.price_variants if model is not None else None) or ()
    points: set[datetime] = set()
    for price in (*conditional, *variants):
        if isinstance(price.constraint, StartDateConstraint):
            points.add(datetime.combine(price.constraint.start_date, time(), UTC))
        elif price.constraint is not None:
            return None
    table = overlay()
    for row in (*table.dated, *table.fast, *table.long_context):
        if row.model == canonical:
            points |= {point for point in (row.valid_from, row.valid_until) if point is not None}
    return sorted(points)


def list_rates(canonical: str, at: datetime, band: int, fast: bool) -> Rates | None:
    """List price of a canonical model at an instant, before geography, region and batch."""
    points = change_points(overlay().alias.get(canonical, canonical))
    if points is not None:
        passed = bisect_right(points, at)
        at = points[passed - 1] if passed else EARLIEST
    return _list_rates(canonical, at, band, fast)


@lru_cache(maxsize=4096)
def _list_rates(canonical: str, at: datetime, band: int, fast: bool) -> Rates | None:
    table = overlay()
    model = library_model(table.alias.get(canonical, canonical))
    if model is None:
        return None
    canonical = table.alias.get(canonical, canonical)
    rates = _from_library(model.get_prices(at), band, library_label())
    if rates is None:
        return None
    for row in table.dated:
        if row.model == canonical and within(at, row.valid_from, row.valid_until):
            changed = {name: row.values.get(name, getattr(rates, name)) for name in COLUMNS}
            rates = Rates(**changed, web_search_usd=rates.web_search_usd, source=f"overlay: {row.source}")
    speed = "standard"
    if fast:
        period = _fast_period(canonical, at)
        if period is not None:
            # The cache multipliers sit on top of the fast base rate (Claude API docs, Fast mode).
            flat = _from_library(model.get_prices(at), 0, f"overlay: {period.source}")
            assert flat is not None
            ratio_in, ratio_out = period.values["input"] / flat.input, period.values["output"] / flat.output
            rates, speed = replace(scaled(flat, ratio_in, ratio_out, ""), source=flat.source), "fast"
        elif any(variant.when == {"speed": "fast"} for variant in model.price_variants or ()):
            variant_rates = _from_library(
                model.get_prices(at, {"speed": "fast"}), band, f"{library_label()}, fast mode"
            )
            if variant_rates is not None:
                rates, speed = replace(variant_rates, web_search_usd=rates.web_search_usd), "fast"
        if speed == "standard":
            rates = replace(rates, source=f"{rates.source}; no fast rate known, standard rate used")
    for row in table.long_context:
        matches = row.model == canonical and row.speed == speed and BAND_SAMPLE[band] > row.over
        if matches and within(at, row.valid_from, row.valid_until):
            rates = scaled(rates, row.values["input_x"], row.values["output_x"], f"overlay: {row.source}")
    return rates

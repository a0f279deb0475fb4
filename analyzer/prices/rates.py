"""Rates per request: the bundled genai-prices snapshot, corrected and completed by `overlay.toml`.

genai-prices is imported inside functions only, because the import alone takes a fifth of a second.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import PricesError
from analyzer.prices.model_ids import ModelId, parse_model_id

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

_COLUMNS = ("input", "cache_read", "cache_creation_5m", "cache_creation_1h", "output")
_BAND_SAMPLE = (0, 100_001, 200_001)


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
                if entry.model == name and _within(at, entry.valid_from, entry.valid_until):
                    return entry.rates
        return None


@dataclass(frozen=True, slots=True)
class PriceRow:
    """A period in which a model has one price, for one prompt band and one speed; `valid_until` is exclusive."""

    valid_from: datetime | None
    valid_until: datetime | None
    band: int
    speed: str
    rates: Rates
    source: str


@dataclass(frozen=True, slots=True)
class _Period:
    model: str
    valid_from: datetime | None
    valid_until: datetime | None
    source: str
    values: Mapping[str, Decimal]
    speed: str = "standard"
    over: int = 0


@dataclass(frozen=True, slots=True)
class _Overlay:
    as_of: str
    batch: Decimal
    geo_us: Decimal
    regional: Decimal
    regional_gov: Decimal
    web_search_usd: Decimal
    regional_since: tuple[int, int]
    regional_premium: frozenset[str]
    regional_gov_prefixes: frozenset[str]
    geo_models: frozenset[str]
    alias: Mapping[str, str]
    dated: tuple[_Period, ...]
    fast: tuple[_Period, ...]
    long_context: tuple[_Period, ...]
    min_cacheable: Mapping[str, int]


def _instant(value: object) -> datetime | None:
    """A TOML date, datetime or ISO string as an aware UTC instant; a bare date is its midnight."""
    if value is None:
        return None
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    raise ValueError(f"not a date: {value!r}")


def _within(at: datetime, start: datetime | None, end: datetime | None) -> bool:
    return (start is None or at >= start) and (end is None or at < end)


def _periods(rows: Iterable[Mapping[str, Any]]) -> tuple[_Period, ...]:
    names = (*_COLUMNS, "input_x", "output_x")
    return tuple(
        _Period(
            model=row["model"],
            valid_from=_instant(row.get("from")),
            valid_until=_instant(row.get("until")),
            source=row["source"],
            values={name: Decimal(row[name]) for name in names if name in row},
            speed=row.get("speed", "standard"),
            over=row.get("over", 0),
        )
        for row in rows
    )


@lru_cache(maxsize=1)
def _overlay() -> _Overlay:
    raw = tomllib.loads(resources.files("analyzer.prices").joinpath("overlay.toml").read_text("utf-8"))
    multipliers, regional = raw["multipliers"], raw["regional"]
    return _Overlay(
        as_of=raw["as_of"],
        batch=Decimal(multipliers["batch"]),
        geo_us=Decimal(multipliers["inference_geo_us"]),
        regional=Decimal(multipliers["regional"]),
        regional_gov=Decimal(multipliers["regional_gov"]),
        web_search_usd=Decimal(multipliers["web_search_usd"]),
        regional_since=(regional["since"][0], regional["since"][1]),
        regional_premium=frozenset(regional["premium"]),
        regional_gov_prefixes=frozenset(regional["gov"]),
        geo_models=frozenset(raw["inference_geo"]["models"]),
        alias={row["model"]: row["as"] for row in raw["alias"]},
        dated=_periods(raw["dated"]),
        fast=_periods(raw["fast"]),
        long_context=_periods(raw["long_context"]),
        min_cacheable={model: row["tokens"] for row in raw["min_cacheable"] for model in row["models"]},
    )


@lru_cache(maxsize=1)
def _library_label() -> str:
    return f"genai-prices {metadata.version('genai-prices')}"


def price_source() -> tuple[str, str]:
    """Where the rates come from, and the ISO date up to which they were checked."""
    return f"{_library_label()} bundled snapshot + overlay", _overlay().as_of


def band_of(prompt_tokens: int) -> int:
    """The prompt band: 0 up to 100,000 tokens, 1 up to 200,000, 2 above.

    Long-context prices apply to the whole request, output included, once the prompt (input, reads and writes) is
    strictly greater than the limit (Claude API docs, Pricing, long context).
    """
    return 0 if prompt_tokens <= 100_000 else 1 if prompt_tokens <= 200_000 else 2


@lru_cache(maxsize=512)
def _library_model(canonical: str) -> "ModelInfo | None":
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
    sample = _BAND_SAMPLE[band]
    names = ("input_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok", "output_mtok")
    columns = {own: _column(price, name, sample) for own, name in zip(_COLUMNS, names, strict=True)}
    values = {name: value for name, value in columns.items() if value is not None}
    if len(values) < len(names):
        return None
    search = _column(price, "web_searches_kcount", sample)
    per_search = _overlay().web_search_usd if search is None else search / 1000
    return Rates(**values, web_search_usd=per_search, source=source)


def _scaled(rates: Rates, input_x: Decimal, output_x: Decimal, note: str) -> Rates:
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


def _fast_period(canonical: str, at: datetime) -> _Period | None:
    """The overlay's fast rate in force, else the last one that had begun, else the first.

    `usage.speed` says what ran, so a request logged `fast` outside the published dates keeps a fast rate.
    """
    rows = [row for row in _overlay().fast if row.model == canonical]
    begun = [row for row in rows if row.valid_from is None or row.valid_from <= at]
    return begun[-1] if begun else rows[0] if rows else None


@lru_cache(maxsize=4096)
def _list_rates(canonical: str, at: datetime, band: int, fast: bool) -> Rates | None:
    """List price of a canonical model at an instant, before geography, region and batch."""
    overlay = _overlay()
    model = _library_model(overlay.alias.get(canonical, canonical))
    if model is None:
        return None
    canonical = overlay.alias.get(canonical, canonical)
    rates = _from_library(model.get_prices(at), band, _library_label())
    if rates is None:
        return None
    for row in overlay.dated:
        if row.model == canonical and _within(at, row.valid_from, row.valid_until):
            changed = {name: row.values.get(name, getattr(rates, name)) for name in _COLUMNS}
            rates = Rates(**changed, web_search_usd=rates.web_search_usd, source=f"overlay: {row.source}")
    speed = "standard"
    if fast:
        period = _fast_period(canonical, at)
        if period is not None:
            # The cache multipliers sit on top of the fast base rate (Claude API docs, Fast mode).
            flat = _from_library(model.get_prices(at), 0, f"overlay: {period.source}")
            assert flat is not None
            ratio_in, ratio_out = period.values["input"] / flat.input, period.values["output"] / flat.output
            rates, speed = replace(_scaled(flat, ratio_in, ratio_out, ""), source=flat.source), "fast"
        elif any(variant.when == {"speed": "fast"} for variant in model.price_variants or ()):
            variant_rates = _from_library(
                model.get_prices(at, {"speed": "fast"}), band, f"{_library_label()}, fast mode"
            )
            if variant_rates is not None:
                rates, speed = replace(variant_rates, web_search_usd=rates.web_search_usd), "fast"
        if speed == "standard":
            rates = replace(rates, source=f"{rates.source}; no fast rate known, standard rate used")
    for row in overlay.long_context:
        matches = row.model == canonical and row.speed == speed and _BAND_SAMPLE[band] > row.over
        if matches and _within(at, row.valid_from, row.valid_until):
            rates = _scaled(rates, row.values["input_x"], row.values["output_x"], f"overlay: {row.source}")
    return rates


def _with_own_prices(own: Rates, listed: Rates | None, standard: Rates | None) -> Rates:
    """The user's rates; a fast request raises them as fast mode raises the list price."""
    if listed is None or standard is None or listed.input == standard.input:
        return own
    return _scaled(own, listed.input / standard.input, listed.output / standard.output, "fast mode as in the list")


def _modified(rates: Rates, parsed: ModelId | None, inference_geo: str | None, service_tier: str | None) -> Rates:
    """Region, geography and batch.

    A regional Bedrock or Google endpoint costs 10 % more from the 4.5 generation on, GovCloud 20 %, `global.`
    nothing. `inference_geo: us` costs 10 % on first-party ids of 4.6 and later (the overlay's list), never on top of
    a prefix; no other value costs more. Batch halves the token columns. (Claude API docs, Pricing.)
    """
    overlay = _overlay()
    one = Decimal(1)
    factor, notes = one, []
    if parsed is not None and parsed.region is not None:
        if parsed.region in overlay.regional_gov_prefixes:
            factor, notes = overlay.regional_gov, [f"{parsed.region}. x{overlay.regional_gov}"]
        elif parsed.region in overlay.regional_premium and (parsed.generation or (0, 0)) >= overlay.regional_since:
            factor, notes = overlay.regional, [f"{parsed.region}. x{overlay.regional}"]
    elif (
        parsed is not None
        and parsed.first_party
        and inference_geo is not None
        and inference_geo.lower() == "us"
        and parsed.canonical in overlay.geo_models
    ):
        factor, notes = overlay.geo_us, [f"inference_geo us x{overlay.geo_us}"]
    if service_tier == "batch":
        factor, notes = factor * overlay.batch, [*notes, f"batch x{overlay.batch}"]
    elif service_tier == "priority":
        notes = [*notes, "committed capacity, at list price"]
    return _scaled(rates, factor, factor, ", ".join(notes)) if notes else rates


def rates_for(
    model: str,
    at: datetime,
    *,
    prompt_tokens: int,
    speed: str | None,
    inference_geo: str | None,
    service_tier: str | None,
    overrides: PriceTable | None = None,
) -> Rates | None:
    """Rates of one request with every modifier applied; None if the model has no known price.

    Only Claude models have list prices here: a log does not say which vendor served another model, nor at what
    price. A price file (`overrides`) replaces the standard rate of any model, in all prompt bands; fast mode,
    region, geography and batch still apply to it.
    """
    if at.tzinfo is None:
        raise ValueError("rates_for needs an aware datetime")
    # No price changes within an hour, so the hour is enough and keeps the cache small.
    hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    band, fast = band_of(prompt_tokens), speed == "fast"
    parsed = parse_model_id(model)
    known = parsed is not None and parsed.generation is not None
    listed = _list_rates(parsed.canonical, hour, band, fast) if parsed is not None and known else None
    own = overrides.find(model, at.astimezone(UTC)) if overrides is not None else None
    if own is not None:
        standard = _list_rates(parsed.canonical, hour, band, False) if parsed is not None and fast and known else None
        return _modified(_with_own_prices(own, listed, standard), parsed, inference_geo, service_tier)
    return None if listed is None else _modified(listed, parsed, inference_geo, service_tier)


def min_cacheable_tokens(model: str) -> int | None:
    """The shortest prefix the API caches for this model, if known (Claude API docs, Prompt caching)."""
    parsed = parse_model_id(model)
    return None if parsed is None else _overlay().min_cacheable.get(parsed.canonical)


def known_models() -> list[str]:
    """Every Claude model with a list price, by canonical id."""
    from genai_prices.data_snapshot import get_snapshot

    provider = next(provider for provider in get_snapshot().providers if provider.id == "anthropic")
    parsed = (parse_model_id(model.id) for model in provider.models)
    names = {model.canonical for model in parsed if model is not None and model.generation is not None}
    names |= set(_overlay().alias)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return sorted(name for name in names if _list_rates(name, now, 0, False) is not None)


def _change_points(canonical: str) -> list[datetime]:
    """Instants at which this model's price may change, from the library's row and the overlay."""
    from genai_prices.types import StartDateConstraint

    model = _library_model(canonical)
    points: set[datetime] = set()
    if model is not None and isinstance(model.prices, list):
        for price in model.prices:
            if isinstance(price.constraint, StartDateConstraint):
                points.add(datetime.combine(price.constraint.start_date, time(), UTC))
    overlay = _overlay()
    for row in (*overlay.dated, *overlay.fast, *overlay.long_context):
        if row.model == canonical:
            points |= {point for point in (row.valid_from, row.valid_until) if point is not None}
    return sorted(points)


def describe(model: str) -> list[PriceRow]:
    """The model's price history: one row per speed, band and period in which something differs."""
    parsed = parse_model_id(model)
    if parsed is None or parsed.generation is None:
        return []
    canonical = _overlay().alias.get(parsed.canonical, parsed.canonical)
    starts = [None, *_change_points(canonical)]
    found: list[PriceRow] = []
    for fast in (False, True):
        previous: list[PriceRow] = []
        for band in range(len(_BAND_SAMPLE)):
            rows: list[PriceRow] = []
            for index, start in enumerate(starts):
                end = starts[index + 1] if index + 1 < len(starts) else None
                at = start or datetime(2023, 1, 1, tzinfo=UTC)
                listed = _list_rates(parsed.canonical, at, band, fast)
                standard = _list_rates(parsed.canonical, at, band, False)
                if listed is None or standard is None or (fast and listed.input == standard.input):
                    continue
                rates = _modified(listed, parsed, None, None)
                if rows and rows[-1].rates == rates and rows[-1].valid_until == start:
                    rows[-1] = replace(rows[-1], valid_until=end)
                else:
                    rows.append(PriceRow(start, end, band, "fast" if fast else "standard", rates, rates.source))
            same = [(row.valid_from, row.valid_until, row.rates) for row in previous]
            found += [row for row in rows if (row.valid_from, row.valid_until, row.rates) not in same]
            previous = rows
    return found


_REQUIRED = ("model", *_COLUMNS)
_OPTIONAL = ("from", "until", "web_search_usd")


def _price(path: Path, number: int, row: Mapping[str, Any], name: str) -> Decimal:
    value = row[name]
    try:
        price = Decimal(value) if isinstance(value, str | int | Decimal) and not isinstance(value, bool) else None
    except InvalidOperation:
        price = None
    if price is None or not price.is_finite() or price < 0:
        raise PricesError(f"{path}: entry {number}: {name} is not a price: {value!r}", "USD per million tokens, >= 0")
    return price


def load_price_file(path: str | Path) -> PriceTable:
    """Read the user's own prices: TOML `[[rates]]` with the five token columns and optional `from` / `until` dates."""
    file = Path(path)
    try:
        raw = tomllib.loads(file.read_text("utf-8"), parse_float=Decimal)
    except OSError as error:
        raise PricesError(f"{file}: {error.strerror or error}", "name a readable TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
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
            start, end = _instant(row.get("from")), _instant(row.get("until"))
        except ValueError as error:
            raise PricesError(f"{file}: entry {number}: {error}", "write dates as 2026-11-01") from error
        if start is not None and end is not None and start >= end:
            raise PricesError(f"{file}: entry {number}: from is not before until", "until is exclusive")
        search = _price(file, number, row, "web_search_usd") if "web_search_usd" in row else _overlay().web_search_usd
        columns = {name: _price(file, number, row, name) for name in _COLUMNS}
        rates = Rates(**columns, web_search_usd=search, source=f"price file {file.name}")
        entries.append(PriceEntry(row["model"], rates, start, end))
    return PriceTable(tuple(entries), f"price file {file.name}")

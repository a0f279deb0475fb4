"""Rates per request: the list price, or the user's own, with region, geography, speed and batch applied."""

from datetime import UTC, datetime
from decimal import Decimal

from analyzer.prices.listed import Rates, library_label, list_rates, scaled
from analyzer.prices.model_ids import ModelId, parse_model_id
from analyzer.prices.overlay import overlay, overlay_text
from analyzer.prices.price_file import PriceTable


def price_source() -> tuple[str, str]:
    """Where the rates come from, and the ISO date up to which they were checked."""
    return f"{library_label()} bundled snapshot + overlay", overlay().as_of


def price_signature() -> str:
    """Changes whenever a list price may: the library's version and the whole text of the overlay."""
    return f"{library_label()}\n{overlay_text()}"


def band_of(prompt_tokens: int) -> int:
    """The prompt band: 0 up to 100,000 tokens, 1 up to 200,000, 2 above.

    Long-context prices apply to the whole request, output included, once the prompt (input, reads and writes) is
    strictly greater than the limit (Claude API docs, Pricing, long context).
    """
    return 0 if prompt_tokens <= 100_000 else 1 if prompt_tokens <= 200_000 else 2


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
    listed = list_rates(parsed.canonical, hour, band, fast) if parsed is not None and known else None
    own = overrides.find(model, at.astimezone(UTC)) if overrides is not None else None
    if own is not None:
        standard = list_rates(parsed.canonical, hour, band, False) if parsed is not None and fast and known else None
        return modified(_with_own_prices(own, listed, standard), parsed, inference_geo, service_tier)
    return None if listed is None else modified(listed, parsed, inference_geo, service_tier)


def _with_own_prices(own: Rates, listed: Rates | None, standard: Rates | None) -> Rates:
    """The user's rates; a fast request raises them as fast mode raises the list price."""
    if listed is None or standard is None or listed.input == standard.input:
        return own
    return scaled(own, listed.input / standard.input, listed.output / standard.output, "fast mode as in the list")


def modified(rates: Rates, parsed: ModelId | None, inference_geo: str | None, service_tier: str | None) -> Rates:
    """Region, geography and batch.

    A regional Bedrock or Google endpoint costs 10 % more from the 4.5 generation on, GovCloud 20 %, `global.`
    nothing. `inference_geo: us` costs 10 % on first-party ids of 4.6 and later (the overlay's list), never on top of
    a prefix; no other value costs more. Batch halves the token columns. (Claude API docs, Pricing.)
    """
    table = overlay()
    one = Decimal(1)
    factor, notes = one, []
    if parsed is not None and parsed.region is not None:
        if parsed.region in table.regional_gov_prefixes:
            factor, notes = table.regional_gov, [f"{parsed.region}. x{table.regional_gov}"]
        elif parsed.region in table.regional_premium and (parsed.generation or (0, 0)) >= table.regional_since:
            factor, notes = table.regional, [f"{parsed.region}. x{table.regional}"]
    elif (
        parsed is not None
        and parsed.first_party
        and inference_geo is not None
        and inference_geo.lower() == "us"
        and parsed.canonical in table.geo_models
    ):
        factor, notes = table.geo_us, [f"inference_geo us x{table.geo_us}"]
    if service_tier == "batch":
        factor, notes = factor * table.batch, [*notes, f"batch x{table.batch}"]
    elif service_tier == "priority":
        notes = [*notes, "committed capacity, at list price"]
    return scaled(rates, factor, factor, ", ".join(notes)) if notes else rates


def min_cacheable_tokens(model: str) -> int | None:
    """The shortest prefix the API caches for this model, if known (Claude API docs, Prompt caching)."""
    parsed = parse_model_id(model)
    return None if parsed is None else overlay().min_cacheable.get(parsed.canonical)

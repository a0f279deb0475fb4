"""The price of a usage row under a scenario: which rates hold, and what its tokens cost at them. Exact Decimals."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from analyzer.prices import PriceTable, Rates, band_of, rates_for
from analyzer.prices.model_ids import parse_model_id
from analyzer.whatif.plan import Changes
from simulator.trace import Usage

_MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Terms:
    """What decides the rates of a row, apart from its prompt size."""

    model: str
    at: datetime
    speed: str | None
    geo: str | None
    tier: str | None


def changed_terms(terms: Terms, changes: Changes, now: datetime) -> Terms:
    """`terms` under a scenario; the same object where nothing in it changes."""
    new = terms
    if changes.model is not None:
        new = replace(new, model=changes.model)
    if changes.place == "us":
        new = replace(new, geo="us")
    elif changes.place == "global":
        new = replace(new, geo=None, model=_in_region(new.model, "global"))
    elif changes.place == "regional":
        new = replace(new, geo=None, speed=None, model=_in_region(new.model, "us"))
    if changes.speed == "fast" and new.tier != "batch":
        new = replace(new, speed="fast")
    elif changes.speed == "standard" and new.speed == "fast":
        new = replace(new, speed="standard")
    if changes.tier == "batch":
        new = new if new.speed == "fast" else replace(new, tier="batch")
    elif changes.tier == "standard" and new.tier in ("batch", "priority"):
        new = replace(new, tier="standard")
    if changes.today:
        new = replace(new, at=now)
    return terms if new == terms else new


def _in_region(model: str, region: str) -> str:
    """The id behind a regional or the global endpoint; ids of other vendors, and first-party ones for global, stay."""
    parsed = parse_model_id(model)
    if parsed is None or (region == "global" and parsed.region is None) or parsed.region in (region, "us-gov"):
        return model
    if region == "us" and parsed.region not in (None, "global"):
        return model
    return f"{region}.anthropic.{parsed.canonical}"


class Till:
    """Prices rows; rates are looked up once per model, hour, band and modifier."""

    def __init__(self, prices: PriceTable | None) -> None:
        self._prices = prices
        self._known: dict[Any, Rates | None] = {}

    def cost(self, terms: Terms, usage: Usage, web_searches: int, *, at_list: bool = False) -> Decimal | None:
        """USD; None where the model has no known price."""
        rates = self.rates(terms, usage.prompt_tokens, at_list=at_list)
        if rates is None:
            return None
        tokens = (
            usage.input_tokens * rates.input
            + usage.cache_read_tokens * rates.cache_read
            + usage.cache_creation_5m_tokens * rates.cache_creation_5m
            + usage.cache_creation_1h_tokens * rates.cache_creation_1h
            + usage.output_tokens * rates.output
        )
        return tokens / _MILLION + web_searches * rates.web_search_usd

    def rates(self, terms: Terms, prompt_tokens: int, *, at_list: bool = False) -> Rates | None:
        """USD per million tokens."""
        hour = terms.at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        key = (terms.model, hour, band_of(prompt_tokens), terms.speed, terms.geo, terms.tier, at_list)
        if key not in self._known:
            self._known[key] = rates_for(
                terms.model,
                hour,
                prompt_tokens=prompt_tokens,
                speed=terms.speed,
                inference_geo=terms.geo,
                service_tier=terms.tier,
                overrides=None if at_list else self._prices,
            )
        return self._known[key]

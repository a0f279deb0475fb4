"""The price of a usage row under a scenario: which rates hold, and what its tokens cost at them. Exact Decimals."""

from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from analyzer.prices import BAND_SAMPLE, PriceTable, Rates, band_of, rates_for
from analyzer.prices.model_ids import parse_model_id
from analyzer.whatif.plan import Changes
from simulator.trace import Usage

_MILLION = Decimal(1_000_000)


class Terms(NamedTuple):
    """What decides the rates of a row, apart from its day and its prompt size."""

    model: str
    speed: str | None
    geo: str | None
    tier: str | None


def changed_terms(terms: Terms, changes: Changes) -> Terms:
    """`terms` under a scenario."""
    if changes.model is not None:
        terms = terms._replace(model=changes.model)
    if changes.place == "us":
        terms = terms._replace(geo="us")
    elif changes.place == "global":
        terms = terms._replace(geo=None, model=_in_region(terms.model, "global"))
    elif changes.place == "regional":
        terms = terms._replace(geo=None, speed=None, model=_in_region(terms.model, "us"))
    if changes.speed == "fast" and terms.tier != "batch":
        terms = terms._replace(speed="fast")
    elif changes.speed == "standard" and terms.speed == "fast":
        terms = terms._replace(speed="standard")
    if changes.tier == "batch" and terms.speed != "fast":
        terms = terms._replace(tier="batch")
    elif changes.tier == "standard" and terms.tier in ("batch", "priority"):
        terms = terms._replace(tier="standard")
    return terms


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
        self.own_prices = prices is not None
        self._known: dict[Any, Rates | None] = {}

    def cost(
        self, terms: Terms, at: datetime, usage: Usage, web_searches: int, *, at_list: bool = False
    ) -> Decimal | None:
        """USD; None where the model has no known price."""
        rates = self.rates(terms, at, usage.prompt_tokens, at_list=at_list)
        if rates is None:
            return None
        tokens = (
            usage.input_tokens * rates.input
            + usage.cache_read_tokens * rates.cache_read
            + usage.cache_creation_5m_tokens * rates.cache_creation_5m
            + usage.cache_creation_1h_tokens * rates.cache_creation_1h
            + usage.output_tokens * rates.output
        )
        cost = tokens / _MILLION
        return cost + web_searches * rates.web_search_usd if web_searches else cost

    def rates(self, terms: Terms, at: datetime, prompt_tokens: int, *, at_list: bool = False) -> Rates | None:
        """USD per million tokens."""
        band = band_of(prompt_tokens)
        key = (terms, int(at.timestamp()) // 3600, band, at_list)
        if key not in self._known:
            self._known[key] = rates_for(
                terms.model,
                at.replace(minute=0, second=0, microsecond=0),
                prompt_tokens=BAND_SAMPLE[band],
                speed=terms.speed,
                inference_geo=terms.geo,
                service_tier=terms.tier,
                overrides=None if at_list else self._prices,
            )
        return self._known[key]

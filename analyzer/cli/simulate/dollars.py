"""What simulated usage costs at list prices."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from analyzer.prices import BAND_SAMPLE, rates_for
from simulator.trace import Request, Usage

_FIRST_PRICED = datetime(2023, 1, 1, tzinfo=UTC).timestamp()


def cost_usd(billed: Iterable[tuple[Request, Usage]], now: datetime) -> Decimal | None:
    """Sum over requests at the rates of their day; trace clocks that start at zero are priced as of `now`.

    None where any request's model has no known price.
    """
    total = Decimal(0)
    for request, usage in billed:
        cost = _cost(request.model, request.started_at_s, usage.prompt_tokens, usage, now)
        if cost is None:
            return None
        total += cost
    return total


def group_cost_usd(model: str, at_s: float, band: int, usage: Usage, now: datetime) -> Decimal | None:
    """Like `cost_usd`, for the summed usage of requests of one model, day and price band of prompt sizes."""
    return _cost(model, at_s, BAND_SAMPLE[band], usage, now)


def _cost(model: str, at_s: float, prompt_tokens: int, usage: Usage, now: datetime) -> Decimal | None:
    at = datetime.fromtimestamp(at_s, UTC) if at_s >= _FIRST_PRICED else now
    rates = rates_for(model, at, prompt_tokens=prompt_tokens, speed=None, inference_geo=None, service_tier=None)
    if rates is None:
        return None
    return (
        usage.input_tokens * rates.input
        + usage.cache_read_tokens * rates.cache_read
        + usage.cache_creation_5m_tokens * rates.cache_creation_5m
        + usage.cache_creation_1h_tokens * rates.cache_creation_1h
        + usage.output_tokens * rates.output
    ) / 1_000_000


def without_cache(usage: Usage) -> Usage:
    return Usage(usage.prompt_tokens, output_tokens=usage.output_tokens)


def written(amount: Decimal | None) -> str | None:
    """Every digit, as in the other commands' JSON."""
    from analyzer.report.formatting import plain_decimal

    return plain_decimal(amount)


def in_order(trace: Sequence[Request]) -> list[Request]:
    """The order in which a replay serves: by start, equal starts as they stand."""
    return sorted(trace, key=lambda request: request.started_at_s)

"""What simulated usage costs at list prices."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from analyzer.prices import rates_for
from simulator.trace import Request, Usage

_FIRST_PRICED = datetime(2023, 1, 1, tzinfo=UTC).timestamp()


def cost_usd(billed: Iterable[tuple[Request, Usage]], now: datetime) -> Decimal | None:
    """Sum over requests at the rates of their day; trace clocks that start at zero are priced as of `now`.

    None where any request's model has no known price.
    """
    total = Decimal(0)
    for request, usage in billed:
        at = datetime.fromtimestamp(request.started_at_s, UTC) if request.started_at_s >= _FIRST_PRICED else now
        rates = rates_for(
            request.model, at, prompt_tokens=usage.prompt_tokens, speed=None, inference_geo=None, service_tier=None
        )
        if rates is None:
            return None
        total += (
            usage.input_tokens * rates.input
            + usage.cache_read_tokens * rates.cache_read
            + usage.cache_creation_5m_tokens * rates.cache_creation_5m
            + usage.cache_creation_1h_tokens * rates.cache_creation_1h
            + usage.output_tokens * rates.output
        ) / 1_000_000
    return total


def without_cache(usage: Usage) -> Usage:
    return Usage(usage.prompt_tokens, output_tokens=usage.output_tokens)


def written(amount: Decimal | None) -> str | None:
    """Six decimals, as in the other commands' JSON."""
    return None if amount is None else f"{amount:.6f}"


def in_order(trace: Sequence[Request]) -> list[Request]:
    """The order in which a replay serves: by start, equal starts as they stand."""
    return sorted(trace, key=lambda request: request.started_at_s)

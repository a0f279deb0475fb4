"""What a replay found, request by request and in total."""

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.trace import Usage


@dataclass(frozen=True, slots=True)
class ReplayedRequest:
    """One request, three ways. Usage in real tokens is `logged` and `policy`; `engine` is in model tokens.

    `prefill_uncached_s` is the time the same prompt takes from nothing: measured where `measured`, else modelled from
    the measured pieces of the whole replay. `verified` is None where no full prefill was compared.
    `expected_reused_tokens` is the policy's read in whole blocks; `below_resolution_tokens` real tokens fill none.
    """

    request_id: str
    chain: str
    gap_s: float
    prompt_tokens: int
    logged: Usage | None
    policy: Usage
    engine: Usage
    expected_reused_tokens: int
    below_resolution_tokens: int
    reused_tokens: int
    computed_tokens: int
    restored_tokens: int
    prefill_s: float
    assemble_s: float
    prefill_uncached_s: float
    measured: bool
    verified: bool | None
    kv_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a replay; `logged_read_tokens` is None where the trace holds no billed usage."""

    requests: int
    prompt_tokens: int
    logged_read_tokens: int | None
    policy_read_tokens: int
    policy_creation_tokens: int
    reused_tokens: int
    computed_tokens: int
    below_resolution_tokens: int
    prefill_s: float
    prefill_uncached_s: float
    measured: int
    verified: int
    mismatched: int
    kv_bytes: int
    peak_bytes: int

    @property
    def speedup(self) -> float | None:
        return self.prefill_uncached_s / self.prefill_s if self.prefill_s else None

    @property
    def prefill_ratio(self) -> float | None:
        """How many times more tokens would have been computed without the cache."""
        return (self.reused_tokens + self.computed_tokens) / self.computed_tokens if self.computed_tokens else None


@dataclass(frozen=True, slots=True)
class Replay:
    """A finished replay: `scale` real tokens per model token."""

    policy: str
    scale: float
    window: int
    block_size: int
    budget_bytes: int | None
    requests: tuple[ReplayedRequest, ...]
    reordered: int

    @property
    def totals(self) -> Totals:
        rows = self.requests
        logged = [row.logged.cache_read_tokens for row in rows if row.logged is not None]
        return Totals(
            requests=len(rows),
            prompt_tokens=sum(row.prompt_tokens for row in rows),
            logged_read_tokens=sum(logged) if logged else None,
            policy_read_tokens=sum(row.policy.cache_read_tokens for row in rows),
            policy_creation_tokens=sum(row.policy.cache_creation_tokens for row in rows),
            reused_tokens=sum(row.reused_tokens for row in rows),
            computed_tokens=sum(row.computed_tokens for row in rows),
            below_resolution_tokens=sum(row.below_resolution_tokens for row in rows),
            prefill_s=sum(row.prefill_s for row in rows),
            prefill_uncached_s=sum(row.prefill_uncached_s for row in rows),
            measured=sum(row.measured for row in rows),
            verified=sum(row.verified is True for row in rows),
            mismatched=sum(row.verified is False for row in rows),
            kv_bytes=max((row.kv_bytes for row in rows), default=0),
            peak_bytes=max((row.peak_bytes for row in rows), default=0),
        )


def rescaled(row: ReplayedRequest, scale: float) -> Usage:
    """The engine's usage of one request in real tokens, so that it can be priced like a logged one.

    The classes add up to the real prompt; rounding goes to the tokens that were written or computed last.
    """
    read = min(row.prompt_tokens, round(row.engine.cache_read_tokens * scale))
    one_hour = min(row.prompt_tokens - read, round(row.engine.cache_creation_1h_tokens * scale))
    five = min(row.prompt_tokens - read - one_hour, round(row.engine.cache_creation_5m_tokens * scale))
    return Usage(row.prompt_tokens - read - one_hour - five, read, five, one_hour, row.policy.output_tokens)


def sampled(lengths: Sequence[int], count: int) -> frozenset[int]:
    """Positions of `count` values spread evenly over the sorted order of `lengths`, shortest and longest included."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    if count >= len(order):
        return frozenset(order)
    if count < 2:
        return frozenset(order[len(order) - 1 :] if count else ())
    return frozenset(order[round(k * (len(order) - 1) / (count - 1))] for k in range(count))

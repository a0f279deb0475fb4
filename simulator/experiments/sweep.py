"""Hit rate against capacity, lifetime and policy, as token accounting on all cores.

Two limits meet: what a policy may still read (time, breakpoints), and what a cache of so many bytes still holds (least
recently used leaf first). A request reads the smaller of the two. That is exact where only one of them binds. Where
both do it is a little low, because what has expired still takes room here until it is pushed out.
"""

import os
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

from simulator.capacity import BlockTrace, simulate_capacity
from simulator.replay.plan import PolicyName, mark_prompt_ends, predict
from simulator.trace import Request, Trace, Usage

KV_BYTES_PER_TOKEN: Final = 46_080
"""Keys and values of one token in SmolLM2-135M at float32: 45 KiB."""


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One policy under one capacity (None: unbounded). `usage` sums the billed classes by the caller's groups."""

    policy: PolicyName
    capacity_bytes: int | None
    requests: int
    prompt_tokens: int
    read_tokens: int
    usage: tuple[tuple[Hashable, Usage], ...]

    @property
    def hit_rate(self) -> float:
        return self.read_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def sweep(
    trace: Trace,
    policies: Sequence[PolicyName],
    capacities: Sequence[int | None],
    groups: Sequence[Hashable] | None = None,
    *,
    bytes_per_token: int = KV_BYTES_PER_TOKEN,
    workers: int | None = None,
) -> list[SweepCell]:
    """Every policy under every capacity. `groups` has one item a request. Raises TraceError as `predict` does."""
    order = sorted(range(len(trace)), key=lambda i: trace[i].started_at_s)
    requests = [trace[i] for i in order]
    names = [groups[i] for i in order] if groups is not None else [None] * len(requests)
    if requests and not any(s.breakpoint for request in requests for s in request.segments):
        requests = mark_prompt_ends(requests)
    jobs = len(policies) + sum(capacity is not None for capacity in capacities)
    workers = min(workers or os.cpu_count() or 1, jobs)
    if workers == 1:
        _start(requests, bytes_per_token)
        billed = [_policy(policy) for policy in policies]
        held = [_capacity(capacity) for capacity in capacities]
    else:
        with ProcessPoolExecutor(workers, initializer=_start, initargs=(requests, bytes_per_token)) as pool:
            waiting = [pool.submit(_capacity, capacity) for capacity in capacities]
            billed = list(pool.map(_policy, policies))
            held = [each.result() for each in waiting]
    return [
        _cell(policy, capacity, names, usages, hits)
        for policy, usages in zip(policies, billed, strict=True)
        for capacity, hits in zip(capacities, held, strict=True)
    ]


def limited(usage: Usage, held_tokens: int) -> Usage:
    """What a request is billed if only its first `held_tokens` are held: the rest of its read is written again."""
    lost = max(0, usage.cache_read_tokens - held_tokens)
    hour = lost if usage.cache_creation_1h_tokens and not usage.cache_creation_5m_tokens else 0
    return Usage(
        usage.input_tokens,
        usage.cache_read_tokens - lost,
        usage.cache_creation_5m_tokens + lost - hour,
        usage.cache_creation_1h_tokens + hour,
        usage.output_tokens,
    )


def _cell(
    policy: PolicyName,
    capacity: int | None,
    names: Sequence[Hashable],
    usages: Sequence[Usage],
    hits: Sequence[int] | None,
) -> SweepCell:
    if hits is not None:
        usages = [limited(usage, held) for usage, held in zip(usages, hits, strict=True)]
    groups: dict[Hashable, list[Usage]] = {}
    for name, usage in zip(names, usages, strict=True):
        groups.setdefault(name, []).append(usage)
    return SweepCell(
        policy=policy,
        capacity_bytes=capacity,
        requests=len(usages),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        read_tokens=sum(usage.cache_read_tokens for usage in usages),
        usage=tuple((name, _sum(members)) for name, members in groups.items()),
    )


def _sum(usages: Iterable[Usage]) -> Usage:
    rows = [
        (
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.cache_creation_5m_tokens,
            usage.cache_creation_1h_tokens,
            usage.output_tokens,
        )
        for usage in usages
    ]
    return Usage(*(sum(column) for column in zip(*rows, strict=True)))


_work: tuple[Sequence[Request], int, list[BlockTrace]] = ((), 1, [])
"""This process's trace, bytes per token and, once it was needed, the trace's blocks."""


def _start(requests: Sequence[Request], bytes_per_token: int) -> None:
    global _work
    _work = (requests, bytes_per_token, [])


def _policy(policy: PolicyName) -> list[Usage]:
    return predict(_work[0], policy)


def _capacity(capacity: int | None) -> Sequence[int] | None:
    """Tokens of each request's prompt that a cache of `capacity` bytes holds when it comes."""
    if capacity is None:
        return None
    requests, bytes_per_token, blocks = _work
    if not blocks:
        blocks.append(BlockTrace.from_trace(requests))
    found = simulate_capacity(
        blocks[0], eviction="leaf-lru", budget_bytes=capacity, bytes_per_token=bytes_per_token
    ).request_hit_tokens
    return [int(tokens) for tokens in found]


def unique_bytes(trace: Trace, bytes_per_token: int = KV_BYTES_PER_TOKEN) -> int:
    """Bytes that keep every prefix of a trace at once: above it, capacity no longer matters."""
    return sum(BlockTrace.from_trace(trace).largest_tokens()) * bytes_per_token

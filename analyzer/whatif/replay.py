"""Cache scenarios: the cache is simulated as it was set and as changed, and the difference moves logged tokens.

The simulation is `simulator.policy` over the trace of all chains in scope: breakpoints, look-back, lifetime from the
start of a request, refresh by a hit, shortest cacheable prefix and isolation by model and speed.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from analyzer.trace_export import Exported
from analyzer.whatif.prediction import broken_by_change
from analyzer.whatif.work import Billed, Work, is_main
from simulator.policy import Policy, simulate
from simulator.trace import Request, Segment, Ttl, Usage

TtlOf = Callable[[Exported], Ttl | None]


def moved(logged: Usage, as_set: Usage, changed: Usage) -> Usage:
    """`logged` with the difference of two simulated runs applied, class by class, within the row's prompt.

    Where the log read more (or less) than the first run, the second cannot add (or take) what was there (or gone)
    already. No difference gives back `logged` itself.
    """
    if as_set == changed:
        return logged
    prompt = logged.prompt_tokens
    read, shift = logged.cache_read_tokens, changed.cache_read_tokens - as_set.cache_read_tokens
    if shift > 0:
        read = max(read, min(read + shift, changed.cache_read_tokens))
    elif shift < 0:
        read = min(read, max(read + shift, changed.cache_read_tokens))
    read = min(max(read, 0), prompt)
    rest = prompt - read
    uncached = min(max(logged.input_tokens + changed.input_tokens - as_set.input_tokens, 0), rest)
    rest -= uncached
    hour = logged.cache_creation_1h_tokens + changed.cache_creation_1h_tokens - as_set.cache_creation_1h_tokens
    if changed.cache_creation_5m_tokens == 0 and changed.cache_creation_1h_tokens:
        hour = rest
    elif changed.cache_creation_1h_tokens == 0 and changed.cache_creation_5m_tokens:
        hour = 0
    hour = min(max(hour, 0), rest)
    return Usage(uncached, read, rest - hour, hour, logged.output_tokens)


def replayed(
    work: Work, *, ttl_of: TtlOf | None = None, model: str | None = None, one_speed: bool = False
) -> Mapping[str, Usage]:
    """Request id -> its simulated usage with other lifetimes, one model throughout, or one speed throughout."""
    marked: dict[tuple[int, Ttl], Segment] = {}
    requests = []
    for item in work.trace:
        request = item.request
        ttl = ttl_of(item) if ttl_of else None
        if ttl is not None:
            request = replace(request, segments=_with_ttl(request.segments, ttl, marked))
        if model is not None and request.model != model:
            request = replace(request, model=model)
        if one_speed and request.salt != "standard":
            request = replace(request, salt="standard")
        requests.append(request)
    touched = {
        _kind(request)
        for item, new in zip(work.trace, requests, strict=True)
        if new is not item.request
        for request in (item.request, new)
    }
    affected = [request for request in requests if _kind(request) in touched]
    return {**work.as_set, **dict(zip((request.id for request in affected), simulate(affected, Policy()), strict=True))}


def _kind(request: Request) -> tuple[str, str, str]:
    """Requests of different kinds never share an entry, so that a kind without a change keeps its result."""
    return request.scope, request.model, request.salt


def by_chain(chosen: Mapping[str, Ttl | None]) -> TtlOf:
    """Each chain with a lifetime of its own."""
    return lambda item: chosen.get(item.request.chain)


def _with_ttl(segments: tuple[Segment, ...], ttl: Ttl, marked: dict[tuple[int, Ttl], Segment]) -> tuple[Segment, ...]:
    """Every breakpoint with another lifetime. Equal segments stay one object: the simulation is quicker for it."""
    places = [i for i, segment in enumerate(segments) if segment.breakpoint is not None]
    if all(segments[i].breakpoint == ttl for i in places):
        return segments
    changed = list(segments)
    for i in places:
        key = (id(segments[i]), ttl)
        if key not in marked:
            marked[key] = replace(segments[i], breakpoint=ttl)
        changed[i] = marked[key]
    return tuple(changed)


def apply_runs(work: Work, bill: list[Billed], changed: Mapping[str, Usage]) -> list[Billed]:
    """`bill` with the difference of the two runs applied to the row of each request that answered last."""
    found = []
    for billed in bill:
        key = billed.row.key
        if not billed.row.main or key not in changed:
            found.append(billed)
            continue
        as_set, new = work.as_set[key], changed[key]
        gains = new.cache_read_tokens > as_set.cache_read_tokens
        if gains and broken_by_change(work.by_key[key].previous, work.by_key[key].logged):
            new = _still_lost(as_set, new)
        usage = moved(billed.usage, as_set, new)
        found.append(billed if usage == billed.usage else billed._replace(usage=usage))
    return found


def _still_lost(as_set: Usage, changed: Usage) -> Usage:
    """The first run's read with the second one's lifetimes: something else than time broke the prefix."""
    written = as_set.cache_creation_tokens
    if changed.cache_creation_1h_tokens and not changed.cache_creation_5m_tokens:
        return replace(as_set, cache_creation_5m_tokens=0, cache_creation_1h_tokens=written)
    if changed.cache_creation_5m_tokens and not changed.cache_creation_1h_tokens:
        return replace(as_set, cache_creation_5m_tokens=written, cache_creation_1h_tokens=0)
    return as_set


def lifetimes(main: Ttl | None, agents: Ttl | None) -> TtlOf:
    """The lifetime that main conversations and subagents ask for; None leaves what was asked."""
    return lambda item: main if is_main(item) else agents


def without_cache(usage: Usage) -> Usage:
    return Usage(usage.prompt_tokens, output_tokens=usage.output_tokens)


def nothing_lost(work: Work, bill: list[Billed]) -> list[Billed]:
    """Every request reads what its predecessor left in the cache, up to its own prompt."""
    found = []
    for billed in bill:
        item = work.by_key.get(billed.row.key)
        if not billed.row.main or item is None or item.previous is None:
            found.append(billed)
            continue
        usage = billed.usage
        gain = min(item.previous.readable_tokens, usage.prompt_tokens) - usage.cache_read_tokens
        if gain <= 0:
            found.append(billed)
            continue
        from_hour = min(gain, usage.cache_creation_1h_tokens)
        from_five = min(gain - from_hour, usage.cache_creation_5m_tokens)
        found.append(
            billed._replace(
                usage=Usage(
                    usage.input_tokens - (gain - from_hour - from_five),
                    usage.cache_read_tokens + gain,
                    usage.cache_creation_5m_tokens - from_five,
                    usage.cache_creation_1h_tokens - from_hour,
                    usage.output_tokens,
                ),
            )
        )
    return found

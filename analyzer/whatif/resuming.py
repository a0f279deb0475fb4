"""The last session resumed instead of a new one begun."""

from dataclasses import replace

from analyzer.trace_export import TTL_S, Exported
from analyzer.whatif.models import window_of
from analyzer.whatif.work import Billed, Work, asked_ttl, conversations, with_usage
from simulator.trace import Usage


def resumed(work: Work, bill: list[Billed]) -> list[Billed]:
    """Every session that began within the TTL of the one before, in the same project on the same model, continues it.

    Its first request writes only what is new; that and every later one reads the older context too, until the
    context window is full or a compaction drops it.
    """
    ordered = sorted(conversations(work), key=lambda chain: chain[0].request.started_at_s)
    carried: dict[str, int] = {}
    changed: dict[str, Usage] = {}
    latest: dict[tuple[str, str], list[Exported]] = {}
    for chain in ordered:
        first = chain[0]
        kind = (first.request.scope, first.request.model)
        earlier = latest.get(kind)
        if earlier is None or chain[-1].request.started_at_s > earlier[-1].request.started_at_s:
            latest[kind] = chain
        if earlier is None or first.previous is not None or not _alive(earlier[-1], first):
            continue
        last = earlier[-1]
        older = last.logged.readable_tokens + carried.get(last.request.id, 0)
        start = first.logged.usage.cache_read_tokens
        extra = older - start
        if extra <= 0:
            continue
        for item in chain:
            billed = work.main_bill.get(item.request.id)
            if item.logged.known.boundary or item.logged.known.prompt_tokens + extra > window_of(item.request.model):
                break
            carried[item.request.id] = extra
            if billed is not None:
                usage = billed.usage
                changed[item.request.id] = replace(usage, cache_read_tokens=usage.cache_read_tokens + extra)
    return with_usage(bill, changed)


def _alive(last: Exported, first: Exported) -> bool:
    """Whether a conversation that has ended is still cached when another session starts."""
    ttl = asked_ttl(last)
    if ttl is None or last.logged.known.session_id == first.logged.known.session_id:
        return False
    return 0 < first.request.started_at_s - last.request.started_at_s <= TTL_S[ttl]

"""Subagents as forks of the main conversation, or their work inline in it, request by request.

The same estimate as `ccache subagents`: the agent's own turns on top of the main conversation's context at the spawn.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace

from analyzer.alternatives import TASK_TOKENS
from analyzer.trace_export import Exported
from analyzer.whatif.work import Billed, Work
from simulator.trace import Usage


@dataclass(slots=True)
class _Main:
    """The main conversations of one session in order of time, and for each place the next one begun anew."""

    items: list[Exported]
    starts: list[float]
    next_anew: list[int]


def on_parent(work: Work, bill: list[Billed], *, inline: bool) -> list[Billed]:
    """`bill` with every subagent whose main conversation is known moved onto its context; the others stay."""
    mains, agents = _sorted_out(work)
    changed: dict[str, Billed] = {}
    gathered: dict[str, int] = {}
    for (session, _), items in agents.items():
        main = mains.get(session)
        before = bisect_right(main.starts, items[0].request.started_at_s) if main else 0
        if main is None or not before:
            continue
        parent = main.items[before - 1]
        paying = work.main_bill.get(parent.request.id)
        if paying is None:
            continue
        first_prompt = items[0].logged.known.prompt_tokens
        hour = inline and parent.logged.usage.cache_creation_1h_tokens > 0
        for item in items:
            billed = work.main_bill.get(item.request.id)
            if billed is None:
                continue
            own = TASK_TOKENS + max(0, item.logged.known.prompt_tokens - first_prompt)
            usage = turn_on(parent.logged.readable_tokens, item.logged.usage, own, first=item is items[0], hour=hour)
            changed[item.request.id] = billed._replace(usage=usage, terms=paying.terms)
        if inline:
            total = TASK_TOKENS + max(0, items[-1].logged.known.prompt_tokens - first_prompt)
            after = bisect_right(main.starts, items[-1].logged.response_began_at_s)
            for later in main.items[after : max(after, main.next_anew[before])]:
                gathered[later.request.id] = gathered.get(later.request.id, 0) + total
    found = []
    for billed in bill:
        key = billed.row.key
        if billed.row.main and key in changed:
            found.append(changed[key])
        elif billed.row.main and key in gathered:
            more = billed.usage.cache_read_tokens + gathered[key]
            found.append(billed._replace(usage=replace(billed.usage, cache_read_tokens=more)))
        else:
            found.append(billed)
    return found


def turn_on(context: int, usage: Usage, own: int, *, first: bool, hour: bool) -> Usage:
    """One turn of `own` tokens so far on a cached `context`: the first writes its task, later ones what they added."""
    uncached = 0 if first else min(usage.input_tokens, own)
    written = TASK_TOKENS if first else min(usage.cache_creation_tokens, own - uncached)
    read = context + own - written - uncached
    five, one_hour = (0, written) if hour else (written, 0)
    return Usage(uncached, read, five, one_hour, usage.output_tokens)


def _sorted_out(work: Work) -> tuple[dict[str, _Main], dict[tuple[str, str], list[Exported]]]:
    mains: dict[str, list[Exported]] = {}
    agents: dict[tuple[str, str], list[Exported]] = {}
    for item in work.trace:
        known = item.logged.known
        if known.agent_id is not None:
            agents.setdefault((known.session_id, known.agent_id), []).append(item)
        elif "/main" in item.request.chain:
            mains.setdefault(known.session_id, []).append(item)
    found = {}
    for session, items in mains.items():
        following = [len(items)] * (len(items) + 1)
        for place in range(len(items) - 1, -1, -1):
            anew = items[place].previous is None or items[place].logged.known.boundary
            following[place] = place if anew else following[place + 1]
        found[session] = _Main(items, [item.request.started_at_s for item in items], following)
    return found, agents

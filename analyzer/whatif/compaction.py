"""Compaction earlier or never: a conversation's context as it would have grown, request by request."""

from dataclasses import replace

from analyzer.trace_export import Exported
from analyzer.whatif.models import window_of
from analyzer.whatif.work import Billed, Work, is_main, with_usage
from simulator.trace import Usage

SUMMARY_OUTPUT = 4_000
AFTER_START = 12_000
"""Tokens of summary and re-read files behind the start; published reports show 10K-20K above tools and system."""
USUAL_START = 20_000
LARGEST_START = 50_000


def compacted_at(work: Work, bill: list[Billed], limit: int) -> list[Billed]:
    """Every main conversation compacted before the request that would pass `limit` tokens."""
    changed: dict[str, Usage] = {}
    added: list[Billed] = []
    for chain in _conversations(work):
        start = _start_of(chain)
        context = before = 0
        for item in chain:
            logged, prompt = item.logged, item.logged.known.prompt_tokens
            if item.previous is None or logged.known.boundary or prompt < before:
                context = prompt
            else:
                grown = context + prompt - before
                shorter = start + AFTER_START + prompt - before
                if grown > limit and start + AFTER_START < context:
                    billed = work.main_bill.get(logged.key)
                    if billed is not None:
                        call = _summary_call(billed.usage, context, before)
                        added.append(Billed(billed.row, call, billed.terms, billed.at, 0, added=True))
                        changed[logged.key] = _begun_anew(billed.usage, start, shorter)
                    context = shorter
                else:
                    context = grown
            before = prompt
            if logged.key not in changed and context < prompt and logged.key in work.main_bill:
                changed[logged.key] = without(work.main_bill[logged.key].usage, prompt - context, start)
    return [*with_usage(bill, changed), *added]


def never_compacted(work: Work, bill: list[Billed]) -> list[Billed]:
    """What a compaction dropped stays, while the context window has room for it."""
    changed: dict[str, Usage] = {}
    for chain in _conversations(work):
        dropped = before = 0
        for item in chain:
            logged, prompt = item.logged, item.logged.known.prompt_tokens
            if item.previous is not None and logged.known.boundary and prompt < before:
                dropped += before - prompt
            before = prompt
            if prompt + dropped > window_of(logged.known.model):
                dropped = 0
            billed = work.main_bill.get(logged.key)
            if dropped and billed is not None:
                usage = billed.usage
                changed[logged.key] = replace(usage, cache_read_tokens=usage.cache_read_tokens + dropped)
    return with_usage(bill, changed)


def without(usage: Usage, tokens: int, start: int) -> Usage:
    """`usage` of a context that is `tokens` shorter: fewer reads down to the start, then fewer writes, then input."""
    read = min(tokens, max(0, usage.cache_read_tokens - start))
    left = tokens - read
    hour = min(left, usage.cache_creation_1h_tokens)
    five = min(left - hour, usage.cache_creation_5m_tokens)
    uncached = min(left - hour - five, usage.input_tokens)
    last = left - hour - five - uncached
    return Usage(
        usage.input_tokens - uncached,
        max(0, usage.cache_read_tokens - read - last),
        usage.cache_creation_5m_tokens - five,
        usage.cache_creation_1h_tokens - hour,
        usage.output_tokens,
    )


def _summary_call(usage: Usage, context: int, before: int) -> Usage:
    """The request that writes the summary reads the context; where the log lost it, this call would have."""
    if usage.cache_read_tokens * 2 >= before:
        return Usage(0, context, 0, 0, SUMMARY_OUTPUT)
    hour = context if usage.cache_creation_1h_tokens else 0
    return Usage(0, 0, context - hour, hour, SUMMARY_OUTPUT)


def _begun_anew(usage: Usage, start: int, prompt: int) -> Usage:
    """The request after a compaction: its start is read, the rest written for the lifetime it was logged with."""
    read = min(start, prompt)
    uncached = min(usage.input_tokens, prompt - read)
    written = prompt - read - uncached
    hour = written if usage.cache_creation_1h_tokens or not usage.cache_creation_5m_tokens else 0
    return Usage(uncached, read, written - hour, hour, usage.output_tokens)


def _start_of(chain: list[Exported]) -> int:
    """Tools and system prompt, in tokens: what the first request read, where it says so."""
    read = chain[0].logged.usage.cache_read_tokens
    return read if 0 < read <= LARGEST_START else min(USUAL_START, chain[0].logged.known.prompt_tokens)


def _conversations(work: Work) -> list[list[Exported]]:
    found: dict[str, list[Exported]] = {}
    for item in work.trace:
        if is_main(item):
            found.setdefault(item.request.chain, []).append(item)
    wrote = [chain for chain in found.values() if any(i.logged.usage.cache_creation_tokens for i in chain)]
    place = {item.request.id: n for n, item in enumerate(work.trace)}
    return [sorted(chain, key=lambda item: place[item.request.id]) for chain in wrote]

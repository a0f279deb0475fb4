"""Pings that keep an idle main conversation in the cache, as added requests of the trace."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from analyzer.trace_export import Exported
from analyzer.whatif.replay import apply_runs
from analyzer.whatif.tariff import Till
from analyzer.whatif.work import Billed, Work, asked_ttl, conversations
from simulator.policy import Policy, simulate
from simulator.trace import Request, Ttl

EVERY_S: dict[Ttl, int] = {"5m": 240, "1h": 3300}
"""A minute, or five, before the entry would expire."""


def break_even_pings(write_rate: Decimal, read_rate: Decimal) -> int:
    """How many reads of a prefix cost no more than not writing it again saves: (write - read) / read, rounded down."""
    return int((write_rate - read_rate) / read_rate) if read_rate else 0


def kept_alive(work: Work, bill: list[Billed], till: Till, minutes: int | None) -> list[Billed]:
    """`bill` with pings added and the losses gone that they prevent."""
    pings = _pings(work, till, minutes)
    requests = sorted([*(item.request for item in work.trace), *pings], key=lambda request: request.started_at_s)
    usages = dict(zip((request.id for request in requests), simulate(requests, Policy()), strict=True))
    found = apply_runs(work, bill, usages)
    for ping in pings:
        assert ping.parent is not None
        billed = work.main_bill.get(ping.parent)
        if billed is not None:
            at = datetime.fromtimestamp(ping.started_at_s, UTC)
            found.append(Billed(billed.row, usages[ping.id], billed.terms, at, 0, added=True))
    return found


def _pings(work: Work, till: Till, minutes: int | None) -> list[Request]:
    found: list[Request] = []
    for chain in conversations(work):
        for place, item in enumerate(chain):
            end = chain[place + 1].request.started_at_s if place + 1 < len(chain) else float("inf")
            found += _pings_after(work, till, item, end, minutes)
    return found


def _pings_after(work: Work, till: Till, item: Exported, end: float, minutes: int | None) -> list[Request]:
    """Pings between a request and the next one (`end`, in seconds)."""
    ttl = asked_ttl(item)
    billed = work.main_bill.get(item.request.id)
    if ttl is None or billed is None:
        return []
    every = minutes * 60 if minutes else EVERY_S[ttl]
    rates = till.rates(billed.terms, billed.at, billed.usage.prompt_tokens)
    if rates is None:
        return []
    write = rates.cache_creation_1h if ttl == "1h" else rates.cache_creation_5m
    most = break_even_pings(write, rates.cache_read)
    start = item.request.started_at_s
    found = []
    for number in range(1, most + 1):
        at = start + number * every
        if at >= end:
            break
        began = max(at, item.request.response_began_at_s)
        found.append(
            replace(
                item.request,
                id=f"{item.request.id}/ping{number}",
                parent=item.request.id,
                started_at_s=at,
                response_began_at_s=began,
                output_tokens=0,
                logged=None,
            )
        )
    return found

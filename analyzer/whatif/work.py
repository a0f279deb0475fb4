"""What happened, ready to be changed: billed rows with the chains behind them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from analyzer.queries.history import Chain, UsageRow
from analyzer.trace_export import Exported, build_trace
from analyzer.whatif.tariff import Terms
from simulator.policy import Policy, simulate
from simulator.trace import Ttl, Usage

MAIN_TYPES = ("main", "teammate")


class Billed(NamedTuple):
    """One line of a bill, at the rates of `at`. `row` is the logged row it stands for, or the one an added call
    belongs to."""

    row: UsageRow
    usage: Usage
    terms: Terms
    at: datetime
    web_searches: int
    added: bool = False


class Work:
    """The rows that the report shows, and every chain in scope: predecessors outside the filters still count."""

    def __init__(self, history: Sequence[Chain], rows: Sequence[UsageRow]) -> None:
        self.history = history
        self.rows = rows
        bill = [
            Billed(
                row,
                row.usage,
                Terms(row.model, row.speed, row.inference_geo, row.service_tier),
                row.at,
                row.web_searches,
            )
            for row in rows
        ]
        self.keep(bill)

    def keep(self, bill: Sequence[Billed]) -> None:
        """Leave all rows out but these: what has no price is in no scenario."""
        self.bill = list(bill)
        self.main_bill = {billed.row.key: billed for billed in self.bill if billed.row.main}

    @cached_property
    def trace(self) -> list[Exported]:
        return build_trace(self.history)

    @cached_property
    def by_key(self) -> dict[str, Exported]:
        return {item.request.id: item for item in self.trace}

    @cached_property
    def as_set(self) -> dict[str, Usage]:
        """Request id -> what the simulated cache bills with everything as it was."""
        requests = [item.request for item in self.trace]
        return dict(zip((request.id for request in requests), simulate(requests, Policy()), strict=True))


def with_usage(bill: Sequence[Billed], changed: Mapping[str, Usage]) -> list[Billed]:
    """`bill` with other tokens for the requests in `changed`, in the line that answered last."""
    return [
        billed._replace(usage=changed[billed.row.key]) if billed.row.main and billed.row.key in changed else billed
        for billed in bill
    ]


def asked_ttl(item: Exported) -> Ttl | None:
    """The longest lifetime that a request's breakpoints ask for; None where it has none."""
    ttls = {segment.breakpoint for segment in item.request.segments}
    return "1h" if "1h" in ttls else "5m" if "5m" in ttls else None


def conversations(work: Work) -> list[list[Exported]]:
    """The main conversations in the order of their first requests, without requests whose time is a guess."""
    found: dict[str, list[Exported]] = {}
    for item in work.trace:
        if is_main(item) and not item.logged.known.date_estimated:
            found.setdefault(item.request.chain, []).append(item)
    return list(found.values())


def is_main(item: Exported) -> bool:
    """Whether a main conversation made this request (teammates are conversations of their own)."""
    return item.logged.known.agent_type in MAIN_TYPES and item.logged.known.agent_id is None

"""Scenarios over the rows in scope: change the tokens, then the terms, then price what is left, row by row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import product

from analyzer.queries.scope import money
from analyzer.whatif.agents import on_parent
from analyzer.whatif.compaction import compacted_at, never_compacted
from analyzer.whatif.keep_alive import kept_alive
from analyzer.whatif.models import in_tokens_of, token_factor, window_of
from analyzer.whatif.plan import Changes, Plan
from analyzer.whatif.replay import apply_runs, lifetimes, nothing_lost, replayed, without_cache
from analyzer.whatif.results import ScenarioRow
from analyzer.whatif.resuming import resumed
from analyzer.whatif.tariff import Till, changed_terms
from analyzer.whatif.work import Billed, Work
from simulator.trace import Ttl, Usage

TTLS: tuple[Ttl | None, ...] = (None, "5m", "1h")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A scenario's bill with the cost of each line in USD (the logged cost where the scenario has no price)."""

    plan: Plan
    bill: list[Billed]
    costs: list[Decimal]
    notes: tuple[str, ...]
    priced: bool = True

    @property
    def total(self) -> Decimal:
        return money(sum(self.costs, Decimal(0)))


ACTUAL = Plan(
    "actual",
    "price",
    Changes(),
    "as logged, at the rates of each day",
    ("as logged, at the rates of each day",),
    "exact",
)


class Scenarios:
    """Runs plans over one body of work. Rows without a known price are left out of all of them."""

    def __init__(self, work: Work, till: Till, now: datetime) -> None:
        self.work = work
        self._till = till
        self._now = now
        self._runs: dict[tuple[object, ...], dict[str, Usage]] = {}
        logged = [(billed, till.cost(billed.terms, billed.usage, billed.web_searches)) for billed in work.bill]
        self.unpriced = {billed.row.key for billed, cost in logged if cost is None and billed.row.main}
        priced = [(billed, cost) for billed, cost in logged if cost is not None]
        self.bill = [billed for billed, _ in priced]
        self._logged_cost = {id(billed): cost for billed, cost in priced}
        self.actual = Outcome(ACTUAL, self.bill, [cost for _, cost in priced], ())

    def outcome(self, plan: Plan) -> Outcome:
        """The work under `plan`."""
        changes = plan.changes
        if changes.tier == "priority":
            return Outcome(plan, self.bill, self.actual.costs, (), priced=False)
        bill, notes = self._with_tokens(changes)
        if changes.model is not None:
            bill, more = _on_model(bill, changes.model)
            notes = (*notes, *more)
        found: list[Billed] = []
        costs: list[Decimal] = []
        unpriced = 0
        for billed in bill:
            terms = changed_terms(billed.terms, changes, self._now)
            if terms is billed.terms and not changes.list_prices and id(billed) in self._logged_cost:
                found.append(billed)
                costs.append(self._logged_cost[id(billed)])
                continue
            cost = self._till.cost(terms, billed.usage, billed.web_searches, at_list=bool(changes.list_prices))
            if cost is None:
                unpriced += 1
                cost = self._till.cost(billed.terms, billed.usage, billed.web_searches) or Decimal(0)
            found.append(billed if terms is billed.terms else replace(billed, terms=terms))
            costs.append(cost)
        if unpriced:
            notes = (*notes, f"{unpriced:,} requests have no price there and keep theirs")
        return Outcome(plan, found, costs, notes)

    def row(self, outcome: Outcome) -> ScenarioRow:
        """The outcome as one line of the table."""
        plan, actual = outcome.plan, self.actual.total
        usage = total_usage(outcome.bill)
        cost = outcome.total if outcome.priced else None
        delta = None if cost is None else money(cost - actual)
        before = {
            (b.row.key, b.row.main, b.row.model): (b, c) for b, c in zip(self.bill, self.actual.costs, strict=True)
        }
        changed = {
            b.row.key
            for b, c in zip(outcome.bill, outcome.costs, strict=True)
            if not b.added and (b.usage, c) != _logged(before, b)
        }
        return ScenarioRow(
            name=plan.name,
            kind=plan.kind,
            usage=usage,
            cost_usd=cost,
            delta_usd=delta,
            delta_rate=None if delta is None or not actual else float(delta / actual),
            changed_requests=len(changed),
            added_calls=sum(billed.added for billed in outcome.bill),
            gist=plan.gist if not outcome.notes else f"{plan.gist}: {outcome.notes[0]}",
            assumptions=(*plan.assumptions, *outcome.notes),
            confidence=plan.confidence,
        )

    def price(self, billed: Billed, usage: Usage) -> Decimal:
        """What other tokens would cost on the terms of a logged row."""
        return self._till.cost(billed.terms, usage, billed.web_searches) or Decimal(0)

    def _with_tokens(self, changes: Changes) -> tuple[list[Billed], tuple[str, ...]]:
        work, bill = self.work, self.bill
        if changes.model is not None or changes.speed is not None:
            bill = apply_runs(work, bill, self._run(None, None, changes.model, changes.speed is not None))
        if changes.ttl_main is not None or changes.ttl_agents is not None:
            return apply_runs(work, bill, self._run(changes.ttl_main, changes.ttl_agents)), ()
        if changes.cache == "off":
            return [replace(billed, usage=without_cache(billed.usage)) for billed in bill], ()
        if changes.cache == "perfect":
            return nothing_lost(work, bill), ()
        if changes.cache == "keep-alive":
            return kept_alive(work, bill, self._till, changes.number), ()
        if changes.cache == "compact":
            assert changes.number is not None
            return compacted_at(work, bill, changes.number), ()
        if changes.cache == "no-compaction":
            return never_compacted(work, bill), ()
        if changes.cache == "resume":
            return resumed(work, bill), ()
        if changes.cache in ("fork", "inline"):
            return on_parent(work, bill, inline=changes.cache == "inline"), ()
        if changes.cache == "best-setting":
            return self._best_setting(bill)
        if changes.cache == "best-ttl":
            return self._best_per_chain(bill)
        return bill, ()

    def _run(
        self, main: Ttl | None, agents: Ttl | None, model: str | None = None, one_speed: bool = False
    ) -> dict[str, Usage]:
        key = (main, agents, model, one_speed)
        if key not in self._runs:
            ttl_of = lifetimes(main, agents) if main or agents else None
            self._runs[key] = replayed(self.work, ttl_of=ttl_of, model=model, one_speed=one_speed)
        return self._runs[key]

    def _best_setting(self, bill: list[Billed]) -> tuple[list[Billed], tuple[str, ...]]:
        options = {
            (main, agents): apply_runs(self.work, bill, self._run(main, agents)) if main or agents else bill
            for main, agents in product(TTLS, TTLS)
        }
        best = min(options, key=lambda pair: self._cost(options[pair]))
        said = [
            f'{name} "{ttl}"'
            for name, ttl in zip(("promptCacheTtl", "subagentPromptCacheTtl"), best, strict=True)
            if ttl
        ]
        return options[best], (" and ".join(said) or "leave it as it is",)

    def _best_per_chain(self, bill: list[Billed]) -> tuple[list[Billed], tuple[str, ...]]:
        spent: dict[Ttl | None, dict[str, Decimal]] = {}
        for ttl in TTLS:
            option = apply_runs(self.work, bill, self._run(ttl, ttl)) if ttl else bill
            by_chain = spent.setdefault(ttl, {})
            for billed, cost in zip(option, self._costs(option), strict=True):
                by_chain[billed.row.chain] = by_chain.get(billed.row.chain, Decimal(0)) + cost
        chosen: dict[str, Ttl | None] = {
            chain: min(TTLS, key=lambda ttl: spent[ttl].get(chain, Decimal(0))) for chain in spent[None]
        }
        found = apply_runs(self.work, bill, replayed(self.work, ttl_of=lambda item: chosen.get(item.request.chain)))
        counts = {ttl: sum(choice == ttl for choice in chosen.values()) for ttl in TTLS}
        return found, (f"{counts['5m']:,} chains to 5m, {counts['1h']:,} to 1h, {counts[None]:,} as they are",)

    def _costs(self, bill: Sequence[Billed]) -> list[Decimal]:
        return [
            self._logged_cost.get(id(billed))
            or self._till.cost(billed.terms, billed.usage, billed.web_searches)
            or Decimal(0)
            for billed in bill
        ]

    def _cost(self, bill: Sequence[Billed]) -> Decimal:
        return sum(self._costs(bill), Decimal(0))


def _logged(
    before: dict[tuple[str, bool, str], tuple[Billed, Decimal]], billed: Billed
) -> tuple[Usage, Decimal] | None:
    found = before.get((billed.row.key, billed.row.main, billed.row.model))
    return None if found is None else (found[0].usage, found[1])


def _on_model(bill: list[Billed], model: str) -> tuple[list[Billed], tuple[str, ...]]:
    found = []
    too_long = 0
    for billed in bill:
        usage = in_tokens_of(billed.usage, token_factor(billed.terms.model, model))
        too_long += usage.prompt_tokens > window_of(model)
        found.append(billed if usage is billed.usage else replace(billed, usage=usage))
    return found, (f"{too_long:,} requests would not fit its window",) if too_long else ()


def total_usage(bill: Sequence[Billed]) -> Usage:
    return Usage(
        sum(billed.usage.input_tokens for billed in bill),
        sum(billed.usage.cache_read_tokens for billed in bill),
        sum(billed.usage.cache_creation_5m_tokens for billed in bill),
        sum(billed.usage.cache_creation_1h_tokens for billed in bill),
        sum(billed.usage.output_tokens for billed in bill),
    )

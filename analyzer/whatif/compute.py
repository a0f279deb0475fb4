"""Scenarios over the rows in scope: change the tokens, then the terms, then price what is left, row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from analyzer.queries.scope import money
from analyzer.whatif.agents import on_parent
from analyzer.whatif.compaction import compacted_at, never_compacted
from analyzer.whatif.keep_alive import kept_alive
from analyzer.whatif.models import TOKEN_RATIO, in_tokens_of, token_factor, window_of
from analyzer.whatif.plan import Changes, Plan
from analyzer.whatif.replay import apply_runs, by_chain, lifetimes, nothing_lost, replayed, without_cache
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
        self._runs: dict[tuple[object, ...], Mapping[str, Usage]] = {}
        logged = [
            (billed, till.cost(billed.terms, billed.at, billed.usage, billed.web_searches)) for billed in work.bill
        ]
        self.unpriced = {billed.row.key for billed, cost in logged if cost is None and billed.row.main}
        priced = [(billed, cost) for billed, cost in logged if cost is not None]
        self.bill = [billed for billed, _ in priced]
        work.keep(self.bill)
        self._logged_cost = {id(billed): cost for billed, cost in priced}
        self.actual = Outcome(ACTUAL, self.bill, [cost for _, cost in priced], ())

    def outcome(self, plan: Plan) -> Outcome:
        """The work under `plan`."""
        changes = plan.changes
        if changes.tier == "priority":
            return Outcome(plan, self.bill, self.actual.costs, (), priced=False)
        if changes.list_prices is False and not self._till.own_prices:
            return Outcome(plan, self.bill, self.actual.costs, ("give them with --prices FILE",), priced=False)
        bill, notes = self._with_tokens(changes)
        if changes.model is not None:
            bill, more = _on_model(bill, changes.model)
            notes = (*notes, *more)
        terms_under = {terms: changed_terms(terms, changes) for terms in {billed.terms for billed in bill}}
        at_list, today = bool(changes.list_prices), changes.today
        found: list[Billed] = []
        costs: list[Decimal] = []
        unpriced = 0
        for billed in bill:
            terms = terms_under[billed.terms]
            same = terms == billed.terms and not today and not at_list
            known = self._logged_cost.get(id(billed)) if same else None
            if known is not None:
                found.append(billed)
                costs.append(known)
                continue
            new = billed if same else billed._replace(terms=terms, at=self._now if today else billed.at)
            cost = self._till.cost(terms, new.at, new.usage, new.web_searches, at_list=at_list)
            if cost is None:
                unpriced += 1
                new, cost = billed, self.price(billed, billed.usage)
            found.append(new)
            costs.append(cost)
        if unpriced:
            notes = (*notes, f"{unpriced:,} requests have no price there and keep theirs")
        return Outcome(plan, found, costs, notes)

    def row(self, outcome: Outcome) -> ScenarioRow:
        """The outcome as one line of the table."""
        plan, actual = outcome.plan, self.actual.total
        cost = outcome.total if outcome.priced and self.bill else None
        delta = None if cost is None else money(cost - actual)
        return ScenarioRow(
            name=plan.name,
            kind=plan.kind,
            usage=total_usage(outcome.bill),
            cost_usd=cost,
            delta_usd=delta,
            delta_rate=None if delta is None or not actual else float(delta / actual),
            changed_requests=self._changed(outcome),
            added_calls=sum(billed.added for billed in outcome.bill),
            gist=plan.gist if not outcome.notes else f"{plan.gist}: {outcome.notes[0]}",
            assumptions=(*plan.assumptions, *outcome.notes),
            confidence=plan.confidence,
        )

    def _changed(self, outcome: Outcome) -> int:
        """How many requests have other tokens or another cost; lines keep their order, added calls come last."""
        lines = zip(self.bill, outcome.bill, self.actual.costs, outcome.costs, strict=False)
        return len(
            {
                new.row.key
                for old, new, before, after in lines
                if new is not old and (new.usage != old.usage or before != after)
            }
        )

    def price(self, billed: Billed, usage: Usage) -> Decimal:
        """What other tokens would cost on the terms of a logged row."""
        return self._till.cost(billed.terms, billed.at, usage, billed.web_searches) or Decimal(0)

    def _with_tokens(self, changes: Changes) -> tuple[list[Billed], tuple[str, ...]]:
        work, bill = self.work, self.bill
        if changes.model or changes.speed or changes.ttl_main or changes.ttl_agents:
            run = self._run(changes.ttl_main, changes.ttl_agents, changes.model, changes.speed is not None)
            bill = apply_runs(work, bill, run)
        if changes.cache == "off":
            return [billed._replace(usage=without_cache(billed.usage)) for billed in bill], ()
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
    ) -> Mapping[str, Usage]:
        key = (main, agents, model, one_speed)
        if key not in self._runs:
            ttl_of = lifetimes(main, agents) if main or agents else None
            self._runs[key] = replayed(self.work, ttl_of=ttl_of, model=model, one_speed=one_speed)
        return self._runs[key]

    def _best_setting(self, bill: list[Billed]) -> tuple[list[Billed], tuple[str, ...]]:
        """The cheapest lifetimes of main conversations and of subagents; alone, together, and the same for both."""
        alone = [(ttl, None) for ttl in TTLS], [(None, ttl) for ttl in TTLS]
        main, agents = (min(pairs, key=lambda pair: self._cost(self._bill_with(bill, *pair))) for pairs in alone)
        pairs = [*alone[0], *alone[1], *((ttl, ttl) for ttl in TTLS), (main[0], agents[1])]
        best = min(pairs, key=lambda pair: self._cost(self._bill_with(bill, *pair)))
        names = zip(("promptCacheTtl", "subagentPromptCacheTtl"), best, strict=True)
        said = " and ".join(f'{name} "{ttl}"' for name, ttl in names if ttl)
        return self._bill_with(bill, *best), (said or "leave it as it is",)

    def _best_per_chain(self, bill: list[Billed]) -> tuple[list[Billed], tuple[str, ...]]:
        """Chains share what they start with, so that a choice may help only where others make it too: those that
        lose by their choice give it up, and the result is never dearer than the best setting.
        """
        spent = {ttl: self._by_chain(self._bill_with(bill, ttl, ttl)) for ttl in TTLS}
        chosen = {chain: min(TTLS, key=lambda ttl: spent[ttl][chain]) for chain in spent[None]}
        while True:
            found = apply_runs(self.work, bill, replayed(self.work, ttl_of=by_chain(chosen)))
            now = self._by_chain(found)
            losing = [chain for chain, ttl in chosen.items() if ttl and now[chain] > spent[None][chain]]
            if not losing:
                break
            chosen |= dict.fromkeys(losing)
        setting, said = self._best_setting(bill)
        if self._cost(setting) < self._cost(found):
            return setting, said
        counts = {ttl: sum(choice == ttl for choice in chosen.values()) for ttl in TTLS}
        return found, (f"{counts['5m']:,} to 5m, {counts['1h']:,} to 1h, {counts[None]:,} kept",)

    def _by_chain(self, bill: Sequence[Billed]) -> dict[str, Decimal]:
        found: dict[str, Decimal] = {}
        for billed, cost in zip(bill, self._costs(bill), strict=True):
            found[billed.row.chain] = found.get(billed.row.chain, Decimal(0)) + cost
        return found

    def _bill_with(self, bill: list[Billed], main: Ttl | None, agents: Ttl | None) -> list[Billed]:
        return apply_runs(self.work, bill, self._run(main, agents)) if main or agents else bill

    def _costs(self, bill: Sequence[Billed]) -> list[Decimal]:
        known = (self._logged_cost.get(id(billed)) for billed in bill)
        return [self.price(b, b.usage) if cost is None else cost for b, cost in zip(bill, known, strict=True)]

    def _cost(self, bill: Sequence[Billed]) -> Decimal:
        return sum(self._costs(bill), Decimal(0))


def _on_model(bill: list[Billed], model: str) -> tuple[list[Billed], tuple[str, ...]]:
    """Every line in tokens of `model`; its notes say how many were scaled, and how many its window could not hold."""
    factors = {billed.terms.model: token_factor(billed.terms.model, model) for billed in bill}
    found = []
    scaled = {"more": 0, "fewer": 0}
    too_long = 0
    for billed in bill:
        factor = factors[billed.terms.model]
        usage = in_tokens_of(billed.usage, factor)
        too_long += usage.prompt_tokens > window_of(model)
        if factor != 1:
            scaled["more" if factor > 1 else "fewer"] += 1
        found.append(billed if usage is billed.usage else billed._replace(usage=usage))
    notes = [
        f"{count:,} requests take {TOKEN_RATIO}x {'the tokens' if way == 'more' else 'fewer tokens'}"
        for way, count in scaled.items()
        if count
    ]
    if too_long:
        notes.append(f"{too_long:,} requests would not fit its window")
    return found, (", ".join(notes),) if notes else ()


def total_usage(bill: Sequence[Billed]) -> Usage:
    return Usage(
        sum(billed.usage.input_tokens for billed in bill),
        sum(billed.usage.cache_read_tokens for billed in bill),
        sum(billed.usage.cache_creation_5m_tokens for billed in bill),
        sum(billed.usage.cache_creation_1h_tokens for billed in bill),
        sum(billed.usage.output_tokens for billed in bill),
    )

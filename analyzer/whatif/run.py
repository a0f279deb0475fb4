"""What-ifs of a scope: the table of scenarios, its groups, one scenario explained."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import Literal

import duckdb

from analyzer.prices import PriceTable, price_source
from analyzer.queries import Scope
from analyzer.queries.history import read_chains, read_rows
from analyzer.queries.scope import select
from analyzer.whatif.compute import Outcome, Scenarios
from analyzer.whatif.plan import Changes, Plan
from analyzer.whatif.replay import without_cache
from analyzer.whatif.results import ChainChange, ChainCosts, Explanation, GroupCosts, WhatIfReport
from analyzer.whatif.scenarios import default_names, plan_of, plans_of
from analyzer.whatif.tariff import Till
from analyzer.whatif.work import Work

By = Literal["project", "session", "model"]
Progress = Callable[[int, int, str], None]
SHOWN_CHAINS = 8


def whatif(
    connection: duckdb.DuckDBPyConnection,
    scope: Scope,
    prices: PriceTable | None = None,
    *,
    names: Sequence[str] = (),
    by: By | None = None,
    now: datetime,
    progress: Progress | None = None,
) -> WhatIfReport:
    """Every scenario asked for (all, if none is), over the requests in scope. Raises UsageError for an unknown name.

    `progress` is called with (scenarios done, scenarios in all, name of the next).
    """
    plans = plans_of(names or default_names(own_prices=prices is not None))
    scenarios = _opened(connection, scope, prices, now)
    outcomes = []
    for done, plan in enumerate(plans):
        if progress is not None:
            progress(done, len(plans), plan.name)
        outcomes.append(scenarios.outcome(plan))
    source, date = price_source()
    return WhatIfReport(
        actual=scenarios.row(scenarios.actual),
        scenarios=tuple(scenarios.row(outcome) for outcome in outcomes),
        requests=sum(row.main for row in scenarios.work.rows),
        unpriced_requests=len(scenarios.unpriced),
        groups=_groups(scenarios.actual, outcomes, by) if by else (),
        cheaper_without_cache=_cheaper_without_cache(scenarios),
        price_source=prices.source if prices is not None else source,
        price_date=date,
        chosen=bool(names),
    )


def explain(
    connection: duckdb.DuckDBPyConnection, scope: Scope, prices: PriceTable | None, name: str, *, now: datetime
) -> Explanation:
    """The plan behind a scenario and what it changes. Raises UsageError for an unknown name."""
    plan = plan_of(name)
    scenarios = _opened(connection, scope, prices, now)
    outcome = scenarios.outcome(plan)
    return Explanation(
        scenarios.row(outcome), scenarios.row(scenarios.actual), _described(plan), _largest(scenarios.actual, outcome)
    )


def _opened(connection: duckdb.DuckDBPyConnection, scope: Scope, prices: PriceTable | None, now: datetime) -> Scenarios:
    select(connection, scope, prices)
    return Scenarios(Work(read_chains(connection), read_rows(connection)), Till(prices), now)


def _described(plan: Plan) -> tuple[tuple[str, str], ...]:
    """What the plan changes, as (part, value)."""
    values = ((part.name, getattr(plan.changes, part.name)) for part in fields(Changes))
    return tuple((name, str(value)) for name, value in values if value is not None)


def _groups(actual: Outcome, outcomes: Sequence[Outcome], by: By) -> tuple[GroupCosts, ...]:
    def key_of(row: object) -> str:
        return str(getattr(row, {"project": "project", "session": "session_id", "model": "model"}[by]))

    spent: dict[str, list[Decimal]] = {}
    for place, outcome in enumerate((actual, *outcomes)):
        for billed, cost in zip(outcome.bill, outcome.costs, strict=True):
            spent.setdefault(key_of(billed.row), [Decimal(0)] * (len(outcomes) + 1))[place] += cost
    return tuple(
        GroupCosts(
            key=key,
            label=key.rstrip("/").rsplit("/", 1)[-1] or key if by == "project" else key,
            actual_usd=costs[0],
            costs_usd=tuple(
                cost if outcome.priced else None for cost, outcome in zip(costs[1:], outcomes, strict=True)
            ),
        )
        for key, costs in sorted(spent.items(), key=lambda item: (-item[1][0], item[0]))
    )


def _cheaper_without_cache(scenarios: Scenarios) -> tuple[ChainCosts, ...]:
    """Chains whose writes cost more than their reads saved, the largest saving first."""
    found: dict[str, list[Decimal]] = {}
    for billed, cost in zip(scenarios.bill, scenarios.actual.costs, strict=True):
        uncached = scenarios.price(billed, without_cache(billed.usage))
        sums = found.setdefault(billed.row.chain, [Decimal(0), Decimal(0)])
        sums[0] += cost
        sums[1] += uncached
    facts = _facts(scenarios.actual)
    rows = [
        ChainCosts(*facts[chain], actual_usd=actual, uncached_usd=uncached)
        for chain, (actual, uncached) in found.items()
        if uncached < actual
    ]
    return tuple(sorted(rows, key=lambda row: (row.uncached_usd - row.actual_usd, row.session_id)))


def _largest(actual: Outcome, outcome: Outcome) -> tuple[ChainChange, ...]:
    spent: dict[str, list[Decimal]] = {}
    for place, each in enumerate((actual, outcome)):
        for billed, cost in zip(each.bill, each.costs, strict=True):
            spent.setdefault(billed.row.chain, [Decimal(0), Decimal(0)])[place] += cost
    facts = _facts(actual)
    rows = [
        ChainChange(*facts[chain], actual_usd=before, delta_usd=after - before)
        for chain, (before, after) in spent.items()
        if after != before
    ]
    return tuple(sorted(rows, key=lambda row: (-abs(row.delta_usd), row.session_id))[:SHOWN_CHAINS])


def _facts(actual: Outcome) -> dict[str, tuple[str, str, str | None, int]]:
    """Chain -> session, project, agent, number of requests."""
    found: dict[str, tuple[str, str, str | None, int]] = {}
    for billed in actual.bill:
        row = billed.row
        agent = _agent_of(row.chain)
        count = found[row.chain][3] if row.chain in found else 0
        found[row.chain] = (row.session_id, row.project, agent, count + row.main)
    return found


def _agent_of(chain: str) -> str | None:
    """The agent's id, or the root of an inline sidechain, in a chain's name; None for a main conversation."""
    name = chain.partition("/")[2].partition("#")[0]
    return None if name == "main" else name.partition(":")[2] or name

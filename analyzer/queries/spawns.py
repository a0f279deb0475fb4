"""Every subagent in scope with its verdict, what agents cost, and what other ways of running them would have cost."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC
from decimal import Decimal
from itertools import groupby
from typing import Any

import duckdb

from analyzer.alternatives import Parent, Step, fork_cost, inline_cost
from analyzer.prices import PriceTable, rates_for
from analyzer.queries.scope import Scope, money, select
from analyzer.results import FirstRequest, SpawnRow, SpawnTotals, SubagentReport
from analyzer.sharing import First, Spawn, Writer, Writers, judge, name_of, warmed_by


def subagents(connection: duckdb.DuckDBPyConnection, scope: Scope, prices: PriceTable | None = None) -> SubagentReport:
    """Every subagent in scope, in order of its start, with the verdict on whose prefix its first request read."""
    select(connection, scope, prices)
    alternatives = _alternatives(connection, prices)
    spawns = tuple(
        replace(row, fork_cost_usd=fork, inline_cost_usd=inline)
        for row in spawn_rows(connection, writers(connection))
        for fork, inline in (alternatives.get((row.session_id, row.agent_id), (None, None)),)
    )
    types: dict[str, list[SpawnRow]] = {}
    for row in spawns:
        types.setdefault(row.agent_type, []).append(row)
    by_type = [_totals(name, rows) for name, rows in types.items()]
    by_type.sort(key=lambda row: (-(row.cost_usd or Decimal(0)), row.key))
    return SubagentReport(spawns, tuple(by_type), _totals("all", spawns))


def _totals(key: str, spawns: Sequence[SpawnRow]) -> SpawnTotals:
    compared = [spawn for spawn in spawns if spawn.fork_cost_usd is not None and spawn.cost_usd is not None]
    counts = Counter(spawn.verdict for spawn in spawns)
    return SpawnTotals(
        key=key,
        spawns=len(spawns),
        requests=sum(spawn.requests for spawn in spawns),
        first_read_tokens=sum(spawn.first_read_tokens for spawn in spawns),
        first_creation_tokens=sum(spawn.first_creation_tokens for spawn in spawns),
        verdicts=tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        cost_usd=_sum(spawn.cost_usd for spawn in spawns),
        cold_start_usd=_sum(spawn.cold_start_usd for spawn in spawns),
        compared=len(compared),
        compared_usd=_sum(spawn.cost_usd for spawn in compared) or Decimal(0),
        fork_cost_usd=_sum(spawn.fork_cost_usd for spawn in compared) or Decimal(0),
        inline_cost_usd=_sum(spawn.inline_cost_usd for spawn in compared) or Decimal(0),
    )


def _sum(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """Over what is known; None where nothing is."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Decimal(0)) if known else None


_AGENT_STEPS = """
SELECT r.session_id, r.agent_id, r.started_at, r.first_line_at, r.input, r.context_read_tokens,
    r.context_5m_tokens + r.context_1h_tokens, r.output_tokens
FROM requests r
WHERE r.agent_id IS NOT NULL AND (r.session_id, r.agent_id) IN (
    SELECT (session_id, agent_id) FROM subagent_spawns WHERE request_key IN (SELECT request_key FROM shown))
ORDER BY r.session_id, r.agent_id, r.started_at, r.ordinal, r.request_key
"""
_MAIN_STEPS = """
SELECT r.session_id, r.started_at, r.model, r.speed, r.inference_geo, r.service_tier,
    r.context_read_tokens + r.context_5m_tokens + r.context_1h_tokens, r.context_1h_tokens > 0,
    coalesce(b.expected, g.request_key IS NULL)
FROM requests r LEFT JOIN request_gaps g USING (request_key) LEFT JOIN rebuilds b USING (request_key)
WHERE starts_with(r.chain, 'main') AND r.session_id IN (SELECT session_id FROM requests WHERE agent_id IS NOT NULL)
ORDER BY r.session_id, r.started_at, r.ordinal, r.request_key
"""


def _alternatives(
    connection: duckdb.DuckDBPyConnection, prices: PriceTable | None
) -> dict[tuple[str, str], tuple[Decimal, Decimal]]:
    """(session, agent) -> its cost as a fork and inline, where the main conversation before it is known and priced."""
    main: dict[str, list[tuple[Any, ...]]] = {}
    for row in connection.execute(_MAIN_STEPS).fetchall():
        main.setdefault(row[0], []).append(row)
    bounds = {session: _next_boundary([row[8] for row in rows]) for session, rows in main.items()}
    found = {}
    for (session, agent), group in groupby(connection.execute(_AGENT_STEPS).fetchall(), key=lambda row: row[:2]):
        steps = list(group)
        rows = main.get(session, [])
        before = bisect_right(rows, steps[0][2], key=lambda row: row[1])
        if not before:
            continue
        after = bisect_right(rows, steps[-1][3], key=lambda row: row[1])
        last = rows[before - 1]
        later = max(0, bounds[session][before] - after)
        parent = _parent(last, later, prices)
        if parent:
            own = [Step(*row[4:]) for row in steps]
            found[session, agent] = (fork_cost(own, parent), inline_cost(own, parent))
    return found


def _next_boundary(bounds: Sequence[bool]) -> list[int]:
    """For each place, the first at or after it where the context was begun anew; the length where there is none."""
    following = [len(bounds)] * (len(bounds) + 1)
    for place in range(len(bounds) - 1, -1, -1):
        following[place] = place if bounds[place] else following[place + 1]
    return following


def _parent(row: tuple[Any, ...], later: int, prices: PriceTable | None) -> Parent | None:
    _, at, model, speed, geo, tier, context, hour, _ = row
    rates = rates_for(
        model,
        at.replace(tzinfo=UTC),
        prompt_tokens=context,
        speed=speed,
        inference_geo=geo,
        service_tier=tier,
        overrides=prices,
    )
    if rates is None:
        return None
    return Parent(
        context_tokens=context,
        later_requests=later,
        input_rate=rates.input / 1_000_000,
        read_rate=rates.cache_read / 1_000_000,
        write_5m_rate=rates.cache_creation_5m / 1_000_000,
        write_rate=(rates.cache_creation_1h if hour else rates.cache_creation_5m) / 1_000_000,
        output_rate=rates.output / 1_000_000,
    )


def spawn_rows(connection: duckdb.DuckDBPyConnection, known: Writers) -> tuple[SpawnRow, ...]:
    spawned = connection.execute(
        """SELECT session_id, agent_id, agent_type, model, cwd, started_at, first_line_at, first_read_tokens,
            first_creation_tokens, project, coalesce(requests, 0), cost_usd, cold_start_usd
        FROM subagent_spawns WHERE request_key IN (SELECT request_key FROM shown)
        ORDER BY started_at, agent_id, session_id"""
    ).fetchall()
    verdicts = judge([Spawn(*row[:9]) for row in spawned], known)
    return tuple(
        SpawnRow(
            session_id=row[0],
            project=row[9],
            agent_id=row[1],
            agent_type=row[2],
            model=row[3],
            started_at=row[5].replace(tzinfo=UTC),
            requests=row[10],
            first_read_tokens=row[7],
            first_creation_tokens=row[8],
            verdict=verdict.name,
            whose=verdict.whose,
            position_tokens=verdict.position_tokens,
            written_at=verdict.written_at and verdict.written_at.replace(tzinfo=UTC),
            cost_usd=None if row[11] is None else money(row[11]),
            cold_start_usd=None if row[12] is None else money(row[12]),
        )
        for row, verdict in zip(spawned, verdicts, strict=True)
    )


def writers(connection: duckdb.DuckDBPyConnection) -> Writers:
    """Every request in scope as others may read it, alive for the TTL of its chain's last write."""
    rows = connection.execute(
        """SELECT session_id, agent_id, model, cwd, started_at, first_line_at, context_read_tokens,
            context_read_tokens + context_5m_tokens + context_1h_tokens,
            coalesce(last_value(CASE WHEN context_1h_tokens > 0 THEN 3600 WHEN context_5m_tokens > 0 THEN 300 END
                IGNORE NULLS) OVER (PARTITION BY file_id, chain ORDER BY ordinal
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), 300)
        FROM requests ORDER BY started_at, request_key"""
    ).fetchall()
    return Writers(Writer(*row) for row in rows)


def first_requests(connection: duckdb.DuckDBPyConnection, known: Writers) -> tuple[FirstRequest, ...]:
    """The first own request of each chain in scope that has no predecessor, and whose cache it read."""
    rows = connection.execute(
        """SELECT r.session_id, r.agent_id, r.model, r.cwd, r.started_at, r.context_read_tokens, r.project, r.chain,
            r.first_line_at, r.context_5m_tokens + r.context_1h_tokens, r.input
        FROM chains c JOIN requests r USING (request_key)
        WHERE c.is_native AND r.request_key IN (SELECT request_key FROM shown)
            AND (c.file_id, c.chain, c.ordinal) IN (
                SELECT (file_id, chain, min(ordinal)) FROM chains GROUP BY file_id, chain)
        ORDER BY r.first_line_at, r.request_key"""
    ).fetchall()
    return tuple(_first(row, known) for row in rows)


def _first(row: tuple[Any, ...], known: Writers) -> FirstRequest:
    writer = warmed_by(First(*row[:6]), known)
    return FirstRequest(
        session_id=row[0],
        project=row[6],
        chain=row[7],
        timestamp=row[8].replace(tzinfo=UTC),
        model=row[2],
        cache_read_tokens=row[5],
        cache_creation_tokens=row[9],
        input_tokens=row[10],
        whose=name_of(writer, row[0]) if writer else None,
        written_at=writer.started_at.replace(tzinfo=UTC) if writer else None,
    )

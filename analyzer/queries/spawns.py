"""Every subagent in scope with its verdict, what agents cost, and what other ways of running them would have cost."""

from datetime import UTC
from typing import Any

import duckdb

from analyzer.prices import PriceTable
from analyzer.queries.scope import Scope, money, select
from analyzer.results import FirstRequest, SpawnRow, SubagentReport
from analyzer.sharing import First, Spawn, Writer, Writers, judge, name_of, warmed_by


def subagents(connection: duckdb.DuckDBPyConnection, scope: Scope, prices: PriceTable | None = None) -> SubagentReport:
    """Every subagent in scope, in order of its start, with the verdict on whose prefix its first request read."""
    select(connection, scope, prices)
    return SubagentReport(spawn_rows(connection, writers(connection)))


def spawn_rows(connection: duckdb.DuckDBPyConnection, known: Writers) -> tuple[SpawnRow, ...]:
    spawned = connection.execute(
        """SELECT session_id, agent_id, agent_type, model, cwd, started_at, first_line_at, first_read_tokens,
            first_creation_tokens, project, coalesce(requests, 0), cost_usd
        FROM subagent_spawns WHERE request_key IN (SELECT request_key FROM shown) ORDER BY started_at, agent_id"""
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
        FROM requests"""
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

"""Every subagent in scope with its verdict."""

from datetime import UTC

import duckdb

from analyzer.prices import PriceTable
from analyzer.queries.scope import Scope, money, select
from analyzer.results import SpawnRow, SubagentReport
from analyzer.sharing import Spawn, Writer, judge


def subagents(connection: duckdb.DuckDBPyConnection, scope: Scope, prices: PriceTable | None = None) -> SubagentReport:
    """Every subagent in scope, in order of its start, with the verdict on whose prefix its first request read."""
    select(connection, scope, prices)
    spawned = connection.execute(
        """SELECT session_id, agent_id, agent_type, model, cwd, started_at, first_line_at, first_read_tokens,
            first_creation_tokens, project, coalesce(requests, 0), cost_usd
        FROM subagent_spawns WHERE request_key IN (SELECT request_key FROM shown) ORDER BY started_at, agent_id"""
    ).fetchall()
    writers = connection.execute(
        """SELECT session_id, agent_id, model, cwd, started_at, first_line_at, context_read_tokens,
            context_read_tokens + context_5m_tokens + context_1h_tokens,
            CASE WHEN context_1h_tokens > 0 OR (context_5m_tokens = 0 AND agent_id IS NULL) THEN 3600 ELSE 300 END
        FROM requests"""
    ).fetchall()
    verdicts = judge([Spawn(*row[:9]) for row in spawned], [Writer(*row) for row in writers])
    return SubagentReport(
        tuple(
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
    )

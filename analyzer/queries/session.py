"""One session: its requests in time order, what stood between them, and its subagents."""

from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import duckdb

from analyzer.errors import UsageError
from analyzer.prices import PriceTable
from analyzer.queries.rebuilds import EXPECTED, judged
from analyzer.queries.scope import Scope, money, select
from analyzer.queries.signatures import signatures
from analyzer.queries.spawns import first_requests, spawn_rows, writers
from analyzer.results import Rebuild, SessionEvent, SessionReport, SessionRequest

LATEST = "latest"
CANDIDATES = 5
SHORT = 8

_REQUESTS = """
SELECT CASE WHEN starts_with(r.chain, 'main') THEN 'main' ELSE split_part(r.chain, '#', 1) END AS lane,
    r.message_id, r.agent_id, r.first_line_at, r.started_at, r.model, r.version, r.effort, r.speed, r.input,
    r.context_read_tokens, r.context_5m_tokens, r.context_1h_tokens, r.output_tokens, g.gap_s, g.ttl_s,
    g.readable_tokens, coalesce(g.lost_tokens, 0), c.request_key IS NOT NULL, w.cost_usd, f.path || ':' || r.ordinal,
    r.request_key
FROM shown r
JOIN files f USING (file_id)
LEFT JOIN request_gaps g USING (request_key)
LEFT JOIN (
    SELECT request_key FROM chains
    QUALIFY is_native AND row_number() OVER (PARTITION BY file_id, chain ORDER BY ordinal) = 1
) c USING (request_key)
LEFT JOIN (
    SELECT request_key,
        sum(input_usd + cache_read_usd + creation_5m_usd + creation_1h_usd + output_usd + web_search_usd) AS cost_usd
    FROM rows GROUP BY request_key
) w USING (request_key)
WHERE r.session_id = ?
-- by time, but in its chain's order where the clock was set back
ORDER BY max(r.first_line_at) OVER (PARTITION BY r.file_id, r.chain ORDER BY r.ordinal), r.file_id, r.ordinal,
    r.request_key
"""
_EVENTS = """
SELECT e."at", CASE WHEN starts_with(e.chain, 'main') THEN 'main' ELSE split_part(e.chain, '#', 1) END, e.kind,
    e.detail, f.path || ':' || e.ordinal
FROM events e JOIN files f USING (file_id)
WHERE e.file_id IN (SELECT DISTINCT file_id FROM shown WHERE session_id = ?)
    AND e.kind NOT IN ('cost_state', 'synthetic')
ORDER BY e."at", e.file_id, e.ordinal, e.kind, e.detail
"""


def session(
    connection: duckdb.DuckDBPyConnection, scope: Scope, asked: str, prices: PriceTable | None = None
) -> SessionReport:
    """The session whose id is or begins with `asked`, or the `latest`.

    Raises UsageError where no session or more than one fits.
    """
    select(connection, scope, prices)
    session_id, project = _resolve(connection, asked)
    rebuilds, patterns = signatures(connection, judged(connection))
    by_key = {rebuild.request_key: rebuild for rebuild in rebuilds if rebuild.session_id == session_id}
    known = writers(connection)
    count: dict[str, int] = {}
    requests = []
    for row in connection.execute(_REQUESTS, [session_id]).fetchall():
        count[row[0]] = count.get(row[0], 0) + 1
        requests.append(_request(row, count[row[0]], by_key.get(row[21])))
    events = connection.execute(_EVENTS, [session_id]).fetchall()
    firsts = (first for first in first_requests(connection, known) if first.session_id == session_id)
    return SessionReport(
        session_id=session_id,
        project=project,
        timezone=scope.timezone,
        requests=tuple(requests),
        events=tuple(SessionEvent(_utc(row[0]), *row[1:]) for row in events),
        agents=tuple(spawn for spawn in spawn_rows(connection, known) if spawn.session_id == session_id),
        signatures=tuple(row for row in patterns if row.session_id == session_id),
        first=next((first for first in firsts if first.chain.startswith("main")), None),
    )


def _resolve(connection: duckdb.DuckDBPyConnection, asked: str) -> tuple[str, str]:
    rows = connection.execute(
        """SELECT session_id, min_by(project, (first_line_at, request_key)), max(first_line_at) FROM shown
        GROUP BY session_id ORDER BY 3 DESC, session_id"""
    ).fetchall()
    if not rows:
        raise UsageError("no session in this scope", "give a PATH, or drop --since, --until, --project and --model")
    wanted = asked.strip().removesuffix(".jsonl").lower()
    if wanted == LATEST:
        return rows[0][0], rows[0][1]
    found = [row for row in rows if row[0].lower() == wanted]
    found = found or [row for row in rows if wanted and row[0].lower().startswith(wanted)]
    if len(found) == 1:
        return found[0][0], found[0][1]
    if found:
        names = _distinct([row[0] for row in found[:CANDIDATES]])
        more = f" and {len(found) - CANDIDATES} more" if len(found) > CANDIDATES else ""
        raise UsageError(f"{len(found)} sessions begin with {asked}", f"give more of the id: {', '.join(names)}{more}")
    ids = [row[0] for row in rows]
    near = get_close_matches(wanted, [name[: max(SHORT, len(wanted))] for name in ids], 3, 0.6)
    names = near or _distinct(ids[:3])
    what = "did you mean" if near else "the latest are"
    raise UsageError(f"no session begins with {asked}", f"{what} {', '.join(names)}; or say `latest`")


def _distinct(names: list[str]) -> list[str]:
    """Each name cut to the shortest length, from 8 on, at which all differ."""
    length = SHORT
    while len({name[:length] for name in names}) < len(names):
        length += 1
    return [name[:length] for name in names]


def _request(row: tuple[Any, ...], n: int, rebuild: Rebuild | None) -> SessionRequest:
    mark = "first" if row[18] else None
    if rebuild:
        mark = "expected" if rebuild.cause in EXPECTED else "miss"
    return SessionRequest(
        lane=row[0],
        n=n,
        message_id=row[1],
        agent_id=row[2],
        timestamp=row[3].replace(tzinfo=UTC),
        started_at=row[4].replace(tzinfo=UTC),
        model=row[5],
        version=row[6],
        effort=row[7],
        speed=row[8],
        input_tokens=row[9],
        cache_read_tokens=row[10],
        cache_creation_5m_tokens=row[11],
        cache_creation_1h_tokens=row[12],
        output_tokens=row[13],
        gap_s=row[14],
        ttl_s=row[15],
        readable_tokens=row[16],
        lost_tokens=row[17],
        mark=mark,
        rebuild=rebuild,
        cost_usd=None if row[19] is None else money(row[19]),
        location=row[20],
    )


def _utc(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at else None

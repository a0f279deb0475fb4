"""What to change, from the rows that `select` opened: the sums that each finding in `analyzer.advice` needs."""

from collections.abc import Sequence
from decimal import Decimal
from statistics import median

import duckdb

from analyzer.advice import LONG_TOKENS, EarlySpawn, LongChain, LongStep, Pause, TtlOption, findings
from analyzer.database import replace
from analyzer.queries.rebuilds import EXPECTED, judged
from analyzer.queries.scope import money
from analyzer.queries.signatures import signatures
from analyzer.results import Finding, Rebuild
from analyzer.sharing import Spawn, too_early
from analyzer.signatures import version_order

EXPIRED = ("ttl_expired_5m", "ttl_expired_1h")
COMPACTED_TO = 50_000


def find(connection: duckdb.DuckDBPyConnection, spent_usd: Decimal) -> tuple[Finding, ...]:
    """Findings for the requests shown, largest saving first."""
    rebuilds, _ = signatures(connection, judged(connection))
    misses = [rebuild for rebuild in rebuilds if rebuild.cause not in EXPECTED]
    newest = connection.execute("SELECT DISTINCT version FROM shown WHERE version IS NOT NULL").fetchall()
    return findings(
        misses,
        _ttl_options(connection, misses),
        _pauses(connection, misses),
        _long_chains(connection),
        _compacted_to(connection),
        _early(connection),
        max((row[0] for row in newest), key=version_order, default=None),
        spent_usd,
    )


_TTL = """
WITH expired AS (SELECT unnest(?::VARCHAR[]) AS request_key),
requests_in_time AS (
    SELECT request_key,
        coalesce(epoch(started_at) - epoch(lag(started_at) OVER w), 1e9) AS since_last_s
    FROM requests WINDOW w AS (PARTITION BY model, project ORDER BY started_at, request_key)
),
judged AS (
    SELECT s.project, CASE WHEN starts_with(s.chain, 'main') THEN 'main' ELSE 'agent' END AS bucket, w.request_key,
        w.counts_request, e.request_key IS NOT NULL AS has_expired,
        least(g.rewritten_tokens, w.cache_creation_5m_tokens) AS again_tokens,
        w.cache_creation_5m_tokens AS five, w.cache_creation_1h_tokens AS hour,
        w.creation_1h_rate - w.creation_5m_rate AS hour_over_five,
        w.creation_1h_rate - w.cache_read_rate AS hour_over_read,
        w.creation_5m_rate - w.cache_read_rate AS five_over_read,
        -- what a 5-minute entry would have lost: all that was read after a longer pause, or at the start of a chain
        -- with no like request in the 5 minutes before it
        CASE
            WHEN g.request_key IS NULL THEN
                CASE WHEN w.cache_creation_1h_tokens > 0 AND t.since_last_s > 300 THEN w.cache_read_tokens ELSE 0 END
            WHEN g.ttl_s = 3600 AND coalesce(g.gap_s, 1e9) > 300 THEN least(w.cache_read_tokens, g.readable_tokens)
            ELSE 0
        END AS unread_tokens
    FROM rows w
    JOIN shown s USING (request_key)
    JOIN requests_in_time t USING (request_key)
    LEFT JOIN request_gaps g USING (request_key)
    LEFT JOIN expired e USING (request_key)
    WHERE w.priced
)
SELECT project, bucket,
    sum(CASE WHEN has_expired AND counts_request THEN again_tokens::DECIMAL(15,0) * hour_over_read ELSE 0 END)
        - sum(five::DECIMAL(15,0) * hour_over_five),
    sum(hour::DECIMAL(15,0) * hour_over_five)
        - sum(CASE WHEN counts_request THEN unread_tokens::DECIMAL(15,0) * five_over_read ELSE 0 END),
    count(*) FILTER (counts_request), list(request_key ORDER BY request_key) FILTER (has_expired AND counts_request)
FROM judged GROUP BY project, bucket ORDER BY project, bucket
"""


def _ttl_options(connection: duckdb.DuckDBPyConnection, misses: Sequence[Rebuild]) -> list[TtlOption]:
    keys = [
        miss.request_key
        for miss in misses
        if miss.cause == "ttl_expired_5m" and miss.gap_s is not None and miss.gap_s <= 3600
    ]
    return [
        TtlOption(project, bucket, money(hour), money(five), requests, tuple(expired or ()))
        for project, bucket, hour, five, requests, expired in connection.execute(_TTL, [keys]).fetchall()
    ]


def _pauses(connection: duckdb.DuckDBPyConnection, misses: Sequence[Rebuild]) -> list[Pause]:
    expired = {miss.request_key: miss for miss in misses if miss.cause in EXPIRED and miss.chain.startswith("main")}
    rates = connection.execute(
        """SELECT request_key, cache_read_rate, (output_usd / nullif(output_tokens, 0))::DECIMAL(20,15) FROM rows
        WHERE counts_request AND priced AND request_key IN (SELECT unnest(?::VARCHAR[]))""",
        [list(expired)],
    ).fetchall()
    found = []
    for key, read, output in rates:
        miss = expired[key]
        if miss.gap_s is not None and miss.ttl_s is not None:
            rewrite = miss.rewrite_cost_usd or Decimal(0)
            found.append(Pause(key, miss.gap_s, miss.ttl_s, miss.readable_tokens, rewrite, read, money(output)))
    return found


def _long_chains(connection: duckdb.DuckDBPyConnection) -> list[LongChain]:
    """Main conversations above the limit, from their first request above it on: nothing changes before."""
    prompt = "s.input + s.context_read_tokens + s.context_5m_tokens + s.context_1h_tokens"
    replace(
        connection,
        "TABLE",
        "long_chains",
        f"""SELECT row_number() OVER (ORDER BY s.file_id, s.chain) AS number, s.file_id, s.chain,
            min(s.session_id) AS session_id, min(s.ordinal) AS since
        FROM shown s JOIN rows w USING (request_key)
        WHERE w.counts_request AND w.priced AND starts_with(s.chain, 'main') AND {prompt} > {LONG_TOKENS}
        GROUP BY s.file_id, s.chain""",
    )
    heads = connection.execute(
        "SELECT session_id, path || ':' || since FROM long_chains JOIN files USING (file_id) ORDER BY number"
    ).fetchall()
    steps: list[list[LongStep]] = [[] for _ in heads]
    for number, *step in connection.execute(
        f"""SELECT l.number, {prompt}, s.context_read_tokens, coalesce(b.expected, false), w.cache_read_rate,
            CASE WHEN s.context_1h_tokens > 0 THEN w.creation_1h_rate ELSE w.creation_5m_rate END,
            coalesce((w.output_usd / nullif(w.output_tokens, 0))::DECIMAL(20,15), 0)
        FROM long_chains l
        JOIN shown s ON s.file_id = l.file_id AND s.chain = l.chain AND s.ordinal >= l.since
        JOIN rows w USING (request_key)
        LEFT JOIN rebuilds b USING (request_key)
        WHERE w.counts_request AND w.priced ORDER BY l.number, s.ordinal"""
    ).fetchall():
        steps[number - 1].append(LongStep(*step))
    return [LongChain(head[0], head[1], tuple(those)) for head, those in zip(heads, steps, strict=True)]


def _compacted_to(connection: duckdb.DuckDBPyConnection) -> int:
    """The median prompt after a compaction in these logs; 50,000 tokens where there are fewer than three."""
    rows = connection.execute(
        """SELECT s.input + s.context_read_tokens + s.context_5m_tokens + s.context_1h_tokens
        FROM shown s JOIN rebuilds b USING (request_key) WHERE b.expected AND starts_with(s.chain, 'main')"""
    ).fetchall()
    return int(median(row[0] for row in rows)) if len(rows) >= 3 else COMPACTED_TO


def _early(connection: duckdb.DuckDBPyConnection) -> list[EarlySpawn]:
    rows = connection.execute(
        """SELECT p.session_id, p.agent_id, p.agent_type, p.model, p.cwd, p.started_at, p.first_line_at,
            p.first_read_tokens, p.first_creation_tokens, f.path || ':' || s.ordinal, w.cache_read_rate,
            CASE WHEN s.context_1h_tokens > 0 THEN w.creation_1h_rate ELSE w.creation_5m_rate END
        FROM subagent_spawns p JOIN shown s USING (request_key) JOIN rows w USING (request_key)
        JOIN files f ON f.file_id = s.file_id
        WHERE w.counts_request AND w.priced ORDER BY p.started_at, p.agent_id, p.session_id"""
    ).fetchall()
    reads: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row[7]:
            reads.setdefault((row[2], row[3]), []).append(row[7])
    early = too_early([Spawn(*row[:9]) for row in rows])
    found = []
    for row in rows:
        like = reads.get((row[2], row[3]))
        if row[7] == 0 and (row[0], row[1]) in early and like:
            found.append(EarlySpawn(row[0], row[2], row[9], min(int(median(like)), row[8]), row[11], row[10]))
    return found

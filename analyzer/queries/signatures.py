"""Which known cache bugs the chains in scope show: rebuilds in, the same rebuilds with their signature out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from decimal import Decimal
from itertools import groupby

import duckdb

from analyzer.results import Rebuild, SignatureRow
from analyzer.signatures import MEANING, MIN_WRITES, Signature, Step, Writes, detect, ttl_flip, version_order

_STEPS = """
WITH resumes AS (SELECT file_id, chain, ordinal FROM events WHERE kind = 'session_start' AND detail = 'resume'),
missed AS (SELECT DISTINCT file_id, chain FROM rebuilds WHERE NOT expected)
SELECT g.file_id, g.chain, g.request_key, g.read_tokens, g.creation_tokens, coalesce(NOT b.expected, false),
    coalesce(g.gap_s <= g.ttl_s, false), coalesce(k.after_prompt, false),
    coalesce(k.entrypoint <> q.entrypoint, false) OR EXISTS (
        SELECT 1 FROM resumes e WHERE e.file_id = g.file_id AND e.ordinal > g.previous_ordinal
        AND e.ordinal <= g.ordinal AND split_part(e.chain, '#', 1) = split_part(g.chain, '#', 1)),
    k.version, q.version
FROM missed
JOIN request_gaps g USING (file_id, chain)
LEFT JOIN rebuilds b USING (request_key)
JOIN sightings k ON k.file_id = g.file_id AND k.chain = g.chain AND k.ordinal = g.ordinal
JOIN sightings q ON q.file_id = g.file_id AND q.chain = g.chain AND q.ordinal = g.previous_ordinal
ORDER BY g.file_id, g.chain, g.ordinal
"""
_WRITES = """count(*) FILTER (creation_1h > 0), count(*) FILTER (creation_5m > 0 AND creation_1h = 0),
    list(DISTINCT session_id), min(first_line_at)"""


def signatures(
    connection: duckdb.DuckDBPyConnection, rebuilds: Sequence[Rebuild]
) -> tuple[list[Rebuild], tuple[SignatureRow, ...]]:
    """Each miss with the name of the bug whose pattern it is part of; one row per pattern and chain, dearest first."""
    named, patterns = _signed(connection, rebuilds)
    named, flips = _flips(connection, named)
    rows = patterns + flips
    return named, tuple(sorted(rows, key=lambda row: (-row.rewrite_cost_usd, -row.lost_tokens, row.name, row.chain)))


def _signed(
    connection: duckdb.DuckDBPyConnection, rebuilds: Sequence[Rebuild]
) -> tuple[list[Rebuild], list[SignatureRow]]:
    by_key = {rebuild.request_key: rebuild for rebuild in rebuilds}
    rows: list[SignatureRow] = []
    steps = connection.execute(_STEPS).fetchall()
    for (_, chain), group in groupby(steps, key=lambda row: (row[0], row[1])):
        for signature in detect(chain, [Step(*row[2:]) for row in group]):
            held = [by_key[key] for key in signature.keys if key in by_key]
            if held:
                rows.append(_row(signature, held))
            by_key |= {miss.request_key: replace(miss, signature=signature.name) for miss in held}
    return [by_key[rebuild.request_key] for rebuild in rebuilds], rows


def _row(signature: Signature, held: Sequence[Rebuild]) -> SignatureRow:
    first = held[0]
    return SignatureRow(
        name=signature.name,
        meaning=MEANING[signature.name],
        session_id=first.session_id,
        project=first.project,
        chain=first.chain,
        misses=len(held),
        lost_tokens=sum(miss.lost_tokens for miss in held),
        rewrite_cost_usd=sum((miss.rewrite_cost_usd or Decimal(0) for miss in held), Decimal(0)),
        versions=tuple(sorted({miss.version for miss in held if miss.version}, key=version_order)),
        evidence=(signature.evidence, first.location),
    )


def _flips(
    connection: duckdb.DuckDBPyConnection, rebuilds: Sequence[Rebuild]
) -> tuple[list[Rebuild], list[SignatureRow]]:
    """1h -> 5m within a session, between two versions, or between two days; only main conversations count."""
    named = list(rebuilds)
    rows: list[SignatureRow] = []

    def claim(evidence: str, session: tuple[str, str, str], holds: Callable[[Rebuild], bool]) -> None:
        held = []
        for place, miss in enumerate(named):
            within = miss.gap_s is not None and miss.gap_s <= 3600 and miss.chain.startswith("main")
            if miss.cause == "ttl_expired_5m" and miss.signature is None and within and holds(miss):
                named[place] = replace(miss, signature="ttl_flip")
                held.append(miss)
        rows.append(
            SignatureRow(
                name="ttl_flip",
                meaning=MEANING["ttl_flip"],
                session_id=session[0],
                project=session[1],
                chain=session[2],
                misses=len(held),
                lost_tokens=sum(miss.lost_tokens for miss in held),
                rewrite_cost_usd=sum((miss.rewrite_cost_usd or Decimal(0) for miss in held), Decimal(0)),
                versions=tuple(sorted({miss.version for miss in held if miss.version}, key=version_order)),
                evidence=(evidence,),
            )
        )

    within = connection.execute(
        """SELECT r.session_id, r.project, r.chain, count(*) FILTER (creation_1h > 0) AS hour,
            count(*) FILTER (creation_5m > 0 AND creation_1h = 0) AS five,
            min(first_line_at) FILTER (creation_5m > 0 AND creation_1h = 0) AS since
        FROM shown r WHERE starts_with(chain, 'main') GROUP BY session_id, project, chain, file_id
        HAVING hour >= ? AND five >= ? AND
            max(ordinal) FILTER (creation_1h > 0) < min(ordinal) FILTER (creation_5m > 0 AND creation_1h = 0)
        ORDER BY since, session_id, chain, project""",
        [MIN_WRITES, MIN_WRITES],
    ).fetchall()
    for session, project, chain, hour, five, since in within:
        claim(
            f"{hour:,} writes of 1h, then {five:,} of 5m from {since:%Y-%m-%d %H:%M} UTC on",
            (session, project, chain),
            lambda miss, session=session, chain=chain: (miss.session_id, miss.chain) == (session, chain),  # type: ignore[misc]
        )
    versions = connection.execute(
        f"SELECT version, {_WRITES} FROM shown WHERE starts_with(chain, 'main') AND version IS NOT NULL GROUP BY 1"
    ).fetchall()
    versions.sort(key=lambda row: version_order(row[0]))
    flip = ttl_flip([Writes(row[0], row[1], row[2], frozenset(row[3])) for row in versions if row[1] + row[2]])
    if flip:
        claim(
            f"1h up to version {flip[0]}, 5m from {flip[1]} on",
            ("", "", ""),
            lambda miss: version_order(miss.version or "") >= version_order(flip[1]),
        )
    days = connection.execute(
        f"SELECT day::VARCHAR, {_WRITES} FROM shown WHERE starts_with(chain, 'main') GROUP BY 1 ORDER BY 1"
    ).fetchall()
    began = {row[0]: row[4].replace(tzinfo=UTC) for row in days}
    flip_day = ttl_flip([Writes(row[0], row[1], row[2], frozenset(row[3])) for row in days if row[1] + row[2]])
    if flip_day and not flip:
        claim(
            f"1h up to {flip_day[0]}, 5m from {flip_day[1]} on",
            ("", "", ""),
            lambda miss: miss.timestamp >= began[flip_day[1]],
        )
    return named, rows

"""Every rebuild in scope with its cause."""

from datetime import UTC
from decimal import Decimal

import duckdb

from analyzer.causes import ADVICE, Cause, cause_of
from analyzer.prices import PriceTable
from analyzer.queries.scope import Scope, money, select
from analyzer.results import CauseRow, MissReport, Rebuild


def misses(
    connection: duckdb.DuckDBPyConnection,
    scope: Scope,
    prices: PriceTable | None = None,
    *,
    ignore_diagnostics: bool = False,
) -> MissReport:
    """Every rebuild in scope, in time order, with its cause; `by_cause` counts misses only, dearest first."""
    select(connection, scope, prices)
    cursor = connection.execute(
        """SELECT e.*, s.rewrite_usd FROM rebuild_evidence e JOIN shown_rebuilds s USING (request_key)
        ORDER BY e."at", e.request_key"""
    )
    names = [column[0] for column in cursor.description or ()]
    found: dict[bool, list[Rebuild]] = {True: [], False: []}
    for values in cursor.fetchall():
        row = dict(zip(names, values, strict=True))
        if row["expected"]:
            kinds = {event["kind"] for event in row["events"] or ()}
            name = "microcompaction" if kinds == {"microcompact_boundary"} else "compaction"
            cause, advice = Cause(name, "high", f"{name} between the two requests"), ""
        else:
            cause = cause_of(row, ignore_diagnostics=ignore_diagnostics)
            advice = ADVICE[cause.name]
        found[row["expected"]].append(
            Rebuild(
                session_id=row["session_id"],
                project=row["project"],
                chain=row["chain"],
                message_id=row["message_id"],
                timestamp=row["at"].replace(tzinfo=UTC),
                model=row["model"],
                version=row["version"],
                cause=cause.name,
                confidence=cause.confidence,
                evidence=tuple(part for part in (cause.evidence, f"{row['path']}:{row['ordinal']}") if part),
                gap_s=row["gap_s"],
                ttl_s=row["ttl_s"],
                readable_tokens=row["readable_tokens"],
                cache_read_tokens=row["read_tokens"],
                lost_tokens=row["lost_tokens"],
                rewritten_tokens=row["rewritten_tokens"],
                rewrite_cost_usd=None if row["rewrite_usd"] is None else money(row["rewrite_usd"]),
                advice=advice,
                diagnosis=row["diagnostics"],
            )
        )
    by_cause: dict[str, list[Rebuild]] = {}
    for miss in found[False]:
        by_cause.setdefault(miss.cause, []).append(miss)
    rows = [
        CauseRow(
            name,
            len(items),
            sum(item.lost_tokens for item in items),
            sum((item.rewrite_cost_usd or Decimal(0) for item in items), Decimal(0)),
        )
        for name, items in by_cause.items()
    ]
    rows.sort(key=lambda row: (-row.rewrite_cost_usd, -row.lost_tokens, row.cause))
    return MissReport(tuple(found[False]), tuple(found[True]), tuple(rows))

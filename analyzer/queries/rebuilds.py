"""Every rebuild in scope with its cause, and the known bugs whose pattern the chains show."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

import duckdb

from analyzer.causes import ADVICE, DELTA_EVENTS, Cause, cause_of, servers_of
from analyzer.errors import UsageError
from analyzer.prices import PriceTable
from analyzer.prompt_snapshots import Change, Snapshot, difference, read_snapshot
from analyzer.queries.scope import Scope, money, select
from analyzer.queries.signatures import signatures
from analyzer.queries.spawns import first_requests, writers
from analyzer.results import MissReport, MissRow, Rebuild
from analyzer.signatures import version_order

BOUNDARIES = (
    ("compaction", ("compact_boundary", "compact_summary")),
    ("microcompaction", ("microcompact_boundary",)),
    ("tool_clearing", ("context_edit",)),
    ("cleared", ("session_start",)),
)
EXPECTED = frozenset(name for name, _ in BOUNDARIES)


def misses(
    connection: duckdb.DuckDBPyConnection,
    scope: Scope,
    prices: PriceTable | None = None,
    *,
    ignore_diagnostics: bool = False,
    causes: Sequence[str] = (),
) -> MissReport:
    """Every rebuild in scope, in time order, with its cause; `causes` keeps only these.

    Signatures and first requests are those of the whole scope. Raises UsageError for a cause that is not one.
    """
    known = {*ADVICE, *EXPECTED}
    for cause in causes:
        if cause not in known:
            near = get_close_matches(cause, known, 1, 0.6)
            meant = f"did you mean {near[0]}? " if near else ""
            raise UsageError(f"unknown cause: {cause}", f"{meant}one of {', '.join(sorted(known))}")
    select(connection, scope, prices)
    found, patterns = signatures(connection, judged(connection, ignore_diagnostics=ignore_diagnostics))
    if causes:
        found = [rebuild for rebuild in found if rebuild.cause in causes]
    expected = tuple(rebuild for rebuild in found if rebuild.cause in EXPECTED)
    missed = tuple(rebuild for rebuild in found if rebuild.cause not in EXPECTED)
    weeks = {
        key: f"{year}-W{week:02}"
        for key, year, week in connection.execute(
            "SELECT request_key, isoyear(day), week(day) FROM requests SEMI JOIN shown_rebuilds USING (request_key)"
        ).fetchall()
    }
    return MissReport(
        misses=missed,
        expected_rebuilds=expected,
        by_cause=_dearest(_table(missed, (), lambda miss: miss.cause)),
        by_week=tuple(sorted(_table(missed, expected, lambda miss: weeks[miss.request_key]), key=lambda row: row.key)),
        by_version=tuple(
            sorted(
                _table(missed, expected, lambda miss: miss.version or "unknown"),
                key=lambda row: version_order(row.key),
            )
        ),
        signatures=patterns,
        first_requests=first_requests(connection, writers(connection)),
    )


def judged(connection: duckdb.DuckDBPyConnection, *, ignore_diagnostics: bool = False) -> list[Rebuild]:
    """The rebuilds of the scope that `select` opened, in time order."""
    cursor = connection.execute(
        """SELECT e.*, s.rewrite_usd FROM rebuild_evidence e JOIN shown_rebuilds s USING (request_key)
        ORDER BY e."at", e.request_key"""
    )
    names = [column[0] for column in cursor.description or ()]
    rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
    _compare_snapshots(connection, rows)
    return [_rebuild(row, ignore_diagnostics=ignore_diagnostics) for row in rows]


def _compare_snapshots(connection: duckdb.DuckDBPyConnection, rows: Sequence[dict[str, Any]]) -> None:
    """Give each row whose chain wrote a prompt snapshot since the previous request what differs from those before."""
    written: dict[tuple[int, str], list[tuple[int, Snapshot]]] = {}
    for file_id, chain, line, detail in connection.execute(
        """SELECT file_id, split_part(chain, '#', 1), ordinal, detail FROM events WHERE kind = 'prompt_snapshot'
        ORDER BY file_id, ordinal, detail"""
    ).fetchall():
        written.setdefault((file_id, chain), []).append((line, read_snapshot(detail)))
    for row in rows if written else ():
        before, after, last = Snapshot(), Snapshot(), None
        for line, snapshot in written.get((row["file_id"], row["chain"].partition("#")[0]), ()):
            if line <= row["previous_ordinal"]:
                before = before.then(snapshot)
            elif line <= row["ordinal"]:
                after, last = after.then(snapshot), line
        row["snapshot_change"], row["snapshot_line"] = difference(before, after), last


def _rebuild(row: dict[str, Any], *, ignore_diagnostics: bool) -> Rebuild:
    if row["expected"]:
        cause, advice = _boundary(row["events"] or ()), ""
    else:
        cause = cause_of(row, ignore_diagnostics=ignore_diagnostics)
        advice = ADVICE[cause.name]
    lines = (row["ordinal"], row["previous_ordinal"], *(() if cause.line is None else (cause.line,)))
    return Rebuild(
        session_id=row["session_id"],
        project=row["project"],
        chain=row["chain"],
        message_id=row["message_id"],
        timestamp=row["at"].replace(tzinfo=UTC),
        model=row["model"],
        version=row["version"],
        cause=cause.name,
        confidence=cause.confidence,
        evidence=(*((cause.evidence,) if cause.evidence else ()), *(f"{row['path']}:{line}" for line in lines)),
        gap_s=row["gap_s"],
        ttl_s=row["ttl_s"],
        readable_tokens=row["readable_tokens"],
        cache_read_tokens=row["read_tokens"],
        lost_tokens=row["lost_tokens"],
        rewritten_tokens=row["rewritten_tokens"],
        rewrite_cost_usd=None if row["rewrite_usd"] is None else money(row["rewrite_usd"]),
        advice=advice,
        diagnosis=row["diagnostics"],
        servers=tuple(sorted(_servers(row))),
        location=f"{row['path']}:{row['ordinal']}",
        request_key=row["request_key"],
    )


def _servers(row: dict[str, Any]) -> set[str]:
    """MCP servers whose tools or instructions changed, by the deltas or by the prompt snapshots."""
    change: Change | None = row.get("snapshot_change")
    named = servers_of("prompt_snapshot", ",".join(change.tools)) if change else frozenset()
    deltas = (event for event in row["events"] or () if event["kind"] in DELTA_EVENTS)
    return set(named).union(*(servers_of(event["kind"], event["detail"]) for event in deltas))


def _boundary(events: Sequence[dict[str, Any]]) -> Cause:
    for name, kinds in BOUNDARIES:
        for event in events:
            if event["kind"] in kinds:
                return Cause(name, "high", f"{event['kind']} between the two requests", event["ordinal"])
    raise AssertionError("an expected rebuild has a boundary")


def _dearest(rows: Iterable[MissRow]) -> tuple[MissRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.rewrite_cost_usd, -row.lost_tokens, row.key)))


def _table(misses: Iterable[Rebuild], expected: Iterable[Rebuild], key: Callable[[Rebuild], str]) -> list[MissRow]:
    groups: dict[str, tuple[list[Rebuild], list[Rebuild]]] = {}
    for place, rebuilds in enumerate((misses, expected)):
        for rebuild in rebuilds:
            groups.setdefault(key(rebuild), ([], []))[place].append(rebuild)
    return [
        MissRow(
            name,
            len(missed),
            sum(miss.lost_tokens for miss in missed),
            sum((miss.rewrite_cost_usd or Decimal(0) for miss in missed), Decimal(0)),
            len(others),
        )
        for name, (missed, others) in groups.items()
    ]

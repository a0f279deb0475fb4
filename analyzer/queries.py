"""One function per question: database rows -> typed results. The only reader of the views."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import duckdb

from analyzer import __version__
from analyzer.causes import ADVICE, Cause, cause_of
from analyzer.database import materialize, view_grains
from analyzer.errors import QueryError, UsageError
from analyzer.prices import PriceTable, is_regional, price_source, rates_for
from analyzer.results import (
    AnalyzeReport,
    CauseRow,
    DayRow,
    GroupRow,
    IngestResult,
    Meta,
    MissReport,
    Quality,
    Rebuild,
    SpawnRow,
    SubagentReport,
    Totals,
    UnpricedModel,
)
from analyzer.sharing import Spawn, Writer, judge

LAST_PART = "regexp_extract({}, '([^/\\\\]*)[/\\\\]*$', 1)"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which files a report covers (None: all the database holds) and which requests of them it shows."""

    file_ids: tuple[int, ...] | None = None
    timezone: str = "UTC"
    since: str | None = None
    until: str | None = None
    projects: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    database: str = ":memory:"
    sample_data: bool = False


def analyze(
    connection: duckdb.DuckDBPyConnection,
    scope: Scope,
    ingested: IngestResult | None = None,
    prices: PriceTable | None = None,
) -> AnalyzeReport:
    """Everything the first screen shows. Raises UsageError for an unknown zone or an unreadable date."""
    since, until = select(connection, scope, prices)
    return AnalyzeReport(
        meta=Meta(
            __version__,
            scope.timezone,
            *price_source(),
            scope.described,
            since,
            until,
            scope.projects,
            scope.models,
            scope.database,
            scope.sample_data,
        ),
        totals=_totals(connection),
        by_model=_groups(connection, "rows.model", "rows.model"),
        by_project=_groups(connection, "rows.project", LAST_PART.format("rows.project")),
        by_session=_groups(
            connection,
            "rows.session_id",
            "left(rows.session_id, 8) || ' ' || " + LAST_PART.format("any_value(rows.project)"),
        ),
        by_day=tuple(
            DayRow(date.fromisoformat(row.key), row)
            for row in sorted(_groups(connection, "rows.day::VARCHAR", "rows.day::VARCHAR"), key=lambda row: row.key)
        ),
        by_agent_type=_groups(connection, "rows.agent_type", "rows.agent_type"),
        by_ttl=_groups(
            connection,
            "CASE WHEN cache_creation_1h_tokens > 0 THEN '1h' ELSE '5m' END",
            "CASE WHEN cache_creation_1h_tokens > 0 THEN '1h' ELSE '5m' END",
            "cache_creation_5m_tokens + cache_creation_1h_tokens > 0",
        ),
        by_version=_groups(connection, "coalesce(rows.version, 'unknown')", "coalesce(rows.version, 'unknown')"),
        quality=_quality(connection),
        ingest=ingested or IngestResult(),
    )


def select(
    connection: duckdb.DuckDBPyConnection, scope: Scope, prices: PriceTable | None = None
) -> tuple[datetime | None, datetime | None]:
    """Fill `shown` (requests), `rows` (priced) and `shown_rebuilds`; filters apply after all else was computed."""
    zone = _zone(scope.timezone)
    since, until = _instant(scope.since, zone, False), _instant(scope.until, zone, True)
    open_scope(connection, scope, prices)
    where, values = _filter(scope, since, until)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE shown AS SELECT * FROM requests WHERE {where}", values)
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE rows AS
        SELECT * FROM priced_rows WHERE request_key IN (SELECT request_key FROM shown)"""
    )
    _rewrites(connection)
    return since, until


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
                rewrite_cost_usd=None if row["rewrite_usd"] is None else _money(row["rewrite_usd"]),
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
                cost_usd=None if row[11] is None else _money(row[11]),
            )
            for row, verdict in zip(spawned, verdicts, strict=True)
        )
    )


def open_scope(connection: duckdb.DuckDBPyConnection, scope: Scope, prices: PriceTable | None = None) -> None:
    """Point the views at the files in scope and give every (model, day, band, ...) of them its rates."""
    connection.execute("SET VARIABLE scope_all = ?", [scope.file_ids is None])
    connection.execute("SET VARIABLE scope_files = ?::BIGINT[]", [list(scope.file_ids or ())])
    connection.execute("SET VARIABLE timezone = ?", [scope.timezone])
    materialize(connection, ("request_keys", "requests", "usage_rows"))
    prompt = "input_tokens + cache_read_tokens + cache_creation_5m_tokens + cache_creation_1h_tokens"
    wanted = connection.execute(
        f"""SELECT DISTINCT model, date_trunc('hour', first_line_at)::TIMESTAMP, CASE WHEN {prompt} <= 100000 THEN 0
            WHEN {prompt} <= 200000 THEN 1 ELSE 2 END, speed, inference_geo, service_tier FROM usage_rows"""
    ).fetchall()
    columns: list[list[Any]] = [[] for _ in range(13)]
    for model, hour, band, speed, geo, tier in wanted:
        rates = rates_for(
            model,
            hour.replace(tzinfo=UTC),
            prompt_tokens=(1, 100_001, 200_001)[band],
            speed=speed,
            inference_geo=geo,
            service_tier=tier,
            overrides=prices,
        )
        classes: list[str | None] = [None] * 6
        if rates is not None:
            per_mtok = (rates.input, rates.cache_read, rates.cache_creation_5m, rates.cache_creation_1h, rates.output)
            classes = [*(f"{rate / 1_000_000:f}" for rate in per_mtok), f"{rates.web_search_usd:f}"]
        row = (model, hour, band, speed, geo, tier, rates is not None, *classes)
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    connection.execute("DELETE FROM rates")
    types = ("VARCHAR", "TIMESTAMP", "TINYINT", "VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN", *["VARCHAR"] * 6)
    values = ", ".join(f"unnest(?::{name}[])" for name in types)
    connection.execute(f"INSERT INTO rates SELECT {values}", columns)
    materialize(connection, ("priced_rows", "chains", "request_gaps", "rebuilds"))


def _rewrites(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE shown_rebuilds AS
        SELECT b.request_key, b.expected, b.rewritten_tokens,
            (b.rewritten_tokens::DECIMAL(15,0) * (CASE WHEN b.creation_1h_tokens > 0 THEN r.creation_1h_rate
                ELSE r.creation_5m_rate END - r.cache_read_rate))::DECIMAL(38,15) AS rewrite_usd
        FROM rebuilds b JOIN rows r USING (request_key) WHERE r.counts_request"""
    )


def _filter(scope: Scope, since: datetime | None, until: datetime | None) -> tuple[str, list[Any]]:
    clauses, values = ["true"], list[Any]()
    if since:
        clauses.append("first_line_at >= ?")
        values.append(since.replace(tzinfo=None))
    if until:
        clauses.append("first_line_at < ?")
        values.append(until.replace(tzinfo=None))
    if scope.projects:
        clauses.append("EXISTS (SELECT 1 FROM unnest(?::VARCHAR[]) t(p) WHERE contains(lower(project), lower(p)))")
        values.append(list(scope.projects))
    if scope.models:
        clauses.append("EXISTS (SELECT 1 FROM unnest(?::VARCHAR[]) t(m) WHERE contains(lower(model), lower(m)))")
        values.append(list(scope.models))
    return " AND ".join(clauses), values


_SUMS = """count(*) FILTER (counts_request), coalesce(sum(input_tokens), 0)::BIGINT,
    coalesce(sum(cache_creation_5m_tokens), 0)::BIGINT, coalesce(sum(cache_creation_1h_tokens), 0)::BIGINT,
    coalesce(sum(cache_read_tokens), 0)::BIGINT, coalesce(sum(output_tokens), 0)::BIGINT,
    sum(input_usd + cache_read_usd + creation_5m_usd + creation_1h_usd + output_usd + web_search_usd),
    count(*) FILTER (counts_request AND NOT coalesce(priced, false)), min(first_line_at), max(first_line_at),
    count(*) FILTER (counts_request AND b.expected = false), count(*) FILTER (counts_request AND b.expected),
    coalesce(sum(b.rewritten_tokens) FILTER (counts_request), 0)::BIGINT"""


def _groups(connection: duckdb.DuckDBPyConnection, key: str, label: str, where: str = "true") -> tuple[GroupRow, ...]:
    cursor = connection.execute(
        f"""SELECT {key} AS key, {label}, {_SUMS} FROM rows LEFT JOIN shown_rebuilds b USING (request_key)
        WHERE {where} GROUP BY 1{"" if "any_value" in label else ", 2"} ORDER BY 9 DESC NULLS LAST, 7 DESC, 1"""
    )
    return tuple(_group_row(row) for row in cursor.fetchall())


def _group_row(row: Sequence[Any]) -> GroupRow:
    (
        key,
        label,
        requests,
        uncached,
        five,
        hour,
        read,
        output,
        cost,
        unpriced,
        first,
        last,
        misses,
        expected,
        rewritten,
    ) = row
    return GroupRow(
        key=key,
        label=label or key,
        requests=requests,
        input_tokens=uncached,
        cache_creation_5m_tokens=five,
        cache_creation_1h_tokens=hour,
        cache_read_tokens=read,
        output_tokens=output,
        cost_usd=_money(cost) if cost is not None else None,
        unpriced_requests=unpriced,
        first_at=first and first.replace(tzinfo=UTC),
        last_at=last and last.replace(tzinfo=UTC),
        misses=misses,
        expected_rebuilds=expected,
        rewritten_tokens=rewritten,
    )


def _totals(connection: duckdb.DuckDBPyConnection) -> Totals:
    total = connection.execute(
        f"SELECT 'total', 'total', {_SUMS} FROM rows LEFT JOIN shown_rebuilds b USING (request_key)"
    ).fetchone()
    split = connection.execute(
        """SELECT sum(input_usd), sum(creation_5m_usd), sum(creation_1h_usd), sum(cache_read_usd), sum(output_usd),
        sum(web_search_usd), sum(uncached_prompt_usd + output_usd + web_search_usd) FROM rows"""
    ).fetchone()
    rebuilds = connection.execute(
        """SELECT count(*) FILTER (NOT expected), coalesce(sum(rewritten_tokens) FILTER (NOT expected), 0)::BIGINT,
        sum(rewrite_usd) FILTER (NOT expected), count(*) FILTER (expected),
        coalesce(sum(rewritten_tokens) FILTER (expected), 0)::BIGINT, sum(rewrite_usd) FILTER (expected)
        FROM shown_rebuilds"""
    ).fetchone()
    assert total is not None
    assert split is not None
    assert rebuilds is not None
    return Totals(
        usage=_group_row(total),
        input_cost_usd=_money(split[0]),
        cache_creation_5m_cost_usd=_money(split[1]),
        cache_creation_1h_cost_usd=_money(split[2]),
        cache_read_cost_usd=_money(split[3]),
        output_cost_usd=_money(split[4]),
        web_search_cost_usd=_money(split[5]),
        uncached_cost_usd=_money(split[6]),
        misses=rebuilds[0],
        miss_rewritten_tokens=rebuilds[1],
        miss_rewrite_cost_usd=_money(rebuilds[2]),
        expected_rebuilds=rebuilds[3],
        expected_rewritten_tokens=rebuilds[4],
        expected_rewrite_cost_usd=_money(rebuilds[5]),
    )


def _quality(connection: duckdb.DuckDBPyConnection) -> Quality:
    scoped = """SELECT file_id FROM files
        WHERE getvariable('scope_all') OR file_id IN (SELECT unnest(getvariable('scope_files')::BIGINT[]))"""
    files = connection.execute(
        f"""SELECT count(*), count(*) FILTER (missing), coalesce(sum(lines), 0)::BIGINT,
        coalesce(sum(broken_lines), 0)::BIGINT, coalesce(sum(synthetic_lines), 0)::BIGINT,
        coalesce(sum(invalid_fields), 0)::BIGINT, coalesce(sum(titles), 0)::BIGINT
        FROM files WHERE file_id IN ({scoped})"""
    ).fetchone()
    zero = connection.execute(
        """SELECT count(DISTINCT request_key) FROM request_keys
        WHERE request_key NOT IN (SELECT request_key FROM requests)"""
    ).fetchone()
    requests = connection.execute(
        """SELECT count(*) FILTER (files > 1), coalesce(sum(lines) - count(*), 0)::BIGINT, count(*) FILTER ("rank" = 2),
        count(*) FILTER (stop_reason IS NULL), count(*) FILTER (date_estimated),
        count(*) FILTER (service_tier = 'priority'), count(*) FILTER (creation_5m > 0 AND NOT has_split),
        count(*) FILTER (iterations IS NOT NULL) FROM shown"""
    ).fetchone()
    bedrock = connection.execute(
        "SELECT model, count(*) FROM shown WHERE starts_with(message_id, 'msg_bdrk_') GROUP BY 1"
    ).fetchall()
    events = dict(
        connection.execute(f"SELECT kind, count(*) FROM events WHERE file_id IN ({scoped}) GROUP BY 1").fetchall()
    )
    cost_state = connection.execute(
        f"""SELECT sum(usd) FROM (SELECT max(TRY_CAST(detail AS DECIMAL(18,6))) AS usd FROM events
        WHERE kind = 'cost_state' AND file_id IN ({scoped}) GROUP BY file_id)"""
    ).fetchone()
    unpriced = connection.execute(
        """SELECT model, count(*) FILTER (counts_request), sum(input_tokens + cache_read_tokens
        + cache_creation_5m_tokens + cache_creation_1h_tokens)::BIGINT, sum(output_tokens)::BIGINT
        FROM rows WHERE NOT coalesce(priced, false) GROUP BY 1 ORDER BY 2 DESC, 1"""
    ).fetchall()
    assert files is not None
    assert zero is not None
    assert requests is not None
    assert cost_state is not None
    return Quality(
        files=files[0],
        files_missing=files[1],
        lines=files[2],
        broken_lines=files[3],
        synthetic_lines=files[4],
        invalid_usage_fields=files[5],
        titles_without_usage=files[6],
        zero_usage_requests=zero[0],
        copied_requests=requests[0],
        split_lines_merged=requests[1],
        progress_only_requests=requests[2],
        output_lower_bound_requests=requests[3],
        date_estimated_requests=requests[4],
        priority_tier_requests=requests[5],
        ttl_assumed_5m_requests=requests[6],
        several_iterations_requests=requests[7],
        region_unknown_requests=sum(count for model, count in bedrock if not is_regional(model)),
        unpriced_requests=sum(row[1] for row in unpriced),
        unpriced_models=tuple(UnpricedModel(*row) for row in unpriced),
        compactions_without_usage=max(events.get("compact_boundary", 0), events.get("compact_summary", 0)),
        recaps_without_usage=events.get("away_summary", 0),
        api_error_retries=events.get("api_error", 0),
        interrupted_requests=events.get("interrupt", 0),
        cost_state_usd=cost_state[0],
    )


def _money(value: Any) -> Decimal:
    amount = Decimal(value or 0).normalize()
    return amount if amount else Decimal(0)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"unknown time zone: {name}", "use an IANA name such as Europe/Berlin or UTC") from error


def _instant(text: str | None, zone: ZoneInfo, end: bool) -> datetime | None:
    """A bare date is a day in `zone`, both ends inclusive; anything else is an ISO instant."""
    if text is None:
        return None
    try:
        if len(text) == 10:
            day = date.fromisoformat(text) + timedelta(days=1 if end else 0)
            return datetime.combine(day, time(), zone).astimezone(UTC)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"not a date: {text}", "use YYYY-MM-DD or an ISO 8601 time") from error
    return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)


def list_views(connection: duckdb.DuckDBPyConnection) -> tuple[list[str], list[tuple[object, ...]]]:
    """Each view with its grain and columns."""
    rows: list[tuple[object, ...]] = []
    for name, grain in view_grains():
        columns = connection.execute(f"DESCRIBE {name}").fetchall()
        rows.append((name, grain, ", ".join(column[0] for column in columns)))
    return ["view", "grain", "columns"], rows


def run_sql(
    connection: duckdb.DuckDBPyConnection, scope: Scope, query: str
) -> tuple[list[str], list[tuple[object, ...]]]:
    """One read-only statement. Raises QueryError for anything else, or for what DuckDB refuses."""
    open_scope(connection, scope)
    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1 or statements[0].type not in (
            duckdb.StatementType.SELECT,
            duckdb.StatementType.EXPLAIN,
        ):
            raise QueryError("only one SELECT is allowed", "run `ccache sql` without a query to list the views")
        connection.execute("SET enable_external_access = false")
        cursor = connection.execute(statements[0])
        return [column[0] for column in cursor.description or ()], cursor.fetchall()
    except duckdb.Error as error:
        raise QueryError(str(error).splitlines()[0], "run `ccache sql` without a query to list the views") from error

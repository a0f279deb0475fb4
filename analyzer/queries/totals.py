"""What was spent: totals, groups and the count of everything that is not in them."""

from collections.abc import Sequence
from datetime import UTC, date
from decimal import Decimal
from typing import Any

import duckdb

from analyzer import __version__
from analyzer.database import in_little_memory, replace
from analyzer.prices import PriceTable, is_regional, price_source
from analyzer.queries.findings import find
from analyzer.queries.scope import Scope, money, select
from analyzer.results import AnalyzeReport, DayRow, GroupRow, IngestResult, Meta, Quality, Totals, UnpricedModel

LAST_PART = "regexp_extract({}, '([^/\\\\]*)[/\\\\]*$', 1)"


def analyze(
    connection: duckdb.DuckDBPyConnection,
    scope: Scope,
    ingested: IngestResult | None = None,
    prices: PriceTable | None = None,
) -> AnalyzeReport:
    """Everything the first screen shows. Raises UsageError for an unknown zone or an unreadable date."""
    return in_little_memory(connection, lambda: _report(connection, scope, ingested or IngestResult(), prices))


def _report(
    connection: duckdb.DuckDBPyConnection, scope: Scope, ingested: IngestResult, prices: PriceTable | None
) -> AnalyzeReport:
    since, until = select(connection, scope, prices)
    replace(connection, "TABLE", "cells", _CELLS)
    totals = _totals(connection)
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
        totals=totals,
        findings=find(connection, totals.usage.cost_usd or Decimal(0)),
        by_model=_groups(connection, "model"),
        by_project=_groups(connection, "project", LAST_PART.format("project")),
        by_session=_groups(
            connection,
            "session_id",
            f"left(session_id, 8) || ' ' || {LAST_PART.format('min_by(project, (first_at, project))')}",
        ),
        by_day=tuple(
            DayRow(date.fromisoformat(row.key), row)
            for row in sorted(_groups(connection, "day::VARCHAR"), key=lambda row: row.key)
        ),
        by_agent_type=_groups(connection, "agent_type"),
        by_ttl=_groups(connection, "ttl"),
        by_version=_groups(connection, "coalesce(version, 'unknown')"),
        quality=_quality(connection, scope.filtered),
        ingest=ingested,
    )


_CELLS = """
SELECT model, project, session_id, day, agent_type, version,
    CASE WHEN cache_creation_1h_tokens > 0 THEN '1h' WHEN cache_creation_5m_tokens > 0 THEN '5m' END AS ttl,
    count(*) FILTER (counts_request) AS requests, sum(input_tokens) AS input_tokens,
    sum(cache_creation_5m_tokens) AS five_tokens, sum(cache_creation_1h_tokens) AS hour_tokens,
    sum(cache_read_tokens) AS read_tokens, sum(output_tokens) AS output_tokens,
    sum(input_usd + cache_read_usd + creation_5m_usd + creation_1h_usd + output_usd + web_search_usd) AS cost_usd,
    count(*) FILTER (counts_request AND NOT coalesce(priced, false)) AS unpriced, min(first_line_at) AS first_at,
    max(first_line_at) AS last_at, count(*) FILTER (counts_request AND b.expected = false) AS misses,
    count(*) FILTER (counts_request AND b.expected) AS expected,
    sum(b.rewritten_tokens) FILTER (counts_request) AS rewritten
FROM rows LEFT JOIN shown_rebuilds b USING (request_key) GROUP BY ALL
"""
_SUMS = """coalesce(sum(requests), 0)::BIGINT, coalesce(sum(input_tokens), 0)::BIGINT,
    coalesce(sum(five_tokens), 0)::BIGINT, coalesce(sum(hour_tokens), 0)::BIGINT,
    coalesce(sum(read_tokens), 0)::BIGINT, coalesce(sum(output_tokens), 0)::BIGINT, sum(cost_usd),
    coalesce(sum(unpriced), 0)::BIGINT, min(first_at), max(last_at), coalesce(sum(misses), 0)::BIGINT,
    coalesce(sum(expected), 0)::BIGINT, coalesce(sum(rewritten), 0)::BIGINT"""


def _groups(connection: duckdb.DuckDBPyConnection, key: str, label: str = "NULL") -> tuple[GroupRow, ...]:
    """The sums of `cells` by one of its dimensions, dearest first."""
    cursor = connection.execute(
        f"""SELECT {key} AS key, {label if "min_by" in label else f"any_value({label})"}, {_SUMS} FROM cells
        WHERE key IS NOT NULL GROUP BY 1 ORDER BY 9 DESC NULLS LAST, 7 DESC, 1"""
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
        cost_usd=money(cost) if cost is not None else None,
        unpriced_requests=unpriced,
        first_at=first and first.replace(tzinfo=UTC),
        last_at=last and last.replace(tzinfo=UTC),
        misses=misses,
        expected_rebuilds=expected,
        rewritten_tokens=rewritten,
    )


def _totals(connection: duckdb.DuckDBPyConnection) -> Totals:
    total = connection.execute(f"SELECT 'total', 'total', {_SUMS} FROM cells").fetchone()
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
        input_cost_usd=money(split[0]),
        cache_creation_5m_cost_usd=money(split[1]),
        cache_creation_1h_cost_usd=money(split[2]),
        cache_read_cost_usd=money(split[3]),
        output_cost_usd=money(split[4]),
        web_search_cost_usd=money(split[5]),
        uncached_cost_usd=money(split[6]),
        misses=rebuilds[0],
        miss_rewritten_tokens=rebuilds[1],
        miss_rewrite_cost_usd=money(rebuilds[2]),
        expected_rebuilds=rebuilds[3],
        expected_rewritten_tokens=rebuilds[4],
        expected_rewrite_cost_usd=money(rebuilds[5]),
    )


def _quality(connection: duckdb.DuckDBPyConnection, filtered: bool) -> Quality:
    """What files count for themselves is counted over all files in scope; with filters, over those that still show."""
    scoped = (
        "SELECT file_id FROM shown"
        if filtered
        else """SELECT file_id FROM files
        WHERE getvariable('scope_all') OR file_id IN (SELECT unnest(getvariable('scope_files')::BIGINT[]))"""
    )
    files = connection.execute(
        f"""SELECT count(*), count(*) FILTER (missing), coalesce(sum(lines), 0)::BIGINT,
        coalesce(sum(broken_lines), 0)::BIGINT, coalesce(sum(synthetic_lines), 0)::BIGINT,
        coalesce(sum(invalid_fields), 0)::BIGINT, coalesce(sum(titles), 0)::BIGINT
        FROM files WHERE file_id IN ({scoped})"""
    ).fetchone()
    zero = connection.execute(f"SELECT count(*) FROM zero_requests WHERE file_id IN ({scoped})").fetchone()
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
        cost_state_usd=None if filtered else cost_state[0],  # a total of all that Claude Code has run
    )

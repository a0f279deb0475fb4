"""Which files and requests a report covers: points the views at them and prices them."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import duckdb

from analyzer.database import materialize
from analyzer.errors import UsageError
from analyzer.prices import PriceTable, rates_for


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


def money(value: Any) -> Decimal:
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

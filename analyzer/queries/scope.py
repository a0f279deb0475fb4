"""Which files and requests a report covers: points the views at them and prices them."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import duckdb

from analyzer.database import create_views, drop, replace
from analyzer.errors import UsageError
from analyzer.prices import PriceTable
from analyzer.queries import kept


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

    @property
    def filtered(self) -> bool:
        """Whether some requests of its files may be left out."""
        return bool(self.since or self.until or self.projects or self.models)


def select(
    connection: duckdb.DuckDBPyConnection, scope: Scope, prices: PriceTable | None = None
) -> tuple[datetime | None, datetime | None]:
    """Make `shown` (requests), `rows` (priced) and `shown_rebuilds`; filters apply after all else was computed."""
    _check_zone(connection, scope.timezone)
    since = _instant(connection, scope.since, scope.timezone, False)
    until = _instant(connection, scope.until, scope.timezone, True)
    if since and until and until <= since:
        raise UsageError(f"--until {scope.until} is before --since {scope.since}", "swap them")
    open_scope(connection, scope, prices)
    where, values = _filter(scope, since, until)
    if not scope.filtered:
        replace(connection, "VIEW", "shown", "SELECT * FROM requests")
        replace(connection, "VIEW", "rows", "SELECT * FROM priced_rows")
    else:
        drop(connection, "shown")
        connection.execute(f"CREATE TEMP TABLE shown AS SELECT * FROM requests WHERE {where}", values)
        replace(connection, "TABLE", "rows", "SELECT * FROM priced_rows SEMI JOIN shown USING (request_key)")
    _rewrites(connection)
    return since, until


def open_scope(connection: duckdb.DuckDBPyConnection, scope: Scope, prices: PriceTable | None = None) -> None:
    """Point the views at the files in scope. At list prices only what depends on changed files is computed; the rest
    was kept, and serves wherever no other file says anything about the same requests, sessions and agents.
    """
    connection.execute("SET VARIABLE timezone = ?", [scope.timezone])
    held = connection.execute("SELECT count(*) FROM files").fetchone()
    whole = scope.file_ids is None or (held is not None and len(set(scope.file_ids)) == held[0])
    files = None if whole else scope.file_ids
    if prices is not None or not kept.refresh(connection, files):
        kept.point_at(connection, files)
        kept.compute(connection, prices)
    create_views(connection)


def _rewrites(connection: duckdb.DuckDBPyConnection) -> None:
    replace(
        connection,
        "TABLE",
        "shown_rebuilds",
        """SELECT b.request_key, b.expected, b.rewritten_tokens,
            (b.rewritten_tokens::DECIMAL(15,0) * (CASE WHEN b.creation_1h_tokens > 0 THEN r.creation_1h_rate
                ELSE r.creation_5m_rate END - r.cache_read_rate))::DECIMAL(38,15) AS rewrite_usd
        FROM rebuilds b JOIN rows r USING (request_key) WHERE r.counts_request""",
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
        values.append([_storable(part) for part in scope.projects])
    if scope.models:
        clauses.append("EXISTS (SELECT 1 FROM unnest(?::VARCHAR[]) t(m) WHERE contains(lower(model), lower(m)))")
        values.append([_storable(part) for part in scope.models])
    return " AND ".join(clauses), values


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def money(value: Any) -> Decimal:
    amount = Decimal(value or 0).normalize()
    return amount if amount else Decimal(0)


def _check_zone(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Days are DuckDB's, times on a screen Python's: both have to know the zone."""
    try:
        ZoneInfo(name)
        connection.execute("SELECT timezone(?, TIMESTAMP '2026-01-01')", [name]).fetchone()
    except (ZoneInfoNotFoundError, ValueError, OSError, duckdb.Error) as error:
        raise UsageError(f"unknown time zone: {name}", "use an IANA name such as Europe/Berlin or UTC") from error


def _instant(connection: duckdb.DuckDBPyConnection, text: str | None, zone: str, end: bool) -> datetime | None:
    """A bare date is a day in `zone`, both ends inclusive; anything else is an ISO instant."""
    if text is None:
        return None
    try:
        day = _day(text)
        at = datetime.fromisoformat(text) if day is None else datetime.combine(day, time())
        if at.tzinfo:
            return at.astimezone(UTC)
        if day is not None and end:
            if day == date.max:
                return None
            at += timedelta(days=1)
        row = connection.execute("SELECT timezone('UTC', timezone(?, ?::TIMESTAMP))", [zone, at]).fetchone()
        assert row is not None
        instant: datetime = row[0].replace(tzinfo=UTC)
        return instant
    except (ValueError, OverflowError, duckdb.Error) as error:
        raise UsageError(f"not a date: {text}", "use YYYY-MM-DD or an ISO 8601 time") from error


def _day(text: str) -> date | None:
    """A date without a time, in any ISO form."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None

"""The views for `ccache sql`: what there is, and one read-only statement on it."""

import duckdb

from analyzer.database import create_views, is_damage, view_grains
from analyzer.errors import QueryError
from analyzer.queries.scope import Scope, open_scope


def list_views(connection: duckdb.DuckDBPyConnection) -> tuple[list[str], list[tuple[object, ...]]]:
    """Each view with its grain and columns."""
    create_views(connection)
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
        # EXPLAIN ANALYZE runs what it explains
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise QueryError("only one SELECT is allowed", "run `ccache sql` without a query to list the views")
        if "enable_logging" in query.lower():  # DuckDB aborts the process where it may not write its log
            raise QueryError("enable_logging is not reading", "run `ccache sql` without a query to list the views")
        connection.execute("SET enable_external_access = false")
        connection.execute("BEGIN TRANSACTION READ ONLY")
        try:
            cursor = connection.execute(statements[0])
            return [column[0] for column in cursor.description or ()], cursor.fetchall()
        finally:
            connection.execute("ROLLBACK")
    except duckdb.Error as error:
        if is_damage(error):
            raise
        raise QueryError(str(error).splitlines()[0], "run `ccache sql` without a query to list the views") from error

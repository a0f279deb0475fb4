"""The DuckDB file: connect, schema, views. The only module that opens a connection."""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Literal, TypeVar

import duckdb

from analyzer.errors import DatabaseError

T = TypeVar("T")
SCHEMA_VERSION = 1
LOCK_WAIT_S = 30.0
TEMPORARY = "claude-ccache-"
"""How temporary folders begin; the process id follows, so that those of killed processes can be told and removed."""
_LITTLE_MEMORY, _MOST_MEMORY = "240MB", "1GB"
_ROW_GROUP = 16_384
"""Rows that are stored, and worked on, together; DuckDB's 122,880 would leave most of our tables to one thread."""
_LOCAL: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_NOT_OURS = "not a valid DuckDB"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_SQL = Path(__file__).parent / "sql"
VIEWS = (
    "request_keys",
    "requests",
    "zero_requests",
    "usage_rows",
    "priced_rows",
    "chains",
    "request_gaps",
    "rebuilds",
    "cache_misses",
    "expected_rebuilds",
    "rebuild_evidence",
    "subagent_spawns",
)

_TABLES = """
CREATE TABLE IF NOT EXISTS schema_version (version INTEGER);
CREATE TABLE IF NOT EXISTS files (
    file_id BIGINT, path VARCHAR, relative_path VARCHAR, stem VARCHAR, is_agent_file BOOLEAN, device UBIGINT,
    inode UBIGINT, size UBIGINT, mtime_ns UBIGINT, ctime_ns UBIGINT, first_timestamp TIMESTAMP, first_cwd VARCHAR,
    lines BIGINT, broken_lines BIGINT, usage_lines BIGINT, synthetic_lines BIGINT, invalid_fields BIGINT, titles BIGINT,
    missing BOOLEAN);
CREATE TABLE IF NOT EXISTS sightings (
    file_id BIGINT, "rank" TINYINT, ordinal BIGINT, message_id VARCHAR, request_id VARCHAR, session_id VARCHAR,
    uuid VARCHAR, chain VARCHAR, parent_message_id VARCHAR, agent_id VARCHAR, team VARCHAR, model VARCHAR,
    first_line_at TIMESTAMP, last_line_at TIMESTAMP, started_at TIMESTAMP, after_prompt BOOLEAN, date_estimated BOOLEAN,
    version VARCHAR, cwd VARCHAR, branch VARCHAR, entrypoint VARCHAR, effort VARCHAR, speed VARCHAR,
    service_tier VARCHAR, inference_geo VARCHAR, stop_reason VARCHAR, diagnostics VARCHAR, lines BIGINT, input BIGINT,
    cache_read BIGINT, output BIGINT, creation_flat BIGINT, creation_5m BIGINT, creation_1h BIGINT, has_split BOOLEAN,
    web_searches BIGINT,
    iterations STRUCT(kind VARCHAR, model VARCHAR, input_tokens BIGINT, cache_read_tokens BIGINT,
                      cache_creation_5m_tokens BIGINT, cache_creation_1h_tokens BIGINT, output_tokens BIGINT)[],
    iterations_output BIGINT, tools VARCHAR[], is_sidechain BOOLEAN);
CREATE TABLE IF NOT EXISTS events (
    file_id BIGINT, ordinal BIGINT, chain VARCHAR, "at" TIMESTAMP, kind VARCHAR, detail VARCHAR, uuid VARCHAR);
CREATE TABLE IF NOT EXISTS agents (file_id BIGINT, agent_id VARCHAR, source TINYINT, agent_type VARCHAR);
CREATE TABLE IF NOT EXISTS file_state (file_id BIGINT, state VARCHAR);
CREATE TABLE IF NOT EXISTS stale_files (file_id BIGINT);
CREATE TABLE IF NOT EXISTS kept_signature (signature VARCHAR);
"""

_SESSION_TABLES = """
CREATE TEMP TABLE IF NOT EXISTS rates (
    model VARCHAR, hour TIMESTAMP, band TINYINT, speed VARCHAR, inference_geo VARCHAR, service_tier VARCHAR,
    priced BOOLEAN, input DECIMAL(20,15), cache_read DECIMAL(20,15), cache_creation_5m DECIMAL(20,15),
    cache_creation_1h DECIMAL(20,15), output DECIMAL(20,15), web_search DECIMAL(20,15));
"""


def connect(path: str) -> duckdb.DuckDBPyConnection:
    """Open (or create) the database at `path`, or ":memory:". Waits 30 s for a lock, then raises DatabaseError.

    A database that holds anything else than ours is refused, and left as it is.
    """
    connection = _open(path)
    try:
        tables = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        if tables and not {"schema_version", "sightings", "files"} <= tables:
            raise DatabaseError(f"{path} holds something else", "name another file with --db")
        connection.execute("SET TimeZone='UTC'; SET threads=2; SET enable_progress_bar=false")
        connection.execute(f"SET memory_limit='{_MOST_MEMORY}'")
        connection.execute(_TABLES)
        row = connection.execute("SELECT max(version) FROM schema_version").fetchone()
        found = row[0] if row else None
        if found is None:
            connection.execute("INSERT INTO schema_version VALUES (?)", [SCHEMA_VERSION])
        elif found > SCHEMA_VERSION:
            raise DatabaseError(
                f"{path} was written by a newer version (schema {found}, this one knows {SCHEMA_VERSION})",
                "upgrade claude-ccache, or name another file with --db",
            )
        connection.execute(_SESSION_TABLES)
        connection.execute(
            "SET VARIABLE scope_all = true; SET VARIABLE scope_files = []::BIGINT[]; SET VARIABLE timezone = 'UTC'"
        )
    except duckdb.Error as error:
        connection.close()
        raise failure(path, error) from error
    except DatabaseError:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """All of it or, where anything fails, nothing."""
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(duckdb.Error):  # a failed commit has ended the transaction already
            connection.execute("ROLLBACK")
        raise


def in_little_memory(connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """Do work that may be repeated in a quarter of the memory; once more in what it had before, where that fails."""
    before = connection.execute("SELECT current_setting('memory_limit')").fetchone()
    assert before is not None
    connection.execute(f"SET memory_limit='{_LITTLE_MEMORY}'")
    try:
        return work()
    except duckdb.OutOfMemoryException:
        pass
    finally:
        connection.execute(f"SET memory_limit='{before[0]}'")
    return work()


def view_text(name: str) -> str:
    """The SELECT behind a view; its first line states the grain."""
    return (_SQL / f"{name}.sql").read_text("utf-8")


def view_grains() -> list[tuple[str, str]]:
    """Each view's name and the grain that its first line states."""
    return [(name, view_text(name).partition("\n")[0].removeprefix("-- grain: ")) for name in VIEWS]


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the views that are not there yet. Late, because DuckDB binds a view upon views again and again."""
    there = {
        row[0]
        for row in connection.execute(
            """SELECT view_name FROM duckdb_views() WHERE temporary
            UNION ALL SELECT table_name FROM duckdb_tables() WHERE temporary"""
        ).fetchall()
    }
    for name in VIEWS:
        if name not in there:
            connection.execute(f"CREATE TEMP VIEW {name} AS\n{view_text(name)}")


def materialize(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> None:
    """Make session tables of views, so that a report computes each only once."""
    for name in names:
        replace(connection, "TABLE", name, view_text(name))


def replace(connection: duckdb.DuckDBPyConnection, kind: Literal["TABLE", "VIEW"], name: str, select: str) -> None:
    """Create a session table or view, whichever of the two stood there before."""
    drop(connection, name)
    connection.execute(f"CREATE TEMP {kind} {name} AS\n{select}")


def drop(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Drop a session table or view, whichever of the two stands there, if any."""
    try:
        connection.execute(f"DROP VIEW IF EXISTS temp.main.{name}")
    except duckdb.CatalogException:
        connection.execute(f"DROP TABLE temp.main.{name}")


def _open(path: str) -> duckdb.DuckDBPyConnection:
    if path != ":memory:":
        if _SCHEME.match(path) or not path.isprintable():
            raise DatabaseError(f"{path!r} is no file name", "use --db FILE or --db :memory:")
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatabaseError(
                f"cannot create the folder of {path}: {error.strerror}", "use --db FILE or --db :memory:"
            ) from error
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return _attached(path)
        except duckdb.IOException as error:
            text = str(error)
            if _NOT_OURS in text and _is_empty(path):
                os.unlink(path)  # a full disk leaves an empty file
                continue
            if "Could not set lock" not in text and "used by another process" not in text:
                raise failure(path, error, "use --db FILE or --db :memory:") from error
            if time.monotonic() > deadline:
                raise DatabaseError(
                    f"{path} is in use by another process", "wait for it to end, or use --db :memory:"
                ) from error
            time.sleep(0.1)
        except duckdb.Error as error:
            raise failure(path, error, "name another file with --db") from error


def _attached(path: str) -> duckdb.DuckDBPyConnection:
    """Attached, because only so the size of a row group can be chosen. Raises duckdb.Error."""
    connection = duckdb.connect(":memory:", config=_LOCAL | {"temp_directory": _spill_folder(path)})
    try:
        literal = path.replace("'", "''")
        connection.execute(f"ATTACH '{literal}' AS ccache (TYPE duckdb, ROW_GROUP_SIZE {_ROW_GROUP})")
        connection.execute("USE ccache; SET preserve_insertion_order = false")
    except duckdb.Error:
        connection.close()
        raise
    return connection


def _spill_folder(path: str) -> str:
    """Where what does not fit in memory goes: beside a file, as DuckDB does; else not into the current folder."""
    if path != ":memory:":
        return f"{path}.tmp"
    return os.path.join(tempfile.gettempdir(), f"{TEMPORARY}{os.getpid()}-{token_hex(4)}")


def is_damage(error: duckdb.Error) -> bool:
    """Whether the file itself is broken: a block that fails its checksum, or a file cut short."""
    return "Corrupt database file" in str(error) or "Could not read enough bytes" in str(error)


def failure(
    path: str, error: duckdb.Error, hint: str = "check free space, memory and permissions, or use --db :memory:"
) -> DatabaseError:
    """What to tell the user of a database that cannot be opened, read or written."""
    if is_damage(error):
        return DatabaseError(
            f"{path} is damaged: {_first_line(error)}",
            "move it away: the next run reads the transcripts again; only requests of deleted ones were nowhere else",
        )
    return DatabaseError(f"{path} cannot be used: {_first_line(error)}", hint)


def _is_empty(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) == 0


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]

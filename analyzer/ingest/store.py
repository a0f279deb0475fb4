"""Parsed rows -> raw tables, inside the caller's transaction."""

import os
from collections.abc import Sequence
from typing import Any

import duckdb
import msgspec

from analyzer.transcript import Agent, Continuation, Sighting
from analyzer.transcript.worker import Reading

TABLES = ("sightings", "events", "agents", "file_state")


def earlier_readings(
    connection: duckdb.DuckDBPyConnection, file_ids: Sequence[int]
) -> dict[int, tuple[Continuation, list[Sighting], list[Agent]]]:
    """What earlier readings of these files kept, where they can be continued."""
    found: dict[int, tuple[Continuation, list[Sighting], list[Agent]]] = {}
    chosen = "file_id IN (SELECT unnest(?::BIGINT[]))"
    for file_id, state in connection.execute(f"SELECT * FROM file_state WHERE {chosen}", [list(file_ids)]).fetchall():
        try:
            found[file_id] = (msgspec.json.decode(state, type=Continuation), [], [])
        except msgspec.MsgspecError:
            continue  # written by another version: the file is read from its beginning
    ids = list(found)
    for row in connection.execute(f"SELECT * FROM sightings WHERE {chosen} ORDER BY ordinal", [ids]).fetchall():
        found[row[0]][1].append(msgspec.convert(dict(zip(Sighting.__struct_fields__, row, strict=True)), Sighting))
    # sources 0 and 4 come from beside the file, and are looked up again
    agents = f"SELECT * FROM agents WHERE {chosen} AND source NOT IN (0, 4)"
    for row in connection.execute(agents, [ids]).fetchall():
        found[row[0]][2].append(Agent(*row))
    return found


def remove_old_rows(connection: duckdb.DuckDBPyConnection, readings: Sequence[Reading]) -> None:
    """Delete what the readings replace: all of a file that was read again, the changing part of one that grew."""
    ids = [reading.file_id for reading in readings]
    for table in ("sightings", "agents", "file_state", "files"):
        connection.execute(f"DELETE FROM {table} WHERE file_id IN (SELECT unnest(?::BIGINT[]))", [ids])
    connection.execute(
        """DELETE FROM events USING (SELECT unnest(?::BIGINT[]) AS file_id, unnest(?::BIGINT[]) AS kept) r
        WHERE events.file_id = r.file_id AND events.ordinal > r.kept""",
        [ids, [reading.kept_lines for reading in readings]],
    )


def load(connection: duckdb.DuckDBPyConnection, table: str, paths: Sequence[str]) -> None:
    """Append the NDJSON rows of all these files in one pass, and delete them."""
    filled = [path for path in paths if os.path.getsize(path)]
    if filled:
        described = connection.execute(f"DESCRIBE {table}").fetchall()
        columns = "{" + ", ".join(f"\"{row[0]}\": '{row[1]}'" for row in described) + "}"
        connection.execute(
            f"""INSERT INTO {table} BY NAME
            SELECT * FROM read_json(?, format='newline_delimited', columns={columns}, maximum_object_size=33554432)""",
            [filled],
        )
    for path in paths:
        os.unlink(path)


def mark_stale(connection: duckdb.DuckDBPyConnection, readings: Sequence[Reading], known: set[int]) -> None:
    """Note what must be computed again: what hangs on these files, or everything where a file lost what it held."""
    if any(reading.file_id in known and not reading.only_grew for reading in readings):
        connection.execute("DELETE FROM kept_signature")
    connection.execute("INSERT INTO stale_files SELECT unnest(?::BIGINT[])", [[row.file_id for row in readings]])


def load_files(connection: duckdb.DuckDBPyConnection, folder: str, rows: Sequence[dict[str, Any]]) -> None:
    path = os.path.join(folder, "files")
    with open(path, "wb") as stream:
        stream.write(msgspec.json.Encoder().encode_lines(list(rows)))
    load(connection, "files", [path])

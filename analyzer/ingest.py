"""Transcript files -> raw tables. Idempotent: an unchanged file is not opened, a changed one is replaced as a whole."""

import multiprocessing
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from typing import Any

import duckdb
import msgspec

from analyzer.discovery import TranscriptFile
from analyzer.results import IngestResult
from analyzer.transcript import ParsedFile

PARALLEL_FROM_BYTES = 24 << 20
BATCH_BYTES = 16 << 20
LARGEST_ROW_BYTES = 8 << 20  # DuckDB refuses JSON objects of 16 MiB

Progress = Callable[[int, int], None]


def ingest(
    connection: duckdb.DuckDBPyConnection,
    found: Sequence[TranscriptFile],
    unreadable: Sequence[str] = (),
    *,
    now: datetime | None = None,
    progress: Progress | None = None,
) -> tuple[IngestResult, list[int]]:
    """Bring the raw tables up to date with `found`; returns what was read and the file ids in `found`'s order.

    `progress(bytes, files)` is told of each finished batch. Files that cannot be read are named, never fatal.
    """
    now = now or datetime.now(UTC)
    known = {
        row[0]: row[1:]
        for row in connection.execute(
            "SELECT path, file_id, device, inode, size, mtime_ns, ctime_ns, missing FROM files"
        ).fetchall()
    }
    changed = [
        file
        for file in found
        if known.get(file.path, ())[1:] != (file.device, file.inode, file.size, file.mtime_ns, file.ctime_ns, False)
    ]
    ids = {path: row[0] for path, row in known.items()}
    fresh = [file.path for file in changed if file.path not in ids]
    if fresh:
        new_ids = connection.execute("SELECT nextval('file_ids') FROM range(?)", [len(fresh)]).fetchall()
        ids.update(zip(fresh, (row[0] for row in new_ids), strict=True))
    folder = tempfile.mkdtemp(prefix="claude-ccache-")
    try:
        rows, failed = _parse(changed, ids, folder, now, progress)
        _store(connection, folder, rows, known, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    gone = connection.execute("SELECT count(*) FROM files WHERE missing").fetchone()
    result = IngestResult(
        files_seen=len(found),
        files_read=len(rows),
        files_missing=gone[0] if gone else 0,
        bytes_read=sum(row["bytes_read"] for row in rows),
        lines_read=sum(row["lines"] for row in rows),
        broken_lines=sum(row["broken_lines"] for row in rows),
        unreadable=(*unreadable, *(f"{path}: {reason}" for path, reason in failed.items())),
    )
    return result, [ids[file.path] for file in found if file.path in ids and file.path not in failed]


def _parse(
    changed: Sequence[TranscriptFile], ids: dict[str, int], folder: str, now: datetime, progress: Progress | None
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    batches: list[list[tuple[TranscriptFile, int]]] = [[]]
    size = 0
    for file in sorted(changed, key=lambda file: -file.size):
        if size > BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append((file, ids[file.path]))
        size += file.size
    jobs = [(batch, os.path.join(folder, str(number)), now) for number, batch in enumerate(batches) if batch]
    total = sum(file.size for file in changed)
    workers = min(len(jobs), os.cpu_count() or 1)
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}

    def take(result: tuple[list[dict[str, Any]], dict[str, str]]) -> None:
        rows.extend(result[0])
        failed.update(result[1])
        if progress:
            progress(sum(row["bytes_read"] for row in rows), len(rows))

    if total < PARALLEL_FROM_BYTES or workers < 2:
        for job in jobs:
            take(parse_batch(job))
    else:
        with ProcessPoolExecutor(workers, initializer=_end_with_parent) as pool:
            for result in pool.map(parse_batch, jobs):
                take(result)
    return rows, failed


def _end_with_parent() -> None:
    """Let a worker end when the main process is killed: otherwise it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def parse_batch(
    job: tuple[list[tuple[TranscriptFile, int]], str, datetime],
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Parse some files and write their rows as NDJSON beside `stem`; returns one `files` row each, and failures."""
    batch, stem, now = job
    encode = msgspec.json.Encoder().encode
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    with (
        open(f"{stem}.sightings", "wb") as sightings,
        open(f"{stem}.events", "wb") as events,
        open(f"{stem}.agents", "wb") as agents,
    ):
        for file, file_id in batch:
            try:
                parsed = ParsedFile(file.path, file.mtime_ns, now).read()
            except OSError as error:
                failed[file.path] = error.strerror or "cannot be read"
                continue
            for stream, items in (
                (sightings, parsed.sightings.values()),
                (events, parsed.events),
                (agents, parsed.agents),
            ):
                for item in items:
                    item["file_id"] = file_id
                    for name in ("first_line_at", "last_line_at", "started_at", "at"):
                        if item.get(name) is not None:
                            item[name] = item[name].replace(tzinfo=None)
                    line = encode(item)
                    if len(line) > LARGEST_ROW_BYTES and "iterations" in item:
                        parsed.invalid_fields += 1
                        line = encode({**item, "iterations": None, "tools": []})
                    stream.write(line + b"\n")
            rows.append(
                {
                    "file_id": file_id,
                    "path": file.path,
                    "relative_path": file.relative_path,
                    "stem": parsed.stem,
                    "is_agent_file": parsed.is_agent_file,
                    "device": file.device,
                    "inode": file.inode,
                    "size": file.size,
                    "mtime_ns": file.mtime_ns,
                    "ctime_ns": file.ctime_ns,
                    "first_timestamp": parsed.first_timestamp and parsed.first_timestamp.replace(tzinfo=None),
                    "first_cwd": parsed.first_cwd,
                    "lines": parsed.lines,
                    "broken_lines": parsed.broken_lines,
                    "usage_lines": parsed.usage_lines,
                    "synthetic_lines": parsed.synthetic_lines,
                    "invalid_fields": parsed.invalid_fields,
                    "titles": parsed.titles,
                    "missing": False,
                    "bytes_read": parsed.bytes_read,
                }
            )
    return rows, failed


def _store(
    connection: duckdb.DuckDBPyConnection,
    folder: str,
    rows: list[dict[str, Any]],
    known: dict[str, Any],
    found: Sequence[TranscriptFile],
) -> None:
    present = {file.path for file in found}
    gone = [row[0] for path, row in known.items() if path not in present and not row[6] and not os.path.exists(path)]
    if not rows and not gone:
        return
    connection.execute("BEGIN")
    try:
        if gone:
            connection.execute("UPDATE files SET missing = true WHERE file_id IN (SELECT unnest(?::BIGINT[]))", [gone])
        if rows:
            replaced = [row["file_id"] for row in rows if row["path"] in known]
            with open(os.path.join(folder, "0.files"), "wb") as stream:
                stream.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
            for table in ("files", "sightings", "events", "agents"):
                if replaced:
                    connection.execute(f"DELETE FROM {table} WHERE file_id IN (SELECT unnest(?::BIGINT[]))", [replaced])
                _load(connection, table, folder)
        connection.execute("COMMIT")
    except duckdb.Error:
        connection.execute("ROLLBACK")
        raise


def _load(connection: duckdb.DuckDBPyConnection, table: str, folder: str) -> None:
    names = [name for name in os.listdir(folder) if name.endswith(f".{table}")]
    paths = [path for path in (os.path.join(folder, name) for name in sorted(names)) if os.path.getsize(path)]
    if not paths:
        return
    described = connection.execute(f"DESCRIBE {table}").fetchall()
    columns = "{" + ", ".join(f"\"{row[0]}\": '{row[1]}'" for row in described) + "}"
    connection.execute(
        f"INSERT INTO {table} BY NAME SELECT * FROM read_json(?, format='newline_delimited', columns={columns})",
        [paths],
    )

"""Transcript files -> raw tables: an unchanged file is not opened, a grown one is read from where it grew."""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import msgspec

from analyzer.database import in_little_memory, is_damage, transaction
from analyzer.discovery import TranscriptFile
from analyzer.errors import DatabaseError
from analyzer.ingest import store
from analyzer.ingest.parts import parts_folder
from analyzer.ingest.workers import run_all
from analyzer.results import IngestResult
from analyzer.transcript.worker import Answer, Job, Reading, Task

__all__ = ["Progress", "ingest"]

BATCH_BYTES = 8 << 20

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
    Raises DatabaseError where the database cannot take the rows, then it is as it was before; duckdb.Error where it is
    damaged.
    """
    now = now or datetime.now(UTC)
    try:
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
        present = {file.path for file in found}
        gone = [row[0] for path, row in known.items() if path not in present and not row[6] and not _may_exist(path)]
        ids = {path: row[0] for path, row in known.items()}
        readings: list[Reading] = []
        failed: dict[str, str] = {}
        if changed or gone:
            readings, failed = in_little_memory(
                connection, lambda: _write(connection, changed, gone, ids, known, now, progress)
            )
        missing = connection.execute("SELECT count(*) FROM files WHERE missing").fetchone()
    except duckdb.Error as error:
        if is_damage(error):
            raise
        raise DatabaseError(
            f"the database could not be written: {str(error).splitlines()[0]}",
            "check free space and permissions, or use --db :memory:",
        ) from error
    result = IngestResult(
        files_seen=len(found),
        files_read=len(readings),
        files_appended=sum(reading.appended for reading in readings),
        files_missing=missing[0] if missing else 0,
        bytes_read=sum(reading.bytes_read for reading in readings),
        lines_read=sum(reading.lines_read for reading in readings),
        broken_lines=sum(reading.broken_lines for reading in readings),
        unreadable=(*unreadable, *(f"{path}: {reason}" for path, reason in failed.items())),
    )
    return result, [ids[file.path] for file in found if file.path in ids and file.path not in failed]


def _may_exist(path: str) -> bool:
    """Whether a file is there, or cannot be told to be gone: a folder above it may not be readable."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def _write(
    connection: duckdb.DuckDBPyConnection,
    changed: Sequence[TranscriptFile],
    gone: Sequence[int],
    ids: dict[str, int],
    known: dict[str, Any],
    now: datetime,
    progress: Progress | None,
) -> tuple[list[Reading], dict[str, str]]:
    unnumbered = {file.path for file in changed} - set(known)
    with transaction(connection):
        ids.update(_numbers(connection, [file.path for file in changed if file.path in unnumbered]))
        read = _read(connection, changed, ids, known, now, progress)
        if gone:
            connection.execute("UPDATE files SET missing = true WHERE file_id IN (SELECT unnest(?::BIGINT[]))", [gone])
    return read


def _numbers(connection: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> dict[str, int]:
    """Ids above all that are taken: rows of `files` are never lost, whatever an earlier attempt has come to."""
    taken = connection.execute("SELECT coalesce(max(file_id), 0) FROM files").fetchone()
    assert taken is not None
    return {path: number for number, path in enumerate(paths, taken[0] + 1)}


def _read(
    connection: duckdb.DuckDBPyConnection,
    changed: Sequence[TranscriptFile],
    ids: dict[str, int],
    known: dict[str, Any],
    now: datetime,
    progress: Progress | None,
) -> tuple[list[Reading], dict[str, str]]:
    earlier = store.earlier_readings(connection, [known[file.path][0] for file in changed if file.path in known])
    readings: list[Reading] = []
    failed: dict[str, str] = {}
    by_id = {ids[file.path]: file for file in changed}
    with parts_folder() as folder:
        jobs, total = _jobs(changed, ids, earlier, folder, now)

        def take(job: Job, answer: Answer) -> None:
            readings.extend(answer.readings)
            failed.update(answer.failed)
            replaced = [reading for reading in answer.readings if by_id[reading.file_id].path in known]
            if replaced:
                store.remove_old_rows(connection, replaced)
            if progress:
                progress(sum(reading.bytes_read for reading in readings), len(readings))

        run_all(jobs, total, take)
        for table in store.TABLES:
            store.load(connection, table, [f"{job.stem}.{table}" for job in jobs])
        if readings:
            store.mark_stale(connection, readings, {row[0] for row in known.values()})
            store.load_files(connection, folder, [_row(by_id[reading.file_id], reading) for reading in readings])
    return readings, failed


def _jobs(
    changed: Sequence[TranscriptFile], ids: dict[str, int], earlier: dict[int, Any], folder: str, now: datetime
) -> tuple[list[Job], int]:
    """Batches of about equal size, the largest files first, and the bytes to read in all."""
    jobs: list[Job] = []
    total = size = 0
    for file in sorted(changed, key=lambda file: -file.size):
        file_id = ids[file.path]
        kept = earlier.get(file_id)
        if kept is not None and kept[0].offset > file.size:
            kept = None
        if not jobs or size > BATCH_BYTES:
            jobs.append(Job(os.path.join(folder, str(len(jobs))), now, []))
            size = 0
        jobs[-1].tasks.append(Task(file_id, file.path, file.mtime_ns, kept))
        rest = file.size - (kept[0].offset if kept is not None else 0)
        size += rest
        total += rest
    return jobs, total


def _row(file: TranscriptFile, reading: Reading) -> dict[str, Any]:
    parsed = msgspec.structs.asdict(reading)
    for name in ("bytes_read", "lines_read", "appended", "kept_lines", "only_grew"):
        del parsed[name]
    return {
        **parsed,
        "path": file.path,
        "relative_path": file.relative_path,
        "device": file.device,
        "inode": file.inode,
        "size": file.size,
        "mtime_ns": file.mtime_ns,
        "ctime_ns": file.ctime_ns,
        "missing": False,
    }

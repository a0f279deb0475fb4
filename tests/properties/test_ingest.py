"""Ingest is a pure function of the files: order, repetition, growth and other files in the database change nothing."""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer import database, discovery, ingest, queries
from analyzer.results import AnalyzeReport, IngestResult

TABLES = ("sightings", "events", "agents", "files")
FEW = settings(max_examples=5, deadline=None)

records = st.builds(
    lambda kind, number, request, minute, read, output, agent: {
        "type": kind,
        "uuid": f"u{number}",
        "parentUuid": None if number % 3 == 0 else f"u{number - 1}",
        "sessionId": f"s{number % 2}",
        "requestId": request,
        "cwd": f"/home/demo/app{number % 3}",
        "agentId": agent,
        "timestamp": None if minute is None else f"2026-01-01T00:{minute:02}:00Z",
        "message": {
            "id": ("msg_" if number % 4 else "chat_") + str(number),
            "model": "claude-sonnet-4-5",
            "usage": {
                "input_tokens": 3,
                "cache_read_input_tokens": read,
                "cache_creation_input_tokens": 5_000,
                "output_tokens": output,
            },
            "content": [],
        },
    },
    st.sampled_from(["assistant", "assistant", "user"]),
    st.integers(0, 9),
    st.sampled_from([None, "r1", "r2"]),
    st.one_of(st.none(), st.integers(0, 59)),
    st.integers(0, 50_000),
    st.integers(0, 500),
    st.sampled_from([None, None, "a1"]),
)
sessions = st.lists(st.lists(records, min_size=1, max_size=6), min_size=1, max_size=4)


@pytest.fixture(autouse=True, scope="module")
def _environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as home:
        patch.setenv("HOME", home)
        patch.setenv("TZ", "UTC")
        patch.setenv("COLUMNS", "100")
        yield


@contextmanager
def opened(path: str = ":memory:") -> Iterator[duckdb.DuckDBPyConnection]:
    connection = database.connect(path)
    try:
        yield connection
    finally:
        connection.close()


def text(session: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in session)


def write(folder: Path, name: str, body: bytes) -> Path:
    path = folder / "projects" / "p" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    os.utime(path, ns=(1_767_300_000 * 10**9,) * 2)
    return path


def bring_in(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> tuple[IngestResult, list[int]]:
    found, unreadable = discovery.find_transcripts(str(path) for path in paths)
    return ingest.ingest(connection, found, unreadable)


def analyzed(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> AnalyzeReport:
    _, ids = bring_in(connection, paths)
    return replace(queries.analyze(connection, queries.Scope(tuple(ids))), ingest=IngestResult())


def content(connection: duckdb.DuckDBPyConnection, but: tuple[str, ...] = ()) -> dict[str, list[tuple[Any, ...]]]:
    drop = f"EXCLUDE ({', '.join(but)})" if but else ""
    return {
        table: connection.execute(f"SELECT * {drop if table == 'files' else ''} FROM {table} ORDER BY ALL").fetchall()
        for table in TABLES
    }


@FEW
@given(sessions, st.randoms(use_true_random=False))
def test_order_of_arguments_changes_nothing(bodies: list[list[dict[str, Any]]], random: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        paths = [write(Path(name), f"s{number}", text(body)) for number, body in enumerate(bodies)]
        shuffled = [*paths, Path(name)]
        random.shuffle(shuffled)
        with opened() as first, opened() as second:
            assert analyzed(first, paths) == analyzed(second, shuffled)


@FEW
@given(sessions)
def test_second_ingest_reads_nothing(bodies: list[list[dict[str, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as name, opened() as connection:
        paths = [write(Path(name), f"s{number}", text(body)) for number, body in enumerate(bodies)]
        bring_in(connection, paths)
        before = content(connection)
        result, ids = bring_in(connection, paths)
        assert (result.bytes_read, result.files_read, len(ids)) == (0, 0, len(paths))
        assert content(connection) == before


@FEW
@given(st.lists(records, min_size=1, max_size=8), st.lists(st.integers(0, 3_000), max_size=3))
def test_growing_file_equals_whole_file(body: list[dict[str, Any]], cuts: list[int]) -> None:
    whole = text(body)
    with tempfile.TemporaryDirectory() as name:
        with opened(f"{name}/db") as connection:
            for cut in [*sorted(cuts), len(whole)]:
                path = write(Path(name), "s0", whole[:cut])
                bring_in(connection, [path])
            grown = content(connection, ("file_id", "ctime_ns"))
        with opened() as connection:
            bring_in(connection, [path])
            assert content(connection, ("file_id", "ctime_ns")) == grown


@FEW
@given(sessions, sessions)
def test_other_files_in_the_database_change_nothing(
    bodies: list[list[dict[str, Any]]], others: list[list[dict[str, Any]]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        paths = [write(Path(name), f"s{number}", text(body)) for number, body in enumerate(bodies)]
        rest = [write(Path(name) / "other", f"s{number}", text(body)) for number, body in enumerate(others)]
        with opened() as empty, opened() as filled:
            bring_in(filled, rest)
            assert analyzed(filled, paths) == analyzed(empty, paths)


@FEW
@given(st.lists(records, min_size=1, max_size=8), st.lists(st.floats(0, 1), min_size=9, max_size=9))
def test_ten_appended_pieces_equal_the_whole(body: list[dict[str, Any]], shares: list[float]) -> None:
    whole = text(body)
    with tempfile.TemporaryDirectory() as name:
        with opened(f"{name}/db") as connection:
            for share in [*sorted(shares), 1.0]:
                path = write(Path(name), "s0", whole[: int(share * len(whole))])
                bring_in(connection, [path])
            grown = content(connection, ("file_id", "ctime_ns"))
        with opened() as connection:
            bring_in(connection, [path])
            assert content(connection, ("file_id", "ctime_ns")) == grown


changes = st.lists(
    st.tuples(st.sampled_from(["append", "append", "rewrite"]), st.integers(0, 3), st.lists(records, max_size=3)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=8, deadline=None)
@given(sessions, changes)
def test_what_was_kept_equals_what_is_computed_anew(
    bodies: list[list[dict[str, Any]]], steps: list[tuple[str, int, list[dict[str, Any]]]]
) -> None:
    def reports(connection: duckdb.DuckDBPyConnection) -> tuple[Any, ...]:
        bring_in(connection, [Path(name)])
        scope = queries.Scope()
        analyzed = replace(queries.analyze(connection, scope), ingest=IngestResult())
        return analyzed, queries.misses(connection, scope), queries.subagents(connection, scope)

    with tempfile.TemporaryDirectory() as name, opened(f"{name}/db") as kept:
        texts = {f"s{number}": text(body) for number, body in enumerate(bodies)}
        for file, body in texts.items():
            write(Path(name), file, body)
        reports(kept)
        for change, number, body in steps:
            file = f"s{number}"
            texts[file] = (texts.get(file, b"") if change == "append" else b"") + text(body)
            write(Path(name), file, texts[file])
            with opened() as fresh:
                assert reports(kept) == reports(fresh)

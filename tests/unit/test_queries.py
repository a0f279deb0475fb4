"""Questions asked of one connection, in any order, with filters that select after everything else was computed."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from analyzer import database, discovery
from analyzer.errors import DatabaseError, QueryError, UsageError
from analyzer.ingest import ingest, store
from analyzer.queries import Scope, analyze, kept, list_views, run_sql

NOW = datetime(2026, 11, 29, tzinfo=UTC)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with database.connect(":memory:") as opened:
        found, unreadable = discovery.find_transcripts([str(discovery.sample_root())])
        ingest(opened, found, unreadable, now=NOW)
        yield opened


def test_asking_twice_gives_the_same_answer(connection: duckdb.DuckDBPyConnection) -> None:
    assert analyze(connection, Scope()) == analyze(connection, Scope())


def test_days_are_calendar_days_of_the_asked_zone(connection: duckdb.DuckDBPyConnection) -> None:
    utc = analyze(connection, Scope(since="2026-10-14", until="2026-10-14"))
    assert utc.totals.usage.requests == 8
    kiritimati = analyze(connection, Scope(timezone="Pacific/Kiritimati"))
    assert [day.day.isoformat() for day in kiritimati.by_day] == ["2026-10-12", "2026-10-13", "2026-10-14"]


def test_a_filter_keeps_the_predecessor_outside_it(connection: duckdb.DuckDBPyConnection) -> None:
    late = analyze(connection, Scope(since="2026-10-14T09:09:00"))
    assert (late.totals.usage.requests, late.totals.misses) == (1, 1)


def test_models_and_projects_filter_by_part_of_the_name(connection: duckdb.DuckDBPyConnection) -> None:
    assert {row.key for row in analyze(connection, Scope(models=("HAIKU",))).by_model} == {"claude-haiku-5-5"}
    assert analyze(connection, Scope(projects=("no-such",))).totals.usage.requests == 0
    assert analyze(connection, Scope(projects=("weather",))).totals.usage.requests == 53


def test_rows_add_up_to_the_total(connection: duckdb.DuckDBPyConnection) -> None:
    report = analyze(connection, Scope())
    for rows in (report.by_model, report.by_project, report.by_session, report.by_agent_type, report.by_version):
        assert sum(row.requests for row in rows) == report.totals.usage.requests
        assert sum(row.cost_usd or 0 for row in rows) == report.totals.usage.cost_usd
        assert sum(row.rewritten_tokens for row in rows) == report.totals.usage.rewritten_tokens


def test_every_view_states_its_grain(connection: duckdb.DuckDBPyConnection) -> None:
    _, rows = list_views(connection)
    assert len(rows) == len(database.VIEWS)
    assert all(str(grain).startswith("one ") for _, grain, _ in rows)


def test_sql_reads_and_nothing_else(connection: duckdb.DuckDBPyConnection) -> None:
    assert run_sql(connection, Scope(), "select count(*) as n from requests") == (["n"], [(53,)])
    for query in (
        "drop table files",
        "select 1; select 2",
        "copy files to '/tmp/x'",
        "select * from read_text('/etc/hosts')",
        "?",
    ):
        with pytest.raises(QueryError):
            run_sql(connection, Scope(), query)


@pytest.mark.parametrize("scope", [Scope(timezone="Mars/Base"), Scope(since="yesterday"), Scope(until="2026-13-01")])
def test_a_flag_that_cannot_be_obeyed_is_named(connection: duckdb.DuckDBPyConnection, scope: Scope) -> None:
    with pytest.raises(UsageError):
        analyze(connection, scope)


def test_a_database_of_a_newer_version_is_refused(tmp_path: object) -> None:
    path = f"{tmp_path}/newer.duckdb"
    with database.connect(path) as opened:
        opened.execute("UPDATE schema_version SET version = 99")
    with pytest.raises(DatabaseError, match="newer"):
        database.connect(path)


def test_changed_prices_are_applied_to_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = database.connect(str(tmp_path / "h.duckdb"))
    try:
        found, unreadable = discovery.find_transcripts([str(discovery.sample_root())])
        ingest(connection, found, unreadable)
        before = analyze(connection, Scope()).totals.usage
        monkeypatch.setattr("analyzer.queries.kept.rates_for", lambda *_, **__: None)
        assert analyze(connection, Scope()).totals.usage == before
        monkeypatch.setattr("analyzer.queries.kept.price_signature", lambda: "other prices")
        after = analyze(connection, Scope()).totals.usage
    finally:
        connection.close()
    assert before.cost_usd is not None
    assert (after.cost_usd, after.unpriced_requests, after.requests) == (None, before.requests, before.requests)


def test_what_does_not_fit_in_memory_never_goes_to_the_current_folder(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    setting = "SELECT current_setting('temp_directory')"
    assert (
        connection.execute(setting).fetchall()[0][0].startswith(os.path.join(tempfile.gettempdir(), "claude-ccache-"))
    )
    with database.connect(str(tmp_path / "h.duckdb")) as beside:
        assert beside.execute(setting).fetchall() == [(str(tmp_path / "h.duckdb.tmp"),)]


def test_work_that_needs_more_memory_is_done_once_more_with_it(connection: duckdb.DuckDBPyConnection) -> None:
    limits = []

    def work() -> str:
        limits.append(connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0])
        if len(limits) == 1:
            raise duckdb.OutOfMemoryException("too small")
        return "done"

    assert database.in_little_memory(connection, work) == "done"
    assert limits[0] == "228.8 MiB"
    assert limits[1].startswith("953."), "DuckDB rounds what it was told"


@pytest.mark.parametrize("failing", [*kept.KEPT, "signature"])
def test_what_stopped_between_two_kept_tables_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = str(tmp_path / "history.duckdb")
    found, unreadable = discovery.find_transcripts([str(discovery.sample_root())])
    read_kept = kept._read_kept

    def stop(connection: duckdb.DuckDBPyConnection, name: str) -> None:
        read_kept(connection, name)
        if name == failing:
            raise duckdb.OutOfMemoryException("stopped")

    with database.connect(path) as connection, monkeypatch.context() as patch:
        ingest(connection, found, unreadable, now=NOW)
        patch.setattr(kept, "_read_kept", stop)
        if failing == "signature":
            patch.setattr(kept, "transaction", lambda connection: connection.execute("SELECT no_such_column"))
        with pytest.raises(duckdb.Error):
            analyze(connection, Scope())
    with database.connect(path) as connection, database.connect(":memory:") as fresh:
        ingest(fresh, found, unreadable, now=NOW)
        assert analyze(connection, Scope()) == analyze(fresh, Scope())


def test_a_grown_file_whose_group_does_not_fit_in_memory_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "projects" / "p" / "s.jsonl"
    log.parent.mkdir(parents=True)
    lines = next(iter(discovery.sample_root().rglob("*.jsonl"))).read_bytes().splitlines(keepends=True)
    keep, calls = kept._keep, []

    def first_fails(connection: duckdb.DuckDBPyConnection, group: list[int]) -> None:
        keep(connection, group)
        calls.append(group)
        if len(calls) == 1:
            raise duckdb.OutOfMemoryException("stopped")

    with database.connect(str(tmp_path / "history.duckdb")) as connection, database.connect(":memory:") as fresh:
        for part in (lines[: len(lines) // 2], lines):
            log.write_bytes(b"".join(part))
            found, _ = discovery.find_transcripts([str(tmp_path)])
            ingest(connection, found, now=NOW)
            monkeypatch.setattr(kept, "_keep", first_fails)
            report = analyze(connection, Scope())
        ingest(fresh, found, now=NOW)
        assert len(calls) == 2
        assert report.totals == analyze(fresh, Scope()).totals


def test_files_that_others_say_nothing_about_are_read_from_what_was_kept(tmp_path: Path) -> None:
    line = next(iter(discovery.sample_root().rglob("*.jsonl"))).read_text()
    session = json.loads(line.splitlines()[0])["sessionId"]
    alone, shared, copy = (tmp_path / "projects" / "p" / f"{name}.jsonl" for name in ("alone", "shared", "copy"))
    alone.parent.mkdir(parents=True)
    alone.write_text(line.replace(session, "other").replace("msg_", "msg_other_"))
    for path in (shared, copy):
        path.write_text(line)
    found, _ = discovery.find_transcripts([str(tmp_path)])
    with database.connect(":memory:") as connection:
        _, ids = ingest(connection, found, now=NOW)
        by_name = {file.relative_path: file_id for file, file_id in zip(found, ids, strict=True)}
        one, two = by_name["p/alone.jsonl"], by_name["p/shared.jsonl"]
        assert kept.refresh(connection, [one])
        assert not kept.refresh(connection, [two])
        for chosen in (one, two):
            assert analyze(connection, Scope(file_ids=(chosen,))).totals.usage.requests > 0


@pytest.mark.parametrize("zone", ["America/Vancouver", "Africa/Casablanca", "Europe/Berlin", "Pacific/Kiritimati"])
def test_the_day_of_a_request_is_the_day_that_finds_it(connection: duckdb.DuckDBPyConnection, zone: str) -> None:
    days = analyze(connection, Scope(timezone=zone)).by_day
    connection.execute("UPDATE sightings SET first_line_at = TIMESTAMP '2026-11-15 07:30:00'")
    connection.execute("DELETE FROM kept_signature")
    for day in (*days, *analyze(connection, Scope(timezone=zone)).by_day):
        found = analyze(connection, Scope(timezone=zone, since=str(day.day), until=str(day.day))).by_day
        assert {row.day for row in found} <= {day.day}


@pytest.mark.parametrize("zone", ["posixrules", "right/UTC", "localtime", "posix/Europe/Berlin", "No/Where", ""])
def test_zones_that_not_both_know_are_refused(connection: duckdb.DuckDBPyConnection, zone: str) -> None:
    with pytest.raises(UsageError, match="unknown time zone"):
        analyze(connection, Scope(timezone=zone))


def test_filters_that_are_not_utf8_match_nothing(connection: duckdb.DuckDBPyConnection) -> None:
    for scope in (Scope(models=("\udcff",)), Scope(projects=("\udcff",))):
        assert analyze(connection, scope).totals.usage.requests == 0


def test_what_files_count_is_counted_over_those_that_still_show(tmp_path: Path) -> None:
    """Two projects with a title and a broken line each; the filter leaves one of them."""
    for name in ("left", "right"):
        folder = tmp_path / "projects" / name
        folder.mkdir(parents=True)
        answer = {"id": f"msg_{name}", "model": "claude-opus-5-5", "usage": {"input_tokens": 7, "output_tokens": 1}}
        line = {"type": "assistant", "uuid": name, "cwd": f"/{name}", "timestamp": "2026-10-14T09:00:00Z"}
        lines = [json.dumps(line | {"message": answer}), json.dumps({"type": "ai-title"}), "{broken"]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    with database.connect(":memory:") as opened:
        ingest(opened, *discovery.find_transcripts([str(tmp_path)]), now=NOW)
        counted = [
            (quality.files, quality.broken_lines, quality.titles_without_usage)
            for quality in (analyze(opened, scope).quality for scope in (Scope(), Scope(projects=("left",))))
        ]
    assert counted == [(2, 2, 2), (1, 1, 1)]


def test_a_file_that_cannot_be_looked_at_is_not_called_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "projects" / "p"
    project.mkdir(parents=True)
    kept_file, gone_file = (project / f"{name}.jsonl" for name in ("kept", "gone"))
    for file in (kept_file, gone_file):
        file.write_text("{}\n")
    look = os.stat

    def closed(path: str, *more: object, **named: object) -> object:
        if path == str(kept_file):
            raise PermissionError(13, "Permission denied", path)
        return look(path, *more, **named)  # type: ignore[arg-type,call-overload]

    with database.connect(":memory:") as opened:
        ingest(opened, *discovery.find_transcripts([str(tmp_path)]), now=NOW)
        gone_file.unlink()
        monkeypatch.setattr(os, "stat", closed)
        ingest(opened, *discovery.find_transcripts([str(tmp_path)]), now=NOW)
        assert opened.execute("SELECT stem FROM files WHERE missing").fetchall() == [("gone",)]


def test_until_before_since_is_refused(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UsageError, match="before"):
        analyze(connection, Scope(since="2026-10-15", until="2026-10-14"))


def test_an_attempt_that_failed_leaves_no_ids_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, load, calls = str(tmp_path / "h.duckdb"), store.load_files, []

    def first_fails(*arguments: object) -> None:
        load(*arguments)  # type: ignore[arg-type]
        calls.append(1)
        if len(calls) == 1:
            raise duckdb.OutOfMemoryException("stopped")

    found, _ = discovery.find_transcripts([str(discovery.sample_root())])
    monkeypatch.setattr(store, "load_files", first_fails)
    with database.connect(path) as connection:
        connection.execute("SET wal_autocheckpoint='1GB'")
        _, ids = ingest(connection, found[:2], now=NOW)
        shutil.copy(path, tmp_path / "killed.duckdb")
        shutil.copy(f"{path}.wal", tmp_path / "killed.duckdb.wal")
    with database.connect(str(tmp_path / "killed.duckdb")) as connection:
        _, all_ids = ingest(connection, found, now=NOW)
        assert len(set(all_ids)) == len(found)
        assert set(ids) < set(all_ids)


def test_a_type_told_in_another_file_reaches_a_kept_sidechain(tmp_path: Path) -> None:
    def record(session: str, uuid: str, kind: str, message: dict[str, object], **more: object) -> str:
        at = "2026-11-01T10:00:00Z"
        return json.dumps(
            {"type": kind, "uuid": uuid, "parentUuid": None, "sessionId": session, "timestamp": at, "message": message}
            | more
        )

    usage = {"input_tokens": 1, "output_tokens": 1}
    answer = {"id": "msg_1", "model": "claude-sonnet-4-5", "usage": usage, "content": []}
    task = {"type": "tool_use", "id": "t", "name": "Task", "input": {"subagent_type": "Explore", "prompt": "do it"}}
    side = record("one", "root", "user", {"content": "do it"}, isSidechain=True)
    first = [side, record("one", "a", "assistant", answer, parentUuid="root", isSidechain=True)]
    second = [
        record("two", "b", "assistant", {**answer, "id": "msg_2", "content": [task]}),
        record("two", "root", "user", {"content": "do it"}, isSidechain=True),
    ]
    with database.connect(":memory:") as kept_before, database.connect(":memory:") as fresh:
        for name, lines in (("s1", first), ("s2", second)):
            (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
            found, _ = discovery.find_transcripts([str(tmp_path)])
            ingest(kept_before, found, now=NOW)
            report = analyze(kept_before, Scope())
        ingest(fresh, found, now=NOW)
        assert report.by_agent_type == analyze(fresh, Scope()).by_agent_type
        assert {row.key for row in report.by_agent_type} == {"main", "Explore"}

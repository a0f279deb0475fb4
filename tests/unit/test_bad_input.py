"""Damaged transcripts: nothing crashes, what is skipped is counted, and the neighbours keep their totals."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer import database, discovery, ingest, queries
from analyzer.results import AnalyzeReport


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLUMNS", "100")


def line(number: int, usage: Any = None, **changes: Any) -> bytes:
    """One assistant record; by default 10 input and 100 output tokens."""
    record = {
        "type": "assistant",
        "uuid": f"u{number}",
        "parentUuid": None,
        "sessionId": "s",
        "requestId": f"r{number}",
        "cwd": "/home/demo/app",
        "timestamp": f"2026-01-01T00:{number:02}:00Z",
        "message": {
            "id": f"msg_{number}",
            "model": "claude-sonnet-4-5",
            "usage": {"input_tokens": 10, "output_tokens": 100} if usage is None else usage,
            "content": [],
        },
        **changes,
    }
    return json.dumps(record).encode()


def report(*paths: Path) -> AnalyzeReport:
    connection = database.connect(":memory:")
    try:
        found, unreadable = discovery.find_transcripts(str(path) for path in paths)
        result, ids = ingest.ingest(connection, found, unreadable)
        return queries.analyze(connection, queries.Scope(tuple(ids)), result)
    finally:
        connection.close()


def around(folder: Path, bad: bytes, ending: bytes = b"\n") -> AnalyzeReport:
    """A report on a file with `bad` between two good records."""
    (folder / "x.jsonl").write_bytes(line(1) + ending + bad + ending + line(2) + ending)
    return report(folder / "x.jsonl")


def assert_neighbours(found: AnalyzeReport, requests: int = 2, broken: int = 0) -> None:
    total = found.totals.usage
    assert (total.requests, total.input_tokens, total.output_tokens) == (requests, 10 * requests, 100 * requests)
    assert found.quality.broken_lines == broken


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "x.jsonl").write_bytes(line(1))
    found = report(tmp_path)
    assert_neighbours(found, 1)
    assert found.quality.files == 2


def test_nul_bytes(tmp_path: Path) -> None:
    assert_neighbours(around(tmp_path, b"\0" * 4096), broken=1)
    assert_neighbours(around(tmp_path, b"\0" * 4096 + line(3)), 3)
    assert_neighbours(around(tmp_path, line(3, uuid="a\0b", cwd="/a\0b")), 3)


def test_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"\xef\xbb\xbf" + line(1) + b"\n\xef\xbb\xbf" + line(2) + b"\n")
    assert_neighbours(report(tmp_path))


def test_crlf(tmp_path: Path) -> None:
    assert_neighbours(around(tmp_path, line(3), b"\r\n"), 3)


def test_lone_surrogates(tmp_path: Path) -> None:
    inside = line(3).replace(b'"content": []', b'"content": [{"type": "text", "text": "\\ud800"}]')
    assert_neighbours(around(tmp_path, inside), 3)
    assert_neighbours(around(tmp_path, line(3, cwd="/x\ud83d", uuid="\udc00")), 3)


@pytest.mark.parametrize("place", [b"/home/demo", b"claude-sonnet-4-5", b"assistant"])
def test_invalid_utf8(tmp_path: Path, place: bytes) -> None:
    found = around(tmp_path, line(3).replace(place, place + b"\xff\xc3", 1))
    assert_neighbours(found, 2 if place == b"assistant" else 3)


def test_invalid_utf8_in_usage(tmp_path: Path) -> None:
    usage = {"input_tokens": 10, "output_tokens": 100, "speed": "standard"}
    assert_neighbours(around(tmp_path, line(3, usage).replace(b"standard", b"st\xff")), 3)


def test_line_of_50_megabytes(tmp_path: Path) -> None:
    text = "x" * (50 << 20)
    user = json.dumps({"type": "user", "uuid": "big", "message": {"content": text}}).encode()
    assert_neighbours(around(tmp_path, user))
    assert_neighbours(around(tmp_path, line(3, cwd="/" + text)), 3)


def test_directory_named_like_a_transcript(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").mkdir()
    (tmp_path / "x.jsonl" / "y.jsonl").write_bytes(line(1))
    (tmp_path / "z.jsonl").write_bytes(line(2))
    assert_neighbours(report(tmp_path))


def test_pipe_is_named_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "x.jsonl").write_bytes(line(1))
    found = report(tmp_path)
    assert_neighbours(found, 1)
    assert found.ingest.unreadable == (f"{tmp_path / 'pipe.jsonl'}: not a regular file",)


def test_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(line(1))
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")).write_bytes(line(2))
    found = report(tmp_path)
    assert_neighbours(found, 1)
    assert len(found.ingest.unreadable) == 1


def test_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(line(1))
    (tmp_path / "y.jsonl").write_bytes(line(2))
    (tmp_path / "y.jsonl").chmod(0)
    found = report(tmp_path)
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    assert_neighbours(found, 1)
    assert len(found.ingest.unreadable) == 1


def test_dangling_and_looping_symlinks(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(line(1))
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "b.jsonl")
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "a.jsonl")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "same.jsonl").symlink_to(tmp_path / "x.jsonl")
    found = report(tmp_path)
    assert_neighbours(found, 1)
    assert len(found.ingest.unreadable) == 3


def test_file_deleted_between_discovery_and_ingest(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.jsonl").write_bytes(line(number))
    found, _ = discovery.find_transcripts([str(tmp_path)])
    (tmp_path / "2.jsonl").unlink()
    connection = database.connect(":memory:")
    try:
        result, ids = ingest.ingest(connection, found)
        total = queries.analyze(connection, queries.Scope(tuple(ids)), result).totals.usage
    finally:
        connection.close()
    assert (total.requests, len(ids), len(result.unreadable)) == (1, 1, 1)


@pytest.mark.parametrize("value", ["7", -1, 1e30, True, [], {"a": 1}, 10**30])
def test_usage_that_is_no_count(tmp_path: Path, value: Any) -> None:
    usage = {"input_tokens": 10, "output_tokens": 100, "cache_read_input_tokens": value}
    found = around(tmp_path, line(3, usage))
    assert_neighbours(found, 3)
    assert (found.totals.usage.cache_read_tokens, found.quality.invalid_usage_fields) == (0, 1)


def test_usage_of_nulls(tmp_path: Path) -> None:
    usage = dict.fromkeys(("cache_creation", "server_tool_use", "iterations", "speed", "cache_read_input_tokens"))
    found = around(tmp_path, line(3, {"input_tokens": 10, "output_tokens": 100, **usage}))
    assert_neighbours(found, 3)
    assert found.quality.invalid_usage_fields == 0


@pytest.mark.parametrize("usage", ["text", [], 5, True])
def test_usage_that_is_no_object(tmp_path: Path, usage: Any) -> None:
    assert_neighbours(around(tmp_path, line(3, usage)))


@pytest.mark.parametrize(
    "at",
    [None, "", 5, [], "soon", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"],
)
def test_timestamps_missing_or_absurd(tmp_path: Path, at: Any) -> None:
    found = around(tmp_path, line(3, timestamp=at))
    assert_neighbours(found, 3)
    assert found.quality.date_estimated_requests == 1
    assert [row.day.isoformat() for row in found.by_day] == ["2026-01-01"]


@pytest.mark.parametrize("seconds", [0, -(10**11), 10**12])
def test_file_times_outside_the_calendar(tmp_path: Path, seconds: int) -> None:
    (tmp_path / "x.jsonl").write_bytes(line(1, timestamp=None))
    try:
        os.utime(tmp_path / "x.jsonl", (seconds, seconds))
    except (OSError, OverflowError):
        pytest.skip("the file system cannot hold this time")
    assert_neighbours(report(tmp_path), 1)


@pytest.mark.parametrize("bad", [b"[]", b'"text"', b"5", b"null", b"{", b"NaN", b'{"a": NaN}', line(3)[:-9]])
def test_lines_that_are_no_object(tmp_path: Path, bad: bytes) -> None:
    assert_neighbours(around(tmp_path, bad), broken=1)


@pytest.mark.parametrize("message", ["text", [], 5])
def test_message_that_is_no_object(tmp_path: Path, message: Any) -> None:
    assert_neighbours(around(tmp_path, line(3, message=message)), broken=1)


@pytest.mark.parametrize("kind", ["assistant", "user", "system", "attachment", "progress", "cost-state", [], {}, 1])
def test_fields_of_the_wrong_type(tmp_path: Path, kind: Any) -> None:
    names = ("uuid", "parentUuid", "sessionId", "requestId", "cwd", "version", "subtype", "agentId", "compactMetadata")
    for value in ([1], {"a": 1}, 5, True):
        bad = {**dict.fromkeys((*names, "attachment", "data", "toolUseResult", "totalCostUSD"), value), "type": kind}
        found = around(tmp_path, json.dumps({**bad, "message": {"content": value}}).encode())
        assert_neighbours(found)


@pytest.mark.parametrize("field", ["message", "toolUseResult", "cwd", "attachment", "data"])
def test_deep_nesting(tmp_path: Path, field: str) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    for bad in (b'{"type": "user", "%s": %s}' % (field.encode(), deep), deep):
        assert_neighbours(around(tmp_path, bad), broken=1)


def test_usage_quoted_in_a_tool_result(tmp_path: Path) -> None:
    quoted = line(7).decode()
    content = [{"type": "tool_result", "content": quoted}, {"type": "tool_result", "content": json.loads(quoted)}]
    user = {"type": "user", "uuid": "q", "message": {"content": content}, "toolUseResult": json.loads(quoted)}
    assert_neighbours(around(tmp_path, json.dumps(user).encode()))


@pytest.mark.parametrize(
    ("bad", "broken"),
    [
        (line(3) + line(4) + b"\n", 1),
        (line(3)[:40] + b"\n" + line(3)[40:] + b"\n" + line(4) + line(5), 3),
        (line(3) + b"\r" + line(4) + b"\n", 1),
        (line(3) + b" " + line(4) + b"\n   ", 1),
    ],
    ids=["two and a blank", "split and joined", "carriage return", "two and spaces"],
)
def test_as_many_objects_as_lines_but_not_one_on_each(tmp_path: Path, bad: bytes, broken: int) -> None:
    assert_neighbours(around(tmp_path, bad), broken=broken)


def test_the_line_with_the_largest_output_decides_on_iterations_in_whatever_file_it_stands(tmp_path: Path) -> None:
    parts = [{"type": "message", "input_tokens": 1, "output_tokens": number} for number in (2, 3)]
    first = line(1, {"input_tokens": 4, "output_tokens": 5, "iterations": parts})
    second = line(1, {"input_tokens": 4, "output_tokens": 100})
    together, apart = tmp_path / "together", tmp_path / "apart"
    for folder, files in ((together, [first + b"\n" + second]), (apart, [first, second])):
        folder.mkdir()
        for number, content in enumerate(files):
            (folder / f"{number}.jsonl").write_bytes(content + b"\n")
    assert report(together).totals.usage.output_tokens == 100
    assert replace(report(apart).totals.usage, first_at=None) == replace(report(together).totals.usage, first_at=None)


@pytest.mark.parametrize("prompt", ["x" * 5000 + "\ud83d", "\ud83d", "x" * 5000, "short"])
def test_a_sidechain_is_known_by_its_whole_prompt(tmp_path: Path, prompt: str) -> None:
    task = {"type": "tool_use", "id": "t", "name": "Task", "input": {"subagent_type": "Explore", "prompt": prompt}}
    call = json.loads(line(1))
    call["message"]["content"] = [task]
    asked = {**json.loads(line(2)), "type": "user", "isSidechain": True, "message": {"content": prompt}}
    answer = json.loads(line(3, isSidechain=True, parentUuid="u2"))
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(record) + "\n" for record in (call, asked, answer)))
    assert {row.key: row.requests for row in report(tmp_path / "x.jsonl").by_agent_type} == {"main": 1, "Explore": 1}

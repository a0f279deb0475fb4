"""`ccache export` as users run it: a trace that the policy replays to the logged reads, and that names nobody."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.session_log import Log, text
from simulator.policy import Policy, simulate
from simulator.trace import Trace
from simulator.trace_files import read_trace

ROOT = Path(__file__).parents[2]
SAMPLES = str(ROOT / "analyzer" / "samples")


def run(home: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "analyzer", *arguments, "--db", ":memory:"],
        env={
            "HOME": str(home), "PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT), "TZ": "UTC",
            "PYTHONIOENCODING": "utf-8", "COLUMNS": "100",
        },
        cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def prompts(trace: Trace) -> list[int]:
    return sorted(sum(segment.tokens for segment in request.segments) for request in trace)


def test_the_trace_holds_what_was_logged(tmp_path: Path) -> None:
    code, _, errors = run(tmp_path, "export", SAMPLES, "--trace", "t.jsonl.gz")
    assert code == 0, errors
    trace = read_trace(tmp_path / "t.jsonl.gz")
    totals = json.loads(run(tmp_path, "analyze", SAMPLES, "--json")[1])["totals"]
    assert len(trace) == totals["requests"]
    for field in ("input_tokens", "cache_read_tokens", "output_tokens"):
        assert sum(getattr(request.logged, field) for request in trace if request.logged) == totals[field]
    assert [request.started_at_s for request in trace] == sorted(request.started_at_s for request in trace)
    known = {request.id for request in trace}
    assert all(request.parent is None or request.parent in known for request in trace)


def test_an_undisturbed_chain_is_replayed_to_the_token(tmp_path: Path) -> None:
    log = tmp_path / "projects" / "secret-client" / "s.jsonl"
    log.parent.mkdir(parents=True)
    read = 0
    with open(log, "w", encoding="utf-8") as stream:
        for number, written in enumerate((20_000, 1_500, 700, 2_048)):
            usage = {
                "input_tokens": 3, "output_tokens": 9, "cache_read_input_tokens": read,
                "cache_creation_input_tokens": written,
                "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
            }  # fmt: skip
            message = {"id": f"msg_{number}", "model": "claude-sonnet-4-5", "usage": usage,
                       "content": [{"type": "text", "text": "a private sentence"}]}  # fmt: skip
            record = {
                "type": "assistant", "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None,
                "sessionId": "s", "cwd": "/home/jane/secret-client", "gitBranch": "secret-branch",
                "timestamp": f"2026-01-01T00:0{number}:00Z", "message": message,
            }  # fmt: skip
            stream.write(json.dumps(record) + "\n")
            read += written
    code, _, errors = run(tmp_path, "export", str(log), "--trace", "t.jsonl")
    assert code == 0, errors
    trace = read_trace(tmp_path / "t.jsonl")
    assert [usage.cache_read_tokens for usage in simulate(trace, Policy())] == [0, 20_000, 21_500, 22_200]
    text = (tmp_path / "t.jsonl").read_text()
    assert not [word for word in ("jane", "secret", "private", "/home") if word in text]


@pytest.mark.parametrize("kind", ["mooncake", "weka"])
def test_other_engines_formats(tmp_path: Path, kind: str) -> None:
    own, other = (("export", SAMPLES, "--trace", name) for name in ("own.jsonl", "other"))
    assert run(tmp_path, *own)[0] == run(tmp_path, *other, "--trace-format", kind)[0] == 0
    kept = read_trace(tmp_path / "own.jsonl")
    found = read_trace(tmp_path / "other")
    assert len(found) == len(kept)
    assert prompts(found) == prompts(kept)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--session", "no-such"), 2),
        (("--json",), 2),
        (("--since", "2001-01-01", "--until", "2001-01-02"), 3),
        (("--trace", "missing/folder/t.jsonl"), 9),
    ],
)
def test_an_error_is_two_lines_and_leaves_no_file(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    found, output, errors = run(tmp_path, "export", SAMPLES, "--trace", "t.jsonl", *arguments)
    assert (found, output) == (code, ""), errors
    assert [line.partition(":")[0] for line in errors.splitlines()] == ["ccache", "hint"]
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".jsonl"]


def test_neither_a_log_nor_the_database_is_overwritten(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    message = {"id": "msg_1", "model": "claude-sonnet-4-5", "usage": {"input_tokens": 1}}
    log.write_text(json.dumps({"type": "assistant", "message": message}) + "\n")
    before = log.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(log)
    for name in ("s.jsonl", "link.jsonl"):
        assert run(tmp_path, "export", str(log), "--trace", name)[0] == 2
    assert log.read_bytes() == before
    (tmp_path / "other").write_text("kept until the trace is complete")
    (tmp_path / "to").symlink_to(tmp_path / "other")
    assert run(tmp_path, "export", str(log), "--trace", "to")[0] == 0
    assert (tmp_path / "to").is_symlink()
    assert len(read_trace(tmp_path / "other")) == 1


def test_a_clock_that_was_set_back_keeps_the_order(tmp_path: Path) -> None:
    log = Log("s1")
    log.ask(0)
    log.answer(5, "msg_1", w5=9_000, o=50)
    log.ask(-60)
    log.answer(-57, "msg_2", w5=500, r=9_000, o=50)
    log.ask(-50)
    log.answer(-45, "msg_3", w5=500, r=9_500, o=50)
    (tmp_path / "s1.jsonl").write_bytes(text(log))
    code, _, errors = run(tmp_path, "export", str(tmp_path / "s1.jsonl"), "--trace", "t.jsonl")
    assert code == 0, errors
    trace = read_trace(tmp_path / "t.jsonl")
    assert [request.id for request in trace] == ["msg_1", "msg_2", "msg_3"]
    starts = [request.started_at_s for request in trace]
    assert starts == sorted(starts)
    assert [usage.cache_read_tokens for usage in simulate(trace, Policy())] == [0, 9_000, 9_500]

"""`ccache simulate replay`, `break`, `subagents` and `sweep` as their users run them, on a tiny random model."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import analyzer.cli
from simulator.trace import Request, Segment, Usage
from simulator.trace_files import write_trace
from tests.tiny_model import save_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    return str(save_tiny_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def ccache(tiny, tmp_path, monkeypatch, capsys):
    """Runs a command in this process; -> exit code, stdout, stderr."""
    for name, value in {"HOME": str(tmp_path), "TZ": "UTC", "COLUMNS": "120", "CLAUDE_CCACHE_MODEL": tiny}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str):
        monkeypatch.setattr(sys, "argv", ["ccache", "simulate", *arguments])
        with pytest.raises(SystemExit) as end:
            analyzer.cli.main()
        captured = capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err

    return run


def session(turns: int = 6) -> list[Request]:
    trace = []
    for n in range(turns):
        segments = [Segment("system", 9_000, breakpoint="5m")]
        segments += [Segment(f"turn {k}", 1_500, breakpoint="5m" if k >= n - 1 else None) for k in range(n + 1)]
        logged = Usage(3, 9_000 if n else 0, 1_500 * (n + 1) + (0 if n else 9_000) - 3, 0, 20)
        trace.append(
            Request(
                f"msg_{n}", "main", f"msg_{n - 1}" if n else None, "claude-sonnet-4-5", "p", "", 1.77e9 + 60 * n,
                1.77e9 + 60 * n + 4, tuple(segments), 20, logged,
            )
        )  # fmt: skip
    return trace


@pytest.fixture
def trace(tmp_path) -> str:
    write_trace(tmp_path / "session.jsonl", session())
    return str(tmp_path / "session.jsonl")


def assert_error(result, code: int, *words: str) -> None:
    found, out, err = result
    assert (found, out) == (code, ""), err
    first, second = err.splitlines()
    assert first.startswith("ccache: error: ")
    assert second.startswith("hint: ")
    assert all(word in err for word in words), err


def test_json_has_the_documented_shape_and_adds_up(ccache, trace) -> None:
    code, out, _ = ccache("replay", trace, "--window", "1000", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["policy"], found["scale"], found["block_size"]) == ("logged", 18.0, 64)
    assert set(found) >= {"scale", "policy", "requests", "totals"}
    for row, request in zip(found["requests"], session(), strict=True):
        assert row["message_id"] == request.id
        assert row["logged"] == {
            "cache_read_tokens": request.logged.cache_read_tokens,
            "cache_creation_tokens": request.logged.cache_creation_tokens,
        }
        assert set(row["policy"]) == {"cache_read_tokens", "cache_creation_tokens"}
        assert set(row["engine"]) >= {
            "reused_tokens", "computed_tokens", "prefill_s", "prefill_uncached_s", "measured", "verified",
        }  # fmt: skip
        prompt = row["engine"]["reused_tokens"] + row["engine"]["computed_tokens"]
        readable = int(row["policy"]["cache_read_tokens"] / 18)
        assert row["engine"]["reused_tokens"] == 64 * (min(readable, prompt - 1) // 64)
    totals = found["totals"]
    for name in ("reused_tokens", "computed_tokens", "prefill_s"):
        assert totals[name] == pytest.approx(sum(row["engine"][name] for row in found["requests"]))
    assert totals["speedup"] == pytest.approx(totals["prefill_uncached_s"] / totals["prefill_s"])
    assert set(totals["cost_usd"]) == {"logged", "policy", "engine", "without_cache"}


def test_costs_are_tokens_times_list_prices(ccache, trace) -> None:
    _, out, _ = ccache("replay", trace, "--window", "300", "--limit", "2", "--policy", "none", "--json")
    cost = json.loads(out)["totals"]["cost_usd"]
    plain = (10_500 + 12_000) * 3.0 + 40 * 15.0
    assert float(cost["policy"]) == float(cost["without_cache"]) == pytest.approx(plain / 1e6)
    read, write, rest = 9_000, 10_497 + 2_997, 6
    assert float(cost["logged"]) == pytest.approx((read * 0.3 + write * 3.75 + rest * 3.0 + 40 * 15.0) / 1e6)


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_the_report_fits_the_terminal(ccache, trace, monkeypatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = ccache("replay", trace, "--window", "1000", "--verify", "--capacity", "100MiB")
    assert code == 0
    assert max(map(len, out.splitlines())) <= columns
    assert "6 equal bit for bit, 0 not" in " ".join(out.split())
    assert "1 model token for 18.00 real ones" in " ".join(out.split())


def test_two_policies_side_by_side(ccache, trace) -> None:
    code, out, _ = ccache("replay", trace, "--window", "500", "--compare", "5m", "none", "--json")
    five, none = json.loads(out)["replays"]
    assert (code, five["policy"], none["policy"]) == (0, "5m", "none")
    assert five["totals"]["reused_tokens"] > none["totals"]["reused_tokens"] == 0
    code, out, _ = ccache("replay", trace, "--window", "500", "--compare", "auto", "1h")
    assert "tokens reused" in out


def test_charts_are_written(ccache, trace, tmp_path) -> None:
    pytest.importorskip("vl_convert")
    for name, magic in (("chart.png", b"\x89PNG"), ("chart.svg", b"<svg")):
        code, _, err = ccache("replay", trace, "--window", "300", "--output", name)
        assert (code, err) == (0, f"chart written to {name}\n")
        assert (tmp_path / name).read_bytes().startswith(magic)
    assert ccache("break", "--tokens", "200", "--points", "2", "--output", "break.svg")[0] == 0
    assert ccache("sweep", trace, "--output", "sweep.svg")[0] == 0
    for name in ("break.svg", "sweep.svg"):
        assert (tmp_path / name).read_bytes().startswith(b"<svg")


def test_a_checkpoint_is_taken_up_again(ccache, trace, tmp_path) -> None:
    command = ("replay", trace, "--window", "1000", "--checkpoint", "progress.jsonl", "--json")
    first = json.loads(ccache(*command)[1])
    lines = (tmp_path / "progress.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 7
    (tmp_path / "progress.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:20])
    again = json.loads(ccache(*command)[1])
    assert [row["engine"]["reused_tokens"] for row in again["requests"]] == [
        row["engine"]["reused_tokens"] for row in first["requests"]
    ]
    assert [row["engine"]["prefill_s"] for row in again["requests"][:3]] == [
        row["engine"]["prefill_s"] for row in first["requests"][:3]
    ]
    assert again["requests"][3]["engine"]["restored_tokens"] > 0
    assert_error(ccache(*command, "--policy", "1h"), 2, "belongs to another replay", "name another file")


def test_mooncake_and_weka_traces(ccache, tmp_path) -> None:
    rows = [{"timestamp": 1000 * n, "input_length": 512 * (n + 8), "output_length": 5} for n in range(4)]
    rows = [{**row, "hash_ids": list(range(n + 8))} for n, row in enumerate(rows)]
    (tmp_path / "mooncake.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    calls = [
        {
            "t": 10 * n,
            "type": "n",
            "model": "claude-opus-4-5",
            "in": 64 * (100 + n),
            "out": 1,
            "hash_ids": list(range(100 + n)),
        }
        for n in range(4)
    ]
    with gzip.open(tmp_path / "weka.json.gz", "wt") as file:
        json.dump({"id": "w", "block_size": 64, "requests": calls}, file)
    for name in ("mooncake.jsonl", "weka.json.gz"):
        code, out, err = ccache("replay", name, "--policy", "5m", "--window", "900", "--json")
        assert code == 0, err
        found = json.loads(out)
        assert [row["logged"] for row in found["requests"]] == [None] * 4
        assert [row["engine"]["reused_tokens"] > 0 for row in found["requests"]] == [False, True, True, True]


def test_errors_are_one_line_and_a_hint(ccache, trace, tmp_path) -> None:
    (tmp_path / "broken.jsonl").write_text('{"format": "ccache-trace"}\n{"id": 1}\n')
    (tmp_path / "noise.jsonl").write_bytes(b"\x00\xff\xfe not json\n")
    (tmp_path / "empty.jsonl").write_text("")
    for name in ("broken.jsonl", "noise.jsonl", "empty.jsonl"):
        assert_error(ccache("replay", name), 9, name)
        assert_error(ccache("sweep", name), 9, name)
    assert_error(ccache("replay", trace, "--compare", "5m", "6m"), 2, "no policy '6m'")
    assert_error(ccache("replay", trace, "--capacity", "lots"), 2, "'lots' is not a size")
    assert_error(ccache("replay", trace, "--window", "9", "--scale", "2"), 2, "--window and --scale")
    assert_error(ccache("replay", trace, "--scale", "2"), 2, "9000 at scale 2", "window of 4096")
    assert_error(ccache("replay", trace, "--scale", "0.5"), 2, "a scale of 0.5")
    assert_error(ccache("replay", trace, "--output", "chart.gif"), 2, "chart.gif")
    assert_error(ccache("replay", trace, "--compare", "5m", "1h", "--checkpoint", "x"), 2, "--checkpoint")
    assert_error(ccache("replay", trace, "--scale", "inf"), 2, "a scale of inf")
    assert_error(ccache("replay", trace, "--checkpoint", "no/such/folder"), 2, "cannot keep progress")
    assert_error(ccache("replay", trace, "--checkpoint", "."), 2, "cannot keep progress")
    assert_error(ccache("break", "--change", "nothing"), 2, "no change 'nothing'")
    assert_error(ccache("break", "--tokens", "5000"), 2, "do not fit")
    assert_error(ccache("sweep", trace, "--policy", "weekly"), 2, "no policy 'weekly'")


def test_break_shows_reuse_by_position(ccache) -> None:
    code, out, _ = ccache("break", "--tokens", "300", "--points", "3", "--change", "token", "--json")
    found = json.loads(out)
    assert code == 0
    assert [(each["position"], each["reused_tokens"]) for each in found["breaks"]] == [(0, 0), (150, 128), (299, 256)]
    cold = 100_000 * 3.75 / 1e6
    assert float(found["breaks"][0]["cost_usd"]) == pytest.approx(cold)
    assert float(found["breaks"][2]["cost_usd"]) < cold / 3
    code, out, _ = ccache("break", "--tokens", "300", "--points", "3")
    assert "a timestamp is inserted at" in out


def test_subagents_four_ways(ccache) -> None:
    code, out, _ = ccache("subagents", "--no-logs", "--children", "2", "--window", "600", "--json")
    found = json.loads(out)
    assert code == 0
    reads = {each["kind"]: [child["policy_read_tokens"] for child in each["children"]] for each in found["kinds"]}
    assert reads == {"own": [0, 0], "fork": [60_000, 60_000], "staggered": [0, 20_000], "at_once": [0, 0]}
    assert found["logged"] is None


def test_subagents_beside_the_logs(ccache) -> None:
    sessions = Path(__file__).parents[2] / "fixtures" / "sessions"
    code, out, err = ccache("subagents", str(sessions), "--db", ":memory:", "--children", "1", "--window", "300")
    assert code == 0, err
    assert "your logs, first request of each subagent" in out
    assert re.search(r"^cold +2 +0\.0 %$", out, re.MULTILINE)


def test_sweep_counts_and_tensors(ccache, trace) -> None:
    options = ("--policy", "5m", "--policy", "none", "--capacity", "1KiB", "--capacity", "unbounded")
    code, out, _ = ccache("sweep", trace, *options, "--tensors", "--window", "600", "--json")
    found = json.loads(out)
    assert code == 0
    rates = {(cell["policy"], cell["capacity_bytes"]): cell["hit_rate"] for cell in found["cells"]}
    assert rates[("none", None)] == rates[("5m", 1024)] == 0 < rates[("5m", None)]
    assert [cell["reused_tokens"] > 0 for cell in found["tensors"]] == [False, True, False, False]
    assert ccache("sweep", trace, *options, "--tensors", "--window", "600")[0] == 0


def test_without_torch_the_accounting_works_and_the_rest_says_what_is_missing(trace, tmp_path) -> None:
    program = f"""
import importlib.util, sys
hidden = {{"torch", "transformers", "numpy", "numba"}}
class Hide:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in hidden else real(name, *rest)
from analyzer.cli import main
for arguments in (["sweep", {trace!r}, "--json"], ["replay", {trace!r}], ["break"], ["subagents", "--no-logs"]):
    sys.argv = ["ccache", "simulate", *arguments]
    try:
        main()
    except SystemExit as end:
        print(end.code, file=sys.stderr)
"""
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)["cells"]) == 25
    assert "Traceback" not in done.stderr
    assert [line for line in done.stderr.splitlines() if line.isdigit()] == ["0", "7", "7", "7"]


def test_a_session_of_the_logs_by_id_and_latest(ccache) -> None:
    logs = str(Path(__file__).parents[2] / "fixtures" / "sessions" / "verdict_shares_with_parent")
    code, out, err = ccache("replay", "latest", logs, "--db", ":memory:", "--window", "400", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert all(row["message_id"].startswith("msg_") and row["logged"] for row in found["requests"])
    assert found["totals"]["logged_read_tokens"] == sum(row["logged"]["cache_read_tokens"] for row in found["requests"])
    assert_error(ccache("replay", "no-such-session", logs, "--db", ":memory:"), 2, "no-such-session")
    assert_error(ccache("replay", "latest", "missing", "--db", ":memory:"), 3, "missing")

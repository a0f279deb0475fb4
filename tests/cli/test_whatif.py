"""`ccache whatif` as users run it: documented fields, every format, readable widths, two lines for an error."""

import csv
import io
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = str(ROOT / "analyzer" / "samples")
SCENARIO = {
    "name", "cost_usd", "delta_usd", "delta_rate", "cache_read_tokens", "cache_creation_5m_tokens",
    "cache_creation_1h_tokens", "input_tokens", "output_tokens", "assumptions", "confidence",
}  # fmt: skip
CHECKED = {"message_id", "logged_read_tokens", "predicted_read_tokens", "predicted_miss", "is_miss", "reason"}
NAMES = {
    "standard", "batch", "priority", "fast", "fast-off", "us-only", "global", "bedrock-regional", "vertex-regional",
    "today", "negotiated", "no-cache", "all-5m", "all-1h", "main-1h", "subagents-1h", "best-ttl", "best-setting",
    "keep-alive", "compact-at-100k", "no-compaction", "resume", "subagents-as-forks", "subagents-inline", "perfect",
}  # fmt: skip


def run(home: Path, *arguments: str, columns: int = 100) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "analyzer", "whatif", *arguments, "--db", str(home / "x.duckdb")],
        env={
            "HOME": str(home), "PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT), "TZ": "UTC",
            "PYTHONIOENCODING": "utf-8", "COLUMNS": str(columns),
        },
        cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_json_has_the_documented_fields(tmp_path: Path) -> None:
    code, output, errors = run(tmp_path, SAMPLES, "--json", "--by", "session")
    assert (code, errors) == (0, "")
    report = json.loads(output)
    scenarios = {row["name"]: row for row in report["scenarios"]}
    assert report["scenarios"][0]["name"] == "actual"
    assert scenarios.keys() >= NAMES
    assert all(row.keys() == SCENARIO for row in report["scenarios"])
    actual = Decimal(scenarios["actual"]["cost_usd"])
    for row in report["scenarios"]:
        if row["cost_usd"] is None:
            assert row["delta_usd"] is row["delta_rate"] is None
            continue
        assert Decimal(row["cost_usd"]) == actual + Decimal(row["delta_usd"])
        assert row["delta_rate"] == float(Decimal(row["delta_usd"]) / actual)
        assert row["confidence"] in ("exact", "high", "medium", "low")
        assert all(isinstance(text, str) and text for text in row["assumptions"])
    assert sum(Decimal(group["actual_usd"]) for group in report["groups"]) == actual
    assert scenarios["priority"]["cost_usd"] is None


def test_chosen_scenarios_in_their_order(tmp_path: Path) -> None:
    chosen = ["--scenario", "batch+sonnet-5-5", "--scenario", "perfect"]
    report = json.loads(run(tmp_path, SAMPLES, "--json", *chosen)[1])
    assert [row["name"] for row in report["scenarios"]] == ["actual", "batch+sonnet-5-5", "perfect"]
    code, output, _ = run(tmp_path, SAMPLES, "--format", "csv", *chosen)
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(output)))
    assert [row["cost_usd"] for row in rows] == [row["cost_usd"] for row in report["scenarios"]]
    groups = list(csv.DictReader(io.StringIO(run(tmp_path, SAMPLES, "--format", "csv", "--by", "model", *chosen)[1])))
    total = sum(Decimal(row["cost_usd"]) for row in groups if row["name"] == "perfect")
    assert total == Decimal(rows[2]["cost_usd"])


def test_check_has_the_documented_fields(tmp_path: Path) -> None:
    code, output, errors = run(tmp_path, SAMPLES, "--check", "--json")
    assert (code, errors) == (0, "")
    report = json.loads(output)
    assert report.keys() >= {"requests", "agreement", "miss_precision", "miss_recall", "by_cause", "rows"}
    assert all(row.keys() >= CHECKED for row in report["rows"])
    assert report["requests"] == len(report["rows"]) == sum(row["requests"] for row in report["by_cause"])
    missed = [row for row in report["rows"] if row["is_miss"]]
    assert report["miss_recall"] == sum(row["predicted_miss"] for row in missed) / len(missed)


@pytest.mark.parametrize("arguments", [(), ("--check",), ("--explain", "all-1h"), ("--by", "project")])
def test_every_width_is_kept(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    for columns in (50, 80, 120, 200):
        code, output, errors = run(tmp_path, SAMPLES, *arguments, columns=columns)
        assert (code, errors) == (0, "")
        assert all(len(line) <= columns for line in output.splitlines())
    assert run(tmp_path, SAMPLES, *arguments, "--format", "markdown")[1].startswith("# ")


def test_the_first_line_says_what_would_save_most(tmp_path: Path) -> None:
    table = run(tmp_path, SAMPLES)[1]
    report = json.loads(run(tmp_path, SAMPLES, "--json")[1])
    own = [row for row in report["scenarios"] if row["name"] in {
        "no-cache", "all-5m", "all-1h", "main-5m", "main-1h", "subagents-5m", "subagents-1h", "best-setting",
        "keep-alive", "compact-at-100k", "no-compaction", "resume", "subagents-as-forks", "subagents-inline",
    }]  # fmt: skip
    best = min(own, key=lambda row: Decimal(row["delta_usd"]))
    if Decimal(best["delta_usd"]) < 0:
        assert table.splitlines()[0].startswith("$")
        assert f"would have been saved by {best['name']}:" in " ".join(table.split())
    else:
        assert table.splitlines()[0].startswith("No cache setting")


def test_nothing_in_scope(tmp_path: Path) -> None:
    code, output, _ = run(tmp_path, SAMPLES, "--since", "2027-01-01")
    assert (code, output.splitlines()[0]) == (0, "No request in scope.")
    report = json.loads(run(tmp_path, SAMPLES, "--since", "2027-01-01", "--json")[1])
    assert report["scenarios"][0]["cost_usd"] is None
    assert run(tmp_path, SAMPLES, "--check", "--since", "2027-01-01")[1].startswith("Nothing to check")


@pytest.mark.parametrize(("arguments", "code", "hint"), [
    (("--scenario", "bach"), 2, "batch"),
    (("--scenario", "batch+sonet-5-5"), 2, "sonnet-5-5"),
    (("--explain", "all1h"), 2, "all-1h"),
    (("--scenario", "all-1h+no-cache"), 2, "batch+sonnet-5-5"),
    (("--check", "--scenario", "batch"), 2, "one of them at a time"),
])  # fmt: skip
def test_an_error_is_one_line_and_a_hint(tmp_path: Path, arguments: tuple[str, ...], code: int, hint: str) -> None:
    found, output, errors = run(tmp_path, SAMPLES, *arguments)
    lines = errors.splitlines()
    assert (found, output, len(lines)) == (code, "", 2), errors
    assert lines[0].startswith("ccache: error: ")
    assert lines[1].startswith("hint: ")
    assert hint in lines[1]

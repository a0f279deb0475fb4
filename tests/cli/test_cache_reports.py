"""`ccache misses`, `session` and `subagents` as users run them: documented fields, and two lines for an error."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = str(ROOT / "analyzer" / "samples")
REBUILD = {
    "session_id", "project", "chain", "message_id", "timestamp", "model", "cause", "confidence", "evidence", "gap_s",
    "ttl_s", "readable_tokens", "cache_read_tokens", "lost_tokens", "rewrite_cost_usd", "advice",
}  # fmt: skip
SPAWN = {
    "session_id", "agent_id", "agent_type", "model", "started_at", "first_read_tokens", "first_creation_tokens",
    "verdict", "matched", "cost_usd",
}  # fmt: skip


def run(home: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "analyzer", *arguments, "--db", str(home / "x.duckdb")],
        env={
            "HOME": str(home), "PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT), "TZ": "UTC",
            "PYTHONIOENCODING": "utf-8", "COLUMNS": "100",
        },
        cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_json_has_the_documented_fields(tmp_path: Path) -> None:
    code, output, errors = run(tmp_path, "misses", SAMPLES, "--json")
    assert (code, errors) == (0, "")
    misses = json.loads(output)
    assert all(row.keys() >= REBUILD for row in misses["misses"] + misses["expected_rebuilds"])
    assert misses["by_cause"][0].keys() == {"cause", "misses", "lost_tokens", "rewrite_cost_usd"}
    agents = json.loads(run(tmp_path, "subagents", SAMPLES, "--json")[1])
    assert agents.keys() >= {"verdict", "spawns", "by_type", "totals"}
    assert all(row.keys() >= SPAWN for row in agents["spawns"])
    one = json.loads(run(tmp_path, "session", "latest", SAMPLES, "--json")[1])
    assert one.keys() >= {"requests", "events", "agents"}


def test_analyze_and_session_agree_on_money(tmp_path: Path) -> None:
    from decimal import Decimal

    whole = json.loads(run(tmp_path, "analyze", SAMPLES, "--json")[1])
    for row in whole["by_session"]:
        one = json.loads(run(tmp_path, "session", row["key"], SAMPLES, "--json")[1])
        assert sum(Decimal(request["cost_usd"]) for request in one["requests"]) == Decimal(row["cost_usd"])
        assert sum(request["mark"] == "miss" for request in one["requests"]) == row["misses"]


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (("session", "5a3c", SAMPLES), 2, "5a3cb7e2, 5a3c1d10"),
        (("session", "nope", SAMPLES), 2, "the latest are 5a3cb7e2, 5a3c1d10"),
        (("session", "latest", SAMPLES, "--since", "2027-01-01"), 2, "drop --since"),
        (("session", "latest", "/no/such/folder"), 3, "a .jsonl file or a glob"),
        (("misses", SAMPLES, "--cause", "modelchanged"), 2, "model_changed"),
        (("subagents", SAMPLES, "--since", "yesterday"), 2, "YYYY-MM-DD"),
    ],
)
def test_an_error_is_one_line_and_a_hint(tmp_path: Path, arguments: tuple[str, ...], code: int, hint: str) -> None:
    found, output, errors = run(tmp_path, *arguments)
    lines = errors.splitlines()
    assert (found, output, len(lines)) == (code, "", 2), errors
    assert lines[0].startswith("ccache: error: ")
    assert lines[1].startswith("hint: ")
    assert hint in lines[1]

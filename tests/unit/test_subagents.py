"""What subagents cost and would have cost: hand-worked estimates, totals that add up, and every format."""

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from analyzer import database, discovery
from analyzer.alternatives import Parent, Step, fork_cost, inline_cost
from analyzer.ingest import ingest
from analyzer.queries import Scope, subagents
from analyzer.report.subagents import render_subagents, subagents_csv, subagents_json, subagents_markdown
from analyzer.results import SubagentReport

MICRO = Decimal("0.000001")
PARENT = Parent(100_000, 10, 4 * MICRO, MICRO / 5, 5 * MICRO, 8 * MICRO, 20 * MICRO)
TURNS = [Step(3, 0, 20_000, 100), Step(3, 20_000, 2_000, 200), Step(3, 22_000, 3_000, 300)]


def test_as_a_fork() -> None:
    # 1: read 100,000, write the task's 500, answer 100; then 500 + 2,000 and 500 + 5,000 of its own on top, 3 uncached
    first = 100_000 * MICRO / 5 + 500 * 5 * MICRO + 100 * 20 * MICRO
    second = 3 * 4 * MICRO + (100_000 + 2_500 - 2_003) * MICRO / 5 + 2_000 * 5 * MICRO + 200 * 20 * MICRO
    third = 3 * 4 * MICRO + (100_000 + 5_500 - 3_003) * MICRO / 5 + 3_000 * 5 * MICRO + 300 * 20 * MICRO
    assert fork_cost(TURNS, PARENT) == first + second + third


def test_inline_writes_at_the_main_ttl_and_is_read_again() -> None:
    more = (500 + 2_000 + 3_000) * 3 * MICRO + 5_500 * 10 * MICRO / 5
    assert inline_cost(TURNS, PARENT) == fork_cost(TURNS, PARENT) + more


def test_a_miss_of_the_agent_does_not_rewrite_the_parent() -> None:
    """An agent that lost everything wrote its own prefix again; a fork would not have that prefix."""
    lost = [TURNS[0], Step(3, 0, 22_000, 200)]
    assert fork_cost(lost, PARENT) <= fork_cost(TURNS[:2], PARENT) + 500 * 5 * MICRO


@pytest.fixture
def report() -> SubagentReport:
    with database.connect(":memory:") as connection:
        found, unreadable = discovery.find_transcripts([str(discovery.sample_root())])
        ingest(connection, found, unreadable, now=datetime(2026, 11, 29, tzinfo=UTC))
        return subagents(connection, Scope())


def test_totals_and_types_are_sums_of_spawns(report: SubagentReport) -> None:
    rows = subagents_json(report)
    assert [row["agent_type"] for row in rows["by_type"]] == ["Explore"]
    for name in ("cost_usd", "cold_start_usd", "fork_cost_usd", "inline_cost_usd"):
        total = sum(Decimal(spawn[name]) for spawn in rows["spawns"])
        assert Decimal(rows["totals"][name]) == Decimal(rows["by_type"][0][name]) == total
    assert rows["totals"]["spawns"] == rows["totals"]["compared_spawns"] == 2
    assert sum(rows["totals"]["verdicts"].values()) == 2
    assert 0 < Decimal(rows["totals"]["cold_start_usd"]) < Decimal(rows["totals"]["cost_usd"])


def test_cold_start_is_what_the_first_request_found_nowhere(report: SubagentReport) -> None:
    # haiku 5.5 up to 100,000 tokens: input 0.10, 5m write 0.125 USD per million tokens
    first = report.spawns[0]
    assert first.first_creation_tokens == 15_000
    assert first.cold_start_usd is not None
    assert first.cold_start_usd - 15_000 * Decimal("0.125") * MICRO < Decimal("0.00001")


def test_every_format(report: SubagentReport) -> None:
    assert len(list(csv.DictReader(io.StringIO(subagents_csv(report, "spawn"))))) == 2
    assert next(csv.DictReader(io.StringIO(subagents_csv(report, "type"))))["agent_type"] == "Explore"
    assert subagents_csv(SubagentReport(()), "spawn") == ""
    assert "1 more: --top N" in subagents_markdown(report, 1)
    for width in (40, 80, 120, 200):
        out = StringIO()
        render_subagents(report, Console(file=out, width=width, force_terminal=False), top=1)
        assert out.getvalue().startswith("Your subagents do not share")
        assert all(len(line) <= width for line in out.getvalue().splitlines())
    out = StringIO()
    render_subagents(SubagentReport(()), Console(file=out, width=80))
    assert out.getvalue().strip() == "No subagents in scope."


def test_an_inline_sidechain_is_a_spawn_of_its_own(tmp_path: Path) -> None:
    def line(number: int, uuid: str, parent: str | None, read: int, sidechain: bool) -> str:
        usage = {"input_tokens": 3, "cache_read_input_tokens": read, "cache_creation_input_tokens": 4_000,
                 "output_tokens": 5}  # fmt: skip
        message = {"id": f"msg_{number}", "model": "claude-sonnet-4-5", "usage": usage, "content": []}
        return json.dumps(
            {"type": "assistant", "uuid": uuid, "parentUuid": parent, "isSidechain": sidechain, "sessionId": "s",
             "timestamp": f"2026-01-01T00:0{number}:00Z", "message": message}
        )  # fmt: skip

    log = tmp_path / "s.jsonl"
    lines = [line(0, "m", None, 0, False), line(1, "r1", None, 0, True), line(2, "r2", "r1", 4_000, True),
             line(3, "q1", None, 0, True)]  # fmt: skip
    log.write_text("\n".join(lines) + "\n")
    with database.connect(":memory:") as connection:
        ingest(connection, *discovery.find_transcripts([str(log)]), now=datetime(2026, 11, 29, tzinfo=UTC))
        spawns = subagents(connection, Scope()).spawns
    assert [(spawn.agent_id, spawn.requests, spawn.agent_type) for spawn in spawns] == [
        ("r1", 2, "unknown"),
        ("q1", 1, "unknown"),
    ]

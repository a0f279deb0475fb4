"""Every folder under fixtures/sessions must give the values that its STORY.md works out by hand."""

import tomllib
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from analyzer.causes import ADVICE
from analyzer.database import connect
from analyzer.discovery import find_transcripts
from analyzer.ingest import ingest
from analyzer.queries import Scope, analyze, misses, subagents
from analyzer.results import AnalyzeReport, MissReport, SubagentReport

SESSIONS = Path(__file__).parents[2] / "fixtures" / "sessions"
CASES = sorted(path for path in SESSIONS.iterdir() if path.is_dir())
VERDICTS = {
    "shares_with_parent", "shares_with_siblings", "shares_static_prefix", "too_early", "cold", "partial_unknown",
}  # fmt: skip


def reports_of(
    folder: Path, expected: dict[str, Any]
) -> tuple[AnalyzeReport, MissReport | None, SubagentReport | None]:
    """The reports that the expected tables speak of."""
    files, unreadable = find_transcripts([str(folder)])
    with closing(connect(":memory:")) as connection:
        result, ids = ingest(connection, files, unreadable)
        scope = Scope(file_ids=tuple(ids))
        return (
            analyze(connection, scope, result),
            misses(connection, scope) if "rebuild" in expected else None,
            subagents(connection, scope) if "spawn" in expected else None,
        )


def actual(report: AnalyzeReport, key: str) -> object:
    for part in (report.totals.usage, report.quality):
        if hasattr(part, key):
            return getattr(part, key)
    raise AssertionError(f"expected.toml names an unknown figure: {key}")


def expected_of(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))


def rows_like(expected: list[dict[str, Any]], found: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The found rows, each cut to the fields that the expected row in its place names."""
    assert len(found) == len(expected)
    cut = []
    for row, wanted in zip(found, expected, strict=True):
        values = {key: getattr(row, key) for key in wanted}
        cut.append({key: str(value) if isinstance(value, Decimal) else value for key, value in values.items()})
    return cut


def test_the_cases_are_there() -> None:
    assert len(CASES) >= 34


def test_every_cause_and_every_verdict_has_its_case() -> None:
    rebuilds = {row["cause"] for folder in CASES for row in expected_of(folder).get("rebuild", ())}
    assert rebuilds >= {*ADVICE, "compaction", "microcompaction", "tool_clearing", "cleared"}
    assert {row["verdict"] for folder in CASES for row in expected_of(folder).get("spawn", ())} == VERDICTS


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_case(folder: Path) -> None:
    assert (folder / "STORY.md").is_file(), "a case needs its hand arithmetic"
    assert (folder / "expected.toml").is_file(), "a case needs its expected values"
    expected = expected_of(folder)
    assert expected, "expected.toml is empty"
    report, missed, agents = reports_of(folder, expected)
    rebuilds, spawns = expected.pop("rebuild", None), expected.pop("spawn", None)
    cost = expected.pop("cost_usd", None)
    expected["cost_usd"] = None if cost is None else Decimal(str(cost))
    assert {key: actual(report, key) for key in expected} == expected
    if missed:
        assert rows_like(rebuilds, missed.misses + missed.expected_rebuilds) == rebuilds
    if agents:
        assert rows_like(spawns, tuple(sorted(agents.spawns, key=lambda spawn: spawn.agent_id))) == spawns

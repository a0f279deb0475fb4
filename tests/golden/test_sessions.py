"""Every folder under fixtures/sessions must give the values that its STORY.md works out by hand."""

import tomllib
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from analyzer.database import connect
from analyzer.discovery import find_transcripts
from analyzer.ingest import ingest
from analyzer.queries import Scope, analyze
from analyzer.results import AnalyzeReport

SESSIONS = Path(__file__).parents[2] / "fixtures" / "sessions"
CASES = sorted(path for path in SESSIONS.iterdir() if path.is_dir())


def report_of(folder: Path) -> AnalyzeReport:
    files, unreadable = find_transcripts([str(folder)])
    with closing(connect(":memory:")) as connection:
        result, ids = ingest(connection, files, unreadable)
        return analyze(connection, Scope(file_ids=tuple(ids)), result)


def actual(report: AnalyzeReport, key: str) -> object:
    for part in (report.totals.usage, report.quality):
        if hasattr(part, key):
            return getattr(part, key)
    raise AssertionError(f"expected.toml names an unknown figure: {key}")


def test_the_cases_are_there() -> None:
    assert len(CASES) >= 34


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_case(folder: Path) -> None:
    assert (folder / "STORY.md").is_file(), "a case needs its hand arithmetic"
    assert (folder / "expected.toml").is_file(), "a case needs its expected values"
    expected: dict[str, object] = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
    assert expected, "expected.toml is empty"
    cost = expected.pop("cost_usd", None)
    expected["cost_usd"] = None if cost is None else Decimal(str(cost))
    report = report_of(folder)
    assert {key: actual(report, key) for key in expected} == expected

"""Compare `ccache analyze` with an independent count: requests, tokens by class, unpriced requests and cost, exactly.

Usage: python tests/bench/check_corpus.py FOLDER [SOURCE ...]
FOLDER holds one folder per source and an `expected.json`: {source: {files, lines, broken_lines, usage_lines, requests,
from_progress, unpriced_requests, cost_usd, by_model: {model: {requests, input, w5, w1, read, output, cost_usd}}}}; the
source `_all` stands for the whole folder. Exit code 1 where a figure differs.
"""

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from analyzer import database, discovery
from analyzer.ingest import ingest
from analyzer.queries import Scope, analyze
from analyzer.results import AnalyzeReport, GroupRow


def figures(row: GroupRow) -> dict[str, Any]:
    return {
        "requests": row.requests,
        "input": row.input_tokens,
        "w5": row.cache_creation_5m_tokens,
        "w1": row.cache_creation_1h_tokens,
        "read": row.cache_read_tokens,
        "output": row.output_tokens,
        "cost_usd": None if row.cost_usd is None else f"{row.cost_usd:f}",
    }


def found(report: AnalyzeReport) -> dict[str, Any]:
    return {
        "files": report.quality.files,
        "lines": report.quality.lines,
        "broken_lines": report.quality.broken_lines,
        "requests": report.totals.usage.requests,
        "from_progress": report.quality.progress_only_requests,
        "unpriced_requests": report.quality.unpriced_requests,
        "cost_usd": f"{report.totals.usage.cost_usd or 0:f}",
        "by_model": {row.key: figures(row) for row in report.by_model},
    }


def differences(expected: Any, actual: Any, place: str = "") -> list[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        names = sorted(actual if not place else expected.keys() | actual.keys())
        return [text for name in names for text in differences(expected.get(name), actual.get(name), f"{place}/{name}")]
    if place.endswith("cost_usd") and None not in (expected, actual):
        same = Decimal(expected) == Decimal(actual)
    else:
        same = expected == actual
    return [] if same else [f"{place}: expected {expected}, found {actual}"]


def main() -> None:
    folder = Path(sys.argv[1])
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    wrong = 0
    for source in sys.argv[2:] or expected:
        with database.connect(":memory:") as connection:
            files, unreadable = discovery.find_transcripts([str(folder if source == "_all" else folder / source)])
            result, _ = ingest(connection, files, unreadable)
            problems = differences(expected[source], found(analyze(connection, Scope(), result)))
        wrong += bool(problems)
        print(source, "differs" if problems else "equal", *problems, sep="\n  " if problems else " ")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()

"""Every format shows the same numbers, and no name from a log can do anything."""

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from rich.cells import cell_len
from rich.console import Console

from analyzer.report.charts import day_chart
from analyzer.report.formatting import clean_text, format_percent, format_tokens, format_usd
from analyzer.report.machine import CSV_TABLES, analyze_csv, analyze_json, analyze_markdown
from analyzer.report.prices import render_prices
from analyzer.report.terminal import render_analyze
from analyzer.results import AnalyzeReport, DayRow, GroupRow, Meta, Quality, Totals, UnpricedModel

HOSTILE = "evil\x1b[31m\x1b]0;title\x07 [red]x[/red] a|b\nsecond\u202eline\x9b"


def row(key: str, scale: int = 1, cost: str | None = "12.345678", **more: int) -> GroupRow:
    return GroupRow(
        key, key, 41 * scale, 12_345 * scale, 234_567 * scale, 78_901 * scale, 9_876_543 * scale, 45_678 * scale,
        None if cost is None else Decimal(cost), more.get("unpriced", 0), misses=3 * scale, expected_rebuilds=scale,
        rewritten_tokens=55_555 * scale,
    )  # fmt: skip


def make_report(days: int = 20) -> AnalyzeReport:
    start = datetime(2026, 11, 1, 9, tzinfo=UTC)
    usage = replace(row("total", 6, "98.7654321", unpriced=7), first_at=start, last_at=start + timedelta(days=19))
    meta = Meta("0.1.0", "Europe/Berlin", "genai-prices 0.2.3", "2026-11-20", ("~/.claude",), None, None, (), (), "db")
    totals = Totals(
        usage, Decimal("1.1"), Decimal("8.8"), Decimal("4.7"), Decimal("29.6"), Decimal("54.5654321"), Decimal(0),
        Decimal("321.5"), 18, 222_222, Decimal("2.75"), 6, 111_111, Decimal("1E-7"),
    )  # fmt: skip
    by_day = tuple(
        DayRow(date(2026, 11, 1) + timedelta(days=day), row(str(day), 1 + day * 7 % 11)) for day in range(days)
    )
    quality = Quality(
        files=12, lines=9000, broken_lines=5, output_lower_bound_requests=17, unpriced_requests=7,
        unpriced_models=(UnpricedModel("future-[bold]model\x1b[2J", 7, 70_000, 900),), titles_without_usage=4,
        copied_requests=31,
    )  # fmt: skip
    return AnalyzeReport(
        meta, totals,
        (row("claude-opus-4-5", 4, "80.1"), row("claude-haiku-4-5", 1, "6.2", unpriced=2), row("future", 1, None)),
        (row(HOSTILE, 3, "60.5"), row("-home-me-work-a-rather-long-project-name-that-must-be-cut-somewhere", 3)),
        tuple(row(f"2026-11-{n:02d} session {n}", n, f"{n}.5") for n in range(1, 15)),
        by_day, (row("main", 5, "70"), row("subagents: Explore", 1)), (row("5m", 4, "50"), row("1h", 2, "30")),
        (row("2.1.0", 6),), quality,
    )  # fmt: skip


def empty_report() -> AnalyzeReport:
    full, zero = make_report(), Decimal(0)
    totals = Totals(GroupRow("total", "total", 0, 0, 0, 0, 0, 0, None, 0), zero, zero, zero, zero, zero, zero, zero,
                    0, 0, zero, 0, 0, zero)  # fmt: skip
    return AnalyzeReport(full.meta, totals, (), (), (), (), (), (), (), Quality())


def rendered(report: AnalyzeReport, width: int = 120, encoding: str = "utf-8", top: int = 10) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    render_analyze(report, Console(file=file, width=width, force_terminal=False, no_color=True), top=top)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_numbers_are_the_same_in_every_format() -> None:
    report = make_report()
    document = json.loads(json.dumps(analyze_json(report)))
    terminal, markdown = rendered(report, 200), analyze_markdown(report)
    for by in CSV_TABLES:
        from_csv = list(csv.DictReader(io.StringIO(analyze_csv(report, by))))
        expected = [{k: "" if v is None else str(v) for k, v in r.items()} for r in document[f"by_{by}"]]
        assert from_csv == expected
    for by in ("model", "project", "agent_type", "ttl"):
        for entry in document[f"by_{by}"]:
            cost = format_usd(None if entry["cost_usd"] is None else Decimal(entry["cost_usd"]))
            shown = [cost, format_percent(entry["hit_rate"])]
            shown += [format_tokens(entry[name]) for name in entry if name.endswith("_tokens")]
            for text in shown:
                assert text in terminal
                assert text in markdown
    totals = document["totals"]
    for name in ("cost_usd", "uncached_cost_usd", "saved_usd", "miss_rewrite_cost_usd", "expected_rewrite_cost_usd"):
        assert format_usd(Decimal(totals[name])) in terminal
        assert format_usd(Decimal(totals[name])) in markdown
    assert Decimal(totals["saved_usd"]) == report.totals.saved_usd


def test_money_is_exact_plain_and_never_a_silent_zero() -> None:
    document = analyze_json(make_report())
    assert document["totals"]["cost_usd"] == "98.7654321"
    assert document["totals"]["expected_rewrite_cost_usd"] == "0.0000001"
    assert document["by_model"][2]["cost_usd"] is None
    assert document["by_day"][0]["day"] == "2026-11-01"
    assert analyze_json(empty_report())["totals"]["saved_usd"] is None
    assert "unpriced" in rendered(make_report())


def test_hostile_names_are_inert() -> None:
    report = make_report()
    outputs = [rendered(report, 200), analyze_markdown(report), analyze_csv(report, "project")]
    outputs.append(json.dumps(analyze_json(report), ensure_ascii=False))
    for text in outputs:
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(text)
    assert "evil [red]x[/red] a|b second" in outputs[0]
    assert "a\\|b second" in outputs[1]
    assert clean_text("a\nb\ud800") == "a b"
    formula = replace(report, by_project=(row("=cmd|calc"), row("-home-me")))
    assert "\n'=cmd|calc," in analyze_csv(formula, "project")
    assert "\n-home-me," in analyze_csv(formula, "project")


@pytest.mark.parametrize("width", [24, 40, 80, 120, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("days", [1, 20, 400])
def test_no_line_is_wider_than_the_terminal(width: int, encoding: str, days: int) -> None:
    text = rendered(make_report(days), width, encoding)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "$98.77" in text
    assert "$54.57" in text or width < 40, "a cut amount would be a wrong amount"
    if width >= 80:
        assert "somewhere" in text


@pytest.mark.parametrize("width", [60, 80, 99, 100, 101, 120, 139, 140, 141, 200])
def test_dated_models_stay_apart(width: int) -> None:
    names = ("opus-4-5-20251101", "sonnet-4-5-20251101", "haiku-4-5-20251101")
    report = replace(make_report(), by_model=tuple(row(f"claude-{name}", n) for n, name in enumerate(names, 1)))
    text = rendered(report, width)
    assert [name for name in names if name not in text] == []


def test_top_cuts_and_says_so() -> None:
    text = rendered(make_report(), 120, top=3)
    assert "Sessions, top 3 of 14" in text
    assert "session 14" in text
    assert "session 11" not in text


def test_what_is_missing_is_counted() -> None:
    for text in (rendered(make_report()), analyze_markdown(make_report())):
        assert "broken lines skipped" in text
        assert "lower bound" in text
        assert "logs never hold" in text
        assert "no price for future-" in text


def test_empty_report_works_in_every_format() -> None:
    report = empty_report()
    assert "No requests in this scope" in rendered(report, 80)
    assert "broken lines skipped: 0" in analyze_markdown(report)
    json.dumps(analyze_json(report))
    for by in CSV_TABLES:
        assert len(analyze_csv(report, by).splitlines()) == 1
    with pytest.raises(ValueError, match="no table"):
        analyze_csv(report, "nonsense")


def test_chart_shows_the_smallest_day_and_leaves_gaps() -> None:
    days = [DayRow(date(2026, 1, 1), row("a", 1000)), DayRow(date(2026, 1, 3), row("b", 1))]
    chart = day_chart(days, 80, ascii_only=True)
    assert chart is not None
    assert chart.read[-1].count(" ") > 6
    assert chart.read[-1].rstrip().endswith(".")
    assert all(line.isascii() for line in (*chart.read, *chart.creation, chart.axis))
    assert day_chart([], 80) is None


@pytest.mark.parametrize(
    ("tokens", "text"), [(0, "0"), (999, "999"), (1234, "1.2k"), (999_950, "1.0M"), (1_200_000, "1.2M")]
)
def test_tokens(tokens: int, text: str) -> None:
    assert format_tokens(tokens) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [("0", "$0.00"), ("1234.5", "$1,234.50"), ("-3", "-$3.00"), ("0.0042", "$0.0042"), ("1E-9", "<$0.0001")],
)
def test_usd(usd: str, text: str) -> None:
    assert format_usd(Decimal(usd)) == text
    assert format_percent(None) == "n/a"


def test_prices_fit_80_columns_with_every_model_date_and_rate_in_full() -> None:
    long = "claude-opus-4-5-20251101"
    rates = [Decimal("3"), Decimal("37.50"), Decimal("6"), Decimal("0.125"), Decimal("112.5")]
    rows = [
        (long, "", "", 0, "standard", *rates, "book"),
        (long, "2026-02-07", "2026-02-17", 2, "fast", *rates, "leaflet"),
        ("claude-x", "2026-02-07", "", 1, "standard", *rates, "book"),
        (HOSTILE, "", "", 0, "standard", *rates, HOSTILE),
    ]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    render_prices(rows, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    lines = shown.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert lines[1].split() == [long, "3", "37.5", "6", "0.125", "112.5", "[1]"]
    assert lines[2].split() == [
        "2026-02-07..2026-02-17",
        ">",
        "200K",
        "fast",
        "3",
        "37.5",
        "6",
        "0.125",
        "112.5",
        "[2]",
    ]
    assert [lines[3].split(), lines[4].split()[:4]] == [["claude-x"], ["from", "2026-02-07", ">", "100K"]]
    assert "\x1b" not in shown
    assert "[2] leaflet" in lines

"""`ccache whatif --check`: predicted beside logged reads, for terminals, programs and pages."""

import csv
import io
from typing import Any

from rich.console import Console
from rich.text import Text

from analyzer.report.formatting import clean_text, escape_markdown, format_count, format_percent, format_tokens
from analyzer.report.machine import csv_text, markdown_table
from analyzer.report.screen import Screen
from analyzer.whatif.results import Checked, CheckReport, Score

ROW_COLUMNS = (
    "message_id", "logged_read_tokens", "predicted_read_tokens", "predicted_miss", "is_miss", "reason", "expected",
    "agrees", "readable_tokens", "session_id",
)  # fmt: skip
MEANINGS = {
    "kept": "nothing speaks against reading all of the last prompt",
    "ttl_expired_5m": "more than 5 minutes since the last request",
    "ttl_expired_1h": "more than an hour since the last request",
    "compaction": "a compaction or clearing stands between",
    "model_changed": "another model",
    "fast_mode_changed": "the conversation's first fast request",
    "effort_changed": "another effort, on a model that keys on it",
    "resumed": "the session was resumed",
    "version_changed": "another Claude Code version",
    "rewind_or_branch": "it goes on from an earlier request",
    "messages_rewritten": "the prompt is shorter than what was cached",
    "deferred_tool_loaded": "a tool search went before: the tool list changes",
    "floor_pinned": "the last requests all read the same little",
}


def check_json(report: CheckReport) -> dict[str, Any]:
    """Rates are 0..1, null where nothing was to be judged; `is_miss` includes expected rebuilds (`expected`)."""
    return {
        "requests": report.score.requests,
        "agreement": report.score.agreement,
        "miss_precision": report.score.miss_precision,
        "miss_recall": report.score.miss_recall,
        "without_expected": {
            "requests": report.without_expected.requests,
            "agreement": report.without_expected.agreement,
            "miss_precision": report.without_expected.miss_precision,
            "miss_recall": report.without_expected.miss_recall,
        },
        "by_cause": [
            {
                "cause": row.reason,
                "requests": row.requests,
                "agreed": row.agreed,
                "misses_called": row.misses_called,
                "false_alarms": row.false_alarms,
                "misses_overlooked": row.misses_overlooked,
            }
            for row in report.by_reason
        ],
        "unforeseen_by_cause": [
            {"cause": row.cause, "misses": row.misses, "lost_tokens": row.lost_tokens} for row in report.unforeseen
        ],
        "rows": [_row(row) for row in report.rows],
    }


def _row(row: Checked) -> dict[str, Any]:
    cells = {column: getattr(row, column) for column in ROW_COLUMNS}
    return cells | {name: _clean(cells[name]) for name in ("message_id", "session_id")}


def _clean(text: str | None) -> str | None:
    return None if text is None else clean_text(text)


def check_csv(report: CheckReport) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(ROW_COLUMNS)
    for row in report.rows:
        cells = _row(row)
        writer.writerow([csv_text(cell) if isinstance(cell := cells[name], str) else cell for name in ROW_COLUMNS])
    return out.getvalue()


def check_lines(report: CheckReport) -> list[str]:
    if not report.score.requests:
        return ["Nothing to check: no request in scope follows another."]
    return [
        f"The cache did what its rules say for {format_percent(report.score.agreement)} of"
        f" {format_count(report.score.requests)} requests.",
        f"Of the misses predicted, {format_percent(report.score.miss_precision)} happened; of those that happened,"
        f" {format_percent(report.score.miss_recall)} were predicted.",
        f"Without expected rebuilds (after compactions): {_rates(report.without_expected)}.",
        "Predicted one step ahead from the log before each request; agreement is within 2,000 tokens or 5 % of what"
        " could be read.",
    ]


def _rates(score: Score) -> str:
    return (
        f"{format_percent(score.agreement)} agree, {format_percent(score.miss_precision)} precision,"
        f" {format_percent(score.miss_recall)} recall"
    )


HEADER = ("requests", "agree", "hit", "false", "unseen")


def _cells(report: CheckReport) -> list[tuple[str, ...]]:
    return [
        (
            row.reason,
            format_count(row.requests),
            format_percent(row.agreed / row.requests),
            format_count(row.misses_called),
            format_count(row.false_alarms),
            format_count(row.misses_overlooked),
        )
        for row in report.by_reason
    ]


def check_markdown(report: CheckReport) -> str:
    lines = ["# Prediction of the log", "", *(f"- {escape_markdown(line)}" for line in check_lines(report)), ""]
    if report.rows:
        rows = [
            (escape_markdown(cells[0]), *cells[1:], escape_markdown(MEANINGS.get(cells[0], "")))
            for cells in _cells(report)
        ]
        header = ("Rule", "Requests", "Agree", "Misses called", "False alarms", "Misses not seen", "Because")
        lines += markdown_table(header, rows)
        found = [
            (escape_markdown(row.cause), format_count(row.misses), format_tokens(row.lost_tokens))
            for row in report.unforeseen
        ]
        lines += markdown_table(("Cause of misses not seen", "Misses", "Lost"), found) if found else []
    return "\n".join(lines) + "\n"


def render_check(report: CheckReport, console: Console, *, top: int = 15) -> None:
    screen = Screen(console)
    for place, line in enumerate(check_lines(report)):
        screen.line(Text(line, "bold" if place == 0 else "dim" if place == 3 else ""))
    if not report.rows:
        return
    screen.heading("By rule")
    wide = screen.width >= 100
    table = screen.table()
    table.add_column("", no_wrap=True, overflow=screen.cut, width=21)
    for name in HEADER:
        table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, width=8)
    if wide:
        table.add_column("because", ratio=1, no_wrap=True, overflow=screen.cut)
    for cells in _cells(report):
        because = [Text(MEANINGS.get(cells[0], ""), "dim")] if wide else []
        table.add_row(Text(cells[0], "bold"), *map(Text, cells[1:]), *because)
    screen.line(table)
    screen.line(Text("hit, false: misses predicted that did and did not happen; unseen: misses not predicted", "dim"))
    if report.unforeseen:
        screen.heading("Misses that no rule foresaw, by the cause found afterwards")
        table = screen.table()
        table.add_column("", no_wrap=True, overflow=screen.cut, width=21)
        for name in ("misses", "lost"):
            table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, width=8)
        table.add_column("", ratio=1)
        for row in report.unforeseen[:top]:
            table.add_row(Text(row.cause), Text(format_count(row.misses)), Text(format_tokens(row.lost_tokens)), "")
        screen.line(table)
    _parting(screen, report, top)


def _parting(screen: Screen, report: CheckReport, top: int) -> None:
    """Where prediction and log part most, in tokens."""
    apart = [row for row in report.rows if not row.agrees]
    if not apart:
        return
    apart.sort(key=lambda row: -abs(row.logged_read_tokens - row.predicted_read_tokens))
    shown = apart[:top]
    screen.heading(f"Furthest apart, {len(shown)} of {format_count(len(apart))}")
    table = screen.table()
    table.add_column("session", no_wrap=True, overflow=screen.cut, width=8)
    table.add_column("message", no_wrap=True, overflow=screen.cut, ratio=1)
    for name in ("readable", "logged", "predicted"):
        table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, width=9)
    table.add_column("rule", no_wrap=True, overflow=screen.cut, width=20)
    for row in shown:
        table.add_row(
            screen.name(row.session_id[:8]),
            screen.name(row.message_id or ""),
            Text(format_tokens(row.readable_tokens)),
            Text(format_tokens(row.logged_read_tokens)),
            Text(format_tokens(row.predicted_read_tokens)),
            Text(row.reason),
        )
    screen.line(table)
    if len(apart) > len(shown):
        screen.line(Text(f"{format_count(len(apart) - len(shown))} more: --top N, --format csv or json", "dim"))

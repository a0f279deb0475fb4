"""The "What to change" section: findings for a terminal, for JSON and for Markdown."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from analyzer.report.formatting import clean_text, escape_markdown, format_count, format_usd, plain_decimal
from analyzer.report.screen import Screen
from analyzer.results import Finding

NOTHING = "Nothing to change: no setting or habit known here would have saved 0.2 % of the spend."
MOST = 5
ON_SCREEN = 4


def findings_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """All findings, largest saving first; money as exact decimal strings."""
    return [
        {
            "kind": finding.kind,
            "title": clean_text(finding.title),
            "saving_usd": plain_decimal(finding.saving_usd),
            "setting": clean_text(finding.setting),
            "assumption": clean_text(finding.assumption),
            "evidence": [clean_text(text) for text in finding.evidence],
            "misses": finding.misses,
            "sessions": [clean_text(session) for session in finding.sessions],
            "locations": [clean_text(location) for location in finding.locations],
        }
        for finding in findings
    ]


def findings_markdown(findings: Sequence[Finding]) -> list[str]:
    lines = ["## What to change", ""]
    if not findings:
        return [*lines, NOTHING, ""]
    for number, finding in enumerate(findings[:MOST], 1):
        lines += [
            f"{number}. **{escape_markdown(finding.title)}**: would have saved "
            f"{escape_markdown(format_usd(finding.saving_usd))}",
            f"   - Change: {escape_markdown(finding.setting)}",
            f"   - Seen: {escape_markdown('; '.join(finding.evidence))}",
            f"   - Assumed: {escape_markdown(finding.assumption)}",
        ]
        if finding.locations:
            lines.append(f"   - First: {escape_markdown(finding.locations[0])}")
    return [*lines, "", *([_more(len(findings) - MOST), ""] if len(findings) > MOST else [])]


def render_findings(screen: Screen, findings: Sequence[Finding]) -> None:
    if not findings:
        screen.heading("What to change")
        screen.line(Text(NOTHING))
        return
    screen.heading("What to change, and what each would have saved")
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(justify="right", no_wrap=True, overflow=screen.cut)
    table.add_column(ratio=1, overflow="fold")
    shown = findings[:ON_SCREEN]
    for finding in shown:
        named = list(dict.fromkeys(session[:8] for session in finding.sessions))[:3]
        sessions = f" ({', '.join(named)})" if named else ""
        table.add_row(
            Text(format_usd(finding.saving_usd), "bold green"),
            Text("\n").join(
                (
                    screen.name(finding.title, "bold"),
                    screen.name(finding.setting),
                    screen.name(f"seen: {'; '.join(finding.evidence)}{sessions}", "dim"),
                    screen.name(f"assumed: {finding.assumption}", "dim"),
                )
            ),
        )
    screen.line(table)
    if len(findings) > len(shown):
        screen.line(Text(_more(len(findings) - len(shown)), "dim"))


def _more(count: int) -> str:
    return f"{format_count(count)} smaller {'finding' if count == 1 else 'findings'}: --format json"

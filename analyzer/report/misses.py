"""`ccache misses` as rows for machines and as two tables for a terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analyzer.report.formatting import clean_text, format_percent, format_tokens, format_usd, plain_decimal, share
from analyzer.results import MissReport, Rebuild

COLUMNS = (
    "session_id",
    "project",
    "chain",
    "message_id",
    "timestamp",
    "model",
    "cause",
    "confidence",
    "evidence",
    "gap_s",
    "ttl_s",
    "readable_tokens",
    "cache_read_tokens",
    "lost_tokens",
    "rewritten_tokens",
    "rewrite_cost_usd",
    "advice",
)


def misses_json(report: MissReport) -> dict[str, Any]:
    """`misses`, `expected_rebuilds` and `by_cause`; money as exact decimal strings."""
    return {
        "misses": [rebuild_row(rebuild) for rebuild in report.misses],
        "expected_rebuilds": [rebuild_row(rebuild) for rebuild in report.expected_rebuilds],
        "by_cause": [
            {
                "cause": row.cause,
                "misses": row.misses,
                "lost_tokens": row.lost_tokens,
                "rewrite_cost_usd": plain_decimal(row.rewrite_cost_usd),
            }
            for row in report.by_cause
        ],
    }


def rebuild_row(rebuild: Rebuild) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(rebuild, name) for name in COLUMNS}
    row = {name: clean_text(value) if isinstance(value, str) else value for name, value in row.items()}
    row["timestamp"] = rebuild.timestamp.isoformat().replace("+00:00", "Z")
    row["evidence"] = [clean_text(part) for part in rebuild.evidence]
    row["rewrite_cost_usd"] = plain_decimal(rebuild.rewrite_cost_usd)
    return row


def render_misses(report: MissReport, console: Console, *, top: int) -> None:
    """A sentence, the causes with their advice, then the dearest misses."""
    lost = sum(row.lost_tokens for row in report.by_cause)
    cost = sum(row.rewrite_cost_usd for row in report.by_cause)
    unknown = sum(row.lost_tokens for row in report.by_cause if row.cause == "unknown")
    expected = len(report.expected_rebuilds)
    console.print(
        f"{len(report.misses):,} misses lost {format_tokens(lost)} cached tokens; writing them again cost"
        f" {format_usd(cost) if cost else '$0.00'} more than reading them. {expected:,} rebuilds after compaction were"
        f" expected. No cause shows for {format_percent(share(unknown, lost))} of the lost tokens.",
        highlight=False,
        markup=False,
    )
    if not report.misses:
        return
    causes = _table(
        ("cause", "left"), ("misses", "right"), ("lost", "right"), ("cost", "right"), ("what to do", "left")
    )
    advice = {miss.cause: miss.advice for miss in report.misses}
    for row in report.by_cause:
        summary = (row.cause, f"{row.misses:,}", format_tokens(row.lost_tokens), format_usd(row.rewrite_cost_usd))
        causes.add_row(*map(Text, summary), Text(advice[row.cause]))
    console.print()
    console.print(causes)
    dearest = sorted(report.misses, key=lambda miss: (-(miss.rewrite_cost_usd or 0), -miss.lost_tokens))[:top]
    table = _table(
        ("when (UTC)", "left"),
        ("session", "left"),
        ("lost", "right"),
        ("cost", "right"),
        ("cause", "left"),
        ("why", "left"),
    )
    for miss in dearest:
        cells = (
            f"{miss.timestamp:%m-%d %H:%M}",
            clean_text(miss.session_id)[:8],
            format_tokens(miss.lost_tokens),
            format_usd(miss.rewrite_cost_usd),
            miss.cause,
            clean_text(miss.evidence[0]) if len(miss.evidence) > 1 else "",
        )
        table.add_row(*map(Text, cells))
    console.print()
    console.print(table)
    if len(report.misses) > len(dearest):
        console.print(f"{len(report.misses) - len(dearest):,} more: --top N, --format csv or json", highlight=False)


def _table(*columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, justify in columns:
        fold = name in ("what to do", "why")
        table.add_column(name, justify="right" if justify == "right" else "left", no_wrap=not fold)
    return table

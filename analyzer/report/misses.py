"""`ccache misses`: JSON, CSV, Markdown, and charts by cause, week and version with the dearest misses on a terminal."""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.text import Text

from analyzer.causes import ADVICE
from analyzer.report.charts import share_bar
from analyzer.report.formatting import (
    clean_text,
    counted,
    escape_markdown,
    format_count,
    format_percent,
    format_tokens,
    format_usd,
    plain_decimal,
    share,
)
from analyzer.report.machine import csv_text, markdown_table
from analyzer.report.screen import Screen
from analyzer.results import FirstRequest, MissReport, MissRow, Rebuild, SignatureRow
from analyzer.signatures import version_order

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
    "signature",
)
SIGNATURE_COLUMNS = (
    "name",
    "meaning",
    "session_id",
    "project",
    "chain",
    "misses",
    "lost_tokens",
    "rewrite_cost_usd",
    "versions",
    "evidence",
)
MOST_ROWS = 12


def misses_json(report: MissReport) -> dict[str, Any]:
    """Rows for programs; money as exact decimal strings, times in UTC."""
    return {
        "misses": [rebuild_row(rebuild) for rebuild in report.misses],
        "expected_rebuilds": [rebuild_row(rebuild) for rebuild in report.expected_rebuilds],
        "by_cause": [_group(row, "cause") for row in report.by_cause],
        "by_week": [_group(row, "week") for row in report.by_week],
        "by_version": [_group(row, "version") for row in report.by_version],
        "signatures": [signature_row(row) for row in report.signatures],
        "first_requests": [_first_row(row) for row in report.first_requests],
    }


def misses_csv(report: MissReport, by: str) -> str:
    """One table: `miss`, `cause`, `week`, `version` or `signature`."""
    columns, rows = _one_table(report, by)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([csv_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return out.getvalue()


def misses_markdown(report: MissReport, by: str, top: int) -> str:
    columns, rows = _one_table(report, by)
    shown = rows[:top] if by == "miss" else rows
    lines = ["# Cache misses", "", escape_markdown(summary(report)), ""]
    cells = [["" if cell is None else escape_markdown(str(cell)) for cell in row] for row in shown]
    lines += markdown_table(columns, cells)
    if len(shown) < len(rows):
        lines += [f"{format_count(len(rows) - len(shown))} more: --top N, --format csv or json", ""]
    return "\n".join(lines)


def _one_table(report: MissReport, by: str) -> tuple[list[str], list[list[Any]]]:
    if by == "miss":
        rows = [rebuild_row(miss) for miss in report.misses]
    elif by == "signature":
        rows = [signature_row(row) for row in report.signatures]
    else:
        groups: Sequence[MissRow] = {"cause": report.by_cause, "week": report.by_week, "version": report.by_version}[by]
        rows = [_group(row, by) for row in groups]
    empty = {"miss": COLUMNS, "signature": SIGNATURE_COLUMNS}.get(
        by, (by, "misses", "lost_tokens", "rewrite_cost_usd", *(() if by == "cause" else ("expected_rebuilds",)))
    )
    columns = list(rows[0]) if rows else list(empty)
    return columns, [
        ["; ".join(row[name]) if isinstance(row[name], list) else row[name] for name in columns] for row in rows
    ]


def _group(row: MissRow, name: str) -> dict[str, Any]:
    values = {
        name: clean_text(row.key),
        "misses": row.misses,
        "lost_tokens": row.lost_tokens,
        "rewrite_cost_usd": plain_decimal(row.rewrite_cost_usd),
    }
    return values if name == "cause" else values | {"expected_rebuilds": row.expected}


def rebuild_row(rebuild: Rebuild) -> dict[str, Any]:
    return _plain({name: getattr(rebuild, name) for name in COLUMNS})


def signature_row(row: SignatureRow) -> dict[str, Any]:
    return _plain({name: getattr(row, name) for name in SIGNATURE_COLUMNS})


def _first_row(row: FirstRequest) -> dict[str, Any]:
    return _plain(
        {
            "session_id": row.session_id,
            "project": row.project,
            "chain": row.chain,
            "timestamp": row.timestamp,
            "model": row.model,
            "cache_read_tokens": row.cache_read_tokens,
            "cache_creation_tokens": row.cache_creation_tokens,
            "input_tokens": row.input_tokens,
            "warm_rate": row.warm_rate,
            "thanks_to": row.whose,
            "written_at": row.written_at,
        }
    )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in values.items()}


def _value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return plain_decimal(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, str):
        return clean_text(value)
    return [clean_text(part) for part in value] if isinstance(value, tuple) else value


def summary(report: MissReport) -> str:
    lost = sum(row.lost_tokens for row in report.by_cause)
    again = sum(miss.rewritten_tokens for miss in report.misses)
    cost = sum((row.rewrite_cost_usd for row in report.by_cause), Decimal(0))
    unknown = sum(row.lost_tokens for row in report.by_cause if row.key == "unknown")
    kinds: dict[str, int] = {}
    for rebuild in report.expected_rebuilds:
        kinds[rebuild.cause] = kinds.get(rebuild.cause, 0) + 1
    expected = ", ".join(f"{count:,} {name}" for name, count in sorted(kinds.items(), key=lambda item: -item[1]))
    # what a request drops from its prompt is lost, but not written again
    written = "them" if again == lost else f"{format_tokens(again)} of them"
    text = (
        f"{counted(len(report.misses), 'miss')} lost {format_tokens(lost)} cached tokens; writing {written} again cost"
        f" {format_usd(cost)} more than reading them. Expected rebuilds: {expected or 'none'}."
        if report.misses
        else f"No misses. Expected rebuilds: {expected or 'none'}."
    )
    if lost:
        text += f" No cause shows for {format_percent(share(unknown, lost))} of the lost tokens."
    return text


def first_summary(firsts: Sequence[FirstRequest]) -> str:
    """How warm chains began, and thanks to whom."""
    if not firsts:
        return ""
    prompt = sum(row.cache_read_tokens + row.cache_creation_tokens + row.input_tokens for row in firsts)
    read = sum(row.cache_read_tokens for row in firsts)
    warm = [row for row in firsts if row.cache_read_tokens]
    known = [row for row in warm if row.whose]
    other = sum(row.whose != "parent" for row in known)
    return (
        f"First requests are cold starts, not misses: {format_count(len(firsts))} chains began with"
        f" {format_percent(share(read, prompt))} of their prompts already cached. {format_count(len(warm))} read"
        f" something; for {format_count(len(known))} of them the logs show who had it in the cache"
        f" ({format_count(other)} another chain's prefix, {format_count(len(known) - other)} the parent's)."
    )


def render_misses(report: MissReport, console: Console, *, top: int = 15) -> None:
    """A sentence, charts by cause, week and version, known bugs, then the dearest misses."""
    screen = Screen(console)
    screen.line(Text(summary(report)))
    if report.misses:
        _chart(screen, "Misses by cause", report.by_cause, "cause")
        for row in report.by_cause[:5]:
            screen.line(Text.assemble((f"{row.key}: ", "bold"), ADVICE[row.key]))
        _chart(screen, "By ISO week", report.by_week, "week")
        _chart(screen, "By Claude Code version", report.by_version, "version")
        render_signatures(screen, report.signatures)
        _dearest(screen, report, top)
    if report.first_requests:
        screen.heading("First requests")
        screen.line(Text(first_summary(report.first_requests)))


def _chart(screen: Screen, title: str, rows: Sequence[MissRow], by: str) -> None:
    """One bar per row, as long as its cost; of long lists the last weeks, the dearest versions."""
    shown = rows if by == "cause" else [row for row in rows if row.misses]
    if not shown:
        return
    if by == "week":
        kept = list(shown[-MOST_ROWS:])
    else:
        dearest = sorted(shown, key=lambda row: (-row.rewrite_cost_usd, -row.lost_tokens))
        chosen = {row.key for row in (dearest if by == "cause" else dearest[:MOST_ROWS])}
        kept = [row for row in shown if row.key in chosen]
    screen.heading(title if len(kept) == len(shown) else f"{title}, {len(kept)} of {len(shown)}")
    most = max((row.rewrite_cost_usd for row in kept), default=Decimal(0))
    table = screen.table()
    table.add_column("", no_wrap=True, overflow=screen.cut, min_width=12)
    for name, width in (("misses", 6), ("lost", 7), ("cost", 9)):
        table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, min_width=width)
    room = screen.width - 54
    if room >= 6:
        table.add_column("", ratio=1, no_wrap=True, overflow="crop")
    for row in kept:
        bar = (
            share_bar(share(row.rewrite_cost_usd, most), min(room, 50), ascii_only=screen.ascii_only)
            if room >= 6
            else ""
        )
        cells = [screen.name(row.key), Text(format_count(row.misses)), Text(format_tokens(row.lost_tokens)),
                 Text(format_usd(row.rewrite_cost_usd))]  # fmt: skip
        table.add_row(*cells, *([Text(bar, "red")] if room >= 6 else []))
    screen.line(table)
    if len(kept) < len(shown):
        screen.line(Text(f"{format_count(len(shown) - len(kept))} more: --format csv --by {by}", "dim"))


def render_signatures(screen: Screen, rows: Sequence[SignatureRow]) -> None:
    """Known bugs whose pattern shows, one paragraph each: what it is, how often, what it cost, where."""
    if not rows:
        return
    screen.heading("Patterns of known bugs")
    by_name: dict[str, list[SignatureRow]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    for name, found in sorted(by_name.items(), key=lambda item: -sum(row.rewrite_cost_usd for row in item[1])):
        cost = sum((row.rewrite_cost_usd for row in found), Decimal(0))
        misses = sum(row.misses for row in found)
        screen.line(Text.assemble((f"{name} ", "bold"), found[0].meaning))
        screen.line(
            screen.name(
                f"  {counted(misses, 'miss')} in {counted(len(found), 'chain')}, {format_usd(cost)};"
                f" versions {_some(_versions(found), 4) or 'unknown'}"
            )
        )
        for row in found[:2]:
            where = f"{row.session_id[:8]} {row.chain.partition('#')[0]}: " if row.session_id else ""
            screen.line(screen.name(f"  {where}{row.evidence[0]}", "dim"))


def _versions(rows: Sequence[SignatureRow]) -> list[str]:
    return sorted({version for row in rows for version in row.versions}, key=version_order)


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _dearest(screen: Screen, report: MissReport, top: int) -> None:
    dearest = sorted(report.misses, key=lambda miss: (-(miss.rewrite_cost_usd or 0), -miss.lost_tokens))[:top]
    screen.heading(
        "Misses"
        if len(dearest) == len(report.misses)
        else f"Dearest {len(dearest)} of {format_count(len(report.misses))}"
    )
    table = screen.table()
    table.add_column("when (UTC)", no_wrap=True, overflow=screen.cut, min_width=11)
    table.add_column("session", no_wrap=True, overflow=screen.cut, min_width=8)
    wide = screen.width >= 100
    if wide:
        table.add_column("line", justify="right", no_wrap=True, overflow=screen.cut, min_width=4)
    table.add_column("lost", justify="right", no_wrap=True, overflow=screen.cut, min_width=6)
    table.add_column("cost", justify="right", no_wrap=True, overflow=screen.cut, min_width=6)
    table.add_column("cause and evidence", ratio=1, overflow="fold")
    for miss in dearest:
        why = miss.evidence[0] if miss.evidence and miss.evidence[0] != miss.location else ""
        bug = f" [{miss.signature}]" if miss.signature else ""
        table.add_row(
            Text(f"{miss.timestamp:%m-%d %H:%M}"),
            screen.name(miss.session_id[:8]),
            *([Text(miss.location.rpartition(":")[2])] if wide else []),
            Text(format_tokens(miss.lost_tokens)),
            Text(format_usd(miss.rewrite_cost_usd)),
            Text.assemble((miss.cause, "bold"), (bug, "yellow"), " ", screen.name(why, "dim")),
        )
    screen.line(table)
    if len(report.misses) > len(dearest):
        more = format_count(len(report.misses) - len(dearest))
        screen.line(Text(f"{more} more: --top N, --cause NAME, --format csv or json", "dim"))

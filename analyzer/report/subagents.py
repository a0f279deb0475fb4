"""`ccache subagents`: the verdict, what agents cost and would have cost, by type, then each spawn with its proof."""

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.text import Text

from analyzer.alternatives import ASSUMED
from analyzer.report.formatting import (
    NOT_KNOWN,
    clean_text,
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
from analyzer.report.session_rows import agent_row
from analyzer.results import SpawnRow, SpawnTotals, SubagentReport


def subagents_json(report: SubagentReport) -> dict[str, Any]:
    """`verdict`, `spawns`, `by_type` and `totals`; money as exact decimal strings, null where nothing has a price."""
    return {
        "verdict": report.sentence,
        "spawns": [spawn_row(spawn) for spawn in report.spawns],
        "by_type": [{"agent_type": clean_text(row.key), **_totals(row)} for row in report.by_type],
        "totals": None if report.totals is None else _totals(report.totals),
        "assumed": ASSUMED,
    }


def spawn_row(spawn: SpawnRow) -> dict[str, Any]:
    return agent_row(spawn) | {
        "project": clean_text(spawn.project),
        "cold_start_usd": plain_decimal(spawn.cold_start_usd),
        "fork_cost_usd": plain_decimal(spawn.fork_cost_usd),
        "inline_cost_usd": plain_decimal(spawn.inline_cost_usd),
    }


def subagents_csv(report: SubagentReport, by: str) -> str:
    """One table: `spawn` or `type`; without a row not even a header, since nothing was spawned."""
    if by == "spawn":
        rows = [_flat(spawn_row(spawn)) for spawn in report.spawns]
    else:
        rows = [_flat({"agent_type": clean_text(row.key), **_totals(row)}) for row in report.by_type]
    if not rows:
        return ""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([csv_text(cell) if isinstance(cell, str) else cell for cell in row.values()] for row in rows)
    return out.getvalue()


def subagents_markdown(report: SubagentReport, top: int) -> str:
    lines = ["# Subagents", "", escape_markdown(report.sentence), ""]
    lines += [f"- {escape_markdown(line)}" for line in money_lines(report)] + [""]
    if report.by_type:
        rows = [
            [
                escape_markdown(row.key),
                format_count(row.spawns),
                format_count(row.requests),
                format_usd(row.cost_usd),
                format_usd(row.cold_start_usd),
                escape_markdown(_verdicts(row)),
            ]
            for row in report.by_type
        ]
        lines += markdown_table(("Type", "Spawns", "Requests", "Cost", "Cold start", "Verdicts"), rows)
    kept = _dearest(report.spawns, top)
    rows = [
        [
            f"{spawn.started_at:%Y-%m-%d %H:%M}",
            escape_markdown(spawn.agent_type),
            escape_markdown(spawn.model),
            format_tokens(spawn.first_read_tokens),
            format_tokens(spawn.first_creation_tokens),
            escape_markdown(spawn.verdict),
            escape_markdown(spawn.whose or ""),
            format_usd(spawn.cost_usd),
        ]
        for spawn in kept
    ]
    header = ("Started (UTC)", "Type", "Model", "First read", "First write", "Verdict", "Whose", "Cost")
    lines += markdown_table(header, rows)
    if len(kept) < len(report.spawns):
        lines += [f"{format_count(len(report.spawns) - len(kept))} more: --top N, --format csv or json", ""]
    return "\n".join(lines)


def money_lines(report: SubagentReport) -> list[str]:
    """What agents cost, how much of it was cold start, and the two other ways of running them."""
    totals = report.totals
    if totals is None or not totals.spawns:
        return []
    lines = [
        f"They cost {format_usd(totals.cost_usd)} in {format_count(totals.requests)} requests; cold starts, the part of"
        f" first requests that no cache held, are {format_usd(totals.cold_start_usd)}"
        f" ({format_percent(share(totals.cold_start_usd or Decimal(0), totals.cost_usd))})."
    ]
    if totals.compared:
        which = (
            "" if totals.compared == totals.spawns else f" for the {format_count(totals.compared)} with a known parent"
        )
        lines.append(
            f"Estimated{which}: {format_usd(totals.compared_usd)} as they ran, {format_usd(totals.fork_cost_usd)} as"
            f" forks, {format_usd(totals.inline_cost_usd)} inline."
        )
        lines.append(f"Assumed {ASSUMED}.")
    return lines


def render_subagents(report: SubagentReport, console: Console, *, top: int = 15) -> None:
    screen = Screen(console)
    screen.line(Text(report.sentence, "bold"))
    for line in money_lines(report):
        screen.line(Text(line, "dim" if line.startswith("Assumed") else ""))
    if not report.spawns:
        return
    screen.heading("By type")
    wide = screen.width >= 100
    table = screen.table()
    table.add_column("", no_wrap=True, overflow=screen.cut, min_width=8, max_width=28)
    for name, width in (("spawns", 6), ("cost", 8), ("cold", 8), *((("as fork", 8), ("inline", 8)) if wide else ())):
        table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, min_width=width)
    table.add_column("verdicts", ratio=1, overflow="fold")
    for row in report.by_type:
        estimates = (row.fork_cost_usd, row.inline_cost_usd) if wide else ()
        table.add_row(
            screen.name(row.key),
            Text(format_count(row.spawns)),
            Text(format_usd(row.cost_usd)),
            Text(format_usd(row.cold_start_usd)),
            *(Text(_estimate(row, amount)) for amount in estimates),
            Text(_verdicts(row)),
        )
    screen.line(table)
    if wide and any(0 < row.compared < row.spawns for row in report.by_type):
        screen.line(Text("* only of those with a known parent", "dim"))
    kept = _dearest(report.spawns, top)
    count = format_count(len(report.spawns))
    screen.heading(
        "Spawns" if len(kept) == len(report.spawns) else f"The dearest {len(kept)} of {count} spawns, by time"
    )
    table = screen.table()
    table.add_column("when (UTC)", no_wrap=True, overflow=screen.cut, min_width=11)
    table.add_column("type", no_wrap=True, overflow=screen.cut, min_width=8, max_width=20)
    if wide:
        table.add_column("model", no_wrap=True, overflow=screen.cut, max_width=20)
    for name in ("1st read", "1st write", "cost"):
        table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, min_width=7)
    table.add_column("verdict, whose prefix", ratio=1, overflow="fold")
    for spawn in kept:
        table.add_row(
            Text(f"{spawn.started_at:%m-%d %H:%M}"),
            screen.name(spawn.agent_type),
            *([screen.name(spawn.model.removeprefix("claude-"))] if wide else []),
            Text(format_tokens(spawn.first_read_tokens)),
            Text(format_tokens(spawn.first_creation_tokens)),
            Text(format_usd(spawn.cost_usd)),
            Text.assemble(
                spawn.verdict,
                "\n" if spawn.whose and screen.width < 130 else " ",
                screen.name(_whose(spawn, wide), "dim"),
            ),
        )
    screen.line(table)
    if len(kept) < len(report.spawns):
        more = format_count(len(report.spawns) - len(kept))
        screen.line(Text(f"{more} more: --top N, --format csv or json", "dim"))


def _estimate(row: SpawnTotals, amount: Decimal) -> str:
    if not row.compared:
        return NOT_KNOWN
    return format_usd(amount) + ("*" if row.compared < row.spawns else "")


def _whose(spawn: SpawnRow, wide: bool) -> str:
    if spawn.whose is None:
        return ""
    who = "/".join(part[:8] for part in spawn.whose.split("/"))
    when = f", {spawn.written_at:%H:%M:%S}" if wide and spawn.written_at else ""
    return f"{who}{when}"


def _dearest(spawns: Sequence[SpawnRow], top: int) -> list[SpawnRow]:
    """The dearest, in order of their start."""
    ranked = sorted(spawns, key=lambda spawn: (-(spawn.cost_usd or Decimal(0)), spawn.started_at, spawn.agent_id))[:top]
    return sorted(ranked, key=lambda spawn: (spawn.started_at, spawn.agent_id))


def _verdicts(row: SpawnTotals) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in row.verdicts)


def _totals(row: SpawnTotals) -> dict[str, Any]:
    return {
        "spawns": row.spawns,
        "requests": row.requests,
        "first_read_tokens": row.first_read_tokens,
        "first_creation_tokens": row.first_creation_tokens,
        "verdicts": dict(row.verdicts),
        "cost_usd": plain_decimal(row.cost_usd),
        "cold_start_usd": plain_decimal(row.cold_start_usd),
        "compared_spawns": row.compared,
        "compared_cost_usd": plain_decimal(row.compared_usd),
        "fork_cost_usd": plain_decimal(row.fork_cost_usd) if row.compared else None,
        "inline_cost_usd": plain_decimal(row.inline_cost_usd) if row.compared else None,
    }


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Nested fields as columns of their own."""
    matched = row.pop("matched", None)
    if "verdict" in row:
        names = ("whose", "position_tokens", "written_at")
        row |= {name: matched[name] if matched else None for name in names}
    if "verdicts" in row:
        row["verdicts"] = "; ".join(f"{name} {count}" for name, count in row["verdicts"].items())
    return row

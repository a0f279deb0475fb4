"""`ccache whatif`: one table of scenarios, for terminals, programs and pages."""

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.text import Text

from analyzer.report.formatting import (
    NOT_KNOWN,
    clean_text,
    escape_markdown,
    format_count,
    format_percent,
    format_tokens,
    format_usd,
    plain_decimal,
)
from analyzer.report.machine import csv_text, markdown_table
from analyzer.report.screen import Screen
from analyzer.whatif.results import ChainCosts, Explanation, GroupCosts, Kind, ScenarioRow, WhatIfReport

COLUMNS = (
    "name", "cost_usd", "delta_usd", "delta_rate", "cache_read_tokens", "cache_creation_5m_tokens",
    "cache_creation_1h_tokens", "input_tokens", "output_tokens", "assumptions", "confidence",
)  # fmt: skip
HEADINGS: tuple[tuple[str, tuple[Kind, ...]], ...] = (
    ("Prices", ("price",)),
    ("Same work on another model", ("model",)),
    ("Cache settings", ("cache",)),
    ("Ways of working", ("work",)),
    ("Bounds, known only afterwards", ("bound",)),
    ("Combinations", ("combination",)),
)


def whatif_json(report: WhatIfReport) -> dict[str, Any]:
    """`scenarios` with `actual` first; money as exact decimal strings, null where no public price exists."""
    names = [row.name for row in report.scenarios]
    return {
        "scenarios": [_row(row) for row in (report.actual, *report.scenarios)],
        "groups": [_group(group, names) for group in report.groups],
        "cheaper_without_cache": [_chain(chain) for chain in report.cheaper_without_cache],
        "requests": report.requests,
        "unpriced_requests": report.unpriced_requests,
        "price_source": clean_text(report.price_source),
        "price_date": report.price_date,
    }


def _row(row: ScenarioRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "cost_usd": plain_decimal(row.cost_usd),
        "delta_usd": plain_decimal(row.delta_usd),
        "delta_rate": row.delta_rate,
        "cache_read_tokens": row.usage.cache_read_tokens,
        "cache_creation_5m_tokens": row.usage.cache_creation_5m_tokens,
        "cache_creation_1h_tokens": row.usage.cache_creation_1h_tokens,
        "input_tokens": row.usage.input_tokens,
        "output_tokens": row.usage.output_tokens,
        "assumptions": list(row.assumptions),
        "confidence": row.confidence,
    }


def _group(group: GroupCosts, names: Sequence[str]) -> dict[str, Any]:
    return {
        "key": clean_text(group.key),
        "label": clean_text(group.label),
        "actual_usd": plain_decimal(group.actual_usd),
        "scenarios": [
            {
                "name": name,
                "cost_usd": plain_decimal(cost),
                "delta_usd": None if cost is None else plain_decimal(cost - group.actual_usd),
            }
            for name, cost in zip(names, group.costs_usd, strict=True)
        ],
    }


def _chain(chain: ChainCosts) -> dict[str, Any]:
    return {
        "session_id": clean_text(chain.session_id),
        "project": clean_text(chain.project),
        "agent_id": None if chain.agent_id is None else clean_text(chain.agent_id),
        "requests": chain.requests,
        "actual_usd": plain_decimal(chain.actual_usd),
        "uncached_usd": plain_decimal(chain.uncached_usd),
    }


def whatif_csv(report: WhatIfReport) -> str:
    """The scenarios, one a line; with groups, one line for each group and scenario."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if report.groups:
        writer.writerow(("key", "name", "cost_usd", "delta_usd"))
        names = [row.name for row in report.scenarios]
        for group in report.groups:
            key = csv_text(clean_text(group.key))
            writer.writerow((key, "actual", plain_decimal(group.actual_usd), "0"))
            for name, cost in zip(names, group.costs_usd, strict=True):
                delta = None if cost is None else plain_decimal(cost - group.actual_usd)
                writer.writerow((key, name, plain_decimal(cost), delta))
        return out.getvalue()
    writer.writerow(COLUMNS)
    for row in (report.actual, *report.scenarios):
        cells = _row(row) | {"assumptions": "; ".join(row.assumptions)}
        writer.writerow([cells[column] for column in COLUMNS])
    return out.getvalue()


def whatif_markdown(report: WhatIfReport, top: int) -> str:
    lines = ["# What if", "", *(escape_markdown(line) for line in headline(report)), ""]
    rows = [
        (
            escape_markdown(row.name),
            _cost(row.cost_usd),
            _delta(row.delta_usd),
            _rate(row.delta_rate),
            escape_markdown(row.gist),
            row.confidence,
        )
        for row in (report.actual, *report.scenarios)
    ]
    lines += markdown_table(("Scenario", "Cost", "Change", "Change, %", "Assumes", "Confidence"), rows)
    if report.groups:
        lines += markdown_table(
            ("", "Actual", "Best scenario", "Cost", "Change"), _best_cells(report, top, markdown=True)
        )
    lines += [escape_markdown(line) for line in notes(report)]
    return "\n".join(lines) + "\n"


def headline(report: WhatIfReport) -> list[str]:
    """What would have saved most, in one or two sentences."""
    actual = format_usd(report.actual.cost_usd)
    if not report.requests:
        return ["No request in scope."]
    best = report.best
    if best is None:
        first = f"No cache setting or habit asked about beats what was done ({actual})."
    else:
        first = (
            f"{best.name} would have saved most: {format_usd(-(best.delta_usd or Decimal(0)))} of {actual}"
            f" ({format_percent(-(best.delta_rate or 0))}) - {best.gist}."
        )
    others = [
        row for row in report.scenarios if row.kind in ("price", "model", "combination") and (row.delta_usd or 0) < 0
    ]
    if not others:
        return [first]
    cheapest = min(others, key=lambda row: row.delta_usd or Decimal(0))
    second = (
        f"With other answers or other terms: {cheapest.name} {format_usd(cheapest.cost_usd)}"
        f" ({_rate(cheapest.delta_rate)})."
    )
    return [first, second]


def notes(report: WhatIfReport) -> list[str]:
    lines = []
    if report.cheaper_without_cache:
        chains = report.cheaper_without_cache
        saved = sum((chain.actual_usd - chain.uncached_usd for chain in chains), Decimal(0))
        lines.append(
            f"{format_count(len(chains))} chains would have been cheaper with no cache at all, by {format_usd(saved)}"
            " in all: they wrote what nobody read."
        )
    if report.unpriced_requests:
        lines.append(f"{format_count(report.unpriced_requests)} requests have no known price and are in no scenario.")
    lines.append(f"API-equivalent cost; prices: {report.price_source}, {report.price_date}.")
    return lines


def render_whatif(report: WhatIfReport, console: Console, *, top: int = 15) -> None:
    screen = Screen(console)
    for place, line in enumerate(headline(report)):
        screen.line(screen.name(line, "bold" if place == 0 else ""))
    if not report.requests:
        return
    screen.line()
    _table(screen, [report.actual], header=True)
    for title, kinds in HEADINGS:
        rows = [row for row in report.scenarios if row.kind in kinds]
        if rows:
            screen.heading(title)
            _table(screen, rows)
    if report.groups:
        _group_table(screen, report, top)
    if report.cheaper_without_cache:
        _uncached_table(screen, report.cheaper_without_cache, top)
    screen.line()
    for line in notes(report):
        screen.line(screen.name(line, "dim"))
    screen.line(Text("--explain NAME tells how a scenario is worked out", "dim"))


def _table(screen: Screen, rows: Sequence[ScenarioRow], *, header: bool = False) -> None:
    table = screen.table(header=header)
    wide = screen.width >= 100
    table.add_column("", no_wrap=True, overflow=screen.cut, width=19)
    table.add_column("cost", justify="right", no_wrap=True, overflow=screen.cut, width=10)
    table.add_column("change", justify="right", no_wrap=True, overflow=screen.cut, width=10)
    table.add_column("%", justify="right", no_wrap=True, overflow=screen.cut, width=8)
    table.add_column("trust", no_wrap=True, overflow=screen.cut, width=6)
    table.add_column("assumes", ratio=1, no_wrap=wide, overflow=screen.cut if wide else "fold")
    for row in rows:
        colour = "" if not row.delta_usd else "green" if row.delta_usd < 0 else "red"
        table.add_row(
            screen.name(row.name, "bold"),
            Text(_cost(row.cost_usd)),
            Text(_delta(row.delta_usd), colour),
            Text(_rate(row.delta_rate), colour),
            Text(row.confidence, "dim"),
            screen.name(row.gist, "dim"),
        )
    screen.line(table)


def _group_table(screen: Screen, report: WhatIfReport, top: int) -> None:
    screen.heading("Best scenario of each group")
    table = screen.table()
    table.add_column("", no_wrap=True, overflow=screen.cut, ratio=1, min_width=10)
    for name in ("actual", "scenario", "cost", "change"):
        table.add_column(name, justify="left" if name == "scenario" else "right", no_wrap=True, overflow=screen.cut)
    for cells in _best_cells(report, top):
        table.add_row(*(screen.name(cell) for cell in cells))
    screen.line(table)
    if len(report.groups) > top:
        screen.line(Text(f"{format_count(len(report.groups) - top)} more: --top N, --format csv or json", "dim"))


def _best_cells(report: WhatIfReport, top: int, *, markdown: bool = False) -> list[tuple[str, ...]]:
    """For each group the cheapest scenario that is no bound: (name, actual, scenario, cost, change)."""
    found: list[tuple[str, ...]] = []
    for group in report.groups[:top]:
        costs = [
            (cost, row.name)
            for cost, row in zip(group.costs_usd, report.scenarios, strict=True)
            if cost is not None and row.kind != "bound"
        ]
        cost, name = min(costs, default=(group.actual_usd, "actual"))
        if cost >= group.actual_usd:
            cost, name = group.actual_usd, "actual"
        label = escape_markdown(group.label) if markdown else group.label
        found.append((label, format_usd(group.actual_usd), name, format_usd(cost), _delta(cost - group.actual_usd)))
    return found


def _uncached_table(screen: Screen, chains: Sequence[ChainCosts], top: int) -> None:
    screen.heading("Chains that would have been cheaper with no cache")
    table = screen.table()
    table.add_column("session", no_wrap=True, overflow=screen.cut, width=8)
    table.add_column("agent", no_wrap=True, overflow=screen.cut, width=12)
    table.add_column("project", no_wrap=True, overflow=screen.cut, ratio=1, min_width=8)
    for name in ("requests", "actual", "no cache", "change"):
        table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, min_width=8)
    shown = chains[: min(5, top)]
    for chain in shown:
        table.add_row(
            screen.name(chain.session_id[:8]),
            screen.name(chain.agent_id or "main"),
            screen.shortened(screen.name(chain.project), max(8, screen.width - 64)),
            Text(format_count(chain.requests)),
            Text(format_usd(chain.actual_usd)),
            Text(format_usd(chain.uncached_usd)),
            Text(_delta(chain.uncached_usd - chain.actual_usd), "green"),
        )
    screen.line(table)
    if len(chains) > len(shown):
        screen.line(Text(f"{format_count(len(chains) - len(shown))} more: --format json", "dim"))


def explanation_json(found: Explanation) -> dict[str, Any]:
    """The scenario and `actual` as in the table, what the plan changes, and the chains it changes most."""
    return {
        "scenarios": [_row(found.actual), _row(found.row)],
        "changes": dict(found.changes),
        "changed_requests": found.row.changed_requests,
        "added_calls": found.row.added_calls,
        "chains": [
            {
                "session_id": clean_text(chain.session_id),
                "project": clean_text(chain.project),
                "agent_id": None if chain.agent_id is None else clean_text(chain.agent_id),
                "requests": chain.requests,
                "actual_usd": plain_decimal(chain.actual_usd),
                "delta_usd": plain_decimal(chain.delta_usd),
            }
            for chain in found.chains
        ],
    }


def explanation_lines(found: Explanation) -> list[str]:
    """The plan in sentences."""
    row, actual = found.row, found.actual
    lines = [
        f"{row.name}: {_cost(row.cost_usd)} instead of {format_usd(actual.cost_usd)}"
        f" ({_delta(row.delta_usd)}, {_rate(row.delta_rate)}), confidence {row.confidence}",
        "",
        *(f"- {text}" for text in row.assumptions),
        "",
        f"It changes {format_count(row.changed_requests)} requests"
        + (f" and adds {format_count(row.added_calls)} calls." if row.added_calls else "."),
    ]
    return lines


def token_cells(found: Explanation) -> list[tuple[str, str, str, str]]:
    """(class, logged, scenario, difference)."""
    names = (
        ("cache reads", "cache_read_tokens"),
        ("cache writes, 5m", "cache_creation_5m_tokens"),
        ("cache writes, 1h", "cache_creation_1h_tokens"),
        ("uncached input", "input_tokens"),
        ("output", "output_tokens"),
    )
    cells = []
    for label, field in names:
        one, other = getattr(found.actual.usage, field), getattr(found.row.usage, field)
        sign = "+" if other > one else ""
        cells.append((label, format_tokens(one), format_tokens(other), f"{sign}{format_tokens(other - one)}"))
    return cells


def explanation_markdown(found: Explanation) -> str:
    lines = [f"# {escape_markdown(found.row.name)}", ""]
    for line in explanation_lines(found):
        mark = "- " if line.startswith("- ") else ""
        lines.append(mark + escape_markdown(line.removeprefix("- ")))
    lines += ["", *markdown_table(("Tokens", "Logged", "Scenario", "Change"), token_cells(found))]
    return "\n".join(lines) + "\n"


def render_explanation(found: Explanation, console: Console) -> None:
    screen = Screen(console)
    for place, line in enumerate(explanation_lines(found)):
        screen.line(screen.name(line, "bold" if place == 0 else ""))
    screen.heading("Tokens")
    table = screen.table()
    table.add_column("", no_wrap=True, overflow=screen.cut, ratio=1)
    for name in ("logged", "scenario", "change"):
        table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, min_width=8)
    for cells in token_cells(found):
        table.add_row(*(Text(cell) for cell in cells))
    screen.line(table)
    if not found.chains:
        return
    screen.heading("Chains it changes most")
    table = screen.table()
    table.add_column("session", no_wrap=True, overflow=screen.cut, width=8)
    table.add_column("agent", no_wrap=True, overflow=screen.cut, width=12)
    table.add_column("project", no_wrap=True, overflow=screen.cut, ratio=1, min_width=8)
    for name in ("requests", "actual", "change"):
        table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, min_width=8)
    for chain in found.chains:
        table.add_row(
            screen.name(chain.session_id[:8]),
            screen.name(chain.agent_id or "main"),
            screen.shortened(screen.name(chain.project), max(8, screen.width - 54)),
            Text(format_count(chain.requests)),
            Text(format_usd(chain.actual_usd)),
            Text(_delta(chain.delta_usd), "green" if chain.delta_usd < 0 else "red"),
        )
    screen.line(table)


def _cost(usd: Decimal | None) -> str:
    return NOT_KNOWN if usd is None else format_usd(usd)


def _delta(usd: Decimal | None) -> str:
    if usd is None:
        return NOT_KNOWN
    return f"+{format_usd(usd)}" if usd > 0 else format_usd(usd)


def _rate(rate: float | None) -> str:
    if rate is None:
        return NOT_KNOWN
    return f"+{format_percent(rate)}" if rate > 0 else format_percent(rate)

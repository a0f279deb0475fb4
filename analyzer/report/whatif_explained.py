"""`ccache whatif --explain NAME`: one scenario in full."""

from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.text import Text

from analyzer.report.formatting import (
    clean_text,
    escape_markdown,
    format_count,
    format_tokens,
    format_usd,
    plain_decimal,
)
from analyzer.report.machine import markdown_table
from analyzer.report.screen import Screen
from analyzer.report.whatif import cost_cell, delta_cell, rate_cell, scenario_row
from analyzer.whatif.results import Explanation


def explanation_json(found: Explanation) -> dict[str, Any]:
    """The scenario and `actual` as in the table, what the plan changes, and the chains it changes most."""
    return {
        "scenarios": [scenario_row(found.actual), scenario_row(found.row)],
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
        f"{row.name}: {cost_cell(row.cost_usd)} instead of {format_usd(actual.cost_usd)}"
        f" ({delta_cell(row.delta_usd)}, {rate_cell(row.delta_rate)}), confidence {row.confidence}",
        "",
        *(f"- {text}" for text in row.assumptions),
        "",
        f"It changes {format_count(row.changed_requests)} requests"
        + (f" and adds {format_count(row.added_calls)} calls." if row.added_calls else "."),
    ]
    return lines


CLASSES = (
    ("cache reads", "cache_read_tokens"),
    ("cache writes, 5m", "cache_creation_5m_tokens"),
    ("cache writes, 1h", "cache_creation_1h_tokens"),
    ("uncached input", "input_tokens"),
    ("output", "output_tokens"),
)


def explanation_csv(found: Explanation) -> str:
    """The token classes, logged and under the scenario."""
    rows = [(field, getattr(found.actual.usage, field), getattr(found.row.usage, field)) for _, field in CLASSES]
    lines = ["class,actual,scenario", *(",".join(map(str, row)) for row in rows)]
    lines.append(f"cost_usd,{plain_decimal(found.actual.cost_usd)},{plain_decimal(found.row.cost_usd) or ''}")
    return "\n".join(lines) + "\n"


def token_cells(found: Explanation) -> list[tuple[str, str, str, str]]:
    """(class, logged, scenario, difference)."""
    cells = []
    for label, field in CLASSES:
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
        indent = "  " if line.startswith("- ") else ""
        for part in wrap(line, screen.width, subsequent_indent=indent) or [""]:
            screen.line(screen.name(part, "bold") if place == 0 else Text(part))
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
            Text(delta_cell(chain.delta_usd), "green" if chain.delta_usd < 0 else "red"),
        )
    screen.line(table)

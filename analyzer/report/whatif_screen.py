"""`ccache whatif` on a terminal."""

from collections.abc import Sequence
from textwrap import wrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analyzer.report.formatting import format_count, format_usd
from analyzer.report.screen import Screen
from analyzer.report.whatif import best_cells, cost_cell, delta_cell, headline, notes, rate_cell, tells_uncached
from analyzer.whatif.results import ChainCosts, Kind, ScenarioRow, WhatIfReport

HEADINGS: tuple[tuple[str, tuple[Kind, ...]], ...] = (
    ("Prices", ("price",)),
    ("Same work on another model", ("model",)),
    ("Cache settings", ("cache",)),
    ("Ways of working", ("work",)),
    ("Bounds, known only afterwards", ("bound",)),
    ("Combinations", ("combination",)),
)


def render_whatif(report: WhatIfReport, console: Console, *, top: int = 15) -> None:
    screen = Screen(console)
    for place, line in enumerate(headline(report)):
        screen.line(screen.name(line, "bold" if place == 0 else ""))
    if report.actual.cost_usd is None:
        return
    screen.line()
    _table(screen, [report.actual], header=True)
    for title, kinds in HEADINGS:
        rows = [row for row in report.scenarios if row.kind in kinds]
        if rows:
            screen.heading(title)
            _section(screen, rows, folded=not report.chosen)
    if report.groups:
        _group_table(screen, report, top)
    if tells_uncached(report):
        _uncached_table(screen, report.cheaper_without_cache, top)
    screen.line()
    for line in notes(report):
        screen.line(screen.name(line, "dim"))
    screen.line(Text("--explain NAME tells how a scenario is worked out", "dim"))


def _section(screen: Screen, rows: Sequence[ScenarioRow], *, folded: bool) -> None:
    """One heading's scenarios; `folded` names those that change nothing in one line."""
    idle = [row.name for row in rows if row.delta_usd == 0] if folded else []
    shown = [row for row in rows if row.name not in idle]
    if shown:
        _table(screen, shown)
    if idle:
        screen.line(Text(f"no difference here: {', '.join(idle)}", "dim"))


def _table(screen: Screen, rows: Sequence[ScenarioRow], *, header: bool = False) -> None:
    """Figures in columns; what is assumed beside them, or on a line of its own where the terminal is narrow."""
    if screen.width >= 116:
        screen.line(_figures(screen, rows, header=header, beside=True))
        return
    for place, row in enumerate(rows):
        screen.line(_figures(screen, [row], header=header and place == 0, beside=False))
        for line in wrap(row.gist, max(10, screen.width - 2)):
            screen.line(Text("  ").append_text(screen.name(line, "dim")))


def _figures(screen: Screen, rows: Sequence[ScenarioRow], *, header: bool, beside: bool) -> Table:
    table = screen.table(header=header)
    table.add_column("", no_wrap=True, overflow=screen.cut, width=19 if beside else None, ratio=None if beside else 1)
    for name, width in (("cost", 10), ("change", 10), ("%", 8)):
        table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, width=width)
    table.add_column("trust", no_wrap=True, overflow=screen.cut, width=6)
    if beside:
        table.add_column("assumes", ratio=1, overflow="fold")
    for row in rows:
        colour = "" if not row.delta_usd else "green" if row.delta_usd < 0 else "red"
        table.add_row(
            screen.name(row.name, "bold"),
            Text(cost_cell(row.cost_usd)),
            Text(delta_cell(row.delta_usd), colour),
            Text(rate_cell(row.delta_rate), colour),
            Text(row.confidence, "dim"),
            *([screen.name(row.gist, "dim")] if beside else []),
        )
    return table


def _group_table(screen: Screen, report: WhatIfReport, top: int) -> None:
    screen.heading("Best scenario of each group")
    table = screen.table()
    table.add_column("", no_wrap=True, overflow=screen.cut, ratio=1, min_width=10)
    for name in ("actual", "scenario", "cost", "change"):
        table.add_column(name, justify="left" if name == "scenario" else "right", no_wrap=True, overflow=screen.cut)
    for cells in best_cells(report, top):
        table.add_row(*(screen.name(cell) for cell in cells))
    screen.line(table)
    if len(report.groups) > top:
        screen.line(Text(f"{format_count(len(report.groups) - top)} more: --top N, --format csv or json", "dim"))


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
            Text(delta_cell(chain.uncached_usd - chain.actual_usd), "green"),
        )
    screen.line(table)
    if len(chains) > len(shown):
        screen.line(Text(f"{format_count(len(chains) - len(shown))} more: --format json", "dim"))

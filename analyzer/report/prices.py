"""What `ccache prices` shows on a terminal, within 80 columns: rates by model, their sources as numbered notes."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analyzer.report.formatting import clean_text


def render_prices(rows: Sequence[tuple[Any, ...]], console: Console) -> None:
    """Rows: model, from, until, band, speed, five rates, source. A model's plain rates stand beside its name."""
    sources = list(dict.fromkeys(str(row[-1]) for row in rows))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("model and dates", overflow="fold", min_width=24)
    table.add_column("prompt", no_wrap=True, min_width=6)
    table.add_column("mode", no_wrap=True, min_width=4)
    for heading in ("input", "5m", "1h", "read", "output"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=6)
    table.add_column("", no_wrap=True, min_width=3)
    for name, group in groupby(rows, key=lambda row: row[0]):
        model = Text(clean_text(str(name)), "bold")
        those = list(group)
        plain = those[0][1:5] == ("", "", 0, "standard")
        if not plain:
            table.add_row(model)
        for place, (_, start, end, band, speed, *rates, source) in enumerate(those):
            when = f"{start}..{end}" if start and end else f"from {start}" if start else f"until {end}" if end else ""
            table.add_row(
                model if plain and place == 0 else f"  {when}",
                ("", "> 100K", "> 200K")[band],
                "" if speed == "standard" else speed,
                *(f"{rate.normalize():f}" for rate in rates),
                Text(f"[{sources.index(str(source)) + 1}]", "dim"),
            )
    console.print(table)
    console.print("\nUSD per million tokens; 5m and 1h: cache writes by lifetime; read: cache reads.")
    for number, source in enumerate(sources, 1):
        console.print(Text(f"[{number}] {clean_text(source)}"))

"""How every `simulate` command writes to the terminal: stdout is data, stderr is notes and progress."""

import json
import sys
import unicodedata
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDEST = 120
_BLOCKS = " ▁▂▃▄▅▆▇█"


def output() -> Console:
    """Data. What the terminal's encoding lacks becomes `?`, never a failure."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, _WIDEST)
    return console


def notes() -> Console:
    """Progress: shown on a terminal only."""
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(errors="replace")
    return Console(stderr=True, highlight=False, markup=False, emoji=False, quiet=not sys.stderr.isatty())


def note(text: str) -> None:
    print(text, file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def inert(text: str) -> str:
    """Model output as ink: no control characters but line breaks, so that no answer can steer the terminal."""
    kept = (c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"))
    return "".join(kept)


def table(*columns: str, right: tuple[int, ...] = (), fold: tuple[int, ...] = ()) -> Table:
    """Bare columns. Those in `right` are numbers; those in `fold` may wrap, all others stay whole."""
    drawn = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for at, name in enumerate(columns):
        drawn.add_column(name, justify="right" if at in right else "left", no_wrap=at not in fold, overflow="fold")
    return drawn


def pairs(rows: list[tuple[str, str]]) -> Table:
    drawn = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in rows:
        drawn.add_row(name, Text(value))
    return drawn


def column_chart(values: list[int], *, width: int, height: int, ascii_only: bool) -> list[str]:
    """Lines of a chart whose columns stand on zero, from the top down. Neighbours share a column if there are many."""
    count = min(width, len(values))
    wide = min(4, width // count)
    columns = [values[(at + 1) * len(values) // count - 1] for at in range(count) for _ in range(wide)]
    top = max(columns)
    eighths = [round(value / top * height * 8) for value in columns]
    lines = []
    for row in reversed(range(height)):
        fill = [min(8, max(0, eighth - row * 8)) for eighth in eighths]
        lines.append("".join(("#" if level >= 4 else " ") if ascii_only else _BLOCKS[level] for level in fill))
    return lines


def seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def kib(count: float) -> str:
    return f"{count / 1024:,.0f} KiB" if count < 10 * 1024 * 1024 else f"{count / 1024 / 1024:,.1f} MiB"

"""`ccache sql`: read-only SQL on the views."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from analyzer.cli import options

if TYPE_CHECKING:
    from rich.console import Console

FOLDED = 24
"""Characters below which a column of a table is not folded gladly."""


def sql(
    query: Annotated[
        str | None, typer.Argument(help="A SELECT; without one, the views and their columns are listed.")
    ] = None,
    db: options.DbOption = None,
    format: options.FormatOption = "terminal",
    json: options.JsonOption = False,
    timezone: options.TimezoneOption = None,
) -> None:
    """Run read-only SQL on everything the database holds."""
    from analyzer import queries
    from analyzer.errors import DatabaseError

    target = db or options.default_database()
    if target != ":memory:" and not os.path.exists(target):
        raise DatabaseError(f"no database at {target}", "run `ccache analyze` first, or name another file with --db")
    with options.opened(options.Asked(db=db, no_ingest=True, timezone=timezone)) as (connection, scope, _):
        if query is None:
            columns, rows = queries.list_views(connection)
        else:
            columns, rows = queries.run_sql(connection, scope, query)
    if query is None and format == "terminal" and not json:
        _print_views(rows)
    else:
        print_rows(columns, rows, "json" if json else format)


def _print_views(rows: list[tuple[object, ...]]) -> None:
    """One block per view: its columns are too many for a table on most terminals."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console()
    for name, grain, columns in rows:
        console.print(Text(str(name), "bold"))
        console.print(Padding(Text(str(grain)), (0, 0, 0, 2)))
        console.print(Padding(Text(str(columns), "dim"), (0, 0, 1, 2)))


def print_rows(columns: list[str], rows: list[tuple[object, ...]], format: options.Format, flexible: str = "") -> None:
    """Rows in any format. On a terminal only the column `flexible` may be folded, where one is named."""
    from analyzer.report.formatting import clean_text, escape_markdown

    if format == "json":
        from json import dumps
        from math import isfinite

        names = [name if name not in columns[:place] else f"{name}_{place + 1}" for place, name in enumerate(columns)]
        plain = [[None if isinstance(cell, float) and not isfinite(cell) else cell for cell in row] for row in rows]
        print(dumps([dict(zip(names, row, strict=True)) for row in plain], default=str, indent=2, ensure_ascii=False))
    elif format == "csv":
        import csv
        import sys

        from analyzer.report.machine import csv_text

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(csv_text, columns))
        writer.writerows([csv_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    elif format == "markdown":
        print(f"| {' | '.join(map(escape_markdown, columns))} |\n|{'---|' * len(columns)}")
        for row in rows:
            print(f"| {' | '.join('' if cell is None else escape_markdown(str(cell)) for cell in row)} |")
    else:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console()
        widths = [
            max([len(clean_text(name)), *(len(clean_text(str(row[place]))) for row in rows if row[place] is not None)])
            for place, name in enumerate(columns)
        ]
        if not flexible and sum(min(width, FOLDED) + 1 for width in widths) > console.width:
            _print_records(console, columns, rows)
            return
        table = Table(box=None, pad_edge=False)
        for position, name in enumerate(columns):
            fixed = bool(flexible) and name != flexible
            table.add_column(Text(clean_text(name)), min_width=widths[position] if fixed else None)
        for row in rows:
            table.add_row(*(Text("" if cell is None else clean_text(str(cell))) for cell in row))
        console.print(table)


def _print_records(console: "Console", columns: list[str], rows: list[tuple[object, ...]]) -> None:
    """One block per row, one line per column: for more columns than a terminal has room for."""
    from rich.table import Table
    from rich.text import Text

    from analyzer.report.formatting import clean_text

    for number, row in enumerate(rows, 1):
        console.print(Text(f"row {number} of {len(rows):,}", "bold"))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(ratio=1, overflow="fold")
        for name, cell in zip(columns, row, strict=True):
            table.add_row(Text(clean_text(name)), Text("" if cell is None else clean_text(str(cell))))
        console.print(table)
    if not rows:
        console.print(Text(f"no row; columns: {', '.join(map(clean_text, columns))}"))

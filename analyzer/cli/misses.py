"""`ccache misses`: each loss with its cause, evidence and price."""

from typing import Annotated

import typer

from analyzer.cli import options


@options.reports
def misses(
    asked: options.Asked,
    top: Annotated[int, typer.Option("--top", min=1, help="How many misses to list.")] = 15,
    ignore_diagnostics: Annotated[
        bool, typer.Option("--ignore-diagnostics", help="Infer every cause; do not look at the API's own verdict.")
    ] = False,
) -> None:
    """Where cached tokens were lost, why, and what writing them again cost."""
    from analyzer import queries
    from analyzer.report.misses import COLUMNS, misses_json, rebuild_row, render_misses

    with options.opened(asked) as (connection, scope, _):
        report = queries.misses(connection, scope, asked.prices, ignore_diagnostics=ignore_diagnostics)
    if asked.format == "json":
        options.print_json(misses_json(report))
    elif asked.format == "terminal":
        from rich.console import Console

        render_misses(report, Console(), top=top)
    else:
        from analyzer.cli.sql import print_rows

        rows = [rebuild_row(miss) for miss in report.misses]
        flat: list[tuple[object, ...]] = [
            tuple("; ".join(row[name]) if name == "evidence" else row[name] for name in COLUMNS) for row in rows
        ]
        print_rows(list(COLUMNS), flat, asked.format)

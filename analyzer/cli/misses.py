"""`ccache misses`: each loss with its cause, evidence and price."""

from typing import Annotated

import typer

from analyzer.cli import options


def misses(
    paths: options.Paths = None,
    db: options.DbOption = None,
    no_ingest: options.NoIngestOption = False,
    format: options.FormatOption = "terminal",
    json: options.JsonOption = False,
    top: Annotated[int, typer.Option("--top", min=1, help="How many misses to list.")] = 15,
    ignore_diagnostics: Annotated[
        bool, typer.Option("--ignore-diagnostics", help="Infer every cause; do not look at the API's own verdict.")
    ] = False,
    since: options.SinceOption = None,
    until: options.UntilOption = None,
    project: options.ProjectOption = None,
    model: options.ModelOption = None,
    timezone: options.TimezoneOption = None,
    prices: options.PricesOption = None,
) -> None:
    """Where cached tokens were lost, why, and what writing them again cost."""
    from analyzer import queries
    from analyzer.report.misses import COLUMNS, misses_json, rebuild_row, render_misses

    table = options.load_prices(prices)
    with options.opened(
        paths, db, no_ingest, since=since, until=until, projects=project, models=model, timezone=timezone
    ) as (connection, scope, _):
        report = queries.misses(connection, scope, table, ignore_diagnostics=ignore_diagnostics)
    if json or format == "json":
        from json import dumps

        print(dumps(misses_json(report), indent=2, ensure_ascii=False))
    elif format == "terminal":
        from rich.console import Console

        render_misses(report, Console(), top=top)
    else:
        from analyzer.cli.sql import print_rows

        rows = [rebuild_row(miss) for miss in report.misses]
        flat: list[tuple[object, ...]] = [
            tuple("; ".join(row[name]) if name == "evidence" else row[name] for name in COLUMNS) for row in rows
        ]
        print_rows(list(COLUMNS), flat, format)

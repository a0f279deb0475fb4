"""`ccache analyze`: the first screen."""

from typing import Annotated, Literal

import typer

from analyzer.cli import options

By = Literal["model", "project", "session", "day", "agent_type", "ttl", "version"]


def analyze(
    paths: options.Paths = None,
    db: options.DbOption = None,
    no_ingest: options.NoIngestOption = False,
    format: options.FormatOption = "terminal",
    json: options.JsonOption = False,
    by: Annotated[By, typer.Option("--by", help="Which table --format csv prints.")] = "model",
    top: Annotated[int, typer.Option("--top", min=1, help="Rows per table.")] = 10,
    since: options.SinceOption = None,
    until: options.UntilOption = None,
    project: options.ProjectOption = None,
    model: options.ModelOption = None,
    timezone: options.TimezoneOption = None,
    prices: options.PricesOption = None,
) -> None:
    """What was spent, how much of it was cache, and how many tokens were written again."""
    from analyzer import queries

    table = options.load_prices(prices)
    with options.opened(
        paths, db, no_ingest, since=since, until=until, projects=project, models=model, timezone=timezone
    ) as (connection, scope, ingested):
        report = queries.analyze(connection, scope, ingested, table)
    if json or format == "json":
        from json import dumps

        from analyzer.report.machine import analyze_json

        print(dumps(analyze_json(report), indent=2, ensure_ascii=False))
    elif format == "csv":
        from analyzer.report.machine import analyze_csv

        print(analyze_csv(report, by), end="")
    elif format == "markdown":
        from analyzer.report.machine import analyze_markdown

        print(analyze_markdown(report, top))
    else:
        from rich.console import Console

        from analyzer.report.terminal import render_analyze

        render_analyze(report, Console(), top=top)

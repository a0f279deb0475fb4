"""`ccache analyze`: the first screen."""

from typing import Annotated, Literal

import typer

from analyzer.cli import options

By = Literal["model", "project", "session", "day", "agent_type", "ttl", "version"]


@options.reports
def analyze(
    asked: options.Asked,
    by: Annotated[By, typer.Option("--by", help="Which table --format csv prints.")] = "model",
    top: Annotated[int, typer.Option("--top", min=1, help="Rows per table.")] = 10,
) -> None:
    """What was spent, how much of it was cache, and how many tokens were written again."""
    from analyzer import queries
    from analyzer.report import machine

    with options.opened(asked) as (connection, scope, ingested):
        report = queries.analyze(connection, scope, ingested, asked.prices)
    if asked.format == "json":
        options.print_json(machine.analyze_json(report))
    elif asked.format == "csv":
        print(machine.analyze_csv(report, by), end="")
    elif asked.format == "markdown":
        print(machine.analyze_markdown(report, top))
    else:
        from rich.console import Console

        from analyzer.report.terminal import render_analyze

        render_analyze(report, Console(), top=top)

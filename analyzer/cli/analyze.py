"""`ccache analyze`: the first screen."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from analyzer.cli import options

if TYPE_CHECKING:
    from rich.console import Console

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

    def terminal(console: "Console") -> None:
        from analyzer.report.terminal import render_analyze

        render_analyze(report, console, top=top)

    options.show(
        asked.format,
        json=lambda: machine.analyze_json(report),
        csv=lambda: machine.analyze_csv(report, by),
        markdown=lambda: machine.analyze_markdown(report, top),
        terminal=terminal,
    )

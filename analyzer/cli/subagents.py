"""`ccache subagents`: do subagents share the main conversation's prefix?"""

from typing import Annotated, Literal

import typer

from analyzer.cli import options

By = Literal["spawn", "type"]


@options.reports
def subagents(
    asked: options.Asked,
    by: Annotated[By, typer.Option("--by", help="Which table --format csv prints.")] = "spawn",
    top: Annotated[int, typer.Option("--top", min=1, help="How many spawns to list.")] = 15,
) -> None:
    """Whose cache each subagent's first request read, with the numbers that prove it, and what agents cost."""
    from analyzer import queries
    from analyzer.report import subagents as report

    with options.opened(asked) as (connection, scope, _):
        found = queries.subagents(connection, scope, asked.prices)
    options.show(
        asked.format,
        json=lambda: report.subagents_json(found),
        csv=lambda: report.subagents_csv(found, by),
        markdown=lambda: report.subagents_markdown(found, top),
        terminal=lambda console: report.render_subagents(found, console, top=top),
    )

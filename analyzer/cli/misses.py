"""`ccache misses`: each loss with its cause, evidence and price."""

from typing import Annotated, Literal

import typer

from analyzer.cli import options

By = Literal["miss", "cause", "week", "version", "signature"]


@options.reports
def misses(
    asked: options.Asked,
    by: Annotated[By, typer.Option("--by", help="Which table csv and markdown print.")] = "miss",
    cause: Annotated[list[str] | None, typer.Option("--cause", help="Only this cause; may be repeated.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many misses to list.")] = 15,
    ignore_diagnostics: Annotated[
        bool, typer.Option("--ignore-diagnostics", help="Infer every cause; do not look at the API's own verdict.")
    ] = False,
) -> None:
    """Where cached tokens were lost, why, and what writing them again cost."""
    from analyzer import queries
    from analyzer.report import misses as report

    with options.opened(asked) as (connection, scope, _):
        found = queries.misses(
            connection, scope, asked.prices, ignore_diagnostics=ignore_diagnostics, causes=tuple(cause or ())
        )
    options.show(
        asked.format,
        json=lambda: report.misses_json(found),
        csv=lambda: report.misses_csv(found, by),
        markdown=lambda: report.misses_markdown(found, by, top),
        terminal=lambda console: report.render_misses(found, console, top=top),
    )

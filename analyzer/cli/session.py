"""`ccache session`: the timeline of one session."""

from typing import Annotated

import typer

from analyzer.cli import options


@options.reports
def session(
    asked: options.Asked,
    id: Annotated[str, typer.Argument(help="A session id, a unique beginning of one, or latest.", show_default=False)],
    top: Annotated[int, typer.Option("--top", min=1, help="Requests to list; the others are folded.")] = 40,
    all: Annotated[bool, typer.Option("--all", help="List every request, subagents' too.")] = False,
) -> None:
    """One session request by request: what was read and written, what was lost and why, and its subagents."""
    from analyzer import queries
    from analyzer.report.session import render_session, session_markdown
    from analyzer.report.session_rows import session_csv, session_json

    with options.opened(asked) as (connection, scope, _):
        found = queries.session(connection, scope, id, asked.prices)
    options.show(
        asked.format,
        json=lambda: session_json(found),
        csv=lambda: session_csv(found),
        markdown=lambda: session_markdown(found, top, all),
        terminal=lambda console: render_session(found, console, top=top, everything=all),
    )

"""`ccache export`: the requests in scope as a trace that `ccache simulate` and other engines replay."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from analyzer.cli import options

TraceFormat = Literal["ccache", "mooncake", "weka"]


@options.reports
def export(
    asked: options.Asked,
    trace: Annotated[Path, typer.Option("--trace", help="File to write; .gz compresses it.")],
    trace_format: Annotated[
        TraceFormat, typer.Option("--trace-format", help="ccache (lossless); mooncake or weka for other engines.")
    ] = "ccache",
    session: Annotated[str | None, typer.Option("--session", help="Only this session (id or its beginning).")] = None,
    block_tokens: Annotated[
        int | None,
        typer.Option("--block-tokens", min=1, help="Tokens per block (default: 512 in mooncake, 64 in weka)."),
    ] = None,
) -> None:
    """Write the requests in scope as a trace: lengths, times and shared prefixes; no names and no text."""
    from analyzer.errors import NoLogsError, UsageError
    from analyzer.trace_export import export_trace
    from simulator.trace_files import write_trace

    if asked.format != "terminal":
        raise UsageError("export prints no report", "choose the form of the file with --trace-format")
    with options.opened(asked) as (connection, scope, _):
        kept = connection.execute("SELECT path FROM files").fetchall()
        if str(trace.resolve()) in {os.path.realpath(scope.database), *(row[0] for row in kept)}:
            raise UsageError(f"{trace} is a transcript or the database itself", "choose another file for --trace")
        requests = export_trace(connection, scope, session)
    if not requests:
        raise NoLogsError("no request in scope to export", "widen --since, --until, --project or --model")
    write_trace(trace, requests, trace_format, block_tokens=block_tokens)
    options.note(f"wrote {len(requests):,} requests to {trace}")

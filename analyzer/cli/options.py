"""Options that several commands share, and how a command gets its database and scope."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    import duckdb

    from analyzer.ingest import Progress
    from analyzer.prices import PriceTable
    from analyzer.queries import Scope
    from analyzer.results import IngestResult

Format = Literal["terminal", "json", "csv", "markdown"]
Paths = Annotated[
    list[str] | None,
    typer.Argument(help="Config roots, projects folders, project folders, .jsonl files or globs.", show_default=False),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print the report.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
DbOption = Annotated[str | None, typer.Option("--db", help="Database file, or :memory:.", envvar="CLAUDE_CCACHE_DB")]
NoIngestOption = Annotated[
    bool, typer.Option("--no-ingest", help="Report what the database holds; read no transcript.")
]
SinceOption = Annotated[str | None, typer.Option("--since", help="First day (YYYY-MM-DD) or instant to show.")]
UntilOption = Annotated[str | None, typer.Option("--until", help="Last day (inclusive) or instant to show.")]
ProjectOption = Annotated[list[str] | None, typer.Option("--project", help="Only projects whose path contains this.")]
ModelOption = Annotated[list[str] | None, typer.Option("--model", help="Only models whose name contains this.")]
TimezoneOption = Annotated[
    str | None,
    typer.Option("--timezone", help="Zone of calendar days (default: the system's).", envvar="CLAUDE_CCACHE_TZ"),
]
PricesOption = Annotated[Path | None, typer.Option("--prices", help="TOML file with negotiated rates.")]


def default_database() -> str:
    from platformdirs import user_data_path

    return str(user_data_path("claude-ccache") / "history.duckdb")


def local_timezone() -> str:
    """The system's zone as an IANA name; UTC where none can be told."""
    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        target = os.path.realpath("/etc/localtime")
        name = target.partition("/zoneinfo/")[2]
    return name or "UTC"


@contextmanager
def opened(
    paths: list[str] | None,
    db: str | None,
    no_ingest: bool,
    *,
    since: str | None = None,
    until: str | None = None,
    projects: list[str] | None = None,
    models: list[str] | None = None,
    timezone: str | None = None,
) -> "Iterator[tuple[duckdb.DuckDBPyConnection, Scope, IngestResult]]":
    """Connect, ingest and settle the scope. With no log anywhere, the shipped samples in memory."""
    from analyzer import database, discovery
    from analyzer.errors import NoLogsError
    from analyzer.ingest import ingest
    from analyzer.queries import Scope
    from analyzer.results import IngestResult

    roots = list(paths or [])
    sample = False
    if not roots and db is None:
        roots = [str(root) for root in discovery.default_roots(os.environ, Path.home())]
        if not any((Path(root) / "projects").is_dir() for root in roots) and not no_ingest:
            samples = discovery.sample_root()
            note(f"no Claude Code logs found (looked in {', '.join(roots) or '~/.claude'}): showing sample sessions")
            roots, sample = [str(samples)], True
    target = ":memory:" if sample else db or default_database()
    connection = database.connect(target)
    try:
        result, ids = IngestResult(), None
        if roots and not no_ingest:
            found, unreadable = discovery.find_transcripts(roots)
            if not found and paths:
                raise NoLogsError(
                    f"no transcript under {', '.join(paths)}", "a transcript is a .jsonl file below projects/"
                )
            with progress_bar(sum(file.size for file in found)) as advance:
                result, listed = ingest(connection, found, unreadable, progress=advance)
            ids = tuple(listed) if paths or sample else None
            for problem in result.unreadable:
                note(f"skipped {problem}")
        elif roots and paths:
            found, _ = discovery.find_transcripts(roots)
            known = dict(connection.execute("SELECT path, file_id FROM files").fetchall())
            ids = tuple(known[file.path] for file in found if file.path in known)
        yield (
            connection,
            Scope(
                ids,
                timezone or local_timezone(),
                since,
                until,
                tuple(projects or ()),
                tuple(models or ()),
                tuple(roots),
                target,
                sample,
            ),
            result,
        )
    finally:
        connection.close()


@contextmanager
def progress_bar(total_bytes: int) -> "Iterator[Progress | None]":
    """A bar with bytes and files on a terminal when there is much to read; nothing when piped."""
    if not sys.stderr.isatty() or total_bytes < 100 << 20:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as ProgressBar

    columns = (
        TextColumn("reading"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[files]} files"),
        TimeRemainingColumn(),
    )
    with ProgressBar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total_bytes, files=0)
        yield lambda read, files: bar.update(task, completed=read, files=files)


def load_prices(path: Path | None) -> "PriceTable | None":
    from analyzer.prices import load_price_file

    return load_price_file(path) if path else None


def note(text: str) -> None:
    from analyzer.report.formatting import clean_text

    print(f"ccache: {clean_text(text)}", file=sys.stderr)

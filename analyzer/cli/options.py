"""Options that several commands share, and how a command gets its database and scope."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    import duckdb
    from rich.console import Console

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
JsonOption = Annotated[bool, typer.Option("--json", help="The report as JSON, as --format json where there is one.")]


def _database(given: str | None) -> str | None:
    if given is not None and not given.strip():
        raise typer.BadParameter("an empty name; give a file or :memory:")
    return given and os.path.expanduser(given)


DbOption = Annotated[
    str | None,
    typer.Option("--db", help="Database file, or :memory:.", envvar="CLAUDE_CCACHE_DB", callback=_database),
]
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
    from zoneinfo import available_timezones

    name = os.environ.get("TZ", "").lstrip(":")
    if not name or name.startswith("/") or name == "localtime":
        name = os.path.realpath(name if name.startswith("/") else "/etc/localtime").partition("/zoneinfo/")[2]
    if name in available_timezones() - {"localtime", "posixrules", "Factory"}:
        return name
    if name:
        note(f"the time zone {name!r} has no IANA name: days are those of UTC; choose another with --timezone")
    return "UTC"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report command was asked for, whichever command it is."""

    paths: tuple[str, ...] = ()
    db: str | None = None
    no_ingest: bool = False
    format: Format = "terminal"
    since: str | None = None
    until: str | None = None
    projects: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    timezone: str | None = None
    prices: "PriceTable | None" = None


def _shared(
    paths: Paths = None,
    db: DbOption = None,
    no_ingest: NoIngestOption = False,
    format: FormatOption = "terminal",
    json: JsonOption = False,
    since: SinceOption = None,
    until: UntilOption = None,
    project: ProjectOption = None,
    model: ModelOption = None,
    timezone: TimezoneOption = None,
    prices: PricesOption = None,
) -> Asked:
    return Asked(
        paths=tuple(paths or ()),
        db=db,
        no_ingest=no_ingest,
        format="json" if json else format,
        since=since,
        until=until,
        projects=tuple(project or ()),
        models=tuple(model or ()),
        timezone=timezone,
        prices=load_prices(prices),
    )


def reports(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command(asked, **its_own_options)` the arguments and options that every report has."""
    shared = inspect.signature(_shared).parameters
    own = dict(list(inspect.signature(command).parameters.items())[1:])

    def run(**values: Any) -> None:
        asked = _shared(**{name: values.pop(name) for name in shared})
        command(asked, **values)

    first = {name: own.pop(name) for name in list(own) if own[name].annotation.__metadata__[0].param_decls is None}
    parameters = [*first.values(), *shared.values(), *own.values()]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    )
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


@contextmanager
def opened(asked: Asked) -> "Iterator[tuple[duckdb.DuckDBPyConnection, Scope, IngestResult]]":
    """Connect, ingest and settle the scope. With no log anywhere, the shipped samples in memory.

    Raises DatabaseError where the disk or the memory ends while a report is made, or the database is damaged.
    """
    import duckdb

    from analyzer import database, discovery
    from analyzer.errors import NoLogsError
    from analyzer.ingest import ingest
    from analyzer.queries import Scope
    from analyzer.results import IngestResult

    roots = list(asked.paths)
    sample = False
    if not roots and asked.db is None:
        roots = [str(root) for root in discovery.default_roots(os.environ, Path.home())]
        if not any((Path(root) / "projects").is_dir() for root in roots) and not asked.no_ingest:
            samples = discovery.sample_root()
            note(f"no Claude Code logs found (looked in {', '.join(roots) or '~/.claude'}): showing sample sessions")
            roots, sample = [str(samples)], True
    target = ":memory:" if sample else asked.db or default_database()
    connection = database.connect(target)
    try:
        result, ids = IngestResult(), None

        def held() -> list[tuple[str, int]]:
            return connection.execute("SELECT path, file_id FROM files").fetchall()

        if roots and not asked.no_ingest:
            found, unreadable = discovery.find_transcripts(roots)
            if not found and asked.paths:
                raise NoLogsError(
                    f"no transcript under {', '.join(asked.paths)}", "a transcript is a .jsonl file below projects/"
                )
            with progress_bar(sum(file.size for file in found)) as advance:
                result, listed = ingest(connection, found, unreadable, progress=advance)
            ids = tuple(listed)
            for problem in result.unreadable:
                note(f"skipped {problem}")
        elif roots and asked.paths:
            found, _ = discovery.find_transcripts(roots)
            present = {file.path for file in found}
            ids = tuple(file_id for path, file_id in held() if path in present)
        if roots and not asked.paths and not sample:
            folders = discovery.folders_below(roots)
            ids = tuple({*(ids or ()), *(file_id for path, file_id in held() if path.startswith(folders))})
        scope = Scope(
            file_ids=ids,
            timezone=asked.timezone or local_timezone(),
            since=asked.since,
            until=asked.until,
            projects=asked.projects,
            models=asked.models,
            described=tuple(roots),
            database=target,
            sample_data=sample,
        )
        yield connection, scope, result
    except duckdb.Error as error:
        if database.is_damage(error) or isinstance(error, duckdb.OperationalError | duckdb.FatalException):
            raise database.failure(target, error) from error
        raise
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


def print_json(value: object) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def show(
    format: Format,
    *,
    json: Callable[[], object],
    csv: Callable[[], str],
    markdown: Callable[[], str],
    terminal: "Callable[[Console], None]",
) -> None:
    """Print a report in the format asked for; only that one is made."""
    if format == "json":
        print_json(json())
    elif format == "terminal":
        from rich.console import Console

        terminal(Console())
    else:
        text = csv() if format == "csv" else markdown()
        print(text, end="" if text.endswith("\n") or not text else "\n")

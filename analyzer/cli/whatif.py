"""`ccache whatif`: what the logged work would have cost otherwise, and whether the log can be predicted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from analyzer.cli import options

if TYPE_CHECKING:
    from analyzer.whatif.results import Explanation
    from analyzer.whatif.run import Progress

By = Literal["project", "session", "model"]


@options.reports
def whatif(
    asked: options.Asked,
    scenario: Annotated[
        list[str] | None,
        typer.Option("--scenario", help="Only this scenario, a model, or several joined by +; may be repeated."),
    ] = None,
    explain: Annotated[str | None, typer.Option("--explain", help="How one scenario is worked out.")] = None,
    by: Annotated[By | None, typer.Option("--by", help="Also the cheapest scenario of each of these.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Lay predicted cache reads beside the logged ones instead.")
    ] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="How many groups or differences to list.")] = 15,
) -> None:
    """What the same work would have cost at other prices, on other models, with other caching."""
    from datetime import UTC, datetime

    from analyzer.report import whatif as report
    from analyzer.report import whatif_screen
    from analyzer.whatif import run
    from analyzer.whatif.scenarios import plan_of

    if check:
        _check(asked, top, scenario or explain or by)
        return
    now = datetime.now(UTC)
    for name in (*(scenario or ()), *((explain,) if explain is not None else ())):
        plan_of(name)  # a mistyped name is told before anything is read
    with options.opened(asked) as (connection, scope, _):
        if explain is not None:
            plan = run.explain(connection, scope, asked.prices, explain, now=now)
            _print_explanation(plan, asked.format)
            return
        with _bar() as progress:
            found = run.whatif(connection, scope, asked.prices, names=scenario or (), by=by, now=now, progress=progress)
    options.show(
        asked.format,
        json=lambda: report.whatif_json(found),
        csv=lambda: report.whatif_csv(found),
        markdown=lambda: report.whatif_markdown(found, top),
        terminal=lambda console: whatif_screen.render_whatif(found, console, top=top),
    )


@contextmanager
def _bar() -> "Iterator[Progress | None]":
    """A bar with the scenario at work, on a terminal; nothing when piped."""
    import sys

    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as ProgressBar

    columns = (BarColumn(), TextColumn("{task.completed}/{task.total}"), TextColumn("{task.description}"))
    with ProgressBar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total, name: bar.update(task, completed=done, total=total, description=name)


def _print_explanation(found: "Explanation", format: options.Format) -> None:
    from analyzer.report import whatif_explained as report

    options.show(
        format,
        json=lambda: report.explanation_json(found),
        csv=lambda: report.explanation_csv(found),
        markdown=lambda: report.explanation_markdown(found),
        terminal=lambda console: report.render_explanation(found, console),
    )


def _check(asked: options.Asked, top: int, other: object) -> None:
    from analyzer.errors import UsageError
    from analyzer.report import whatif_check as report
    from analyzer.whatif.check import check

    if other:
        raise UsageError("--check goes with neither --scenario nor --explain nor --by", "ask for one of them at a time")
    with options.opened(asked) as (connection, scope, _):
        found = check(connection, scope, asked.prices)
    options.show(
        asked.format,
        json=lambda: report.check_json(found),
        csv=lambda: report.check_csv(found),
        markdown=lambda: report.check_markdown(found),
        terminal=lambda console: report.render_check(found, console, top=top),
    )

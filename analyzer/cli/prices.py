"""`ccache prices`: which rates apply, from when, and from where."""

from typing import Annotated

import typer

from analyzer.cli import options


def prices(
    model: Annotated[str | None, typer.Argument(help="A model id as logs show it; without one, all known.")] = None,
    format: options.FormatOption = "terminal",
    json: options.JsonOption = False,
) -> None:
    """Rates in USD per million tokens by date, band and speed, with their source."""
    from analyzer.cli.sql import print_rows
    from analyzer.errors import PricesError
    from analyzer.prices import describe, known_models

    rows: list[tuple[object, ...]] = []
    for name in [model] if model else known_models():
        for row in describe(name):
            rates = row.rates
            classes = (rates.input, rates.cache_creation_5m, rates.cache_creation_1h, rates.cache_read, rates.output)
            rows.append((name, _day(row.valid_from), _day(row.valid_until), row.band, row.speed, *classes, row.source))
    if not rows:
        raise PricesError(
            f"no price is known for {model}", "its requests are listed as unpriced; give rates with --prices FILE"
        )
    columns = ["model", "from", "until", "band", "speed", "input", "write_5m", "write_1h", "read", "output", "source"]
    if json or format != "terminal":
        print_rows(columns, rows, "json" if json else format)
        return
    from rich.console import Console

    from analyzer.report.prices import render_prices

    render_prices(rows, Console())


def _day(at: object) -> str:
    return str(at)[:10] if at is not None else ""

"""The first screen of `ccache analyze`. Every name goes through `Screen.name`, so no log can write to the terminal."""

from collections.abc import Sequence
from decimal import Decimal

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.report.charts import day_chart, share_bar
from analyzer.report.findings import render_findings
from analyzer.report.formatting import counted, format_count, format_percent, format_tokens, format_usd, share
from analyzer.report.machine import classes_of, missing_from, scope_lines, top_rows, unpriced_line
from analyzer.report.screen import Screen
from analyzer.results import AnalyzeReport, GroupRow, Totals

_READ, _WRITE, _INPUT, _OUTPUT = "green", "yellow", "blue", "magenta"
_CLASS_STYLES = (_WRITE, _WRITE, _READ, _INPUT, _OUTPUT)

_NAME_WIDTH = 22
_WIDTHS = {
    "requests": 8, "cost": 9, "hit rate": 8, "input": 7, "written": 7, "write 5m": 8, "write 1h": 8, "read": 7,
    "output": 7, "misses": 6, "rebuilds": 8, "again": 7,
}  # fmt: skip
_COLUMN_SETS = (
    ("requests", "cost", "hit rate", "input", "write 5m", "write 1h", "read", "output", "misses", "rebuilds", "again"),
    ("requests", "cost", "hit rate", "input", "written", "read", "output", "misses", "again"),
    ("requests", "cost", "hit rate", "written", "read", "output", "misses"),
    ("requests", "cost", "hit rate", "written", "read", "output"),
    ("cost", "hit rate", "written", "read"),
    ("cost", "hit rate"),
    ("cost",),
)


def render_analyze(report: AnalyzeReport, console: Console, *, top: int = 10) -> None:
    screen = Screen(console)
    _spend(screen, report)
    if report.totals.usage.requests:
        _shares(screen, report.totals)
        _cache(screen, report.totals)
        render_findings(screen, report.findings)
        _days(screen, report)
        _groups(screen, "Models", report.by_model, top, "model")
        _groups(screen, "Projects", report.by_project, top, "project")
        _groups(screen, "Sessions", report.by_session, top, "session")
        _groups(screen, "Main and subagents", report.by_agent_type, None, "agent_type")
        _groups(screen, "Time to live of cache writes, for requests that wrote", report.by_ttl, None, "ttl")
    _missing(screen, report)


def _spend(screen: Screen, report: AnalyzeReport) -> None:
    meta, usage = report.meta, report.totals.usage
    if meta.sample_data:
        screen.line(Text("SAMPLE DATA, not your sessions", "bold yellow"))
    spend = Text.assemble(
        (format_usd(usage.cost_usd), "bold green" if usage.cost_usd is not None else "bold yellow"),
        (" API-equivalent", "bold"),
        (f"  {format_count(usage.requests)} requests", ""),
    )
    if usage.unpriced_requests:
        spend.append(f", {format_count(usage.unpriced_requests)} of them unpriced", "yellow")
    screen.line(spend if usage.requests else Text("No requests in this scope.", "bold yellow"))
    for line in scope_lines(report):
        screen.line(screen.name(line))
    screen.line(screen.name(f"prices: {meta.price_source}, {meta.price_date}", "dim"))


def _shares(screen: Screen, totals: Totals) -> None:
    """Tokens and money by class, side by side: reads are most of the tokens and little of the money."""
    usage = totals.usage
    screen.heading("Where tokens and money went")
    table = screen.table()
    table.add_column("", no_wrap=True, overflow=screen.cut)
    shares, wide = screen.width >= 56, screen.width >= 70
    bar_width = max(6, min(40, (screen.width - 60) // 2))
    for title in ("tokens", "cost"):
        table.add_column(title, justify="right", no_wrap=True, overflow=screen.cut)
        if shares:
            table.add_column("share", justify="right", no_wrap=True, overflow=screen.cut)
        if wide:
            table.add_column("", ratio=1, no_wrap=True, overflow="crop")
    everything = usage.prompt_tokens + usage.output_tokens
    for (name, tokens, cost), style in zip(classes_of(totals), _CLASS_STYLES, strict=True):
        cells: list[RenderableType] = [Text(name, style)]
        money = None if usage.cost_usd is None else cost
        sides = (
            (format_tokens(tokens), share(tokens, everything)),
            (format_usd(money), None if money is None else share(money, usage.cost_usd)),
        )
        for amount, part in sides:
            cells += [amount, format_percent(part)] if shares else [amount]
            if wide:
                cells.append(Text(share_bar(part, bar_width, ascii_only=screen.ascii_only), style))
        table.add_row(*cells)
    screen.line(table)
    if totals.web_search_cost_usd:
        screen.line(Text(f"Web searches: {format_usd(totals.web_search_cost_usd)}, in the cost above"))


def _cache(screen: Screen, totals: Totals) -> None:
    screen.heading("What the cache did")
    usage, saved = totals.usage, totals.saved_usd
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(no_wrap=True, overflow=screen.cut)
    table.add_column(justify="right", no_wrap=True, overflow=screen.cut)
    table.add_column(ratio=1, overflow="fold")

    def money(cost: Decimal) -> str:
        return format_usd(None if usage.cost_usd is None else cost)

    table.add_row("Hit rate", Text(format_percent(usage.hit_rate), "bold"), "of prompt tokens were read from the cache")
    saving = f"against {money(totals.uncached_cost_usd)} with no caching"
    part = share(saved, totals.uncached_cost_usd)
    if usage.cost_usd is not None and part is not None and part > 0:
        saving += f" ({format_percent(part)} less)"
    elif saved < 0:
        saving += ": writes cost more than reads gave back"
    table.add_row("Saved", Text(money(saved), "bold green" if saved >= 0 else "bold red"), saving)
    for name, style, tokens, events, event, cost in (
        ("Rewritten, misses", "bold red", totals.miss_rewritten_tokens, totals.misses, "miss",
         totals.miss_rewrite_cost_usd),
        ("Rewritten, expected", "bold", totals.expected_rewritten_tokens, totals.expected_rebuilds, "rebuild",
         totals.expected_rewrite_cost_usd),
    ):  # fmt: skip
        shown = Text(format_tokens(tokens), style if tokens else "")
        table.add_row(name, shown, f"tokens in {counted(events, event)}, {money(cost)}")
    screen.line(table)
    screen.line(Text("Why: ccache misses. Shared or not: ccache subagents. Otherwise: ccache whatif.", "dim"))


def _days(screen: Screen, report: AnalyzeReport) -> None:
    chart = day_chart(report.by_day, min(screen.width, 120), ascii_only=screen.ascii_only)
    if chart is None:
        return
    each = "day" if chart.days_per_bar == 1 else f"{chart.days_per_bar} days"
    screen.heading(f"Cache reads and writes per {each}")
    for title, lines, style in (("read", chart.read, _READ), ("written", chart.creation, _WRITE)):
        screen.line(Text(f"{title:>8}", "dim"))
        for line in lines:
            screen.line(Text.assemble((line[:9], "dim"), (line[9:], style), no_wrap=True, overflow="crop"))
    screen.line(Text(chart.axis, "dim", no_wrap=True, overflow="crop"))


def _groups(screen: Screen, title: str, rows: Sequence[GroupRow], top: int | None, by: str) -> None:
    """One table; the numeric columns have fixed widths so that tables line up beneath one another."""
    shown = tuple(rows) if top is None else top_rows(rows, top)
    if not shown:
        return
    screen.heading(title if len(shown) == len(rows) else f"{title}, top {len(shown)} of {format_count(len(rows))}")
    columns = _columns(screen.width)
    table = screen.table()
    table.add_column("", ratio=1, no_wrap=True, overflow=screen.cut, min_width=8)
    room = screen.width - sum(_WIDTHS[name] + 2 for name in columns)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True, overflow=screen.cut, min_width=_WIDTHS[name])
    for row in shown:
        cells = _cells(row)
        label = screen.name((row.label or row.key).removeprefix("claude-") if by == "model" else row.label or row.key)
        table.add_row(screen.shortened(label, room), *(cells[name] for name in columns))
    screen.line(table)
    if any(row.unpriced_requests and row.cost_usd is not None for row in shown):
        screen.line(Text("* without its unpriced requests", "dim"))
    if len(shown) < len(rows):
        screen.line(Text(f"{format_count(len(rows) - len(shown))} more: --format csv --by {by}", "dim"))


def _columns(width: int) -> tuple[str, ...]:
    """As many columns as leave room for a name."""
    fitting = (names for names in _COLUMN_SETS if width - sum(_WIDTHS[name] + 2 for name in names) >= _NAME_WIDTH)
    return next(fitting, _COLUMN_SETS[-1])


def _cells(row: GroupRow) -> dict[str, Text]:
    partly = "*" if row.unpriced_requests and row.cost_usd is not None else ""
    return {
        "requests": Text(format_count(row.requests)),
        "cost": Text(format_usd(row.cost_usd) + partly, "bold" if row.cost_usd is not None else "yellow"),
        "hit rate": Text(format_percent(row.hit_rate)),
        "input": Text(format_tokens(row.input_tokens), _INPUT),
        "written": Text(format_tokens(row.cache_creation_tokens), _WRITE),
        "write 5m": Text(format_tokens(row.cache_creation_5m_tokens), _WRITE),
        "write 1h": Text(format_tokens(row.cache_creation_1h_tokens), _WRITE),
        "read": Text(format_tokens(row.cache_read_tokens), _READ),
        "output": Text(format_tokens(row.output_tokens), _OUTPUT),
        "misses": Text(format_count(row.misses), "red" if row.misses else "dim"),
        "rebuilds": Text(format_count(row.expected_rebuilds), "" if row.expected_rebuilds else "dim"),
        "again": Text(format_tokens(row.rewritten_tokens)),
    }


def _missing(screen: Screen, report: AnalyzeReport) -> None:
    quality = report.quality
    screen.heading("Not in the numbers, or not exact in them")
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(justify="right", no_wrap=True, overflow=screen.cut)
    table.add_column(ratio=1, overflow="fold")
    for text, count in missing_from(quality):
        table.add_row(Text(format_count(count), "yellow" if count else "dim"), Text(text, "" if count else "dim"))
    screen.line(table)
    for model in quality.unpriced_models:
        screen.line(screen.name(unpriced_line(model), "yellow"))
    if quality.cost_state_usd is not None:
        screen.line(Text(f"Claude Code's own running total says {format_usd(quality.cost_state_usd)}.", "dim"))

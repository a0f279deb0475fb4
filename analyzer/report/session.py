"""`ccache session`: a timeline of one session; a picture of all of it, then its requests with what they lost."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from decimal import Decimal
from itertools import groupby

from rich.console import Console
from rich.text import Text

from analyzer.report.formatting import (
    counted,
    escape_markdown,
    format_count,
    format_percent,
    format_tokens,
    format_usd,
    share,
    zone_of,
)
from analyzer.report.machine import markdown_table
from analyzer.report.misses import render_signatures
from analyzer.report.screen import Screen
from analyzer.results import SessionReport, SessionRequest

READ, WRITTEN, UNCACHED = ("░", "green"), ("█", "yellow"), ("▒", "blue")
ASCII = {"░": ".", "█": "#", "▒": "+", "━": "-"}
HEIGHT = 8
MARGIN = 9
MOST_LANES = 12


def session_markdown(report: SessionReport, top: int, everything: bool) -> str:
    zone = zone_of(report.timezone)
    lines = ["# Session " + escape_markdown(report.session_id), ""]
    lines += [f"- {escape_markdown(line)}" for line in _facts(report, zone)] + [""]
    kept = _kept(report.requests, len(report.requests) if everything else top)
    header = ("Request", "Time", "Gap", "Read", "Written", "Uncached", "Cost", "What")
    rows = [
        (
            f"{escape_markdown(request.lane)} {request.n}",
            f"{request.timestamp.astimezone(zone):%m-%d %H:%M:%S}",
            _span(request.gap_s),
            format_tokens(request.cache_read_tokens),
            format_tokens(request.cache_creation_tokens),
            format_tokens(request.input_tokens),
            format_usd(request.cost_usd),
            escape_markdown(what(request)),
        )
        for request in kept
    ]
    lines += markdown_table(header, rows)
    if len(kept) < len(report.requests):
        lines += [f"{format_count(len(report.requests) - len(kept))} more requests: --all", ""]
    if report.agents:
        lines += ["## Subagents", ""]
        agents = [
            (
                escape_markdown(f"{agent.agent_type} {agent.agent_id}"),
                format_count(agent.requests),
                format_tokens(agent.first_read_tokens),
                format_tokens(agent.first_creation_tokens),
                escape_markdown(agent.verdict),
                format_usd(agent.cost_usd),
            )
            for agent in report.agents
        ]
        lines += markdown_table(("Agent", "Requests", "First read", "First write", "Verdict", "Cost"), agents)
    return "\n".join(lines)


def render_session(report: SessionReport, console: Console, *, top: int = 40, everything: bool = False) -> None:
    """Facts, a picture of all requests with subagents as lanes, known bugs, then the requests (folded, or all)."""
    screen, zone = Screen(console), zone_of(report.timezone)
    for line in _facts(report, zone):
        screen.line(screen.name(line))
    main = [request for request in report.requests if request.lane == "main"]
    _picture(screen, report, main or list(report.requests))
    render_signatures(screen, report.signatures)
    _timeline(screen, report, zone, top, everything)
    screen.line(Text("time: when the answer began; gap: from the start of one request to that of the next", "dim"))


def what(request: SessionRequest) -> str:
    """Why this request is marked, in a few words."""
    rebuild = request.rebuild
    if rebuild is None:
        return "first request" if request.mark == "first" else ""
    name = rebuild.cause if request.mark == "miss" else f"{rebuild.cause} (expected)"
    bug = f" [{rebuild.signature}]" if rebuild.signature else ""
    return f"{name}{bug}, lost {format_tokens(rebuild.lost_tokens)}"


def _facts(report: SessionReport, zone: tzinfo) -> list[str]:
    requests = report.requests
    read = sum(request.cache_read_tokens for request in requests)
    prompt = sum(request.prompt_tokens for request in requests)
    priced = [request.cost_usd for request in requests if request.cost_usd is not None]
    cost = sum(priced, Decimal(0)) if priced else None
    start, end = requests[0].timestamp.astimezone(zone), requests[-1].timestamp.astimezone(zone)
    missed = [request.rebuild for request in requests if request.mark == "miss" and request.rebuild]
    again = sum((miss.rewrite_cost_usd or Decimal(0) for miss in missed), Decimal(0))
    expected = sum(request.mark == "expected" for request in requests)
    lines = [
        f"{report.session_id}  {report.project}",
        f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}, {report.timezone};"
        f" {', '.join(dict.fromkeys(request.model for request in requests))}",
        f"{format_usd(cost)}, {counted(len(requests), 'request')}, hit rate {format_percent(share(read, prompt))};"
        f" {counted(len(missed), 'miss')} cost {format_usd(again)} to write again,"
        f" {counted(expected, 'expected rebuild')}, {counted(len(report.agents), 'subagent')}",
    ]
    first = report.first
    if first:
        thanks = f", which {first.whose} had cached" if first.whose else ""
        lines.append(
            f"first request: {format_percent(first.warm_rate)} of its prompt was read from the cache"
            f" ({format_tokens(first.cache_read_tokens)} tokens{thanks})"
        )
    return lines


def _picture(screen: Screen, report: SessionReport, main: Sequence[SessionRequest]) -> None:
    """Prompts as columns, stacked by class; of several requests in one column the one that wrote most is drawn."""
    width = max(10, screen.width - MARGIN - 1)
    columns = min(len(main), width)
    cells = max(1, min(6, width // columns))
    drawn = []
    marks = []
    for column in range(columns):
        group = main[column * len(main) // columns : (column + 1) * len(main) // columns]
        drawn.append(max(group, key=lambda request: request.cache_creation_tokens + request.input_tokens))
        kinds = {request.mark for request in group}
        marks.append("!" if "miss" in kinds else "c" if "expected" in kinds else " ")
    most = max(request.prompt_tokens for request in drawn) or 1
    per = "" if columns == len(main) else f", up to {-(-len(main) // columns)} per column"
    screen.heading(f"Prompt by request: {counted(len(main), 'request')}{per}")
    for line in reversed(range(HEIGHT)):
        label = format_tokens(most) if line == HEIGHT - 1 else "0" if line == 0 else ""
        text = Text(f"{label:>{MARGIN - 2}} ", "dim", no_wrap=True, overflow="crop")
        for request in drawn:
            _cell(screen, text, request, (line + 0.5) * most / HEIGHT, cells)
        screen.line(text)
    marked = Text(" " * (MARGIN - 1), no_wrap=True, overflow="crop")
    for mark in marks:
        marked.append(mark.ljust(cells), "bold red" if mark == "!" else "bold")
    screen.line(marked)
    legend = Text(" " * (MARGIN - 1), "dim")
    for (glyph, style), name in ((READ, "read"), (WRITTEN, "written"), (UNCACHED, "uncached")):
        legend.append(_glyph(screen, glyph), style).append(f" {name}  ", "dim")
    screen.line(legend.append("! miss  c expected rebuild", "dim"))
    _lanes(screen, report, main, columns * cells)


def _cell(screen: Screen, text: Text, request: SessionRequest, level: float, cells: int) -> None:
    bottom = request.cache_read_tokens
    for (glyph, style), tokens in (
        (READ, 0),
        (WRITTEN, request.cache_creation_tokens),
        (UNCACHED, request.input_tokens),
    ):
        bottom += tokens
        if level <= bottom:
            text.append(_glyph(screen, glyph) * max(1, cells - (cells > 2)), style)
            text.append(" " * (cells > 2))
            return
    text.append(" " * cells)


def _glyph(screen: Screen, glyph: str) -> str:
    return ASCII[glyph] if screen.ascii_only else glyph


def _lanes(screen: Screen, report: SessionReport, main: Sequence[SessionRequest], width: int) -> None:
    """Other chains under the picture: where in the main conversation each ran, and what it cost."""
    lanes: dict[str, list[SessionRequest]] = {}
    for request in report.requests:
        if request.lane != "main":
            lanes.setdefault(request.lane, []).append(request)
    if not lanes or not main or main[0].lane != "main":
        return
    types = {f"agent:{agent.agent_id}": agent for agent in report.agents}
    times = [request.timestamp for request in main]
    by_cost = sorted(lanes, key=lambda lane: -sum(request.cost_usd or 0 for request in lanes[lane]))[:MOST_LANES]
    shown = [lane for lane in lanes if lane in by_cost]
    screen.line()
    for lane in shown:
        requests = lanes[lane]
        left, right = (
            min(width - 1, bisect_left(times, at) * width // len(times))
            for at in (requests[0].started_at, requests[-1].timestamp)
        )
        misses = sum(request.mark == "miss" for request in requests)
        agent = types.get(lane)
        about = f"{counted(len(requests), 'request')}, {format_usd(_cost(requests))}"
        about += f", {agent.verdict}" if agent else ""
        about += f", {counted(misses, 'miss')}" if misses else ""
        name = agent.agent_type if agent else "sidechain"
        bar = _glyph(screen, "━") * (right - left + 1)
        room = screen.width - MARGIN
        text = Text(" " * (MARGIN - 1), no_wrap=True, overflow="crop")
        text.append(" " * left).append(bar, "cyan")
        label = screen.name(f" {name}: {about}", "red" if misses else "dim")
        if left + len(bar) + label.cell_len <= room:
            text.append(label)
            screen.line(text)
        else:
            screen.line(text)
            label = screen.shortened(Text(label.plain.strip(), label.style), room)
            indent = MARGIN - 1 + max(0, min(left, room - label.cell_len))
            screen.line(Text.assemble(" " * indent, label, no_wrap=True))
    if len(shown) < len(lanes):
        rest = [request for lane in lanes if lane not in shown for request in lanes[lane]]
        more = f"{format_count(len(lanes) - len(shown))} more chains, {format_usd(_cost(rest))}: ccache subagents"
        screen.line(Text(" " * (MARGIN - 1) + more, "dim"))


def _timeline(screen: Screen, report: SessionReport, zone: tzinfo, top: int, everything: bool) -> None:
    """Every request, or the marked and the dearest ones with the stretches between them summed up."""
    requests = [request for request in report.requests if everything or request.lane == "main"] or list(report.requests)
    kept = {id(request) for request in _kept(requests, len(requests) if everything else top)}
    screen.heading(
        "Requests" if len(kept) == len(requests) else f"Requests, {len(kept)} of {format_count(len(requests))}"
    )
    bar = 0 if screen.width < 100 else min(40, screen.width - 82)
    table = screen.table()
    for name, width, right in (("request", 7, True), ("time", 8, False), ("gap", 5, True)):
        table.add_column(name, no_wrap=True, overflow=screen.cut, min_width=width, justify="right" if right else "left")
    if bar:
        table.add_column("", no_wrap=True, overflow="crop", min_width=bar)
    for name, width in (("prompt", 6), ("written", 7), ("cost", 7)):
        table.add_column(name, no_wrap=True, overflow=screen.cut, min_width=width, justify="right")
    table.add_column("", ratio=1, overflow="fold")
    most = max(request.prompt_tokens for request in requests) or 1
    day = None
    for group in _folded(requests, kept):
        if len(group) > 1:
            table.add_row(*_fold_row(group, bar))
            continue
        request = group[0]
        at = request.timestamp.astimezone(zone)
        if day != at.date():
            day = at.date()
            table.add_row(Text(""), Text(f"{at:%m-%d}", "bold"))
        style = {"miss": "bold red", "expected": "yellow"}.get(request.mark or "", "dim")
        name = f"{request.n}" if request.lane == "main" else f"{'a' if request.agent_id else 's'}{request.n}"
        table.add_row(
            *map(Text, (name, f"{at:%H:%M:%S}", _span(request.gap_s))),
            *([_bar(screen, request, bar, most)] if bar else []),
            Text(format_tokens(request.prompt_tokens)),
            Text(format_tokens(request.cache_creation_tokens)),
            Text(format_usd(request.cost_usd)),
            screen.name(what(request), style),
        )
    screen.line(table)
    if len(kept) < len(requests) or len(requests) < len(report.requests):
        screen.line(
            Text("--all shows every request, subagents' too (a1, a2, ...); --format json has all fields", "dim")
        )


def _folded(requests: Sequence[SessionRequest], kept: set[int]) -> Iterator[list[SessionRequest]]:
    """Stretches to sum up (of two or more) and single requests to show, in order."""
    for shown, group in groupby(requests, key=lambda request: id(request) in kept):
        stretch = list(group)
        if shown or len(stretch) == 1:
            yield from ([request] for request in stretch)
        else:
            yield stretch


def _fold_row(stretch: Sequence[SessionRequest], bar: int) -> list[Text]:
    written = sum(request.cache_creation_tokens for request in stretch)
    read = format_tokens(sum(request.cache_read_tokens for request in stretch))
    cells = ["...", "", "", *([""] if bar else []), "", format_tokens(written), format_usd(_cost(stretch))]
    return [Text(cell, "dim") for cell in (*cells, f"{counted(len(stretch), 'request')}, read {read}")]


def _kept(requests: Sequence[SessionRequest], top: int) -> list[SessionRequest]:
    """At most `top`, in order: all where they fit; else marked ones by what they lost, then the dearest."""
    if len(requests) <= top:
        return list(requests)
    ranked = sorted(
        requests,
        key=lambda request: (request.mark is None, -request.lost_tokens, -(request.cost_usd or 0), request.timestamp),
    )
    chosen = {id(request) for request in ranked[:top]}
    return [request for request in requests if id(request) in chosen]


def _bar(screen: Screen, request: SessionRequest, width: int, most: int) -> Text:
    text = Text()
    edges = (request.cache_read_tokens, request.cache_creation_tokens, request.input_tokens)
    total, drawn = 0, 0
    for (glyph, style), tokens in zip((READ, WRITTEN, UNCACHED), edges, strict=True):
        total += tokens
        end = round(total * width / most)
        text.append(_glyph(screen, glyph) * (end - drawn), style)
        drawn = end
    return text


def _cost(requests: Sequence[SessionRequest]) -> Decimal | None:
    priced = [request.cost_usd for request in requests if request.cost_usd is not None]
    return sum(priced, Decimal(0)) if priced else None


def _span(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / 3600:.1f}h"

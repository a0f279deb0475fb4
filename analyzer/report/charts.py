"""Charts made of characters. Pure: numbers in, lines of text out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from analyzer.report.formatting import format_tokens
from analyzer.results import DayRow

_EIGHTHS_UP = " ▁▂▃▄▅▆▇█"
_EIGHTHS_RIGHT = " ▏▎▍▌▋▊▉█"
_ASCII_LEVELS = " ..::||##"
_AXIS_WIDTH = 8
_MAX_BAR_WIDTH = 6


@dataclass(frozen=True, slots=True)
class DayChart:
    """Two panels over the same days, each to its own scale, and the line of dates beneath them."""

    read: tuple[str, ...]
    creation: tuple[str, ...]
    axis: str
    days_per_bar: int


def share_bar(fraction: float | None, width: int, *, ascii_only: bool = False) -> str:
    """A horizontal bar of `width` cells; anything above zero shows."""
    if not fraction or fraction <= 0:
        return ""
    eighths = max(1, round(min(fraction, 1.0) * width * 8))
    if ascii_only:
        return "#" * max(1, round(eighths / 8))
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS_RIGHT[rest] if rest else "")


def column_chart(values: Sequence[int], *, height: int, bar_width: int, gap: int, ascii_only: bool) -> list[str]:
    """Vertical bars, top line first; anything above zero shows."""
    top = max(values, default=0)
    levels = [max(1, round(value * height * 8 / top)) if value > 0 else 0 for value in values]
    glyphs = _ASCII_LEVELS if ascii_only else _EIGHTHS_UP
    lines = []
    for line in reversed(range(height)):
        cells = (glyphs[min(8, max(0, level - line * 8))] * bar_width for level in levels)
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def day_chart(days: Sequence[DayRow], width: int, *, height: int = 4, ascii_only: bool = False) -> DayChart | None:
    """Cache reads and cache creation per calendar day; days without requests are gaps, long spans are grouped."""
    if not days:
        return None
    first, last = min(row.day for row in days), max(row.day for row in days)
    span = (last - first).days + 1
    room = max(10, width - _AXIS_WIDTH - 2)
    days_per_bar = -(-span // room)
    if days_per_bar > 1:
        days_per_bar = max(7, days_per_bar)
    bars = -(-span // days_per_bar)
    read, creation = [0] * bars, [0] * bars
    for day in days:
        position = (day.day - first).days // days_per_bar
        read[position] += day.row.cache_read_tokens
        creation[position] += day.row.cache_creation_tokens
    pitch = max(1, room // bars)
    gap = 1 if pitch > 1 else 0
    bar_width = min(_MAX_BAR_WIDTH, pitch - gap)

    def panel(values: Sequence[int]) -> tuple[str, ...]:
        edge = "|" if ascii_only else "┤"
        rail = "|" if ascii_only else "│"
        lines = column_chart(values, height=height, bar_width=bar_width, gap=gap, ascii_only=ascii_only)
        marks = [format_tokens(max(values)), *[""] * (height - 2), "0"]
        return tuple(
            f"{mark:>{_AXIS_WIDTH}}{edge if mark else rail} {line}".rstrip()
            for mark, line in zip(marks, lines, strict=True)
        )

    axis = _date_axis(first, bars, days_per_bar, bar_width + gap, room)
    return DayChart(panel(read), panel(creation), f"{'':{_AXIS_WIDTH + 2}}{axis}", days_per_bar)


def _date_axis(first: date, bars: int, days_per_bar: int, pitch: int, room: int) -> str:
    """Month-day under as many bars as have room for it."""
    line = ""
    for bar in range(bars):
        start = bar * pitch
        label = (first + timedelta(days=bar * days_per_bar)).strftime("%m-%d")
        if (not line or start >= len(line) + 2) and start + len(label) <= room:
            line = line.ljust(start) + label
    return line

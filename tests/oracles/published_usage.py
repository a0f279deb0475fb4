"""The published usage series of fixtures/traces as traces, each count beside the request it was printed for."""

import tomllib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from simulator.policy import Policy
from simulator.trace import Request, Segment, Ttl, Usage

FIXTURE = Path(__file__).parents[2] / "fixtures" / "traces" / "published_usage.toml"
COUNTS = ("input", "read", "written", "written_5m", "written_1h")


@dataclass(frozen=True)
class Series:
    """`printed` has the exact counts of each request; None for a request that the source does not list."""

    id: str
    relation: str
    source: str
    trace: list[Request]
    printed: list[dict[str, int] | None]
    policy: Policy


def load() -> list[Series]:
    with FIXTURE.open("rb") as file:
        return [_series(fields) for fields in tomllib.load(file)["series"]]


def counts_of(usage: Usage) -> dict[str, int]:
    """A simulated usage in the words of the fixture."""
    return {
        "input": usage.input_tokens,
        "read": usage.cache_read_tokens,
        "written": usage.cache_creation_tokens,
        "written_5m": usage.cache_creation_5m_tokens,
        "written_1h": usage.cache_creation_1h_tokens,
    }


def _series(fields: dict[str, Any]) -> Series:
    rows: list[dict[str, Any]] = fields["requests"]
    sizes = [row["size"] if "size" in row else sum(row.get(name, 0) for name in COUNTS) for row in rows]
    ends = [size - row.get("input", 0) for size, row in zip(sizes, rows, strict=True)]
    marks = [{*row.get("marks", ()), end} - {0} for end, row in zip(ends, rows, strict=True)]
    starts: list[dict[int, int]] = []  # by request: where content begins that request i was the first to send
    for i, row in enumerate(rows):
        above = row.get("after", i - 1)
        shared = row.get("shares", ends[above]) if i else 0
        starts.append({at: who for at, who in (starts[above] if i else {}).items() if at < shared} | {shared: i})
    cuts = {at for every in (*starts, *marks) for at in every}
    ttl: Ttl = fields.get("ttl", "5m")
    trace: list[Request] = []
    for i, row in enumerate(rows):
        at = float(row.get("at_s", trace[-1].started_at_s + 10 if trace else 0.0))
        segments = _segments(sizes[i], cuts, starts[i], marks[i], ttl)
        began = row.get("began_s", at + 1)
        trace.append(Request(str(i), "c", None, fields["model"], "", "", at, began, segments, 0))
    printed = [None if row.get("unprinted") else _exact(row) for row in rows]
    minimum = fields.get("min_cacheable_tokens")
    policy = Policy() if minimum is None else Policy({}, minimum)
    return Series(fields["id"], fields["relation"], fields["source"], trace, printed, policy)


def _exact(row: dict[str, Any]) -> dict[str, int]:
    """Where a source prints the two write classes, one of them is 0 and left out of the fixture."""
    counts = {n: row[n] for n in COUNTS if n in row and n not in row.get("rounded", ())}
    for one, other in (("written_5m", "written_1h"), ("written_1h", "written_5m")):
        if one in counts:
            counts.setdefault(other, 0)
    return counts


def _segments(size: int, cuts: set[int], starts: dict[int, int], marks: set[int], ttl: Ttl) -> tuple[Segment, ...]:
    """A prompt cut wherever some prompt of the series has a breakpoint or begins to differ."""
    edges = sorted({at for at in cuts if at < size} | {0, size})
    segments = []
    for begin, end in pairwise(edges):
        first_sender = starts[max(at for at in starts if at <= begin)]
        segments.append(Segment(f"{first_sender} {begin} {end}", end - begin, 1, ttl if end in marks else None))
    return tuple(segments)

"""One session of many requests and subagents: what the findings add to `analyze`, and how each report grows.

Usage: python tests/bench/bench_long_session.py [REQUESTS] [SUBAGENTS]
CPU seconds including the reading workers, best of three. The share is what findings add to reading and analyzing, in
one process that has everything imported; the whole command adds its start-up to both sides.
"""

import random
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import duckdb
from generate_logs import Session

from analyzer import database, discovery
from analyzer.ingest import ingest
from analyzer.queries import Scope, analyze, misses, session, subagents

EVERY = 25


def write(folder: Path, requests: int, agents: int) -> None:
    """A session that loses its cache on every 25th request, with hooks and tool changes in between."""
    rng = random.Random(3)
    main = Session(rng, 1)
    for turn in range(requests):
        if turn % EVERY == EVERY - 1:
            main.context = 20_000
            main._write(type="attachment", attachment={"type": "hook_additional_context", "content": ["x"]})
        if turn % 10 == 0:
            main._write(type="attachment", attachment={"type": "deferred_tools_delta", "addedNames": ["mcp__a__b"]})
        main.turn()
    main.save(folder / "projects" / "-home-dev-project-1")
    for number in range(agents):
        agent = Session(rng, 1, f"a{number:x}")
        agent.at = main.at
        for turn in range(max(2, requests // 250)):
            agent.context = 20_000 if turn % 7 == 6 else agent.context
            agent.turn()
        agent.save(folder / "projects" / "-home-dev-project-1")


def cpu(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        before = _used()
        work()
        best = min(best, _used() - before)
    return best


def _used() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def measure(folder: Path) -> dict[str, float]:
    found, unreadable = discovery.find_transcripts([str(folder)])

    def read() -> duckdb.DuckDBPyConnection:
        connection = database.connect(":memory:")
        ingest(connection, found, unreadable)
        return connection

    times = {"ingest": cpu(read)}
    connection = read()
    with patch("analyzer.queries.totals.find", lambda *_: ()):
        times["analyze without findings"] = cpu(lambda: analyze(connection, Scope()))
    times["analyze"] = cpu(lambda: analyze(connection, Scope()))
    times["misses"] = cpu(lambda: misses(connection, Scope()))
    times["session"] = cpu(lambda: session(connection, Scope(), "latest"))
    times["subagents"] = cpu(lambda: subagents(connection, Scope()))
    return times


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    agents = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    rows = []
    for scale in (1, 2):
        with tempfile.TemporaryDirectory() as name:
            write(Path(name), requests // 2 * scale, agents // 2 * scale)
            rows.append(measure(Path(name)))
    half, whole = rows
    print(f"{requests:,} requests and {agents:,} subagents, and half of them; CPU seconds")
    for name, seconds in whole.items():
        print(f"{name:26} {half[name]:6.2f} {seconds:6.2f}  x {seconds / half[name]:.2f}")
    without = whole["ingest"] + whole["analyze without findings"]
    print(f"findings add {(whole['analyze'] - whole['analyze without findings']) / without:.1%} to analyze")


if __name__ == "__main__":
    main()

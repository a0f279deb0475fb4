"""Other projects' trace files: read to the counts their authors give, written back without a change that matters."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simulator.capacity import BlockTrace, simulate_capacity
from simulator.trace_files import read_trace, write_trace


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_mooncake_rows_are_written_back(foreign_traces: Path, tmp_path: Path, name: str) -> None:
    """Equal in everything but the ids' numbers, which are counted in order of first use here."""
    path = foreign_traces / "mooncake" / f"{name}_trace.jsonl.gz"
    write_trace(tmp_path / "t.jsonl", read_trace(path), "mooncake")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        theirs: list[dict[str, Any]] = [json.loads(line) for line in file]
    ours = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text("utf-8").splitlines()]
    numbers: dict[int, int] = {}
    begin = theirs[0]["timestamp"]
    for row in theirs:
        row["timestamp"] -= begin
        row["hash_ids"] = [numbers.setdefault(block, len(numbers)) for block in row["hash_ids"]]
    assert ours == theirs


def test_weka_sessions_have_the_counts_of_their_source(foreign_traces: Path) -> None:
    requests = read_trace(foreign_traces / "weka")
    agents = {r.chain for r in requests if "/" in r.chain}
    assert (len(requests), sum(r.chain in agents for r in requests), len(agents)) == (3_330, 121, 11)
    blocks = [(r.scope, s.key) for r in requests for s in r.segments if not s.key.endswith(" rest")]
    assert (len(blocks), len(set(blocks))) == (5_634_212, 272_354)


def test_weka_sessions_are_written_back(foreign_traces: Path, tmp_path: Path) -> None:
    """The same arrivals, models and full blocks; what a bounded cache finds is the same to the token."""
    found = 0
    for path in sorted((foreign_traces / "weka").glob("trace_*.json.gz"))[:12]:
        first = read_trace(path)
        write_trace(tmp_path / "t.json", first, "weka")
        again = read_trace(tmp_path / "t.json")
        for one, other in zip(first, again, strict=True):
            assert one.model == other.model
            assert one.started_at_s - first[0].started_at_s == pytest.approx(other.started_at_s, abs=1e-5)
            assert [s.tokens for s in one.segments] == [s.tokens for s in other.segments]
        before, after = BlockTrace.from_trace(first), BlockTrace.from_trace(again)
        budget = before.unique_blocks // 4
        hits = [simulate_capacity(blocks, budget, "leaf-lru") for blocks in (before, after)]
        assert hits[0] == hits[1]
        assert list(hits[0].request_hit_tokens) == list(hits[1].request_hit_tokens)
        found += hits[0].hit_blocks
    assert found > 100_000

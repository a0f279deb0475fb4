"""Bounded caches against results that others published for public traces.

RAGPulse: KVCache.AI's hit tokens (https://github.com/kvcache-ai/kvcache-blog, data/kv_cache_lab/precomputed.json at
9753288), to the token. Mooncake: the printed digits. The traces are read from the folder of `foreign_traces`.
"""

import gzip
import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from simulator.capacity import BlockTrace, CapacityResult, Eviction, simulate_capacity
from simulator.trace import Request
from simulator.trace_files import read_trace

PUBLISHED = tomllib.loads(
    (Path(__file__).parents[2] / "fixtures" / "traces" / "published_hit_rates.toml").read_text("utf-8")
)
MOONCAKE_BLOCK = 512
PREFIX_CEILING = 1_877_444
"""Hit tokens of an unbounded prefix cache; published points above it come from an older run over content ids."""
RULES: tuple[tuple[int, Eviction], ...] = ((0, "fifo"), (1, "leaf-lru"))


@cache
def ragpulse(folder: Path) -> tuple[BlockTrace, int]:
    """The trace and its number of requests. Ids name content, so a block is a path of (category, id)."""
    with gzip.open(folder / "ragpulse" / "trace.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    rows.sort(key=lambda row: float(row["timestamp"]))
    nodes: dict[tuple[int, str, int], int] = {}
    requests, sizes = [], []
    for row in rows:
        parts = [(category, part) for category, parts in row["hash_ids"].items() for part in parts]
        node, path = -1, []
        for category, part in parts:
            node = nodes.setdefault((node, category, part), len(nodes))
            path.append(node)
        requests.append(path)
        sizes.append(min(512, max(1, int(row["input_length"] / len(parts) + 0.5))))
    return BlockTrace.from_ids(requests, sizes), len(rows)


@cache
def published_points(folder: Path) -> dict[int, list[int]]:
    """Hit tokens [fifo, lru, optimal] by capacity in blocks. Capacity 1 differs in kind: see PREFIX_CEILING."""
    text = (folder / "kvcache-ai-lab" / "precomputed-ragpulse.json").read_text("utf-8")
    results = json.loads(text)["traces"]["ragpulse"]["capacityResults"]
    points = {int(capacity): tokens for capacity, tokens in results.items()}
    return {capacity: tokens for capacity, tokens in points.items() if capacity >= 8 and tokens[2] <= PREFIX_CEILING}


def agreeing(folder: Path, capacities: list[int], compiled: bool) -> int:
    """How many (capacity, rule) pairs come out at the published number of tokens, over the last half of the trace."""
    trace, requests = ragpulse(folder)
    found = 0
    for capacity in capacities:
        for column, eviction in RULES:
            result = simulate_capacity(trace, capacity, eviction, warm_up_requests=requests // 2, compiled=compiled)
            assert result.full
            found += result.prefix_hit_tokens == published_points(folder)[capacity][column]
    return found


def test_ragpulse_is_the_trace_that_was_measured(foreign_traces: Path) -> None:
    trace, requests = ragpulse(foreign_traces)
    assert (requests, len(trace.blocks), trace.unique_blocks) == (7_106, 71_583, 58_727)
    unbounded = simulate_capacity(trace, trace.unique_blocks, "leaf-lru", warm_up_requests=requests // 2)
    assert (unbounded.requested_tokens, unbounded.prefix_hit_tokens) == (10_535_055, PREFIX_CEILING)
    assert len(published_points(foreign_traces)) == 203


def test_ragpulse_to_the_token_in_plain_python(foreign_traces: Path) -> None:
    capacities = sorted(published_points(foreign_traces))[::8]
    assert len(capacities) == 26
    assert agreeing(foreign_traces, capacities, compiled=False) == 2 * 26


def test_ragpulse_to_the_token_at_every_capacity(foreign_traces: Path) -> None:
    pytest.importorskip("numba")
    assert agreeing(foreign_traces, sorted(published_points(foreign_traces)), compiled=True) == 2 * 203


@cache
def mooncake(folder: Path, name: str) -> tuple[list[Request], BlockTrace]:
    requests = read_trace(folder / "mooncake" / f"{name}_trace.jsonl.gz")
    return requests, BlockTrace.from_trace(requests)


@pytest.mark.parametrize("published", PUBLISHED["lru_block_hit_rate"], ids=lambda row: row["trace"])
def test_mooncake_block_hit_rates_to_three_digits(foreign_traces: Path, published: dict[str, Any]) -> None:
    requests, blocks = mooncake(foreign_traces, published["trace"])
    counts = (len(requests), len(blocks.blocks), blocks.unique_blocks)
    assert counts == (published["requests"], published["references"], published["unique_blocks"])
    budgets = [int(share * blocks.unique_blocks) for share in published["shares"]]
    rates = [round(simulate_capacity(blocks, budget, "lru").hit_rate, 3) for budget in budgets]
    assert rates == published["hit_rates"]


@pytest.mark.parametrize("name", ["lru_token_hit_percent", "leaf_lru_token_hit_percent"])
def test_mooncake_token_hit_rates_within_the_last_printed_digit(foreign_traces: Path, name: str) -> None:
    published = PUBLISHED[name]
    requests, blocks = mooncake(foreign_traces, published["trace"])

    def percent(budget: int) -> float:
        result: CapacityResult
        if name.startswith("leaf"):
            result = simulate_capacity(blocks, budget, "leaf-lru", warm_up_requests=len(requests) // 2)
        else:
            result = simulate_capacity(blocks, budget, "lru")
        return 100 * result.token_hit_rate

    budgets = [kibitokens * 1024 // MOONCAKE_BLOCK for kibitokens in published["kibitokens"]]
    assert [percent(budget) for budget in budgets] == pytest.approx(published["percent"], abs=0.1)
    assert round(percent(blocks.unique_blocks), 1) == published["unbounded"]


@pytest.mark.parametrize("published", PUBLISHED["mean_lengths"], ids=lambda row: row["trace"])
def test_mooncake_mean_lengths(foreign_traces: Path, published: dict[str, Any]) -> None:
    requests, _ = mooncake(foreign_traces, published["trace"])
    prompts = sum(segment.tokens for request in requests for segment in request.segments)
    assert round(prompts / len(requests)) == published["input"]
    assert round(sum(request.output_tokens for request in requests) / len(requests)) == published["output"]

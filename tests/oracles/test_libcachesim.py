"""Capacity rules against libCacheSim, an independent cache simulator (https://github.com/1a1a11a/libCacheSim)."""

import random
import struct
from pathlib import Path

import pytest

from simulator.capacity import BlockTrace, Eviction, simulate_capacity

libcachesim = pytest.importorskip("libcachesim", reason="libcachesim is not installed")
REFERENCES = 20_000


@pytest.fixture(scope="module")
def references() -> list[int]:
    """A skewed stream whose popular objects drift."""
    chance = random.Random(5)
    return [int(chance.paretovariate(0.7)) % 3000 + i // 4000 * 40 for i in range(REFERENCES)]


def their_misses(folder: Path, references: list[int], rule: str, budget: int) -> int:
    following: dict[int, int] = {}
    record = struct.Struct("<IQIq")  # its oracleGeneral format: time, object, size, next access
    records = []
    for i in range(REFERENCES - 1, -1, -1):
        records.append(record.pack(i, references[i] + 1, 1, following.get(references[i], -1)))
        following[references[i]] = i
    path = folder / "references.oracleGeneral"
    path.write_bytes(b"".join(reversed(records)))
    reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    missed, _ = getattr(libcachesim, rule)(budget).process_trace(reader)
    return round(missed * REFERENCES)


def misses(references: list[int], eviction: Eviction, budget: int) -> int:
    return REFERENCES - simulate_capacity(BlockTrace.from_ids([references]), budget, eviction).hit_blocks


@pytest.mark.parametrize("budget", [1, 10, 100, 500, 1500])
@pytest.mark.parametrize("eviction", ["lru", "fifo"])
def test_same_misses(tmp_path: Path, references: list[int], eviction: Eviction, budget: int) -> None:
    assert misses(references, eviction, budget) == their_misses(tmp_path, references, eviction.upper(), budget)


@pytest.mark.parametrize("budget", [2, 10, 100, 500, 1500])
def test_belady_declines_to_keep_some_blocks(tmp_path: Path, references: list[int], budget: int) -> None:
    """Theirs always keeps the block just fetched: no better than ours, no worse than ours with one block less."""
    theirs = their_misses(tmp_path, references, "Belady", budget)
    assert misses(references, "belady", budget) <= theirs <= misses(references, "belady", budget - 1)

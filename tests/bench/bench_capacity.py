"""LRU at one capacity over merged WEKA sessions, against libCacheSim's Python package in the same run.

python tests/bench/bench_capacity.py FOLDER [--share 0.1] [--repeat 3]     (needs the packages numba and libcachesim)

FOLDER holds trace_*.json.gz of https://github.com/callanjfox/kv-cache-tester. Both get the same block references in the
same order, both are timed without reading the trace, and both must find the same hits.
"""

import argparse
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import libcachesim

from simulator.capacity import BlockTrace, simulate_capacity
from simulator.trace_files import read_trace

RECORD = struct.Struct("<IQIq")  # libCacheSim's oracleGeneral: time, object, size, next access


def fastest(run: Callable[[], float], repeat: int) -> tuple[float, float]:
    """Seconds of the fastest run, and what it found."""
    best, found = float("inf"), 0.0
    for _ in range(repeat):
        begin = time.perf_counter()
        found = run()
        best = min(best, time.perf_counter() - begin)
    return best, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=float, default=0.1, help="capacity as a share of the unique blocks")
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()

    begin = time.perf_counter()
    requests = read_trace(asked.folder)
    read = time.perf_counter()
    blocks = BlockTrace.from_trace(requests)
    built = time.perf_counter()
    references = len(blocks.blocks)
    budget = int(asked.share * blocks.unique_blocks)
    print(
        f"{len(requests):,} requests, {references:,} references, {blocks.unique_blocks:,} blocks; capacity {budget:,}"
    )
    print(f"reading {read - begin:.2f} s, numbering the blocks {built - read:.2f} s")

    def ours() -> float:
        return 1 - simulate_capacity(blocks, budget, "lru", compiled=True).hit_rate

    first, _ = fastest(ours, 1)
    seconds, missed = fastest(ours, asked.repeat)
    print(
        f"this        {seconds:8.3f} s  {references / seconds / 1e6:8.1f} M/s  missed {missed:.6f}  first {first:.2f} s"
    )

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "references.oracleGeneral"
        with path.open("wb") as file:
            file.writelines(RECORD.pack(i, block + 1, 1, -2) for i, block in enumerate(blocks.blocks))
        reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE)

        def theirs() -> float:
            reader.reset()
            missed, _ = libcachesim.LRU(budget).process_trace(reader)
            return float(missed)

        their_seconds, their_missed = fastest(theirs, asked.repeat)
    print(f"libCacheSim {their_seconds:8.3f} s  {references / their_seconds / 1e6:8.1f} M/s  missed {their_missed:.6f}")
    print(f"{their_seconds / seconds:.1f} times as fast")
    if round(missed, 6) != round(their_missed, 6):
        sys.exit("the two do not find the same hits")


if __name__ == "__main__":
    main()

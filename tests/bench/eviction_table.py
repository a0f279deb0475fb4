"""Leaf-first against root-first LRU on interleaved sessions, by share of the unique blocks that fits.

python tests/bench/eviction_table.py FOLDER [--sessions 16]
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from simulator.capacity import BlockTrace, simulate_capacity
from simulator.trace_files import read_trace

SHARES = (1.0, 0.5, 0.35, 0.25, 0.15, 0.10, 0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sessions", type=int, default=16)
    asked = parser.parse_args()
    files = sorted(f for f in asked.folder.iterdir() if f.name.endswith((".json", ".json.gz", ".jsonl")))
    requests = [request for file in files[: asked.sessions] for request in read_trace(file)]
    blocks = BlockTrace.from_trace(sorted(requests, key=lambda request: request.started_at_s))
    unique_tokens = sum(blocks.largest_tokens())
    print(f"{asked.sessions} sessions, {len(requests)} requests, {unique_tokens:,} unique tokens")
    for eviction in ("lru", "leaf-lru"):
        rates = [
            simulate_capacity(blocks, int(share * blocks.unique_blocks), eviction).token_hit_rate for share in SHARES
        ]
        print(f"{eviction:10}" + " ".join(f"{rate:.3f}" for rate in rates))


if __name__ == "__main__":
    main()

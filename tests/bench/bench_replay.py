"""A session of 50 turns whose last prompt has 4,000 model tokens: replayed with the cache, then verified turn by turn.

OMP_NUM_THREADS=2 python tests/bench/bench_replay.py [--model NAME] [--turns 50] [--tokens 4000] [--no-verify]
"""

import argparse
import json
import os
import sys
import time
from fractions import Fraction
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from simulator.engine import Engine
from simulator.forward import LlamaForward
from simulator.model import find_source
from simulator.model.loading import load
from simulator.replay.plan import make_plan
from simulator.replay.run import Measuring, run_plan
from simulator.trace import Request, Segment


def session(turns: int, tokens: int, scale: int) -> list[Request]:
    """A system prompt of an eighth, then turns that extend each other to `tokens` model tokens."""
    system = tokens // 8
    trace = []
    for n in range(turns):
        ends = [system + (tokens - system) * (k + 1) // turns for k in range(n + 1)]
        segments = [Segment("system", system * scale, breakpoint="5m")]
        for k, (begin, end) in enumerate(zip([system, *ends], ends, strict=False)):
            segments.append(Segment(f"turn {k}", (end - begin) * scale, breakpoint="5m" if k >= n - 1 else None))
        at = 30.0 * n
        trace.append(Request(f"m{n}", "main", None, "claude-sonnet-4", "", "", at, at + 5, tuple(segments), 0))
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--no-verify", action="store_true")
    asked = parser.parse_args()
    forward = LlamaForward(load(find_source(asked.model)).model)
    scale = 16
    trace = session(asked.turns, asked.tokens, scale)
    plan = make_plan(trace, "logged", window=forward.context, block_size=64, factor=Fraction(scale))
    began = time.perf_counter()
    totals = run_plan(plan, Engine(forward), measuring=Measuring(samples=0)).totals
    found = {
        "turns": asked.turns,
        "last_prompt_tokens": plan.requests[-1].tokens,
        "replay_s": time.perf_counter() - began,
        "prefill_s": totals.prefill_s,
        "computed_tokens": totals.computed_tokens,
        "tokens_without_cache": totals.computed_tokens + totals.reused_tokens,
        "less_prefill": totals.prefill_ratio,
        "peak_bytes": totals.peak_bytes,
    }
    if not asked.no_verify:
        verified = run_plan(plan, Engine(forward), measuring=Measuring(verify=True)).totals
        found |= {
            "verified": verified.verified,
            "mismatched": verified.mismatched,
            "prefill_with_cache_s": verified.prefill_s,
            "prefill_without_s": verified.prefill_uncached_s,
            "speedup": verified.speedup,
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

"""An exported trace in another simulator: kvcache-simulator reads our Mooncake file and finds the hits found here.

It is a Python package by KVCache.AI (https://github.com/kvcache-ai). It counts over the last half of the requests, and
nothing at a capacity that was not used up before.
"""

import random
from importlib import import_module
from pathlib import Path

import pytest

from simulator.capacity import BlockTrace, Eviction, simulate_capacity
from simulator.trace import Request, Segment
from simulator.trace_files import read_trace, write_trace

pytest.importorskip("kvcache_sim", reason="kvcache-simulator is not installed")
RULES: dict[Eviction, str] = {"fifo": "fifo", "leaf-lru": "lru"}
BLOCK = 16


def conversations(count: int) -> list[Request]:
    """Agents of two models that start from a few system prompts, take turns and sometimes fork."""
    chance = random.Random(3)
    prompts: list[tuple[str, tuple[Segment, ...]]] = []
    trace: list[Request] = []
    for i in range(count):
        if not prompts or chance.random() < 0.05:
            system = chance.randrange(3)
            prompts.append((f"model {system % 2}", (Segment(f"system {system}", 200 + 37 * system),)))
        elif chance.random() < 0.1:
            prompts.append(chance.choice(prompts))
        agent = min(int(chance.expovariate(0.3)), len(prompts) - 1)
        model, prompt = prompts[-1 - agent]
        prompt = (*prompt, Segment(f"turn {i}", chance.randrange(1, 90)))
        prompts[-1 - agent] = (model, prompt)
        trace.append(Request(str(i), str(agent), None, model, "", "", float(i), i + 0.5, prompt, 10))
    return trace


def compare(path: Path, block_tokens: int, capacities: list[int]) -> int:
    """Asserts equal hit tokens at every capacity; how many hit tokens were compared."""
    theirs = import_module("kvcache_sim.trace").parse_trace_file(path, block_size=block_tokens)
    plan = import_module("kvcache_sim.plan").build_execution_plan(theirs)
    simulate = import_module("kvcache_sim.policies").simulate_policy
    blocks = BlockTrace.from_trace(read_trace(path, block_tokens))
    compared = 0
    for capacity in capacities:
        for eviction, policy in RULES.items():
            ours = simulate_capacity(blocks, capacity, eviction, warm_up_requests=len(blocks.ends) // 2)
            result = simulate(plan, policy, capacity)
            assert result.totalTokens == ours.requested_tokens
            assert result.hitTokens == (ours.prefix_hit_tokens if ours.full else 0)
            compared += result.hitTokens
    return compared


def test_our_export(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(path, conversations(1500), "mooncake", block_tokens=BLOCK)
    unique = BlockTrace.from_trace(read_trace(path, BLOCK)).unique_blocks
    assert compare(path, BLOCK, [unique * percent // 100 for percent in (1, 2, 5, 10, 20, 30, 50)]) > 1_000_000


def test_claude_code_sessions(foreign_traces: Path, tmp_path: Path) -> None:
    """WEKA sessions, merged by start into one file."""
    requests = [
        r for name in ("0001", "0004", "0020") for r in read_trace(foreign_traces / f"weka/trace_{name}.json.gz")
    ]
    path = tmp_path / "t.jsonl"
    write_trace(path, requests, "mooncake", block_tokens=64)
    unique = BlockTrace.from_trace(read_trace(path, 64)).unique_blocks
    assert compare(path, 64, [unique * percent // 100 for percent in (5, 20, 40)]) > 1_000_000

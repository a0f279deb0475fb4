# ruff: noqa: E402
"""Subagents beside their parent, broken prompts, and capacity sweeps: each against what must come out by hand."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from simulator.errors import UsageError
from simulator.experiments.breaking import break_positions, break_prompts, changed_prompt
from simulator.experiments.spawning import SPAWN_KINDS, Family, spawn
from simulator.experiments.sweep import limited, sweep, unique_bytes
from simulator.forward import LlamaForward
from simulator.policy import Policy, simulate
from simulator.trace import Request, Segment, Usage
from tests.tiny_llama import tiny_llama


@pytest.fixture(scope="module")
def forward():
    return LlamaForward(tiny_llama(hidden=36, layers=1))


def test_only_forks_and_later_siblings_read_what_was_there(forward) -> None:
    family = Family(children=3)
    found = {kind: spawn(kind, family, forward, window=1000) for kind in SPAWN_KINDS}
    reads = {kind: [row.policy.cache_read_tokens for row in outcome.children] for kind, outcome in found.items()}
    assert reads == {
        "own": [0, 0, 0],
        "fork": [60_000, 60_000, 60_000],
        "staggered": [0, 20_000, 20_000],
        "at_once": [0, 0, 0],
    }
    for outcome in found.values():
        assert outcome.scale == 62.0
        for row in outcome.children:
            assert row.reused_tokens == int(row.policy.cache_read_tokens / 62) // 64 * 64


def test_a_change_costs_everything_after_its_block(forward) -> None:
    found = break_prompts(forward, tokens=400, points=5)
    assert found.unchanged.reused_tokens == 399 // 64 * 64
    assert {each.kind for each in found.breaks} == {"timestamp", "tools", "token"}
    for each in found.breaks:
        assert each.reused_tokens == min(each.position, each.tokens - 1) // 64 * 64
        assert each.usage.prompt_tokens == each.tokens == each.reused_tokens + each.computed_tokens


@pytest.mark.parametrize("kind", ["timestamp", "tools", "token"])
def test_changes_begin_where_they_say(kind) -> None:
    base = [n % 90 + 1 for n in range(200)]
    for position in break_positions(kind, 200, 6):
        changed = changed_prompt(kind, base, position, 512)
        assert changed[:position] == base[:position]
        assert changed[position] != base[position]
        assert len(changed) == len(base) + (12 if kind == "timestamp" else 0)
        assert kind != "tools" or sorted(changed) == sorted(base)


def test_senseless_breaks_are_refused(forward) -> None:
    with pytest.raises(UsageError, match="39 tokens"):
        break_prompts(forward, tokens=39, points=3)
    with pytest.raises(UsageError, match="window of 1024"):
        break_prompts(forward, tokens=1020, points=3)


def conversation(scope: str, turns: int, start: float) -> list[Request]:
    trace = []
    for n in range(turns):
        segments = tuple(Segment(f"{scope} {k}", 2_000, breakpoint="5m" if k >= n - 1 else None) for k in range(n + 1))
        at = start + 100.0 * n
        trace.append(Request(f"{scope}{n}", scope, None, "claude-sonnet-4-5", scope, "", at, at, segments, 10))
    return trace


TRACE = conversation("a", 5, 0) + conversation("b", 5, 50)


def test_unbounded_cells_are_the_policys_own_figures() -> None:
    cells = {cell.policy: cell for cell in sweep(TRACE, ["logged", "1h", "none"], [None], workers=1)}
    for policy, rules in (("logged", Policy()), ("1h", Policy(ttl="1h")), ("none", Policy(enabled=False))):
        usages = simulate(TRACE, rules)
        assert cells[policy].read_tokens == sum(usage.cache_read_tokens for usage in usages)
        ((group, total),) = cells[policy].usage
        assert group is None
        assert total.cache_creation_1h_tokens == sum(usage.cache_creation_1h_tokens for usage in usages)
        assert total.prompt_tokens == cells[policy].prompt_tokens == sum(usage.prompt_tokens for usage in usages)


def test_capacity_takes_reads_away_and_enough_of_it_takes_none() -> None:
    needed = unique_bytes(TRACE, 10)
    assert needed == 10 * 2 * 5 * 2_000
    cells = sweep(TRACE, ["logged"], [0, needed // 4, needed, None], bytes_per_token=10, workers=1)
    reads = [cell.read_tokens for cell in cells]
    assert reads[0] == 0 < reads[1] < reads[2] == reads[3]
    assert len({cell.prompt_tokens for cell in cells}) == 1


def test_all_cores_find_what_one_finds_in_any_order_of_requests() -> None:
    options = {"policies": ["logged", "auto"], "capacities": [90_000, None], "bytes_per_token": 10}
    groups = [request.scope for request in TRACE]
    one = sweep(TRACE, groups=groups, workers=1, **options)
    assert sweep(TRACE, groups=groups, workers=2, **options) == one
    turned = sweep(TRACE[::-1], groups=groups[::-1], workers=1, **options)
    assert turned == one
    assert {name for name, _ in one[0].usage} == {"a", "b"}


def test_what_is_not_held_is_written_again_for_the_lifetime_that_was_asked() -> None:
    usage = Usage(5, 100, 20, 0, 7)
    assert limited(usage, 130) == usage
    assert limited(usage, 64) == Usage(5, 64, 56, 0, 7)
    hours = replace(usage, cache_creation_5m_tokens=0, cache_creation_1h_tokens=20)
    assert limited(hours, 0) == Usage(5, 0, 0, 120, 7)

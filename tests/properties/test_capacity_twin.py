"""Capacity rules against naive caches asked request by request, and the compiled rules against the plain ones."""

from collections.abc import Sequence
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from simulator.capacity import EVICTIONS, BlockTrace, CapacityResult, Eviction, simulate_capacity
from simulator.trace import Request, Segment

Path = tuple[str, ...]
SIZES = {"a": 1, "b": 2, "c": 5}
"""Tokens of a block by its last letter."""
prompts = st.text("abc", max_size=6)


def blocks_of(prompt: str) -> list[Path]:
    return [tuple(prompt[: n + 1]) for n in range(len(prompt))]


class Naive:
    """A cache as a dict of block -> what its rule orders by. Every eviction looks at every block."""

    def __init__(self, eviction: Eviction, budget: int, by_size: bool) -> None:
        self.eviction, self.budget, self.by_size = eviction, budget, by_size
        self.cached: dict[Path, tuple[int, ...]] = {}
        self.clock = 0

    def size(self, block: Path) -> int:
        return SIZES[block[-1]] if self.by_size else 1

    def room_for(self, block: Path) -> int:
        return self.budget - self.size(block) - sum(map(self.size, self.cached))

    def serve(self, prompt: str) -> list[bool]:
        """Whether each block of the prompt was found."""
        if self.eviction == "leaf-lru":
            return self._serve_leaf_first(blocks_of(prompt))
        outcome = []
        for block in blocks_of(prompt):
            self.clock += 1
            outcome.append(block in self.cached)
            before = self.cached.get(block)
            if before is None:
                if self.size(block) > self.budget:
                    continue
                while self.room_for(block) < 0:
                    del self.cached[min(self.cached, key=lambda b: self.cached[b])]
            self.cached[block] = {
                "fifo": before or (self.clock,),
                "lru": (self.clock,),
                "lfu": ((before or (0,))[0] + 1, self.clock),
            }[self.eviction]
        return outcome

    def _serve_leaf_first(self, path: list[Path]) -> list[bool]:
        """A prompt's blocks are used together; of two blocks used together the deeper one is a leaf first."""
        self.clock += 1
        found = [block for block in path if block in self.cached]
        for block in found:
            self.cached[block] = (self.clock,)
        for block in path[len(found) :]:
            if self.size(block) > self.budget:
                break
            while self.room_for(block) < 0 and self._reachable(block):
                leaves = [b for b in self.cached if b not in found and not any(c[:-1] == b for c in self.cached)]
                if not leaves:
                    break
                del self.cached[min(leaves, key=lambda b: self.cached[b])]
            if self.room_for(block) < 0 or not self._reachable(block):
                break
            self.cached[block] = (self.clock,)
        return [block in found for block in path]

    def _reachable(self, block: Path) -> bool:
        return len(block) == 1 or block[:-1] in self.cached


def trace_of(prompts: Sequence[str]) -> BlockTrace:
    return BlockTrace.from_trace([
        Request(str(i), str(i % 2), None, "m", "", "", i, i, tuple(Segment(key, SIZES[key]) for key in prompt), 0)
        for i, prompt in enumerate(prompts)
    ])  # fmt: skip


class Capacity(RuleBasedStateMachine):
    """After each request, a run over all requests so far must have found what the naive cache found."""

    @initialize(
        eviction=st.sampled_from([e for e in EVICTIONS if e != "belady"]),
        budget=st.integers(0, 9),
        by_size=st.booleans(),
    )
    def begin(self, eviction: Eviction, budget: int, by_size: bool) -> None:
        self.naive = Naive(eviction, budget, by_size)
        self.prompts: list[str] = []
        self.outcomes: list[list[bool]] = []

    @rule(prompt=prompts)
    def serve(self, prompt: str) -> None:
        self.prompts.append(prompt)
        self.outcomes.append(self.naive.serve(prompt))

    @rule()
    def serve_the_last_again(self) -> None:
        self.serve(self.prompts[-1] if self.prompts else "")

    @rule(letter=st.sampled_from("abc"))
    def extend_the_last(self, letter: str) -> None:
        self.serve((self.prompts[-1] if self.prompts else "")[:8] + letter)

    @invariant()
    def the_naive_cache_keeps_its_budget(self) -> None:
        if hasattr(self, "naive"):
            assert sum(map(self.naive.size, self.naive.cached)) <= self.naive.budget

    @invariant()
    def same_hits(self) -> None:
        if not hasattr(self, "naive"):
            return
        naive, trace = self.naive, trace_of(self.prompts)
        if naive.by_size:
            result = simulate_capacity(
                trace, eviction=naive.eviction, budget_bytes=naive.budget * 10, bytes_per_token=10
            )
        else:
            result = simulate_capacity(trace, naive.budget, naive.eviction)
        prefixes = [o.index(False) if False in o else len(o) for o in self.outcomes]
        tokens = [sum(SIZES[key] for key in prompt[:n]) for prompt, n in zip(self.prompts, prefixes, strict=True)]
        assert result.hit_blocks == sum(map(sum, self.outcomes))
        assert result.prefix_hit_blocks == sum(prefixes)
        assert list(result.request_hit_tokens) == tokens
        assert result.prefix_hit_tokens == sum(tokens)
        assert result.requested_tokens == sum(SIZES[key] for prompt in self.prompts for key in prompt)


Capacity.TestCase.settings = settings(max_examples=150, stateful_step_count=15, deadline=None)
TestCapacity = Capacity.TestCase


@given(st.lists(prompts, max_size=4).filter(lambda p: sum(map(len, p)) <= 12), st.integers(0, 4))
@settings(deadline=None)
def test_no_choice_of_victims_beats_belady(prompts: list[str], budget: int) -> None:
    """Every cache that any sequence of decisions could lead to, carried along."""
    states: dict[frozenset[Path], int] = {frozenset(): 0}
    for block in (block for prompt in prompts for block in blocks_of(prompt)):
        following: dict[frozenset[Path], int] = {}
        for cached, hits in states.items():
            choices = [cached] if block in cached or budget == 0 else [cached, *_with(cached, block, budget)]
            for choice in choices:
                following[choice] = max(following.get(choice, 0), hits + (block in cached))
        states = following
    assert simulate_capacity(trace_of(prompts), budget, "belady").hit_blocks == max(states.values())


def _with(cached: frozenset[Path], block: Path, budget: int) -> list[frozenset[Path]]:
    if len(cached) < budget:
        return [cached | {block}]
    return [cached - {victim} | {block} for victim in cached]


def results(trace: BlockTrace, budget: int, warm_up: int, compiled: bool) -> list[tuple[CapacityResult, list[int]]]:
    found = []
    for eviction in EVICTIONS:
        for sizes in ({"budget_blocks": budget}, {"budget_bytes": 3 * budget, "bytes_per_token": 3}):
            result = simulate_capacity(trace, eviction=eviction, warm_up_requests=warm_up, compiled=compiled, **sizes)
            found.append((result, [int(tokens) for tokens in result.request_hit_tokens]))
    return found


@pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed (extra `simulator`)")
@given(st.lists(prompts, max_size=12), st.integers(0, 12), st.integers(0, 13))
@settings(max_examples=60, deadline=None)
def test_compiled_rules_are_the_plain_ones(prompts: list[str], budget: int, warm_up: int) -> None:
    trace = trace_of(prompts)
    assert results(trace, budget, warm_up, compiled=True) == results(trace, budget, warm_up, compiled=False)


@given(st.lists(prompts, max_size=12), st.integers(0, 12), st.integers(0, 13), st.sampled_from(EVICTIONS))
def test_warm_up_only_leaves_out_what_comes_first(
    prompts: list[str], budget: int, warm_up: int, eviction: Eviction
) -> None:
    trace = trace_of(prompts)
    whole = simulate_capacity(trace, budget, eviction)
    late = simulate_capacity(trace, budget, eviction, warm_up_requests=warm_up)
    assert list(late.request_hit_tokens) == list(whole.request_hit_tokens)[warm_up:]
    assert late.requested_blocks == sum(map(len, prompts[warm_up:]))

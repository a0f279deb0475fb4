"""Block caches: hand-worked examples, a list-based LRU twin, and Belady's bound."""

import subprocess
import sys
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.capacity import EVICTIONS, BlockTrace, Eviction, simulate_capacity
from simulator.trace import Request, Segment

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed (extra `simulator`)")
BELADY_STRING = [[7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1]]  # the textbooks' reference string
flat = st.lists(st.lists(st.integers(0, 6), max_size=8), max_size=12)


@st.composite
def trees(draw: st.DrawFn) -> list[list[int]]:
    """Requests whose block ids are chained: an id names its whole path."""
    ids: dict[tuple[int, ...], int] = {}
    paths = draw(st.lists(st.lists(st.integers(0, 1), max_size=6), max_size=12))
    return [[ids.setdefault(tuple(p[: n + 1]), len(ids)) for n in range(len(p))] for p in paths]


def usable(requests: list[list[int]]) -> list[Eviction]:
    return [e for e in EVICTIONS if e != "leaf-lru" or BlockTrace.from_ids(requests).chained]


def hits(requests: list[list[int]], budget: int, eviction: Eviction) -> int:
    return simulate_capacity(requests, budget, eviction).hit_blocks


@pytest.mark.parametrize(("eviction", "expected"), [("fifo", 5), ("lru", 8), ("belady", 12)])
def test_textbook_reference_string(eviction: Eviction, expected: int) -> None:
    """15 and 12 faults with three frames; Belady has one less than the textbooks' 9, as it may decline to keep."""
    assert hits(BELADY_STRING, 3, eviction) == expected


def test_fifo_forgets_what_lru_keeps() -> None:
    requests = [[1], [2], [1], [3], [1]]
    assert hits(requests, 2, "lru") == 2
    assert hits(requests, 2, "fifo") == 1


def test_lfu_keeps_the_frequent_and_breaks_ties_by_age() -> None:
    assert hits([[1], [1], [2], [3], [1]], 2, "lfu") == 2
    assert hits([[1], [2], [3], [2]], 2, "lfu") == 1


def test_leaf_lru_evicts_tails_first() -> None:
    requests = [[1, 2, 3], [1, 4], [1, 2]]
    assert hits(requests, 3, "leaf-lru") == 3
    assert hits([[1, 2], [1, 3], [1, 2]], 2, "leaf-lru") == 2
    assert hits([[1, 2], [3, 4], [1, 2]], 3, "lru") == 0
    assert hits([[1, 2], [3, 4], [1, 2]], 3, "leaf-lru") == 1


def test_leaf_lru_keeps_what_the_running_request_found_and_gives_up_its_own_tail() -> None:
    """Too long a prompt pushes its own last new block out, and what would follow it is not kept."""
    assert hits([[1, 2, 3], [1, 2, 3]], 2, "leaf-lru") == 1
    assert hits([[1, 2], [1, 2, 3, 4], [1, 2]], 2, "leaf-lru") == 4


def test_leaf_lru_needs_ids_that_stand_for_prefixes() -> None:
    with pytest.raises(ValueError, match="chained"):
        simulate_capacity([[1, 2], [2]], 3, "leaf-lru")


def test_prefix_hits_stop_at_the_first_miss() -> None:
    result = simulate_capacity([[1, 2, 3], [9], [1, 2, 3]], 3, "fifo", block_tokens=16)
    assert (result.requested_blocks, result.hit_blocks, result.prefix_hit_blocks) == (7, 0, 0)
    result = simulate_capacity([[2, 3], [1, 2, 3], [1, 2, 4]], 9)
    assert (result.hit_blocks, result.prefix_hit_blocks) == (4, 2)
    assert (result.hit_tokens, result.prefix_hit_tokens, result.requested_tokens) == (64, 32, 128)
    assert result.hit_rate == 0.5


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_edges(eviction: Eviction) -> None:
    assert simulate_capacity([], 3, eviction).hit_rate == 0.0
    assert hits([[1], [1]], 0, eviction) == 0
    assert hits([[1, 2], [1, 2]], 2, eviction) == 2
    with pytest.raises(ValueError, match="must not be negative"):
        simulate_capacity([], -1, eviction)


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_numba)])
def test_a_block_larger_than_the_budget_pushes_nothing_out(eviction: Eviction, compiled: bool) -> None:
    trace = BlockTrace.from_ids([[1], [2], [1]], [4, 6, 4])
    result = simulate_capacity(trace, eviction=eviction, budget_bytes=50, bytes_per_token=10, compiled=compiled)
    assert [int(tokens) for tokens in result.request_hit_tokens] == [0, 0, 4]
    assert not result.full


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_numba)])
def test_full_says_whether_the_measured_requests_met_a_full_cache(eviction: Eviction, compiled: bool) -> None:
    requests = [[1], [2], [3], [4]]
    found = [simulate_capacity(requests, n, eviction, warm_up_requests=2, compiled=compiled).full for n in (1, 2, 3)]
    assert found == [True, True, False]


def test_without_numba_long_streams_run_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.capacity.COMPILED_FROM_REFERENCES", 0)
    monkeypatch.setattr("simulator.capacity.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "simulator.capacity.compiled", None)
    assert simulate_capacity([[1, 2], [1, 2]], 2).hit_blocks == 2
    with pytest.raises(ModuleNotFoundError):
        simulate_capacity([[1, 2], [1, 2]], 2, compiled=True)


@needs_numba
def test_with_numba_long_streams_run_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.capacity.COMPILED_FROM_REFERENCES", 0)
    monkeypatch.setitem(sys.modules, "simulator.capacity.plain", None)
    assert simulate_capacity([[1, 2], [1, 2]], 2).hit_blocks == 2


def test_importing_it_loads_no_arrays() -> None:
    code = "import sys, simulator.capacity; sys.exit(bool({'numpy', 'numba'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "budget",
    [
        {}, {"budget_blocks": 1, "budget_bytes": 1, "bytes_per_token": 1}, {"budget_bytes": 1},
        {"budget_blocks": 1, "bytes_per_token": 1}, {"budget_bytes": 1, "bytes_per_token": 0},
        {"budget_bytes": -1, "bytes_per_token": 1}, {"budget_blocks": 1, "warm_up_requests": -1},
    ],
)  # fmt: skip
def test_senseless_budgets_are_refused(budget: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"budget|bytes_per_token"):
        simulate_capacity([[1]], **budget)


def test_blocks_need_tokens() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        BlockTrace.from_ids([[1]], 0)


def request(number: int, keys: str, chain: str = "c", model: str = "m", scope: str = "", salt: str = "") -> Request:
    segments = tuple(Segment(key, 7) for key in keys)
    return Request(str(number), chain, None, model, scope, salt, number, number, segments, 1)


def test_a_traces_blocks_are_shared_where_model_scope_salt_and_all_keys_before_agree() -> None:
    trace = [
        request(0, "abc"), request(1, "abd"), request(2, "xbc"), request(3, "abc", model="n"),
        request(4, "abc", scope="s"), request(5, "abc", salt="fast"), request(6, "abc", chain="d"),
    ]  # fmt: skip
    blocks = BlockTrace.from_trace(trace)
    assert list(blocks.blocks[:6]) == [0, 1, 2, 0, 1, 3]
    assert list(blocks.blocks[-3:]) == [0, 1, 2]
    assert (blocks.unique_blocks, len(blocks.blocks), set(blocks.tokens)) == (4 + 3 * 4, 21, {7})
    assert blocks.largest_tokens() == [7] * 16


def test_a_block_of_two_sizes_takes_the_larger_ones_room() -> None:
    trace = BlockTrace.from_ids([[1], [1], [2]], [3, 5, 2])
    assert trace.largest_tokens() == [5, 2]


@given(flat, st.integers(1, 6))
def test_lru_twin(requests: list[list[int]], budget: int) -> None:
    cache: list[int] = []
    found = 0
    for block in (b for r in requests for b in r):
        found += block in cache
        cache = [*(b for b in cache if b != block), block][-budget:]
    assert hits(requests, budget, "lru") == found


@given(flat, st.integers(1, 6))
def test_lfu_twin(requests: list[list[int]], budget: int) -> None:
    cache: dict[int, tuple[int, int]] = {}  # block -> (uses, last use)
    found = 0
    for clock, block in enumerate(b for r in requests for b in r):
        found += block in cache
        if block not in cache and len(cache) >= budget:
            del cache[min(cache, key=lambda b: cache[b])]
        cache[block] = (cache.get(block, (0, 0))[0] + 1, clock)
    assert hits(requests, budget, "lfu") == found


@given(st.one_of(flat, trees()), st.integers(1, 6))
def test_belady_bounds_every_rule(requests: list[list[int]], budget: int) -> None:
    best = hits(requests, budget, "belady")
    assert all(hits(requests, budget, e) <= best for e in usable(requests))


@given(st.one_of(flat, trees()))
def test_an_unbounded_cache_misses_each_block_once(requests: list[list[int]]) -> None:
    blocks = [b for r in requests for b in r]
    assert all(hits(requests, 100, e) == len(blocks) - len(set(blocks)) for e in usable(requests))


@given(flat, st.integers(1, 6))
def test_more_room_never_hurts_lru_or_belady(requests: list[list[int]], budget: int) -> None:
    for eviction in ("lru", "belady"):
        assert hits(requests, budget, eviction) <= hits(requests, budget + 1, eviction)

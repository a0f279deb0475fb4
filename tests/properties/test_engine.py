# ruff: noqa: E402
"""Random prompts with common beginnings: reuse is the longest common prefix in whole blocks, bits never differ."""

from itertools import takewhile

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.engine import Engine, EngineRequest
from simulator.forward import LlamaForward
from simulator.retention import Keep
from tests.tiny_llama import tiny_llama

BLOCK = 4
FORWARD = LlamaForward(tiny_llama(hidden=36, layers=1, vocabulary=16, context=64))
FORWARD_BLOCK_BYTES = BLOCK * FORWARD.kv_shape.token_bytes

pieces = st.lists(st.sampled_from([[1], [2, 3], [4, 5, 6, 7], [8] * 6]), min_size=1, max_size=6)
prompts = pieces.map(lambda parts: [token for part in parts for token in part])
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def common(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@quick
@given(st.lists(st.tuples(prompts, st.none() | st.integers(0, 30)), min_size=1, max_size=8))
def test_reuse_is_the_longest_common_prefix_and_exact(asked: list[tuple[list[int], int | None]]) -> None:
    engine = Engine(FORWARD, block_size=BLOCK)
    served: list[list[int]] = []
    for now, (tokens, readable) in enumerate(asked):
        request = EngineRequest(tokens, readable=readable)
        result = engine.serve(request, now=now)
        longest = max((common(old[: len(old) // BLOCK * BLOCK], tokens) for old in served), default=0)
        limit = len(tokens) - 1 if readable is None else min(readable, len(tokens) - 1)
        assert result.reused_tokens == min(longest, limit) // BLOCK * BLOCK
        assert result.reused_tokens + result.computed_tokens == len(tokens) == result.usage.prompt_tokens
        assert engine.is_exact(result, request, engine.prefill_without_cache(tokens))
        served.append(tokens)


@quick
@given(
    st.lists(
        st.tuples(prompts, st.integers(0, 30), st.sampled_from([5.0, 20.0]), st.integers(0, 12)),
        min_size=1,
        max_size=10,
    ),
    st.integers(0, 6),
)
def test_the_books_balance_under_lifetimes_and_a_budget(
    asked: list[tuple[list[int], int, float, int]], blocks: int
) -> None:
    engine = Engine(FORWARD, block_size=BLOCK, budget_bytes=blocks * FORWARD_BLOCK_BYTES)
    now = 0
    for tokens, keep, ttl, gap in asked:
        now += gap
        request = EngineRequest(tokens, keep=(Keep(min(keep, len(tokens)), ttl),))
        result = engine.serve(request, now=now)
        room = engine.index.occupancy(now=now)
        engine.index.check_integrity()
        assert room.free is not None
        assert room.free + room.used == blocks
        assert engine.store.bytes == room.used * FORWARD_BLOCK_BYTES == result.kv_bytes
        assert engine.is_exact(result, request, engine.prefill_without_cache(tokens))
    engine.serve(EngineRequest([0], keep=()), now=now + 21)
    assert engine.store.bytes == 0, "after the longest lifetime nothing is left"

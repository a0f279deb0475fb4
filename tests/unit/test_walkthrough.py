# ruff: noqa: E402
import json
import math
import os
from dataclasses import asdict

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from simulator.chat import prompt_ids
from simulator.errors import UsageError
from simulator.exercises import cache_growth, sample_spread
from simulator.model import find_source
from simulator.model.loading import load
from simulator.prefix_reuse import measure_prefix_reuse, shared_beginning
from simulator.walkthrough import Walkthrough, kv_bytes, next_token_spread
from tests.tiny_model import save_tiny_model

PROMPT = "What is the capital of France?"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load(find_source(str(save_tiny_model(tmp_path_factory.mktemp("tiny")))))


@pytest.fixture(scope="module")
def stages(loaded):
    ticks = iter(range(10_000))
    tour = Walkthrough(
        loaded, PROMPT, max_n=7, max_new_tokens=12, clock=lambda: float(next(ticks)), wall_clock=lambda: 9.0
    )
    begun = []
    found = {stage.stage: stage for stage in tour.stages(progress=begun.append)}
    assert begun == ["0", "1", "2", "3", "4", "5", "5", "6", "6", "7"]
    return found


def test_ten_parts_in_order_and_as_json(stages):
    assert list(stages) == ["0", "1", "2", "3", "4", "5", "5b", "6", "6b", "7"]
    assert json.loads(json.dumps([asdict(stage) for stage in stages.values()]))


def test_only_the_stages_asked_for_are_computed(loaded):
    assert [stage.stage for stage in Walkthrough(loaded, PROMPT).stages((1, 4))] == ["1", "4"]


def test_text_tokens_and_logits(loaded, stages):
    ids = prompt_ids(loaded, [{"role": "user", "content": PROMPT}])
    assert stages["2"].count == len(ids)
    assert [token for token, _ in stages["2"].tokens] == ids
    assert loaded.tokenizer(stages["1"].text, add_special_tokens=False)["input_ids"] == ids
    with torch.no_grad():
        logits = loaded.model(torch.tensor([ids])).logits
    assert stages["3"].logits_shape == tuple(logits.shape)
    p = logits[0, -1].softmax(-1)
    assert [at for _, at, _ in stages["3"].top] == p.argsort(descending=True)[:5].tolist()
    assert [value for _, _, value in stages["3"].top] == pytest.approx(p.sort(descending=True).values[:5].tolist())


def test_effective_candidates_by_hand():
    even = torch.zeros(1, 50)
    assert next_token_spread(even, 0.7).effective_candidates == pytest.approx(50, rel=1e-5)
    certain = torch.tensor([[0.0, -math.inf, -math.inf]])
    assert next_token_spread(certain, 1.5).effective_candidates == pytest.approx(1)
    p = [0.5, 0.3, 0.2]
    row = next_token_spread(torch.tensor([p]).log(), 1.0)
    assert row.effective_candidates == pytest.approx(math.exp(-sum(x * math.log(x) for x in p)), rel=1e-5)
    assert row.top_probability == pytest.approx(0.5)
    cold, warm = (next_token_spread(torch.tensor([p]).log(), t) for t in (0.3, 1.5))
    assert cold.effective_candidates < row.effective_candidates < warm.effective_candidates


def test_loops_and_draws_equal_the_library(stages):
    assert [loop.loop for loop in stages["5"].loops] == ["no cache", "K/V cache"]
    assert all(loop.equals_generate for loop in stages["5"].loops)
    assert len({loop.text for loop in stages["5"].loops}) == 1
    assert all(row.equals_generate for row in stages["6"].rows)
    assert len({row.text for row in stages["6"].rows}) == 3


def test_a_loop_that_goes_astray_is_not_called_equal(loaded, monkeypatch):
    tour = Walkthrough(loaded, PROMPT, max_new_tokens=5)
    monkeypatch.setattr(tour, "_library", lambda **_: [1, 2, 3])
    assert not any(loop.equals_generate for loop in tour.greedy().loops)
    assert not any(row.equals_generate for row in tour.sampling().rows)


def test_bytes_follow_the_formula(stages):
    greedy = stages["5"]
    _, kv_heads, length, head_dim = greedy.key_shape
    assert (kv_heads, length, head_dim) == (3, greedy.cache_length, 8)
    assert greedy.bytes_per_token == 2 * greedy.layers * kv_heads * head_dim * greedy.element_bytes == 384
    assert greedy.cache_bytes == length * 384


def test_speed_rows_end_at_the_asked_length(loaded, stages):
    assert [row.new_tokens for row in stages["5b"].rows] == [7]
    ticks = iter(range(10_000))
    rows = Walkthrough(loaded, PROMPT, max_n=60, clock=lambda: float(next(ticks))).speed().rows
    assert [row.new_tokens for row in rows] == [50, 60]
    assert rows[0].no_cache_s < rows[1].no_cache_s


def test_prefix_reuse_differs_by_rounding_and_in_chunks_not_at_all(stages):
    reuse = stages["6b"].reuse
    assert reuse.naive.chunk is None
    assert reuse.naive.cached_tokens == reuse.prefix_tokens > 400
    assert reuse.exact.cached_tokens == reuse.prefix_tokens // 64 * 64
    for mode in (reuse.naive, reuse.exact):
        for row in mode.rows:
            assert row.computed_tokens == row.prompt_tokens - mode.cached_tokens
            assert row.same_choice
    assert all(0 <= row.delta < 2e-4 for row in reuse.naive.rows)
    assert all(row.delta == 0 for row in reuse.exact.rows)


def test_a_difference_would_be_seen(loaded, monkeypatch):
    import simulator.prefix_reuse as module

    real = module.resume

    def astray(*arguments, **options):
        done = real(*arguments, **options)
        return type(done)(done.logits + 0.5, done.cache, done.reused, done.computed)

    monkeypatch.setattr(module, "resume", astray)
    reuse = measure_prefix_reuse(loaded, rules="Be brief. " * 30, chunk=16)
    assert [row.delta for row in reuse.exact.rows] == pytest.approx([0.5, 0.5])


def test_shared_beginning():
    assert shared_beginning([[1, 2, 3], [1, 2, 4, 5]]) == [1, 2]
    assert shared_beginning([[1, 2], [1, 2, 3]]) == [1, 2]
    assert shared_beginning([[1], [2]]) == []


def test_the_response_is_the_greedy_answer(stages):
    response = stages["7"].response
    assert response["choices"][0]["message"]["content"] == stages["5"].loops[0].text
    assert response["usage"]["prompt_tokens"] == stages["2"].count
    assert response["created"] == 9


def test_a_prompt_beyond_the_context_is_refused(loaded):
    with pytest.raises(UsageError, match="exceeds"):
        list(Walkthrough(loaded, PROMPT, max_n=4096).stages((2,)))
    with pytest.raises(UsageError, match="exceeds"):
        list(cache_growth(loaded, PROMPT, new_tokens=4096))
    with pytest.raises(UsageError, match="exceeds"):
        list(sample_spread(loaded, PROMPT, temperatures=[1], runs=1, max_new_tokens=4096))


def test_the_cache_grows_by_exactly_one_token_a_step(loaded):
    steps = list(cache_growth(loaded, PROMPT, new_tokens=20))
    first = len(prompt_ids(loaded, [{"role": "user", "content": PROMPT}]))
    assert [step.step for step in steps] == list(range(21))
    assert [step.cache_length for step in steps] == list(range(first, first + 21))
    assert [step.cache_bytes for step in steps] == [384 * step.cache_length for step in steps]


def test_answers_spread_with_temperature(loaded):
    done = []
    spreads = list(
        sample_spread(
            loaded,
            PROMPT,
            temperatures=[0.01, 3.0],
            runs=6,
            max_new_tokens=5,
            progress=lambda: done.append(1),
        )
    )
    assert len(done) == 12
    assert [spread.distinct for spread in spreads] == [1, 6]
    assert spreads[0].effective_candidates < spreads[1].effective_candidates
    again = list(sample_spread(loaded, PROMPT, temperatures=[3.0], runs=6, max_new_tokens=5))
    assert again[0].answers == spreads[1].answers


def test_kv_bytes_counts_every_tensor(loaded):
    from simulator.generate import prefill

    cache = prefill(loaded.model, [5, 6, 7]).cache
    assert kv_bytes(cache) == sum(t.nbytes for layer in cache.layers for t in (layer.keys, layer.values))

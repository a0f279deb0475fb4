# ruff: noqa: E402
"""The engine computes what plain transformers computes, and with reuse the very same bits as without."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from simulator.engine import Engine, EngineRequest
from simulator.errors import ModelError, UsageError
from simulator.forward import LlamaForward
from simulator.generate import generate_with_cache
from simulator.no_index import NoPrefixIndex
from simulator.radix_index import RadixPrefixIndex
from simulator.retention import Keep
from simulator.trace import Usage
from tests.tiny_llama import tiny_llama

BLOCK = 16


@pytest.fixture(scope="module")
def library_model():
    return tiny_llama()


@pytest.fixture(scope="module")
def forward(library_model):
    return LlamaForward(library_model)


@pytest.fixture
def engine(forward):
    return Engine(forward, block_size=BLOCK)


def ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(0, 512, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def ask(tokens, **options) -> EngineRequest:
    return EngineRequest(tokens, **options)


@pytest.mark.parametrize("hidden", [36, 72, 144])
@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_logits_are_those_of_transformers(hidden: int, block_size: int) -> None:
    model = tiny_llama(hidden=hidden)
    prompt = ids(150)
    with torch.no_grad():
        expected = model(torch.tensor([prompt])).logits[0, -1:]
    found = Engine(LlamaForward(model), block_size=block_size).prefill_without_cache(prompt).logits
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=0)


def test_greedy_answers_are_those_of_the_library_loop(engine, library_model) -> None:
    for seed in range(3):
        prompt = ids(70, seed)
        expected = list(generate_with_cache(library_model, prompt, max_new_tokens=24))
        served = engine.serve(ask(prompt, max_new_tokens=24), now=0)
        assert list(served.output_ids) == expected
        assert len(set(expected)) > 5, "a constant answer would prove little"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [33, 48, 49, 200])
def test_reuse_gives_the_same_bits(library_model, dtype, length: int) -> None:
    engine = Engine(LlamaForward(library_model, dtype), block_size=BLOCK)
    prompt = ids(length)
    engine.serve(ask(prompt[: length - 12] + ids(30, 9)), now=0)
    request = ask(prompt, max_new_tokens=6)
    served = engine.serve(request, now=1)
    assert served.reused_tokens == (length - 12) // BLOCK * BLOCK > 0
    reference = engine.prefill_without_cache(prompt)
    assert torch.equal(served.logits, reference.logits)
    assert engine.is_exact(served, request, reference)
    assert engine.store.bytes == len(engine.store) * BLOCK * engine.forward.kv_shape.token_bytes


def test_a_wrong_block_is_noticed(engine) -> None:
    prompt = ids(64)
    engine.serve(ask(prompt), now=0)
    engine.store[1][0, 0, 0, 0, 0] += 1e-6
    request = ask([*prompt, 1])
    served = engine.serve(request, now=1)
    assert not engine.is_exact(served, request, engine.prefill_without_cache(request.tokens))


def test_one_and_two_threads_give_the_same_bits(forward) -> None:
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(Engine(forward, block_size=64).prefill_without_cache(ids(300)).logits)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_shared_blocks_survive_all_who_adopt_them_bit_for_bit(engine) -> None:
    prefix = ids(64)
    engine.serve(ask(prefix), now=0)
    before = {block: engine.store[block].clone() for block in range(len(engine.store))}
    for seed in range(3):
        engine.serve(ask(prefix + ids(20, seed), max_new_tokens=5), now=1)
    assert all(torch.equal(engine.store[block], kept) for block, kept in before.items())
    assert len(engine.store) == 4 + 3, "one copy of the prefix, one block of each branch"


def test_usage_adds_up_and_names_what_was_kept(engine) -> None:
    first = engine.serve(ask(ids(100), max_new_tokens=3), now=0)
    assert first.usage == Usage(4, 0, 96, 0, 3)
    again = engine.serve(ask(ids(100) + ids(40, 1)), now=0)
    assert again.usage == Usage(140 - 128, 96, 32, 0, 0)
    hours = (Keep(32, 3600.0), Keep(80, 300.0))
    assert Engine(engine.forward, block_size=BLOCK).serve(ask(ids(100), keep=hours), now=0).usage == Usage(
        20, 0, 48, 32
    )


def test_an_empty_suffix_still_computes_the_last_block(engine) -> None:
    prompt = ids(64)
    cold = engine.serve(ask(prompt), now=0)
    again = engine.serve(ask(prompt), now=0)
    assert (again.reused_tokens, again.computed_tokens, again.stored_blocks) == (48, 16, 0)
    assert torch.equal(cold.logits, again.logits)


def test_the_answer_ends_at_once_where_its_first_token_is_an_end(engine) -> None:
    prompt = ids(40)
    first = engine.serve(ask(prompt, max_new_tokens=5), now=0).output_ids[0]
    served = engine.serve(ask(prompt, max_new_tokens=5, end_ids=frozenset([first])), now=0)
    assert (served.output_ids, served.ended, served.usage.output_tokens) == ((first,), True, 1)


def test_decoded_tokens_are_computed_again_as_part_of_the_next_prompt(engine) -> None:
    prompt = ids(40)
    answer = list(engine.serve(ask(prompt, max_new_tokens=30), now=0).output_ids)
    longer = ask(prompt + answer + ids(5, 1))
    served = engine.serve(longer, now=1)
    assert served.reused_tokens == 32
    assert engine.is_exact(served, longer, engine.prefill_without_cache(longer.tokens))


def test_a_read_limit_is_obeyed_in_whole_blocks(engine) -> None:
    engine.serve(ask(ids(100)), now=0)
    assert engine.serve(ask(ids(100), readable=47), now=0).reused_tokens == 32
    assert engine.serve(ask(ids(100), readable=0), now=0).reused_tokens == 0


def test_salts_do_not_share(engine) -> None:
    engine.serve(ask(ids(64), salt="a"), now=0)
    assert engine.serve(ask(ids(64), salt="b"), now=0).reused_tokens == 0


def test_a_prefix_is_read_at_the_very_end_of_its_life_and_gone_after_it(engine) -> None:
    keep = (Keep(64, 300.0),)
    start = 1.7e9 + 0.1
    engine.serve(ask(ids(70), keep=keep), now=start)
    assert engine.serve(ask(ids(70), keep=keep), now=start + 300).reused_tokens == 64, "and renews it"
    assert engine.serve(ask(ids(70), keep=()), now=start + 600).kv_bytes == engine.store.bytes > 0
    gone = engine.serve(ask(ids(70), keep=()), now=start + 600.1)
    assert (gone.reused_tokens, gone.kv_bytes, gone.evicted_blocks) == (0, 0, 4)
    assert engine.store.bytes == 0


def test_a_block_kept_for_an_hour_outlives_those_kept_for_minutes(engine) -> None:
    keep = (Keep(32, 3600.0), Keep(96, 300.0))
    engine.serve(ask(ids(100), keep=keep), now=0)
    later = engine.serve(ask(ids(100), keep=(Keep(96, 300.0),)), now=1000)
    assert later.reused_tokens == 32
    last = engine.serve(ask(ids(100), keep=()), now=4600)
    assert last.reused_tokens == 32, "reading it renewed its hour"


def test_the_budget_holds_and_memory_is_budget_plus_one_request(forward) -> None:
    block_bytes = BLOCK * forward.kv_shape.token_bytes
    for keep in (None, (Keep(160, 300.0),)):
        engine = Engine(forward, block_size=BLOCK, budget_bytes=5 * block_bytes + 1)
        for seed in range(4):
            request = ask(ids(160, seed), keep=keep, max_new_tokens=4)
            served = engine.serve(request, now=seed)
            assert engine.store.bytes <= 5 * block_bytes
            assert served.peak_bytes <= 5 * block_bytes + 163 * forward.kv_shape.token_bytes
            assert served.computed_tokens == 160 - served.reused_tokens
            again = engine.serve(request, now=seed)
            assert again.reused_tokens == 80, "the beginning that fits is kept"
            assert engine.is_exact(again, request, engine.prefill_without_cache(request.tokens))
            engine.index.check_integrity()


def test_no_room_at_all_computes_everything(forward) -> None:
    engine = Engine(forward, block_size=BLOCK, budget_bytes=0)
    assert [engine.serve(ask(ids(64)), now=0).reused_tokens for _ in range(2)] == [0, 0]
    assert engine.store.bytes == 0


def test_every_index_gives_the_same_run(forward) -> None:
    requests = [ask(ids(64) + ids(40, seed % 3), keep=(Keep(96, 300.0),)) for seed in range(6)]
    block, radix = (
        Engine(forward, block_size=BLOCK, budget_bytes=9 * BLOCK * forward.kv_shape.token_bytes),
        Engine(forward, index=RadixPrefixIndex(BLOCK, 9)),
    )
    runs = [[engine.serve(request, now=i).usage for i, request in enumerate(requests)] for engine in (block, radix)]
    assert runs[0] == runs[1]
    baseline = Engine(forward, index=NoPrefixIndex(BLOCK))
    assert {baseline.serve(request, now=0).reused_tokens for request in requests} == {0}


def test_what_was_only_remembered_is_restored_with_the_same_bits(forward) -> None:
    engine = Engine(forward, block_size=BLOCK)
    assert engine.remember(ask(ids(64)), now=0) == 0
    assert engine.remember(ask(ids(64) + ids(32, 1)), now=1) == 64
    assert engine.store.bytes == 0
    request = ask(ids(64) + ids(32, 1) + ids(9, 2))
    served = engine.serve(request, now=2)
    assert (served.reused_tokens, served.restored_tokens, served.computed_tokens) == (96, 96, 9)
    assert engine.is_exact(served, request, engine.prefill_without_cache(request.tokens))
    assert engine.serve(request, now=3).restored_tokens == 0


def test_a_failing_request_leaves_nothing_pinned(engine, monkeypatch) -> None:
    engine.serve(ask(ids(64)), now=0)

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(engine.forward), "__call__", fail)
        with pytest.raises(KeyboardInterrupt):
            engine.serve(ask(ids(64) + ids(9, 1)), now=1)
    assert engine.index.occupancy(now=1).pinned == 0
    assert engine.serve(ask(ids(64) + ids(9, 1)), now=2).reused_tokens == 64


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (EngineRequest([]), "empty"),
        (EngineRequest([1] * 1025), "1025 tokens and 0 to decode do not fit the model's window of 1024"),
        (EngineRequest([1] * 1020, max_new_tokens=5), "do not fit"),
        (EngineRequest([1], max_new_tokens=-1), "cannot decode"),
        (EngineRequest([512]), "from 0 to 511"),
        (EngineRequest([-1]), "from 0 to 511"),
    ],
)
def test_prompts_that_cannot_run_are_refused_and_change_nothing(engine, request_, message: str) -> None:
    for act in (engine.serve, engine.remember):
        with pytest.raises(UsageError, match=message):
            act(request_, now=0)
    assert engine.index.counters.requests == 0


def test_a_prompt_that_fills_the_window_runs(engine) -> None:
    assert engine.serve(ask(ids(1024)), now=0).computed_tokens == 1024


def test_a_clock_that_goes_backwards_is_refused(engine) -> None:
    engine.serve(ask(ids(20)), now=5)
    with pytest.raises(ValueError, match=r"time went backwards: 4 after 5"):
        engine.serve(ask(ids(20)), now=4)


def test_models_that_the_forward_pass_does_not_know_are_refused() -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    with pytest.raises(ModelError, match="qwen2"):
        LlamaForward(Qwen2ForCausalLM(Qwen2Config(**sizes, num_key_value_heads=1, vocab_size=8)))
    biased = LlamaConfig(**sizes, num_key_value_heads=1, vocab_size=8, attention_bias=True)
    with pytest.raises(ModelError, match="biases"):
        LlamaForward(LlamaForCausalLM(biased))


def test_tokens_beyond_the_buffer_are_refused(forward) -> None:
    with pytest.raises(ValueError, match="do not fit a buffer of 4"):
        forward([1, 2, 3], forward.kv_shape.allocate(4), 2)

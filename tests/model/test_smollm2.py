"""The real weights: what is known about them, and the same equalities as on the tiny model."""

# ruff: noqa: E402
import copy
import re
from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from simulator.chat import complete, prompt_ids, prompt_text
from simulator.generate import (
    continue_from_prefix,
    generate_no_cache,
    generate_with_cache,
    prefill,
    prefill_prefix,
    resume,
)
from simulator.model.description import describe
from simulator.model.fetch import GGUF_NAME, GGUF_SHA256
from simulator.prefix_reuse import QUESTIONS, RULES, measure_prefix_reuse, shared_beginning
from simulator.sampling import sample_next
from simulator.walkthrough import Walkthrough, next_token_spread

pytestmark = pytest.mark.model

PROMPT = "What is the capital of France?"
USER = [{"role": "user", "content": PROMPT}]
FIRST_TWELVE = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308]
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def library(loaded, ids, **options):
    prompt = torch.tensor([ids])
    out = loaded.model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    return out[0, len(ids) :].tolist()


def check_tokens_and_template(loaded):
    ids = prompt_ids(loaded, USER)
    assert len(ids) == 37
    assert ids[:12] == FIRST_TWELVE
    text = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    assert prompt_text(loaded, USER) == text
    assert loaded.end_ids == {2}
    own = [{"role": "system", "content": "Be brief."}, *USER]
    assert SYSTEM not in prompt_text(loaded, own)
    for line in ("     1\tfoo  2", "    12\timport os", "x =  3.14", "2026-11-30  09:15"):
        pieces = [piece for piece in re.split(r"(\d)", line) if piece]
        apart = [token for piece in pieces for token in loaded.tokenizer(piece)["input_ids"]]
        assert loaded.tokenizer(line)["input_ids"] == apart
        assert loaded.tokenizer.decode(apart) == line


def test_shape_and_hash(packaged):
    found = describe(packaged.source)
    assert found.sha256 == GGUF_SHA256
    assert found.parameters == packaged.parameters == 134_515_008
    shape = (found.layers, found.hidden, found.heads, found.kv_heads, found.vocabulary, found.context)
    assert shape == (30, 576, 9, 3, 49_152, 8_192)
    assert found.kv_bytes_per_token == 45 * 1024


def test_tokens_and_template(packaged):
    check_tokens_and_template(packaged)


def test_weights_equal_the_librarys_gguf_loader_bit_for_bit(packaged):
    from transformers import AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(packaged.model.config)
    path = str(packaged.source.folder / GGUF_NAME)
    expected = load_gguf_checkpoint(path, return_tensors=True, model_to_load=empty)["tensors"]
    own = packaged.model.state_dict()
    assert len(expected) == 272
    assert set(own) == {*expected, "lm_head.weight"}
    assert all(torch.equal(own[name], torch.as_tensor(weight)) for name, weight in expected.items())
    assert own["lm_head.weight"].data_ptr() == own["model.embed_tokens.weight"].data_ptr()


def test_three_greedy_loops_equal_generate(packaged):
    ids = prompt_ids(packaged, USER)
    expected = library(packaged, ids, max_new_tokens=20, do_sample=False)
    prefix = prefill_prefix(packaged.model, ids[:30])
    options = {"max_new_tokens": 20, "eos": packaged.end_ids}
    assert list(generate_no_cache(packaged.model, ids, **options)) == expected
    assert list(generate_with_cache(packaged.model, ids, **options)) == expected
    assert list(continue_from_prefix(packaged.model, prefix, ids, **options)) == expected
    response = complete(packaged, expected, id="x", created=0, prompt_tokens=len(ids)).as_openai()
    assert response["choices"][0]["message"]["content"] == "The capital of France is Paris."
    assert response["choices"][0]["finish_reason"] == "stop"
    usage = response["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (37, 8, 45)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_seeded_sampling_equals_generate(packaged, seed):
    ids = prompt_ids(packaged, USER)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        expected = library(packaged, ids, max_new_tokens=12, do_sample=True, temperature=0.8, top_k=50, top_p=0.9)
    pick = partial(sample_next, temperature=0.8, top_k=50, top_p=0.9, generator=torch.Generator().manual_seed(seed))
    assert (
        list(generate_with_cache(packaged.model, ids, max_new_tokens=12, eos=packaged.end_ids, pick=pick)) == expected
    )


def test_the_cache_has_the_documented_size(packaged):
    stage = Walkthrough(packaged, PROMPT).greedy()
    assert all(loop.equals_generate for loop in stage.loops)
    assert (stage.cache_length, stage.key_shape) == (44, (1, 3, 44, 64))
    assert (stage.cache_bytes, stage.bytes_per_token) == (1980 * 1024, 45 * 1024)


def test_prefix_reuse_in_both_modes(packaged):
    reuse = measure_prefix_reuse(packaged)
    assert (reuse.prefix_tokens, reuse.exact.cached_tokens) == (451, 448)
    assert [row.computed_tokens for row in reuse.naive.rows] == [13, 14]
    assert all(row.same_choice and row.delta < 2e-4 for row in reuse.naive.rows)
    assert all(row.same_choice and row.delta == 0 for row in reuse.exact.rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_chunked_reuse_is_exact_in_logits_keys_and_values(packaged, dtype):
    model = packaged.model if dtype == torch.float32 else copy.deepcopy(packaged.model).to(dtype)
    prompts = [
        prompt_ids(packaged, [{"role": "system", "content": RULES[:900]}, {"role": "user", "content": question}])
        for question in QUESTIONS
    ]
    prefix = prefill_prefix(model, shared_beginning(prompts), chunk=32)
    before = [tensor.clone() for layer in prefix.cache.layers for tensor in (layer.keys, layer.values)]
    full = prefill(model, prompts[0], chunk=32, all_logits=True)
    reused = resume(model, prefix, prompts[0], all_logits=True)
    assert reused.reused == prefix.cached > 128
    assert torch.equal(reused.logits, full.logits[:, reused.reused :])
    for own, other in zip(reused.cache.layers, full.cache.layers, strict=True):
        assert torch.equal(own.keys, other.keys)
        assert torch.equal(own.values, other.values)
    after = [tensor for layer in prefix.cache.layers for tensor in (layer.keys, layer.values)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_full_precision_tokens_and_template(full_precision):
    check_tokens_and_template(full_precision)


def test_full_precision_probabilities(full_precision):
    """Published figures of the unquantised weights: the first token's odds, and effective candidates by temperature."""
    stage = Walkthrough(full_precision, PROMPT).forward()
    found = [(text, round(p, 3)) for text, _, p in stage.top]
    assert found == [("The", 0.831), ("Paris", 0.042), ("As", 0.018), ("Bon", 0.016), ("I", 0.014)]
    logits = prefill(full_precision.model, prompt_ids(full_precision, USER)).logits
    for temperature, top, candidates in (
        (0.3, 0.9999, 1.0),
        (0.7, 0.9697, 1.22),
        (1.0, 0.8312, 2.82),
        (1.5, 0.3811, 71),
    ):
        row = next_token_spread(logits, temperature)
        assert row.top_probability == pytest.approx(top, abs=2e-3)
        assert row.effective_candidates == pytest.approx(candidates, rel=2e-2)

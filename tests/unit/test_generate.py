# ruff: noqa: E402
import os

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from functools import partial

from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from simulator.generate import (
    continue_from_prefix,
    decode,
    fork,
    generate_no_cache,
    generate_with_cache,
    left_pad,
    prefill,
    prefill_prefix,
    resume,
)
from simulator.sampling import sample_next

SHAPES = [(36, 2), (72, 3), (144, 2)]
NEW = 24


def build(hidden, layers, dtype=torch.float32):
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=512,
        max_position_embeddings=1024,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(hidden)
        return LlamaForCausalLM(config).eval().to(dtype)


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def model(request):
    return build(*request.param)


@pytest.fixture(scope="module")
def small():
    return build(72, 2)


def tokens(count, seed=0):
    return torch.randint(1, 512, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def reference(model, prompt, **options):
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, **options)
    return out[0, len(prompt) :].tolist()


def tensors(cache):
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def test_three_greedy_loops_equal_generate(model):
    prompt = tokens(37)
    expected = reference(model, prompt, do_sample=False)
    assert len(expected) == NEW
    assert len(set(expected)) > 5
    prefix = prefill_prefix(model, prompt[:20])
    assert list(generate_no_cache(model, prompt, max_new_tokens=NEW)) == expected
    assert list(generate_with_cache(model, prompt, max_new_tokens=NEW)) == expected
    assert list(generate_with_cache(model, prompt, max_new_tokens=NEW, chunk=16)) == expected
    assert list(continue_from_prefix(model, prefix, prompt, max_new_tokens=NEW)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_seeded_sampling_equals_generate(small, seed):
    prompt = tokens(12, seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        expected = reference(small, prompt, do_sample=True, temperature=0.8, top_k=50, top_p=0.9)
    for loop in (generate_no_cache, generate_with_cache):
        pick = partial(sample_next, temperature=0.8, top_k=50, top_p=0.9, generator=torch.Generator().manual_seed(seed))
        assert list(loop(small, prompt, max_new_tokens=NEW, pick=pick)) == expected


def test_an_end_token_is_yielded_and_stops_every_loop(small):
    prompt = tokens(9)
    free = list(generate_with_cache(small, prompt, max_new_tokens=NEW))
    end = free[5]
    expected = free[: free.index(end) + 1]
    assert reference(small, prompt, do_sample=False, eos_token_id=end) == expected
    prefix = prefill_prefix(small, prompt[:4])
    for eos in (end, {end, 511_000}):
        assert list(generate_no_cache(small, prompt, max_new_tokens=NEW, eos=eos)) == expected
        assert list(generate_with_cache(small, prompt, max_new_tokens=NEW, eos=eos)) == expected
        assert list(continue_from_prefix(small, prefix, prompt, max_new_tokens=NEW, eos=eos)) == expected


def test_the_cache_grows_by_one_a_step_and_tokens_stream(small):
    done = prefill(small, tokens(10))
    lengths = [done.cache.get_seq_length() for _ in decode(small, done.logits, done.cache, max_new_tokens=6)]
    assert lengths == [10, 11, 12, 13, 14, 15]
    assert done.cache.get_seq_length() == 15


def test_the_model_runs_on_new_tokens_only(small):
    widths = []
    hook = small.register_forward_pre_hook(
        lambda _module, _args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        prompt = tokens(40)
        list(generate_no_cache(small, prompt, max_new_tokens=3))
        list(generate_with_cache(small, prompt, max_new_tokens=3))
        list(generate_with_cache(small, prompt, max_new_tokens=3, chunk=16))
        prefix = prefill_prefix(small, prompt[:39], chunk=16)
        list(continue_from_prefix(small, prefix, prompt, max_new_tokens=3))
        stream = generate_with_cache(small, prompt, max_new_tokens=3)
        next(stream)
    finally:
        hook.remove()
    assert widths == [*(40, 41, 42), *(40, 1, 1), *(16, 16, 8, 1, 1), *(16, 16), *(8, 1, 1), 40]


@pytest.mark.parametrize("chunk", [None, 8])
def test_continuations_share_the_prefix_and_never_touch_it(small, chunk):
    prompt = tokens(24)
    prefix = prefill_prefix(small, prompt, chunk=chunk)
    held = tensors(prefix.cache)
    before = [tensor.clone() for tensor in held]
    branch = fork(prefix.cache, 24)
    assert [a.data_ptr() for a in tensors(branch)] == [b.data_ptr() for b in held]
    answers = [
        list(continue_from_prefix(small, prefix, prompt + tokens(7, seed), max_new_tokens=NEW)) for seed in (1, 2, 1)
    ]
    assert answers[0] == answers[2] != answers[1]
    resume(small, prefix, prompt)
    assert prefix.cache.get_seq_length() == prefix.cached == 24
    assert all(a is b for a, b in zip(tensors(prefix.cache), held, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))


@pytest.mark.parametrize(("shared", "suffix"), [(451, 13), (486, 16), (30, 1)])
def test_naive_reuse_agrees_closely(model, shared, suffix):
    prompt = tokens(shared + suffix)
    full = prefill(model, prompt, all_logits=True)
    reused = resume(model, prefill_prefix(model, prompt[:shared]), prompt, all_logits=True)
    assert (reused.reused, reused.computed) == (shared, suffix)
    tail = full.logits[:, shared:]
    assert (reused.logits - tail).abs().max() < 2e-4
    assert torch.equal(reused.logits.argmax(-1), tail.argmax(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("chunk", [16, 32, 64, 128])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_chunked_reuse_is_exact(shape, chunk, dtype):
    model = build(*shape, dtype)
    prompt = tokens(302)
    prefix = prefill_prefix(model, prompt[:286], chunk=chunk)
    full = prefill(model, prompt, chunk=chunk, all_logits=True)
    reused = resume(model, prefix, prompt, all_logits=True)
    assert reused.reused == prefix.cached == 286 // chunk * chunk > 0
    assert reused.logits.shape == (1, 302 - reused.reused, 512)
    assert torch.equal(reused.logits, full.logits[:, reused.reused :])
    pairs = list(zip(tensors(reused.cache), tensors(full.cache), strict=True))
    assert len(pairs) == 2 * shape[1]
    assert all(a.shape[-2] == 302 and torch.equal(a, b) for a, b in pairs)
    assert torch.equal(resume(model, prefix, prompt).logits, prefill(model, prompt, chunk=chunk).logits)


def test_near_ties_may_flip_under_naive_reuse_and_never_in_exact_mode(small):
    """At temperature 0 rounding decides between near ties. The tie is made from this machine's own differences."""
    prompt = tokens(300)
    full = prefill(small, prompt).logits[0].double()
    naive = resume(small, prefill_prefix(small, prompt[:284]), prompt).logits[0].double()
    shift = naive - full
    if shift.max() == shift.min():
        pytest.skip("both paths round alike on this machine")
    up, down = int(shift.argmax()), int(shift.argmin())
    bias = torch.zeros_like(full)
    bias[down] = 1000 - full[down]
    bias[up] = 1000 - full[up] - (shift[up] - shift[down]) / 2
    assert int((full + bias).argmax()) == down
    assert int((naive + bias).argmax()) == up
    exact = resume(small, prefill_prefix(small, prompt[:284], chunk=32), prompt).logits[0].double()
    again = prefill(small, prompt, chunk=32).logits[0].double()
    assert int((exact + bias).argmax()) == int((again + bias).argmax())


def test_padding_on_the_wrong_side_predicts_from_padding(small):
    """Flush left, a short row's last column is padding: its logits are not those of its last token."""
    short, long = tokens(5, 1), tokens(11, 2)
    alone = prefill(small, short).logits
    ids = torch.tensor([short + [0] * 6, long])
    mask = torch.tensor([[1] * 5 + [0] * 6, [1] * 11])
    with torch.no_grad():
        wrong = small(input_ids=ids, attention_mask=mask).logits[:1, -1]
    assert (wrong - alone).abs().max() > 0.1


def test_the_last_token_is_always_computed(small):
    prompt = tokens(32)
    for chunk, reused in ((None, 31), (16, 16), (32, 0), (64, 0)):
        done = resume(small, prefill_prefix(small, prompt, chunk=chunk), prompt)
        assert (done.reused, done.computed, done.cache.get_seq_length()) == (reused, 32 - reused, 32)
        torch.testing.assert_close(done.logits, prefill(small, prompt).logits, atol=2e-4, rtol=0)


def test_a_prefix_cut_inside_a_merged_token_is_refused(small):
    prefix = prefill_prefix(small, [5, 6, 7])
    with pytest.raises(ValueError, match=r"position 2 of 3 the prefix has token 7, the prompt 70.*merged across"):
        continue_from_prefix(small, prefix, [5, 6, 70, 8], max_new_tokens=1)
    with pytest.raises(ValueError, match=r"ends after 2 tokens, the prefix has 3"):
        resume(small, prefix, [5, 6])
    # In exact mode the differing token may lie behind the last whole chunk: still not this prompt's prefix.
    with pytest.raises(ValueError, match=r"position 2 of 3"):
        resume(small, prefill_prefix(small, [5, 6, 7], chunk=2), [5, 6, 70, 8])


def test_a_prefix_changed_behind_our_back_is_refused(small):
    prefix = prefill_prefix(small, [5, 6, 7])
    small(input_ids=torch.tensor([[8]]), cache=prefix.cache)
    with pytest.raises(ValueError, match="holds 4 positions, not 3"):
        continue_from_prefix(small, prefix, [5, 6, 7, 8], max_new_tokens=1)
    with pytest.raises(ValueError, match="cannot fork 9"):
        fork(prefix.cache, 9)


def test_layers_that_overwrite_their_window_are_refused():
    cache = DynamicCache(config=LlamaConfig(num_hidden_layers=1, sliding_window=4))
    with pytest.raises(TypeError, match="SlidingWindow"):
        fork(cache, 0)


def test_left_padding(small):
    rows = [tokens(5, 1), tokens(11, 2), tokens(8, 3)]
    batch = left_pad(rows, pad_id=0)
    assert batch.input_ids.shape == batch.attention_mask.shape == batch.position_ids.shape == (3, 11)
    assert batch.input_ids[0].tolist() == [0] * 6 + rows[0]
    assert batch.attention_mask.sum(-1).tolist() == [5, 11, 8]
    assert batch.position_ids[0].tolist() == [0] * 6 + [0, 1, 2, 3, 4]
    with torch.no_grad():
        logits = small(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            logits_to_keep=1,
        ).logits[:, -1]
    alone = torch.cat([prefill(small, row).logits for row in rows])
    torch.testing.assert_close(logits, alone, atol=2e-4, rtol=0)
    out = small.generate(batch.input_ids, attention_mask=batch.attention_mask, max_new_tokens=8, do_sample=False)
    assert out[:, 11:].tolist() == [list(generate_with_cache(small, row, max_new_tokens=8)) for row in rows]


def test_senseless_arguments_are_refused_at_the_call(small):
    for loop in (generate_no_cache, generate_with_cache):
        with pytest.raises(ValueError, match="empty"):
            loop(small, [], max_new_tokens=1)
        with pytest.raises(ValueError, match="max_new_tokens"):
            loop(small, [1], max_new_tokens=0)
    with pytest.raises(ValueError, match="chunk"):
        prefill_prefix(small, [1], chunk=0)
    with pytest.raises(ValueError, match="at least one"):
        left_pad([[1], []], pad_id=0)

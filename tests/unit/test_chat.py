# ruff: noqa: E402
import os

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from simulator.chat import Conversation, check_fits, complete, prompt_ids, prompt_text, stream_text
from simulator.errors import ModelError, UsageError
from simulator.generate import generate_with_cache, prefill_prefix, resume
from simulator.model import find_source
from simulator.model.loading import load
from tests.tiny_model import save_tiny_model

USER = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load(find_source(str(save_tiny_model(tmp_path_factory.mktemp("tiny")))))


def test_the_generation_prompt_opens_the_assistants_turn(loaded):
    """Without it the text ends after the user, and a model may go on as the user."""
    opened = prompt_text(loaded, USER)
    closed = prompt_text(loaded, USER, add_generation_prompt=False)
    assert opened == closed + "<|im_start|>assistant\n"
    assert closed.endswith("France?<|im_end|>\n")
    assert opened.startswith("<|im_start|>system\nYou help.<|im_end|>\n")
    assert loaded.tokenizer.decode(prompt_ids(loaded, USER)) == opened
    ids = loaded.tokenizer.apply_chat_template(USER, add_generation_prompt=True, return_dict=False)
    assert prompt_ids(loaded, USER) == ids


def test_a_model_without_a_template_is_refused(loaded, monkeypatch):
    monkeypatch.setattr(loaded.tokenizer, "chat_template", None)
    with pytest.raises(ModelError, match="no chat template"):
        prompt_ids(loaded, USER)


@pytest.mark.parametrize(("last", "reason"), [(2, "stop"), (70, "length")])
def test_the_response_counts_and_says_why_it_ended(loaded, last, reason):
    tokens = [*loaded.tokenizer("Paris.")["input_ids"], last]
    response = complete(loaded, tokens, id="chatcmpl-x", created=7, prompt_tokens=37, cached_tokens=30).as_openai()
    assert response["object"] == "chat.completion"
    assert (response["id"], response["created"], response["model"]) == ("chatcmpl-x", 7, loaded.source.name)
    (choice,) = response["choices"]
    assert choice["finish_reason"] == reason
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"].startswith("Paris.")
    assert "<|im_end|>" not in choice["message"]["content"]
    assert response["usage"] == {
        "prompt_tokens": 37,
        "completion_tokens": len(tokens),
        "total_tokens": 37 + len(tokens),
        "prompt_tokens_details": {"cached_tokens": 30},
    }


def test_text_streams_in_whole_characters(loaded):
    text = "héé 法国 🙂!"
    ids = loaded.tokenizer(text)["input_ids"]
    assert len(ids) > len(text)
    pieces = list(stream_text(loaded, iter(ids)))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)
    broken = list(stream_text(loaded, iter(ids[:2])))
    assert "".join(broken) == loaded.tokenizer.decode(ids[:2])
    assert list(stream_text(loaded, iter([*loaded.tokenizer("a")["input_ids"], 2]))) == ["a", ""]


def test_each_turn_computes_only_what_is_new_and_answers_the_same(loaded):
    ticks = iter(range(1000))
    chat = Conversation(loaded, clock=lambda: float(next(ticks)), wall_clock=lambda: 5.5)
    computed = []
    cached = 0
    for text in ("Where can readers return it?", "Open at 10?", "Is it small?"):
        messages = [*chat.messages, {"role": "user", "content": text}]
        prompt = prompt_ids(loaded, messages)
        alone = list(generate_with_cache(loaded.model, prompt, max_new_tokens=12, eos=loaded.end_ids))
        streamed = "".join(chat.ask(text, max_new_tokens=12))
        report = chat.last_turn
        assert report.completion.token_ids == tuple(alone)
        assert report.completion.content == loaded.tokenizer.decode(alone, skip_special_tokens=True) == streamed
        assert chat.messages == [*messages, {"role": "assistant", "content": streamed}]
        assert report.completion.prompt_tokens == len(prompt)
        assert report.completion.cached_tokens + report.computed_tokens == len(prompt)
        assert report.completion.cached_tokens >= cached
        assert (report.lookup_s, report.prefill_s, report.completion.created) == (1.0, 1.0, 5)
        cached = report.completion.cached_tokens
        computed.append(report.computed_tokens)
    assert cached > 60
    assert max(computed[1:]) < 45


def test_an_answer_that_reads_differently_is_computed_again_from_there(loaded):
    """What was generated need not be what the tokenizer makes of its text: only the shared beginning is reused."""
    chat = Conversation(loaded)
    list(chat.ask("Open?", max_new_tokens=8))
    chat.messages[-1] = {"role": "assistant", "content": "Closed."}
    prompt = prompt_ids(loaded, [*chat.messages, {"role": "user", "content": "Why?"}])
    expected = list(generate_with_cache(loaded.model, prompt, max_new_tokens=8, eos=loaded.end_ids))
    list(chat.ask("Why?", max_new_tokens=8))
    assert chat.last_turn.completion.token_ids == tuple(expected)
    opening = len(prompt_ids(loaded, [{"role": "user", "content": "Open?"}]))
    assert opening <= chat.last_turn.completion.cached_tokens < opening + 8


def test_restart_keeps_the_opening_cached(loaded):
    chat = Conversation(loaded, system="You answer questions from readers of a small library.")
    list(chat.ask("Open?", max_new_tokens=4))
    first = chat.last_turn.completion
    chat.restart()
    assert [message["role"] for message in chat.messages] == ["system"]
    list(chat.ask("Open?", max_new_tokens=4))
    again = chat.last_turn
    assert again.completion.token_ids == first.token_ids
    assert (again.completion.cached_tokens, again.computed_tokens) == (first.prompt_tokens - 1, 1)


def test_a_closed_stream_keeps_what_was_said(loaded):
    chat = Conversation(loaded)
    stream = chat.ask("Open?", max_new_tokens=50)
    said = next(stream) + next(stream)
    stream.close()
    assert chat.messages[-1]["content"].startswith(said)
    assert chat.last_turn.completion.completion_tokens < 50
    list(chat.ask("And?", max_new_tokens=3))
    assert chat.last_turn.completion.cached_tokens > 0


def test_a_prompt_beyond_the_context_is_refused_and_forgotten(loaded):
    chat = Conversation(loaded)
    with pytest.raises(UsageError, match="exceeds the model's 4096"):
        chat.ask("word " * 5000, max_new_tokens=4)
    assert chat.messages == []
    check_fits(loaded, [1] * 4000, 96)
    with pytest.raises(UsageError):
        check_fits(loaded, [1] * 4000, 97)


def test_a_prefix_that_ends_inside_a_merged_token_is_refused(loaded):
    """`full_ids[:n] == prefix_ids` fails where the tokenizer merges across the cut, and the error says so."""
    whole = loaded.tokenizer("The capital")["input_ids"]
    cut = loaded.tokenizer("The cap")["input_ids"]
    assert whole[: len(cut)] != cut, "the texts share a beginning that the tokens do not"
    prefix = prefill_prefix(loaded.model, cut)
    with pytest.raises(ValueError, match="merged across the boundary"):
        resume(loaded.model, prefix, whole)

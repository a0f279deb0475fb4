"""Messages in, an answer out: chat template, streaming, reuse of the conversation so far, and the OpenAI format."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from transformers import DynamicCache

from simulator.errors import ModelError, UsageError
from simulator.generate import Pick, Prefix, decode, fork, resume
from simulator.model.loading import LoadedModel
from simulator.sampling import greedy

Message = Mapping[str, str]
FinishReason = Literal["stop", "length"]
Pieces = Generator[str, None, None]
"""An answer as it grows; closing it stops the model."""


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer as token ids, its end token included, and what the prompt cost. `created` is in Unix seconds."""

    id: str
    model: str
    created: int
    content: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int = 0

    @property
    def completion_tokens(self) -> int:
        return len(self.token_ids)

    def as_openai(self) -> dict[str, Any]:
        """https://platform.openai.com/docs/api-reference/chat/object"""
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": self.content},
                    "finish_reason": self.finish_reason,
                }
            ],
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": self.completion_tokens,
                "total_tokens": self.prompt_tokens + self.completion_tokens,
                "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            },
        }


def complete(
    loaded: LoadedModel,
    token_ids: Sequence[int],
    *,
    id: str,
    created: int,
    prompt_tokens: int,
    cached_tokens: int = 0,
) -> Completion:
    """The response for an answer's tokens: `stop` if it ends with an end token, `length` if it was cut off."""
    return Completion(
        id=id,
        model=loaded.source.name,
        created=created,
        content=loaded.tokenizer.decode(list(token_ids), skip_special_tokens=True),
        token_ids=tuple(token_ids),
        finish_reason="stop" if token_ids and token_ids[-1] in loaded.end_ids else "length",
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
    )


def prompt_text(loaded: LoadedModel, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
    """The messages as the model reads them. Without the generation prompt the model may go on as the user."""
    if not loaded.tokenizer.chat_template:
        raise ModelError(f"{loaded.source.name} has no chat template", "give an instruction-tuned model")
    return str(
        loaded.tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=add_generation_prompt
        )
    )


def prompt_ids(loaded: LoadedModel, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> list[int]:
    """The token ids of `prompt_text`; the template already holds every special token."""
    text = prompt_text(loaded, messages, add_generation_prompt=add_generation_prompt)
    return list(loaded.tokenizer(text, add_special_tokens=False)["input_ids"])


def check_fits(loaded: LoadedModel, prompt: Sequence[int], new_tokens: int) -> None:
    """Raises UsageError where prompt and answer together are longer than the positions the model was made for."""
    if len(prompt) + new_tokens > loaded.context:
        raise UsageError(
            f"the prompt has {len(prompt)} tokens; with {new_tokens} new ones it exceeds the model's {loaded.context}",
            "shorten the prompt, start over with /new in a chat, or ask for fewer new tokens",
        )


def stream_text(loaded: LoadedModel, token_ids: Iterator[int]) -> Iterator[str]:
    """Pieces of text as soon as they are whole characters: one token may be half of a letter."""
    shown: list[int] = []
    done = ""
    for token in token_ids:
        shown.append(token)
        text = loaded.tokenizer.decode(shown, skip_special_tokens=True)
        if text.endswith("\ufffd"):
            continue
        yield text[len(done) :]
        done = text
    rest = loaded.tokenizer.decode(shown, skip_special_tokens=True)[len(done) :]
    if rest:
        yield rest


@dataclass(frozen=True, slots=True)
class TurnReport:
    """Where a turn's prompt tokens came from and how long each step took."""

    completion: Completion
    computed_tokens: int
    lookup_s: float
    prefill_s: float
    decode_s: float


class Conversation:
    """A chat whose next prompt reuses the keys and values of everything that it shares with the last one."""

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        system: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._loaded = loaded
        self._clock = clock
        self._wall_clock = wall_clock
        self._opening: list[Message] = [{"role": "system", "content": system}] if system else []
        self.messages: list[Message] = list(self._opening)
        self._cached_ids: list[int] = []
        self._cache = DynamicCache(config=loaded.model.config)
        self._turns = 0
        self.last_turn: TurnReport | None = None

    def restart(self) -> None:
        """Forgets what was said, but keeps the cache: the opening of the next prompt is the same again."""
        self.messages = list(self._opening)

    def ask(self, text: str, *, max_new_tokens: int, pick: Pick = greedy) -> Pieces:
        """Streams the answer. When the stream ends or is closed, `messages` and `last_turn` hold what was said.

        Raises UsageError, leaving the conversation as it was, when prompt and answer do not fit the model's context.
        """
        messages = [*self.messages, {"role": "user", "content": text}]
        prompt = prompt_ids(self._loaded, messages)
        check_fits(self._loaded, prompt, max_new_tokens)
        return self._answer(messages, prompt, max_new_tokens, pick)

    def _answer(self, messages: list[Message], prompt: list[int], max_new_tokens: int, pick: Pick) -> Pieces:
        model = self._loaded.model
        started = self._clock()
        shared = _shared_length(self._cached_ids, prompt)
        prefix = Prefix(tuple(prompt[:shared]), fork(self._cache, shared), shared, None)
        looked_up = self._clock()
        done = resume(model, prefix, prompt)
        prefilled = self._clock()
        tokens: list[int] = []

        def answer() -> Iterator[int]:
            for token in decode(
                model, done.logits, done.cache, max_new_tokens=max_new_tokens, eos=self._loaded.end_ids, pick=pick
            ):
                tokens.append(token)
                yield token

        try:
            yield from stream_text(self._loaded, answer())
        finally:
            self._turns += 1
            self._cache = done.cache
            self._cached_ids = [*prompt, *tokens][: done.cache.get_seq_length()]
            completion = complete(
                self._loaded,
                tokens,
                id=f"chatcmpl-{self._turns}",
                created=int(self._wall_clock()),
                prompt_tokens=len(prompt),
                cached_tokens=done.reused,
            )
            self.messages = [*messages, {"role": "assistant", "content": completion.content}]
            self.last_turn = TurnReport(
                completion, done.computed, looked_up - started, prefilled - looked_up, self._clock() - prefilled
            )


def _shared_length(cached: Sequence[int], prompt: Sequence[int]) -> int:
    for position, (have, want) in enumerate(zip(cached, prompt, strict=False)):
        if have != want:
            return position
    return min(len(cached), len(prompt))

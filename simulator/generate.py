"""Three ways to the same tokens: recompute everything, keep the K/V cache, start from a cached prefix.

Shapes: T prompt tokens, V vocabulary entries, H key/value heads, D head size. A layer's cached keys and values
are (1, H, T, D) each. The loops are iterators over token ids, so a caller can stream: every token is yielded as
soon as it is known, an end token included, and the model is not run again after the last one.

A prefix may be reused in two modes:

- naive (`chunk=None`): the prompt's rest runs as one piece. Matrix shapes differ from the full run's, hence the
  rounding does too: logits agree closely, but not bit for bit.
- exact (`chunk=n`): prompts always run in pieces of n tokens cut at multiples of n, and only whole pieces are
  reused. The reused run is then the tail of the very sequence of operations of the full run: no difference at all.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from simulator.sampling import greedy

Pick = Callable[[Tensor], Tensor]
"""(1, V) logits -> (1,) token id, e.g. `greedy` or a partial of `sample_next`."""


class CausalLM(Protocol):
    """What the loops need of a transformers model."""

    config: Any

    @property
    def device(self) -> torch.device: ...

    def __call__(self, **inputs: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A prompt that went through the model: `logits` (1, V) or (1, computed, V), and how its tokens were come by."""

    logits: Tensor
    cache: DynamicCache
    reused: int
    computed: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prompt's cached beginning. In exact mode the cache holds whole chunks only, so it may be shorter than the ids.

    Nothing in this module writes to `cache`: continuations work on forks.
    """

    token_ids: tuple[int, ...]
    cache: DynamicCache
    cached: int
    chunk: int | None


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Rows of unequal length, flush right: `input_ids`, `attention_mask` and `position_ids` are (B, T) int64."""

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor


def generate_no_cache(
    model: CausalLM,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    eos: int | Collection[int] = (),
    pick: Pick = greedy,
) -> Iterator[int]:
    """Runs the whole sequence again for every token: the reference, quadratic in its length."""
    _check_prompt(prompt, max_new_tokens)
    return _decode_no_cache(model, list(prompt), max_new_tokens, _end_ids(eos), pick)


def generate_with_cache(
    model: CausalLM,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    eos: int | Collection[int] = (),
    pick: Pick = greedy,
    chunk: int | None = None,
) -> Iterator[int]:
    """Prefills the prompt once, then runs one token a step."""
    _check_prompt(prompt, max_new_tokens)
    _check_chunk(chunk)
    return _prefill_and_decode(model, tuple(prompt), None, max_new_tokens, _end_ids(eos), pick, chunk)


def continue_from_prefix(
    model: CausalLM,
    prefix: Prefix,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    eos: int | Collection[int] = (),
    pick: Pick = greedy,
) -> Iterator[int]:
    """Like `generate_with_cache` for the whole `prompt`, which must begin with the prefix's ids (ValueError if not)."""
    _check_prompt(prompt, max_new_tokens)
    check_prefix(prefix, prompt)
    return _prefill_and_decode(model, tuple(prompt), prefix, max_new_tokens, _end_ids(eos), pick, prefix.chunk)


def prefill_prefix(model: CausalLM, token_ids: Sequence[int], *, chunk: int | None = None) -> Prefix:
    """Computes a prefix's keys and values, for any number of continuations."""
    _check_prompt(token_ids, 1)
    _check_chunk(chunk)
    cached = _align_down(len(token_ids), chunk)
    cache = DynamicCache(config=model.config)
    if cached:
        _run(model, token_ids[:cached], cache, chunk, all_logits=False)
    return Prefix(tuple(token_ids), cache, cached, chunk)


def prefill(model: CausalLM, prompt: Sequence[int], *, chunk: int | None = None, all_logits: bool = False) -> Prefilled:
    """Runs a prompt from its start. Logits: (1, V) of the last position, or (1, T, V) with `all_logits`."""
    _check_prompt(prompt, 1)
    _check_chunk(chunk)
    cache = DynamicCache(config=model.config)
    return Prefilled(_run(model, prompt, cache, chunk, all_logits), cache, 0, len(prompt))


def resume(model: CausalLM, prefix: Prefix, prompt: Sequence[int], *, all_logits: bool = False) -> Prefilled:
    """Runs only what the prefix does not cover. Logits as in `prefill`, but of the computed positions only.

    The last token is always computed, for its logits are what the continuation starts from.
    """
    _check_prompt(prompt, 1)
    check_prefix(prefix, prompt)
    reused = min(prefix.cached, _align_down(len(prompt) - 1, prefix.chunk))
    cache = fork(prefix.cache, reused)
    logits = _run(model, prompt[reused:], cache, prefix.chunk, all_logits)
    return Prefilled(logits, cache, reused, len(prompt) - reused)


def fork(cache: DynamicCache, length: int) -> DynamicCache:
    """A cache of the first `length` positions that shares its tensors with the original until it grows.

    Growing binds new tensors in the fork's own layers, so the original keeps its values: no copy is made here.
    """
    if not 0 <= length <= cache.get_seq_length():
        raise ValueError(f"cannot fork {length} positions of a cache that holds {cache.get_seq_length()}")
    branch = copy.copy(cache)
    branch.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in branch.layers:
        if type(layer) is not DynamicLayer:
            raise TypeError(f"cannot fork a {type(layer).__name__}: only plain growing layers never write in place")
        if layer.keys is not None and layer.values is not None:
            layer.keys = layer.keys[:, :, :length]
            layer.values = layer.values[:, :, :length]
    return branch


def decode(
    model: CausalLM,
    logits: Tensor,
    cache: DynamicCache,
    *,
    max_new_tokens: int,
    eos: int | Collection[int] = (),
    pick: Pick = greedy,
) -> Iterator[int]:
    """From (1, V) logits onwards, one token a step; `cache` grows by one position for each token but the last."""
    end = _end_ids(eos)
    for step in range(max_new_tokens):
        token = int(pick(logits))
        yield token
        if token in end or step == max_new_tokens - 1:
            return
        logits = _run(model, [token], cache, None, all_logits=False)


def check_prefix(prefix: Prefix, prompt: Sequence[int]) -> None:
    """Raises ValueError unless the prompt begins with the prefix's ids and the prefix's cache is as it was built."""
    if prefix.cache.get_seq_length() != prefix.cached:
        raise ValueError(
            f"the prefix's cache holds {prefix.cache.get_seq_length()} positions, not {prefix.cached}: "
            "it was changed after it was built"
        )
    for position, (cached, given) in enumerate(zip(prefix.token_ids, prompt, strict=False)):
        if cached != given:
            raise ValueError(
                f"the prompt does not begin with the cached prefix: at position {position} of "
                f"{len(prefix.token_ids)} the prefix has token {cached}, the prompt {given}. If the texts agree there, "
                "the tokenizer merged across the boundary: cut the prefix from the ids of the whole prompt"
            )
    if len(prompt) < len(prefix.token_ids):
        raise ValueError(
            f"the prompt does not begin with the cached prefix: it ends after {len(prompt)} tokens, "
            f"the prefix has {len(prefix.token_ids)}"
        )


def left_pad(rows: Sequence[Sequence[int]], *, pad_id: int, device: torch.device | None = None) -> PaddedBatch:
    """Pads on the left, so that every row's last token sits in the last column and positions count from its first.

    Padding has mask 0 and position 0. A batch is not bit-equal to its rows run alone: keep it out of exact mode.
    """
    if not rows or not all(rows):
        raise ValueError("a batch needs at least one row, and every row at least one token")
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    return PaddedBatch(ids, mask, (mask.cumsum(dim=-1) - 1).clamp(min=0))


def _decode_no_cache(
    model: CausalLM, ids: list[int], max_new_tokens: int, end: frozenset[int], pick: Pick
) -> Iterator[int]:
    for _ in range(max_new_tokens):
        token = int(pick(_run(model, ids, None, None, all_logits=False)))
        yield token
        if token in end:
            return
        ids.append(token)


def _prefill_and_decode(
    model: CausalLM,
    prompt: tuple[int, ...],
    prefix: Prefix | None,
    max_new_tokens: int,
    end: frozenset[int],
    pick: Pick,
    chunk: int | None,
) -> Iterator[int]:
    done = prefill(model, prompt, chunk=chunk) if prefix is None else resume(model, prefix, prompt)
    yield from decode(model, done.logits, done.cache, max_new_tokens=max_new_tokens, eos=end, pick=pick)


def _run(
    model: CausalLM, ids: Sequence[int], cache: DynamicCache | None, chunk: int | None, all_logits: bool
) -> Tensor:
    """Appends `ids` to the cache, cut at absolute multiples of `chunk`. -> (1, V), or (1, len(ids), V)."""
    start = 0 if cache is None else cache.get_seq_length()
    stop = start + len(ids)
    pieces: list[Tensor] = []
    at = start
    while at < stop:
        upto = stop if chunk is None else min(stop, _align_down(at, chunk) + chunk)
        with torch.no_grad():
            output = model(
                input_ids=torch.tensor([list(ids[at - start : upto - start])], device=model.device),
                cache=cache,
                use_cache=cache is not None,
                logits_to_keep=0 if all_logits else 1,
            )
        pieces.append(output.logits)
        at = upto
    return torch.cat(pieces, dim=1) if all_logits else pieces[-1][:, -1]


def _align_down(length: int, chunk: int | None) -> int:
    return length if chunk is None else length - length % chunk


def _end_ids(eos: int | Collection[int]) -> frozenset[int]:
    return frozenset((eos,)) if isinstance(eos, int) else frozenset(eos)


def _check_prompt(prompt: Sequence[int], max_new_tokens: int) -> None:
    if not prompt:
        raise ValueError("the prompt is empty")
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")


def _check_chunk(chunk: int | None) -> None:
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")

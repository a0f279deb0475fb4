"""Two experiments: how temperature spreads answers, and how a K/V cache grows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from simulator.chat import check_fits, prompt_ids
from simulator.generate import decode, fork, prefill
from simulator.model.loading import LoadedModel
from simulator.sampling import sample_next
from simulator.walkthrough import kv_bytes, next_token_spread


@dataclass(frozen=True, slots=True)
class AnswerSpread:
    """Answers drawn at one temperature, beside the first token's effective candidates, exp(entropy)."""

    temperature: float
    top_probability: float
    effective_candidates: float
    answers: tuple[str, ...]

    @property
    def distinct(self) -> int:
        return len(set(self.answers))


@dataclass(frozen=True, slots=True)
class GrowthStep:
    """The cache after a forward pass: step 0 is the prompt's."""

    step: int
    cache_length: int
    cache_bytes: int


def sample_spread(
    loaded: LoadedModel,
    prompt: str,
    *,
    temperatures: Sequence[float],
    runs: int,
    max_new_tokens: int,
    seed: int = 0,
    top_k: int | None = None,
    top_p: float | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Iterator[AnswerSpread]:
    """Answers the prompt `runs` times per temperature. The prompt is prefilled once: every answer is a fork of it.

    Run r draws with seed `seed + r` at every temperature.
    """
    ids = prompt_ids(loaded, [{"role": "user", "content": prompt}])
    check_fits(loaded, ids, max_new_tokens)
    done = prefill(loaded.model, ids)
    for temperature in temperatures:
        answers = []
        for run in range(runs):
            pick = partial(
                sample_next,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                generator=torch.Generator().manual_seed(seed + run),
            )
            tokens = decode(
                loaded.model,
                done.logits,
                fork(done.cache, len(ids)),
                max_new_tokens=max_new_tokens,
                eos=loaded.end_ids,
                pick=pick,
            )
            answers.append(str(loaded.tokenizer.decode(list(tokens), skip_special_tokens=True)))
            progress()
        spread = next_token_spread(done.logits, temperature)
        yield AnswerSpread(temperature, spread.top_probability, spread.effective_candidates, tuple(answers))


def cache_growth(loaded: LoadedModel, prompt: str, *, new_tokens: int) -> Iterator[GrowthStep]:
    """One step per generated token, the end token ignored: the cache grows by exactly one position each."""
    ids = prompt_ids(loaded, [{"role": "user", "content": prompt}])
    check_fits(loaded, ids, new_tokens)
    done = prefill(loaded.model, ids)
    tokens = decode(loaded.model, done.logits, done.cache, max_new_tokens=new_tokens + 1)
    for step, _ in enumerate(tokens):
        yield GrowthStep(step, done.cache.get_seq_length(), kv_bytes(done.cache))

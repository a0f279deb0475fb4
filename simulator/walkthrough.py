"""One prompt through a real model in eight stages, each as a typed result: from text to an API response.

Shapes: T prompt tokens, V vocabulary entries. Times are wall-clock seconds of this run; everything else is exact.
"""

import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from simulator.chat import check_fits, complete, prompt_ids, prompt_text
from simulator.generate import (
    CausalLM,
    Prefilled,
    decode,
    generate_no_cache,
    generate_with_cache,
    prefill,
)
from simulator.model.loading import LoadedModel
from simulator.prefix_reuse import measure_prefix_reuse
from simulator.sampling import apply_temperature, greedy, sample_next
from simulator.stages import (
    Decoded,
    ForwardStage,
    GreedyStage,
    ModelStage,
    PrefixStage,
    ResponseStage,
    SampledRow,
    SamplingStage,
    SpeedRow,
    SpeedStage,
    Stage,
    TemperatureRow,
    TemperatureStage,
    TemplateStage,
    TokenStage,
)

TEMPERATURES = (0.3, 0.7, 1.0, 1.5)
LENGTHS = (50, 100, 200, 400, 800)
SEEDS = (1, 2, 3)
STAGES = tuple(range(8))


Progress = Callable[[str], None]
"""Called with the stage that begins."""


def kv_bytes(cache: Any) -> int:
    """Bytes of all keys and values that a cache holds."""
    return sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))


def next_token_spread(logits: Tensor, temperature: float) -> TemperatureRow:
    """(1, V) logits -> how sharp the choice of the next token is at this temperature."""
    log_p = apply_temperature(logits.to(torch.float32), temperature).log_softmax(dim=-1)
    p = log_p.exp()
    entropy = -(p * log_p.clamp(min=-1e4)).sum()
    return TemperatureRow(temperature, float(p.max()), float(entropy.exp()))


class Walkthrough:
    """Stages of one prompt; what several of them need is computed once."""

    def __init__(
        self,
        loaded: LoadedModel,
        prompt: str,
        *,
        max_n: int = 100,
        max_new_tokens: int = 30,
        clock: Callable[[], float] = time.perf_counter,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._loaded = loaded
        self._model: CausalLM = loaded.model
        self._tokenizer = loaded.tokenizer
        self._messages = [{"role": "user", "content": prompt}]
        self._max_n = max_n
        self._new = max_new_tokens
        self._clock = clock
        self._wall_clock = wall_clock

    def stages(self, numbers: tuple[int, ...] = STAGES, progress: Progress = lambda _stage: None) -> Iterator[Stage]:
        """Stages in order as they are computed; 5 and 6 come in two parts."""
        parts: tuple[tuple[int, Callable[[], Stage]], ...] = (
            (0, self.model),
            (1, self.template),
            (2, self.tokens),
            (3, self.forward),
            (4, self.temperature),
            (5, self.greedy),
            (5, self.speed),
            (6, self.sampling),
            (6, self.prefix_reuse),
            (7, self.response),
        )
        for number, compute in parts:
            if number in numbers:
                progress(str(number))
                yield compute()

    def model(self) -> ModelStage:
        config = self._model.config
        return ModelStage(
            name=self._loaded.source.name,
            parameters=self._loaded.parameters,
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            vocabulary=config.vocab_size,
            context=self._loaded.context,
        )

    def template(self) -> TemplateStage:
        return TemplateStage(prompt_text(self._loaded, self._messages))

    def tokens(self) -> TokenStage:
        spelled = self._tokenizer.convert_ids_to_tokens(self._prompt)
        return TokenStage(len(self._prompt), tuple(zip(self._prompt, spelled, strict=True)))

    def forward(self) -> ForwardStage:
        logits = self._forward
        top = logits[0, -1].softmax(dim=-1).topk(min(5, logits.shape[-1]))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return ForwardStage(tuple(logits.shape), tuple((self._tokenizer.decode([at]), at, p) for at, p in pairs))

    def temperature(self) -> TemperatureStage:
        return TemperatureStage(tuple(next_token_spread(self._forward[:, -1], t) for t in TEMPERATURES))

    def greedy(self) -> GreedyStage:
        started = self._clock()
        plain = list(generate_no_cache(self._model, self._prompt, max_new_tokens=self._new, eos=self._loaded.end_ids))
        middle = self._clock()
        done, tokens = self._greedy_run()
        ended = self._clock()
        expected = self._library(do_sample=False)
        layer: Any = done.cache.layers[0]
        return GreedyStage(
            loops=(
                Decoded("no cache", middle - started, self._text(plain), plain == expected),
                Decoded("K/V cache", ended - middle, self._text(tokens), tokens == expected),
            ),
            cache_length=done.cache.get_seq_length(),
            key_shape=tuple(layer.keys.shape),
            cache_bytes=kv_bytes(done.cache),
            bytes_per_token=kv_bytes(done.cache) // done.cache.get_seq_length(),
            layers=len(done.cache.layers),
            element_bytes=layer.keys.element_size(),
        )

    def speed(self) -> SpeedStage:
        """End tokens are ignored here, so that every length is reached."""
        lengths = sorted({*(n for n in LENGTHS if n < self._max_n), self._max_n})
        plain = self._moments(generate_no_cache(self._model, self._prompt, max_new_tokens=lengths[-1]), lengths)
        cached = self._moments(generate_with_cache(self._model, self._prompt, max_new_tokens=lengths[-1]), lengths)
        return SpeedStage(tuple(SpeedRow(n, plain[n], cached[n]) for n in lengths))

    def sampling(self) -> SamplingStage:
        rows = []
        for seed in SEEDS:
            pick = partial(
                sample_next, temperature=0.8, top_k=50, top_p=0.9, generator=torch.Generator().manual_seed(seed)
            )
            own = list(
                generate_with_cache(
                    self._model, self._prompt, max_new_tokens=self._new, eos=self._loaded.end_ids, pick=pick
                )
            )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                expected = self._library(do_sample=True, temperature=0.8, top_k=50, top_p=0.9)
            rows.append(SampledRow(seed, own == expected, self._text(own)))
        return SamplingStage(0.8, 50, 0.9, tuple(rows))

    def prefix_reuse(self) -> PrefixStage:
        return PrefixStage(measure_prefix_reuse(self._loaded, clock=self._clock))

    def response(self) -> ResponseStage:
        _, tokens = self._greedy_run()
        completion = complete(
            self._loaded,
            tokens,
            id="chatcmpl-1",
            created=int(self._wall_clock()),
            prompt_tokens=len(self._prompt),
        )
        return ResponseStage(completion.as_openai())

    @cached_property
    def _prompt(self) -> list[int]:
        ids = prompt_ids(self._loaded, self._messages)
        check_fits(self._loaded, ids, max(self._new, self._max_n))
        return ids

    @cached_property
    def _forward(self) -> Tensor:
        """(1, T, V)"""
        return prefill(self._model, self._prompt, all_logits=True).logits

    def _greedy_run(self) -> tuple[Prefilled, list[int]]:
        done = prefill(self._model, self._prompt)
        tokens = list(
            decode(
                self._model, done.logits, done.cache, max_new_tokens=self._new, eos=self._loaded.end_ids, pick=greedy
            )
        )
        return done, tokens

    def _library(self, **options: Any) -> list[int]:
        """What transformers' own `generate` answers."""
        ids = torch.tensor([self._prompt], device=self._model.device)
        output = self._loaded.library_model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=self._new, **options
        )
        answer: list[int] = output[0, ids.shape[1] :].tolist()
        return answer

    def _moments(self, tokens: Iterator[int], lengths: list[int]) -> dict[int, float]:
        """Seconds from the start until each of these numbers of tokens was there."""
        started = self._clock()
        return {count: self._clock() - started for count, _ in enumerate(tokens, 1) if count in lengths}

    def _text(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

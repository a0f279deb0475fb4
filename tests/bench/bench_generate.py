"""Ratios of one run on the real weights: python tests/bench/bench_generate.py [MODEL]

CPU seconds of one thread, the best of a few rounds taken in turn, so that a busy machine disturbs both sides alike.
"""

import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from simulator.chat import prompt_ids
from simulator.generate import CausalLM, generate_no_cache, generate_with_cache, prefill, prefill_prefix, resume
from simulator.model import find_source
from simulator.model.loading import load
from simulator.prefix_reuse import QUESTIONS, RULES

NEW = 100


def seconds(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The best CPU time of each, all of them run once per round."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for at, work in enumerate(works):
            started = time.process_time()
            work()
            best[at] = min(best[at], time.process_time() - started)
    return best


def naive(model: CausalLM, ids: list[int]) -> None:
    """The plainest loop: the whole text again for every token, and the logits of all its positions."""
    ids = list(ids)
    with torch.no_grad():
        for _ in range(NEW):
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))


def main() -> None:
    torch.set_num_threads(1)
    started = time.process_time()
    loaded = load(find_source(sys.argv[1] if len(sys.argv) > 1 else None))
    print(f"{loaded.source.name}: loaded in {time.process_time() - started:.2f} s of CPU")
    model = loaded.model
    ids = prompt_ids(loaded, [{"role": "user", "content": "What is the capital of France?"}])
    prompt = torch.tensor([ids])
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    own, library, lean, plain = seconds(
        3,
        lambda: list(generate_with_cache(model, ids, max_new_tokens=NEW)),
        lambda: loaded.library_model.generate(prompt, attention_mask=torch.ones_like(prompt), **options),
        lambda: list(generate_no_cache(model, ids, max_new_tokens=NEW)),
        lambda: naive(model, ids),
    )
    report("decode with the cache / model.generate", own, library, own / library, own / library <= 1.2, "at most 1.2")
    report(f"no cache / cache, N={NEW}", plain, own, plain / own, plain / own >= 4, "at least 4")
    print(f"no cache / cache, N={NEW}, logits of the last position only: {lean:.2f} s / {own:.2f} s = {lean / own:.2f}")

    long = prompt_ids(loaded, [{"role": "system", "content": RULES}, {"role": "user", "content": QUESTIONS[0]}])
    prefix = prefill_prefix(model, long[:-13])
    full, reused = seconds(8, lambda: prefill(model, long), lambda: resume(model, prefix, long))
    ratio = full / reused
    report(f"in full / from a prefix, {len(long) - 13} + 13 tokens", full, reused, ratio, ratio >= 8, "at least 8")


def report(what: str, first: float, second: float, ratio: float, holds: bool, bound: str) -> None:
    print(f"{what}: {first:.2f} s / {second:.2f} s = {ratio:.2f} ({bound}: {'holds' if holds else 'FAILS'})")


if __name__ == "__main__":
    main()

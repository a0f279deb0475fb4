"""The engine beside plain transformers: every ratio from one run, float32, one thread, CPU seconds.

    OMP_NUM_THREADS=1 python tests/bench/bench_engine.py [--model NAME] [--random]

`--random` uses random weights of SmolLM2-135M's shape: speed does not depend on their values.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from simulator.engine import Engine, EngineRequest
from simulator.forward import LlamaForward
from simulator.generate import decode

PREFIX, SUFFIX, PROMPT, DECODED = 4000, 64, 2048, 32


def load(name: str | None, random: bool):
    if random:
        config = LlamaConfig(
            hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
            num_key_value_heads=3, vocab_size=49152, max_position_embeddings=8192, tie_word_embeddings=True,
        )  # fmt: skip
        return LlamaForCausalLM(config).eval()
    from simulator.model import find_source
    from simulator.model.loading import load as load_source

    return load_source(find_source(name)).model


def seconds(run: Callable[[], object], repeats: int = 1) -> float:
    """The quickest of some runs, in CPU seconds."""
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--random", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    model = load(asked.model, asked.random)
    forward = LlamaForward(model)
    ids = torch.randint(32, 49000, (PREFIX + 3 * SUFFIX,), generator=torch.Generator().manual_seed(0)).tolist()
    found: dict[str, float] = {}

    def plain() -> None:
        model(torch.tensor([ids[:PROMPT]]), cache=DynamicCache(config=model.config), use_cache=True, logits_to_keep=1)

    def engine_prefill(block: int) -> Callable[[], object]:
        engine = Engine(forward, block_size=block, timer=time.process_time)
        return lambda: engine.prefill_without_cache(ids[:PROMPT])

    model(torch.tensor([ids[:64]]))
    runs = {"plain": plain, "64": engine_prefill(64), "128": engine_prefill(128)}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(2):  # in turns, so that a slow minute of the machine touches all
        for name, run in runs.items():
            best[name] = min(best[name], seconds(run))
    found["plain_prefill_2048_s"] = best["plain"]
    found["engine_prefill_at_64_of_plain"] = best["plain"] / best["64"]
    found["engine_prefill_at_128_of_plain"] = best["plain"] / best["128"]

    engine = Engine(forward, timer=time.process_time)
    cold = engine.serve(EngineRequest(ids[:PREFIX] + ids[-SUFFIX:]), now=0)
    suffixes = [
        torch.randint(32, 49000, (SUFFIX,), generator=torch.Generator().manual_seed(n)).tolist() for n in range(6)
    ]
    warm = [engine.serve(EngineRequest(ids[:PREFIX] + suffix), now=1) for suffix in suffixes[:3]]
    moved = []
    for suffix in suffixes[3:]:  # as if another conversation had run in between: the prefix has to be assembled again
        engine._workspace.resident.clear()
        moved.append(engine.serve(EngineRequest(ids[:PREFIX] + suffix), now=1))
    aligned = engine.serve(EngineRequest(ids[:PREFIX] + ids[-SUFFIX:][:32] + suffixes[0]), now=1)
    assert aligned.reused_tokens == 4032
    whole = seconds(lambda: model(torch.tensor([ids[: PREFIX + SUFFIX]]), use_cache=True, logits_to_keep=1))
    quick, slow = (min(runs, key=lambda served: served.prefill_s) for runs in (warm, moved))
    found["cold_4064_s"], found["reused_tokens"] = cold.prefill_s, quick.reused_tokens
    found["warm_4000_plus_64_s"], found["warm_speedup"] = quick.prefill_s, cold.prefill_s / quick.prefill_s
    found["warm_of_transformers_cold"] = whole / quick.prefill_s
    found["warm_4032_plus_64_speedup"] = cold.prefill_s / aligned.prefill_s
    found["warm_after_another_speedup"] = cold.prefill_s / slow.prefill_s
    found["assembly_s"], found["assembly_of_prefill"] = slow.assemble_s, slow.assemble_s / cold.prefill_s
    found["kv_bytes"], found["peak_bytes"] = slow.kv_bytes, slow.peak_bytes

    small = Engine(forward, block_size=32, timer=time.process_time)  # 4,000 tokens are whole blocks of 32, not of 64
    cold = small.serve(EngineRequest(ids[:PREFIX] + ids[-SUFFIX:]), now=0)
    warm = [small.serve(EngineRequest(ids[:PREFIX] + suffix), now=1) for suffix in suffixes[:3]]
    assert warm[0].reused_tokens == PREFIX
    found["warm_4000_plus_64_speedup_at_32"] = cold.prefill_s / min(served.prefill_s for served in warm)

    cache = DynamicCache(config=model.config)
    logits = model(torch.tensor([ids[:PROMPT]]), cache=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
    list(decode(model, logits, cache, max_new_tokens=3))
    library = seconds(lambda: list(decode(model, logits, cache, max_new_tokens=DECODED + 1))) / DECODED
    served = engine.serve(EngineRequest(ids[:PROMPT], max_new_tokens=DECODED + 1), now=2)
    found["decode_token_s"], found["library_decode_token_s"] = served.decode_s / DECODED, library
    found["decode_speedup"] = library / (served.decode_s / DECODED)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

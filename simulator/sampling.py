"""From logits to the next token: the usual warpers as pure functions, and the draw itself.

Shapes: B rows, V vocabulary entries. No function changes its argument.
Applied in the order temperature, top-k, top-p, the results carry the same bits as the warpers in transformers.
"""

import torch
from torch import Tensor

MASKED = float("-inf")


def greedy(logits: Tensor) -> Tensor:
    """(..., V) -> (...): the id of the largest logit; the first one in a tie."""
    return torch.argmax(logits, dim=-1)


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """(..., V) -> (..., V): below 1 sharpens the distribution, above 1 flattens it."""
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature} (use greedy for the limit at 0)")
    return logits / temperature


def apply_top_k(logits: Tensor, top_k: int) -> Tensor:
    """(..., V) -> (..., V): everything below the k-th largest logit becomes -inf; ties with it stay."""
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    kth = torch.topk(logits, min(top_k, logits.size(-1)), dim=-1).values[..., -1:]
    return logits.masked_fill(logits < kth, MASKED)


def apply_top_p(logits: Tensor, top_p: float) -> Tensor:
    """(..., V) -> (..., V): keeps the smallest set of best tokens whose probability reaches top_p, at least one.

    Summed from the least likely token upwards: a token goes when it and all less likely ones weigh 1 - top_p or less.
    """
    if not 0 <= top_p <= 1:
        raise ValueError(f"top_p must lie in [0, 1], got {top_p}")
    ascending, order = torch.sort(logits, dim=-1, descending=False)
    drop = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - top_p
    drop[..., -1] = False
    return logits.masked_fill(drop.scatter(-1, order, drop), MASKED)


def sample_next(
    logits: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(B, V) -> (B,): one drawn id per row, from float32 probabilities.

    Temperature 0 means greedy and draws nothing. A None, `top_k=0` or `top_p=1.0` switches that filter off.
    """
    if temperature == 0:
        return greedy(logits)
    scores = logits.to(torch.float32)
    if temperature != 1.0:
        scores = apply_temperature(scores, temperature)
    if top_k:
        scores = apply_top_k(scores, top_k)
    if top_p is not None and top_p != 1.0:
        scores = apply_top_p(scores, top_p)
    return torch.multinomial(scores.softmax(dim=-1), num_samples=1, generator=generator).squeeze(-1)

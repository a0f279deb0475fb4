"""Block caches under a budget: how much of a request stream a bounded cache would serve, by eviction rule.

* `lru`, `fifo`, `lfu`: the textbook rules; LFU counts uses since admission and breaks ties by least recent use.
* `belady`: evicts what is used furthest in the future, which may be the block just fetched (it is then not kept).
  L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
  No rule has more block hits while all blocks are of one size.
* `leaf-lru`: the least recently used block that no cached block extends, never one that the running request found.
  Where only the prompt's own last new block is left to evict, it goes, and the rest of the prompt is not kept.
  SGLang's radix tree evicts leaves first in this way (https://arxiv.org/abs/2312.07104).

Where numba is installed (extra `simulator`), long streams run compiled; the rules are the same functions either way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final, Literal

from simulator.capacity.blocks import BlockIds, BlockTrace
from simulator.capacity.rules import RULES, account

__all__ = ["EVICTIONS", "BlockTrace", "CapacityResult", "Eviction", "simulate_capacity"]

Eviction = Literal["lru", "fifo", "lfu", "belady", "leaf-lru"]
EVICTIONS: Final[tuple[Eviction, ...]] = ("lru", "fifo", "lfu", "belady", "leaf-lru")
COMPILED_FROM_REFERENCES: Final = 200_000
"""Shorter streams are done before numba is imported."""


@dataclass(frozen=True, slots=True)
class CapacityResult:
    """What was asked for and found in the measured requests.

    A *prefix hit* is found before its request's first miss: what a prefix cache can really use. `full` says whether
    the budget was used up before the measured requests; `request_hit_tokens` has the prefix hits request by request.
    """

    eviction: Eviction
    budget: int
    requested_blocks: int
    hit_blocks: int
    prefix_hit_blocks: int
    requested_tokens: int
    hit_tokens: int
    prefix_hit_tokens: int
    full: bool
    request_hit_tokens: Sequence[int] = field(repr=False, compare=False)

    @property
    def hit_rate(self) -> float:
        """Share of the requested blocks that was found, 0..1."""
        return self.hit_blocks / self.requested_blocks if self.requested_blocks else 0.0

    @property
    def token_hit_rate(self) -> float:
        """Share of the requested tokens that a prefix cache would serve, 0..1."""
        return self.prefix_hit_tokens / self.requested_tokens if self.requested_tokens else 0.0


def simulate_capacity(
    requests: BlockTrace | Iterable[BlockIds],
    budget_blocks: int | None = None,
    eviction: Eviction = "lru",
    block_tokens: int = 16,
    *,
    budget_bytes: int | None = None,
    bytes_per_token: int | None = None,
    warm_up_requests: int = 0,
    compiled: bool | None = None,
) -> CapacityResult:
    """Run `requests` through an initially empty cache of `budget_blocks` blocks, or of `budget_bytes` bytes.

    Plain lists of block ids have blocks of `block_tokens` tokens. A byte budget counts `bytes_per_token` for each
    token of a block. The first `warm_up_requests` fill the cache and are not counted. `compiled` chooses between
    numba and plain Python; by default numba is used where it is installed and worth its import.
    Raises ValueError for a senseless budget, and for `leaf-lru` over ids that are not chained; ModuleNotFoundError for
    `compiled=True` without numba.
    """
    trace = requests if isinstance(requests, BlockTrace) else BlockTrace.from_ids(requests, block_tokens)
    if (budget_blocks is None) == (budget_bytes is None):
        raise ValueError("give one of budget_blocks and budget_bytes")
    if (budget_bytes is None) != (bytes_per_token is None):
        raise ValueError("budget_bytes and bytes_per_token go together")
    budget = budget_bytes if budget_blocks is None else budget_blocks
    assert budget is not None
    if budget < 0 or warm_up_requests < 0 or (bytes_per_token is not None and bytes_per_token < 1):
        raise ValueError("budgets, warm_up_requests and bytes_per_token must not be negative or without size")
    if eviction == "leaf-lru" and not trace.chained:
        raise ValueError("leaf-lru needs chained ids: each block always follows the same one")
    if compiled is None:
        compiled = len(trace.blocks) >= COMPILED_FROM_REFERENCES and find_spec("numba") is not None
    return _run(trace, budget, bytes_per_token, eviction, warm_up_requests, compiled)


def _run(
    trace: BlockTrace, budget: int, bytes_per_token: int | None, eviction: Eviction, warm_up: int, compiled: bool
) -> CapacityResult:
    if compiled:
        from simulator.capacity.compiled import Arrays
    else:
        from simulator.capacity.plain import Arrays  # type: ignore[assignment]
    arrays = Arrays()
    blocks, ends, tokens = arrays.of(trace.blocks), arrays.of(trace.ends), arrays.of(trace.tokens)
    sizes = arrays.ones(trace.unique_blocks)
    if bytes_per_token is not None:
        sizes = arrays.of([n * bytes_per_token for n in trace.largest_tokens()])
    outcome = arrays.flags(len(trace.blocks))
    scratch = [arrays.zeros(n) for n in RULES[eviction].scratch(trace)]
    full_at = arrays.function(RULES[eviction].run)(blocks, ends, sizes, budget, outcome, *scratch)
    hits, prefix_hits, hit_tokens, prefix_hit_tokens = (arrays.zeros(len(trace.ends)) for _ in range(4))
    arrays.function(account)(ends, tokens, outcome, hits, prefix_hits, hit_tokens, prefix_hit_tokens)
    first = trace.ends[warm_up - 1] if 0 < warm_up <= len(trace.ends) else 0 if not warm_up else len(trace.blocks)
    return CapacityResult(
        eviction,
        budget,
        len(trace.blocks) - first,
        arrays.total(hits[warm_up:]),
        arrays.total(prefix_hits[warm_up:]),
        arrays.total(tokens[first:]),
        arrays.total(hit_tokens[warm_up:]),
        arrays.total(prefix_hit_tokens[warm_up:]),
        int(full_at) < first,
        prefix_hit_tokens[warm_up:],
    )

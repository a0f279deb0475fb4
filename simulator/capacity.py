"""Block caches under a budget: how much of a request stream a cache of N blocks would serve, by eviction rule.

A request is the sequence of its prompt's block ids, each id standing for the content up to and including the block
(a chained hash, so a block always follows the same parent). Blocks are accessed in order, one at a time.

* `lru`, `fifo`, `lfu`: the textbook rules; LFU counts uses since admission and breaks ties by least recent use.
* `belady`: evicts what is used furthest in the future, which may be the block just fetched (it is then not kept).
  L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
  No rule has more block hits.
* `leaf-lru`: the least recently used block that no cached block extends, never one of the running request; the
  radix-tree rule of SGLang (https://arxiv.org/abs/2312.07104). Without a candidate, the new block is not kept.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Literal

Eviction = Literal["lru", "fifo", "lfu", "belady", "leaf-lru"]
Blocks = Sequence[int]
EVICTIONS: Final[tuple[Eviction, ...]] = ("lru", "fifo", "lfu", "belady", "leaf-lru")


@dataclass(frozen=True, slots=True)
class CapacityResult:
    """Blocks asked for, found, and found before the request's first miss (what a prefix cache can really use)."""

    eviction: Eviction
    budget_blocks: int
    block_tokens: int
    requested_blocks: int
    hit_blocks: int
    prefix_hit_blocks: int

    @property
    def requested_tokens(self) -> int:
        return self.requested_blocks * self.block_tokens

    @property
    def hit_tokens(self) -> int:
        return self.hit_blocks * self.block_tokens

    @property
    def prefix_hit_tokens(self) -> int:
        return self.prefix_hit_blocks * self.block_tokens

    @property
    def hit_rate(self) -> float:
        return self.hit_blocks / self.requested_blocks if self.requested_blocks else 0.0


def simulate_capacity(
    requests: Iterable[Blocks], budget_blocks: int, eviction: Eviction = "lru", block_tokens: int = 16
) -> CapacityResult:
    """Run `requests` through an initially empty cache of `budget_blocks` blocks."""
    if budget_blocks < 0 or block_tokens < 1:
        raise ValueError(f"need budget_blocks >= 0 and block_tokens >= 1, not {budget_blocks} and {block_tokens}")
    stream = list(requests)
    requested = hits = prefix_hits = 0
    for outcome in _RULES[eviction](stream, budget_blocks) if budget_blocks else [[False] * len(r) for r in stream]:
        requested += len(outcome)
        hits += sum(outcome)
        prefix_hits += outcome.index(False) if False in outcome else len(outcome)
    return CapacityResult(eviction, budget_blocks, block_tokens, requested, hits, prefix_hits)


def _queue(requests: list[Blocks], budget: int, refresh: bool) -> Iterable[list[bool]]:
    cache: OrderedDict[int, None] = OrderedDict()
    for request in requests:
        outcome: list[bool] = []
        for block in request:
            hit = block in cache
            outcome.append(hit)
            if hit:
                if refresh:
                    cache.move_to_end(block)
                continue
            if len(cache) >= budget:
                cache.popitem(last=False)
            cache[block] = None
        yield outcome


def _lru(requests: list[Blocks], budget: int) -> Iterable[list[bool]]:
    return _queue(requests, budget, refresh=True)


def _fifo(requests: list[Blocks], budget: int) -> Iterable[list[bool]]:
    return _queue(requests, budget, refresh=False)


def _lfu(requests: list[Blocks], budget: int) -> Iterable[list[bool]]:
    uses: dict[int, int] = {}
    by_uses: defaultdict[int, OrderedDict[int, None]] = defaultdict(OrderedDict)
    fewest = 1
    for request in requests:
        outcome: list[bool] = []
        for block in request:
            count = uses.get(block, 0)
            outcome.append(count > 0)
            if count:
                del by_uses[count][block]
                if not by_uses[count] and fewest == count:
                    fewest += 1
            else:
                if len(uses) >= budget:
                    victim, _ = by_uses[fewest].popitem(last=False)
                    del uses[victim]
                fewest = 1
            uses[block] = count + 1
            by_uses[count + 1][block] = None
        yield outcome


def _belady(requests: list[Blocks], budget: int) -> Iterable[list[bool]]:
    flat = [block for request in requests for block in request]
    never = len(flat)
    following = [never] * never
    seen: dict[int, int] = {}
    for i in range(never - 1, -1, -1):
        following[i] = seen.get(flat[i], never)
        seen[flat[i]] = i
    next_use: dict[int, int] = {}  # of cached blocks
    furthest: list[tuple[int, int]] = []  # (-next use, block), stale items skipped
    i = 0
    for request in requests:
        outcome: list[bool] = []
        for block in request:
            outcome.append(block in next_use)
            next_use[block] = following[i]
            heappush(furthest, (-following[i], block))
            i += 1
            while len(next_use) > budget:
                use, victim = heappop(furthest)
                if next_use.get(victim) == -use:
                    del next_use[victim]
        yield outcome


def _leaf_lru(requests: list[Blocks], budget: int) -> Iterable[list[bool]]:
    used: dict[int, int] = {}  # cached block -> time of last use
    parent: dict[int, int | None] = {}
    children: defaultdict[int, int] = defaultdict(int)
    leaves: list[tuple[int, int]] = []  # (last use, block), stale items skipped
    clock = 0
    for request in requests:
        outcome: list[bool] = []
        started = clock
        previous: int | None = None
        for block in request:
            hit = block in used
            outcome.append(hit)
            admit = hit or (
                (previous is None or previous in used)
                and (len(used) < budget or _evict_leaf(used, parent, children, leaves, started))
            )
            if admit:
                if not hit:
                    parent[block] = previous
                    if previous is not None:
                        children[previous] += 1
                used[block] = clock
                if not children[block]:
                    heappush(leaves, (clock, block))
            clock += 1
            previous = block
        yield outcome


def _evict_leaf(
    used: dict[int, int],
    parent: dict[int, int | None],
    children: defaultdict[int, int],
    leaves: list[tuple[int, int]],
    started: int,
) -> bool:
    """Drop the least recently used leaf that was last used before `started`; False if there is none."""
    while leaves and leaves[0][0] < started:
        time, block = heappop(leaves)
        if used.get(block) != time or children[block]:
            continue
        del used[block]
        above = parent.pop(block)
        if above is not None:
            children[above] -= 1
            if not children[above] and above in used:
                heappush(leaves, (used[above], above))
        return True
    return False


_RULES: Final[dict[Eviction, Callable[[list[Blocks], int], Iterable[list[bool]]]]] = {
    "lru": _lru,
    "fifo": _fifo,
    "lfu": _lfu,
    "belady": _belady,
    "leaf-lru": _leaf_lru,
}

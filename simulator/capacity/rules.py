"""The eviction rules, written over indexable arrays so that Python and numba run the same code.

Every rule takes `blocks`, `ends` (one item a request), `sizes` (of each block, in the unit of `budget`) and zeroed
scratch arrays; it sets `outcome[i]` where reference `i` is a hit, and returns the reference at which the cache was
first full (`len(blocks)` if never). A block larger than the budget is never kept.

Lists are circular and doubly linked by index: `older[x]`, `newer[x]`, closed by a sentinel past the last block, whose
`newer` is the oldest item and whose `older` is the newest.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from simulator.capacity.blocks import BlockTrace

Ints = Any  # list[int] or a numpy array of int64


def account(
    ends: Ints, tokens: Ints, outcome: Ints, hits: Ints, prefix_hits: Ints, hit_tokens: Ints, prefix_hit_tokens: Ints
) -> None:
    """Sum up the hits of each request, and those before its first miss, in blocks and tokens."""
    start = 0
    for request in range(len(ends)):
        unbroken = True
        for i in range(start, ends[request]):
            if outcome[i]:
                hits[request] += 1
                hit_tokens[request] += tokens[i]
                if unbroken:
                    prefix_hits[request] += 1
                    prefix_hit_tokens[request] += tokens[i]
            else:
                unbroken = False
        start = ends[request]


def lru(
    blocks: Ints, ends: Ints, sizes: Ints, budget: int, outcome: Ints, cached: Ints, older: Ints, newer: Ints
) -> int:
    sentinel = len(cached)
    older[sentinel] = newer[sentinel] = sentinel
    used = 0
    full_at = len(blocks)
    for i in range(len(blocks)):
        block = blocks[i]
        if cached[block]:
            outcome[i] = 1
            before, after = older[block], newer[block]
            newer[before] = after
            older[after] = before
        else:
            size = sizes[block]
            if size > budget:
                continue
            while used + size > budget:
                victim = newer[sentinel]
                newer[sentinel] = newer[victim]
                older[newer[victim]] = sentinel
                cached[victim] = 0
                used -= sizes[victim]
                full_at = min(full_at, i)
            used += size
            cached[block] = 1
            if used == budget:
                full_at = min(full_at, i)
        newest = older[sentinel]
        newer[newest] = block
        older[block] = newest
        newer[block] = sentinel
        older[sentinel] = block
    return full_at


def fifo(blocks: Ints, ends: Ints, sizes: Ints, budget: int, outcome: Ints, cached: Ints, queue: Ints) -> int:
    first = last = used = 0
    full_at = len(blocks)
    for i in range(len(blocks)):
        block = blocks[i]
        size = sizes[block]
        if cached[block]:
            outcome[i] = 1
        elif size <= budget:
            while used + size > budget:
                victim = queue[first]
                first += 1
                cached[victim] = 0
                used -= sizes[victim]
                full_at = min(full_at, i)
            used += size
            cached[block] = 1
            queue[last] = block
            last += 1
            if used == budget:
                full_at = min(full_at, i)
    return full_at


def lfu(blocks: Ints, ends: Ints, sizes: Ints, budget: int, outcome: Ints, uses: Ints, older: Ints, newer: Ints) -> int:
    """One list for each number of uses; the list of `n` uses is closed by the sentinel `len(uses) + n`."""
    lists = len(uses)
    for sentinel in range(lists, len(older)):
        older[sentinel] = newer[sentinel] = sentinel
    used = 0
    fewest = 1
    full_at = len(blocks)
    for i in range(len(blocks)):
        block = blocks[i]
        if uses[block]:
            outcome[i] = 1
            before, after = older[block], newer[block]
            newer[before] = after
            older[after] = before
        else:
            size = sizes[block]
            if size > budget:
                continue
            while used + size > budget:
                while newer[lists + fewest] == lists + fewest:
                    fewest += 1
                victim = newer[lists + fewest]
                newer[lists + fewest] = newer[victim]
                older[newer[victim]] = lists + fewest
                uses[victim] = 0
                used -= sizes[victim]
                full_at = min(full_at, i)
            used += size
            fewest = 1
            if used == budget:
                full_at = min(full_at, i)
        uses[block] += 1
        sentinel = lists + uses[block]
        newest = older[sentinel]
        newer[newest] = block
        older[block] = newest
        newer[block] = sentinel
        older[sentinel] = block
    return full_at


def belady(
    blocks: Ints, ends: Ints, sizes: Ints, budget: int, outcome: Ints, cached: Ints, seen: Ints, following: Ints
) -> int:
    """`following[i]` is the next reference to the same block; `cached[b]` is the next use of a cached block, plus 1."""
    never = len(blocks)
    for i in range(never - 1, -1, -1):
        following[i] = seen[blocks[i]] - 1 if seen[blocks[i]] else never
        seen[blocks[i]] = i + 1
    furthest = [(0, 0)]  # (-next use, block); stale items are skipped
    furthest.pop()
    used = 0
    full_at = never
    for i in range(never):
        block = blocks[i]
        if cached[block]:
            outcome[i] = 1
        elif sizes[block] > budget:
            continue
        else:
            used += sizes[block]
        cached[block] = following[i] + 1
        heappush(furthest, (-following[i], block))
        if used >= budget:
            full_at = min(full_at, i)
        while used > budget:
            use, victim = heappop(furthest)
            if cached[victim] == 1 - use:
                cached[victim] = 0
                used -= sizes[victim]
    return full_at


def leaf_lru(
    blocks: Ints, ends: Ints, sizes: Ints, budget: int, outcome: Ints, cached: Ints, older: Ints, newer: Ints
) -> int:
    """A prompt counts as used from its end to its begin, so the oldest block never has a cached block after it."""
    sentinel = len(cached)
    older[sentinel] = newer[sentinel] = sentinel
    used = start = 0
    full_at = len(blocks)
    for end in ends:
        i = start
        while i < end and cached[blocks[i]]:
            outcome[i] = 1
            i += 1
        tip = sentinel  # the deepest cached block of this prompt; it is older than those before it
        for j in range(i - 1, start - 1, -1):
            block = blocks[j]
            before, after = older[block], newer[block]
            newer[before] = after
            older[after] = before
            newest = older[sentinel]
            newer[newest] = block
            older[block] = newest
            newer[block] = sentinel
            older[sentinel] = block
        if i > start:
            tip = blocks[i - 1]
        found = tip
        room = True
        while i < end and room:
            block = blocks[i]
            size = sizes[block]
            room = size <= budget
            while room and used + size > budget:
                victim = newer[sentinel]
                full_at = min(full_at, i)
                room = victim != tip
                if victim != found:
                    newer[sentinel] = newer[victim]
                    older[newer[victim]] = sentinel
                    cached[victim] = 0
                    used -= sizes[victim]
            if room:
                before = older[tip]
                newer[before] = block
                older[block] = before
                newer[block] = tip
                older[tip] = block
                tip = block
                cached[block] = 1
                used += size
                if used == budget:
                    full_at = min(full_at, i)
            i += 1
        start = end
    return full_at


class Rule(NamedTuple):
    """A rule and the lengths of the scratch arrays it needs for a trace."""

    run: Callable[..., int]
    scratch: Callable[[BlockTrace], tuple[int, ...]]


def _linked(trace: BlockTrace) -> tuple[int, int, int]:
    return trace.unique_blocks, trace.unique_blocks + 1, trace.unique_blocks + 1


def _linked_by_uses(trace: BlockTrace) -> tuple[int, int, int]:
    """The most uses of a block is bounded by the number of references to it."""
    references = [0] * trace.unique_blocks
    for block in trace.blocks:
        references[block] += 1
    length = trace.unique_blocks + max(references, default=0) + 1
    return trace.unique_blocks, length, length


RULES: Final[dict[str, Rule]] = {
    "lru": Rule(lru, _linked),
    "fifo": Rule(fifo, lambda trace: (trace.unique_blocks, len(trace.blocks))),
    "lfu": Rule(lfu, _linked_by_uses),
    "belady": Rule(belady, lambda trace: (trace.unique_blocks, trace.unique_blocks, len(trace.blocks))),
    "leaf-lru": Rule(leaf_lru, _linked),
}

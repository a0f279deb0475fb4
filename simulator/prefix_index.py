"""Which prompt prefixes are held: the interface of every index and its values.

An index only keeps books. It hands out block ids; whoever owns the K/V tensors files them under those ids and drops the
ids an insertion or an eviction reports. Time is an argument, never read from a clock, so every run can be replayed.
`block_index` files blocks under chained keys, `radix_index` in a tree, `no_index` nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

DEFAULT_BLOCK_SIZE = 64


class IntegrityError(AssertionError):
    """The index's books disagree with each other."""


@dataclass(frozen=True, slots=True)
class Match:
    """The cached part of a prompt: whole blocks only, root first."""

    tokens: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """A claim on a cached prefix. None of its blocks can be evicted until it is released or has run out.

    At its very deadline a lease still holds, as an API cache entry does whose age equals its lifetime.
    """

    id: int
    match: Match


@dataclass(frozen=True, slots=True)
class Insertion:
    """What an insert left in the index. Drop `evicted` first, then file the `new` blocks."""

    match: Match
    new: tuple[int, ...]
    evicted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Room in blocks. `total` and `free` are None when there is no budget."""

    total: int | None
    used: int
    free: int | None
    pinned: int

    @property
    def evictable(self) -> int:
        return self.used - self.pinned


@dataclass(slots=True)
class Counters:
    """Running totals, in tokens except `requests`."""

    requests: int = 0
    queries: int = 0
    hits: int = 0
    inserted: int = 0
    evicted: int = 0

    def record(self, queried: int, hit: int) -> None:
        self.requests += 1
        self.queries += queried
        self.hits += hit


class PrefixIndex(Protocol):
    """The interface the engine and the replay share.

    `match` is the counted query; `lease` pins the same prefix without counting it a second time. Both refresh recency.
    `peek` only looks.
    `limit` caps the tokens that may be reused: pass `len(prompt) - 1` when the last position's logits are needed.
    """

    @property
    def block_size(self) -> int: ...

    @property
    def counters(self) -> Counters: ...

    def match(self, tokens: Sequence[int], *, now: float, salt: str = "", limit: int | None = None) -> Match: ...

    def peek(self, tokens: Sequence[int], *, salt: str = "") -> Match: ...

    def lease(
        self,
        tokens: Sequence[int],
        *,
        now: float,
        salt: str = "",
        limit: int | None = None,
        ttl: float | None = None,
    ) -> Lease: ...

    def holds(self, lease: Lease) -> bool: ...

    def renew(self, lease: Lease, *, now: float, ttl: float | None) -> bool: ...

    def release(self, lease: Lease, *, now: float) -> bool: ...

    def insert(self, tokens: Sequence[int], *, now: float, salt: str = "") -> Insertion: ...

    def evict(self, blocks: int, *, now: float) -> tuple[int, ...]: ...

    def occupancy(self, *, now: float) -> Occupancy: ...

    def check_integrity(self) -> None: ...


def blocks_in_budget(budget_bytes: int, block_bytes: int) -> int:
    """How many whole blocks fit in a byte budget."""
    if budget_bytes < 0 or block_bytes <= 0:
        raise ValueError("a byte budget cannot be negative and a block must have a size")
    return budget_bytes // block_bytes


def check_shape(block_size: int, capacity_blocks: int | None) -> None:
    if block_size < 1:
        raise ValueError("block_size must be at least 1")
    if capacity_blocks is not None and capacity_blocks < 0:
        raise ValueError("capacity_blocks cannot be negative")


def usable_blocks(length: int, limit: int | None, block_size: int) -> int:
    """Whole blocks within a prompt of `length` tokens, of which at most `limit` may be reused."""
    return (length if limit is None else max(0, min(length, limit))) // block_size


def require(holds: bool, rule: str) -> None:
    if not holds:
        raise IntegrityError(f"broken rule: {rule}")

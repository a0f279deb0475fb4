"""Which prompt prefixes are held, who is using them, and what goes first when room runs out.

An index only keeps books. It hands out block ids; whoever owns the K/V tensors files them under those ids and drops the
ids an insertion or an eviction reports. Time is an argument, never read from a clock, so every run can be replayed.
"""

from __future__ import annotations

import heapq
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

DEFAULT_BLOCK_SIZE = 64

HashBlock = Callable[[bytes, Sequence[int]], bytes]
Pin = TypeVar("Pin")


class IntegrityError(AssertionError):
    """The index's books disagree with each other."""


@dataclass(frozen=True, slots=True)
class Match:
    """The cached part of a prompt: whole blocks only, root first."""

    tokens: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """A claim on a cached prefix. None of its blocks can be evicted until it is released or runs out."""

    id: int
    match: Match


@dataclass(frozen=True, slots=True)
class Insertion:
    """What an insert left in the index. Drop `evicted` first, then file the `new` blocks."""

    match: Match
    new: tuple[int, ...]
    evicted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Usage:
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
    `limit` caps the tokens that may be reused: pass `len(prompt) - 1` when the last position's logits are needed.
    """

    @property
    def block_size(self) -> int: ...

    @property
    def counters(self) -> Counters: ...

    def match(self, tokens: Sequence[int], *, now: float, salt: str = "", limit: int | None = None) -> Match: ...

    def lease(
        self,
        tokens: Sequence[int],
        *,
        now: float,
        salt: str = "",
        limit: int | None = None,
        ttl: float | None = None,
    ) -> Lease: ...

    def renew(self, lease: Lease, *, now: float, ttl: float | None) -> bool: ...

    def release(self, lease: Lease, *, now: float) -> bool: ...

    def insert(self, tokens: Sequence[int], *, now: float, salt: str = "") -> Insertion: ...

    def evict(self, blocks: int, *, now: float) -> tuple[int, ...]: ...

    def usage(self, *, now: float) -> Usage: ...

    def check_integrity(self) -> None: ...


def blocks_in_budget(budget_bytes: int, block_bytes: int) -> int:
    """How many whole blocks fit in a byte budget."""
    if budget_bytes < 0 or block_bytes <= 0:
        raise ValueError("a byte budget cannot be negative and a block must have a size")
    return budget_bytes // block_bytes


def root_key(salt: str) -> bytes:
    """The key every chain with this salt starts from."""
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=16, person=b"prefix-root").digest()


def chain_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    """A block's key, which commits to its own tokens and, through `parent`, to the salt and all earlier blocks."""
    return blake2b(parent + struct.pack(f"<{len(tokens)}q", *tokens), digest_size=16).digest()


def check_shape(block_size: int, capacity_blocks: int | None) -> None:
    if block_size < 1:
        raise ValueError("block_size must be at least 1")
    if capacity_blocks is not None and capacity_blocks < 0:
        raise ValueError("capacity_blocks cannot be negative")


def usable_blocks(length: int, limit: int | None, block_size: int) -> int:
    """Whole blocks within a prompt of `length` tokens, of which at most `limit` may be reused."""
    return (length if limit is None else max(0, min(length, limit))) // block_size


class LeaseBook(Generic[Pin]):
    """Open leases, what each one pins, and when each runs out. Also keeps time from running backwards."""

    def __init__(self) -> None:
        self.now = -math.inf
        self._ids = itertools.count(1)
        self._open: dict[int, tuple[Lease, Pin, float]] = {}
        self._deadlines: list[tuple[float, int]] = []

    def open(self, match: Match, pin: Pin, ttl: float | None) -> Lease:
        lease = Lease(next(self._ids), match)
        self._put(lease, pin, ttl)
        return lease

    def renew(self, lease: Lease, ttl: float | None) -> bool:
        held = self._open.get(lease.id)
        if held is None or held[0] is not lease:
            return False
        self._put(lease, held[1], ttl)
        return True

    def close(self, lease: Lease) -> Pin | None:
        held = self._open.get(lease.id)
        if held is None or held[0] is not lease:
            return None
        del self._open[lease.id]
        return held[1]

    def advance(self, now: float) -> list[Pin]:
        """Move to `now` and return the pins of leases that have run out."""
        if not now >= self.now:
            raise ValueError(f"time went backwards: {now} after {self.now}")
        self.now = now
        due: list[Pin] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, lease_id = heapq.heappop(self._deadlines)
            held = self._open.get(lease_id)
            if held is not None and held[2] == deadline:
                del self._open[lease_id]
                due.append(held[1])
        return due

    def pins(self) -> Iterator[tuple[Lease, Pin]]:
        return ((lease, pin) for lease, pin, _ in self._open.values())

    def _put(self, lease: Lease, pin: Pin, ttl: float | None) -> None:
        check_ttl(ttl)
        deadline = math.inf if ttl is None else self.now + ttl
        self._open[lease.id] = (lease, pin, deadline)
        if ttl is not None:
            heapq.heappush(self._deadlines, (deadline, lease.id))


def check_ttl(ttl: float | None) -> None:
    if ttl is not None and not ttl > 0:
        raise ValueError("ttl must be positive, or None for a lease that lasts until it is released")


@dataclass(slots=True, eq=False)
class _Block:
    id: int
    key: bytes
    salt: str
    tokens: tuple[int, ...]
    parent: _Block | None
    children: int = 0
    refs: int = 0
    tick: int = 0


@dataclass(slots=True)
class _Walk:
    """The blocks found along a prompt, and the key the next block would hang from."""

    key: bytes
    path: list[_Block] = field(default_factory=list)


class BlockPrefixIndex:
    """Blocks filed under chained keys: one dictionary lookup per block, and a token comparison to confirm it."""

    def __init__(
        self,
        block_size: int = DEFAULT_BLOCK_SIZE,
        capacity_blocks: int | None = None,
        *,
        hash_block: HashBlock = chain_key,
    ) -> None:
        check_shape(block_size, capacity_blocks)
        self._block_size = block_size
        self._capacity = capacity_blocks
        self._hash_block = hash_block
        self._counters = Counters()
        self._leases: LeaseBook[tuple[_Block, ...]] = LeaseBook()
        self._by_key: dict[bytes, _Block] = {}
        self._by_id: dict[int, _Block] = {}
        self._ids = itertools.count()
        self._tick = 0
        self._pinned = 0
        self._candidates: list[tuple[int, int]] = []  # (tick, block id); stale entries are skipped when popped

    @property
    def block_size(self) -> int:
        return self._block_size

    @property
    def counters(self) -> Counters:
        return self._counters

    def match(self, tokens: Sequence[int], *, now: float, salt: str = "", limit: int | None = None) -> Match:
        self._advance(now)
        match = self._as_match(self._visit(tokens, salt, limit).path)
        self._counters.record(len(tokens), match.tokens)
        return match

    def lease(
        self,
        tokens: Sequence[int],
        *,
        now: float,
        salt: str = "",
        limit: int | None = None,
        ttl: float | None = None,
    ) -> Lease:
        check_ttl(ttl)
        self._advance(now)
        path = self._visit(tokens, salt, limit).path
        for block in path:
            self._pinned += block.refs == 0
            block.refs += 1
        return self._leases.open(self._as_match(path), tuple(path), ttl)

    def renew(self, lease: Lease, *, now: float, ttl: float | None) -> bool:
        self._advance(now)
        return self._leases.renew(lease, ttl)

    def release(self, lease: Lease, *, now: float) -> bool:
        self._advance(now)
        path = self._leases.close(lease)
        if path is None:
            return False
        self._unpin(path)
        return True

    def insert(self, tokens: Sequence[int], *, now: float, salt: str = "") -> Insertion:
        self._advance(now)
        walk = self._visit(tokens, salt, None)
        size, path, key = self._block_size, walk.path, walk.key
        wanted = len(tokens) // size - len(path)
        evicted: tuple[int, ...] = ()
        if self._capacity is not None:
            # Blocks of this very path carry the current tick, so making room never eats the prefix being extended.
            evicted = self._evict(wanted - (self._capacity - len(self._by_id)), before=self._tick)
            wanted = min(wanted, self._capacity - len(self._by_id))
        new: list[int] = []
        for start in range(len(path) * size, (len(path) + wanted) * size, size):
            piece = tuple(tokens[start : start + size])
            key = self._hash_block(key, piece)
            if key in self._by_key:  # a different block already owns this key: leave it alone and stop here
                break
            parent = path[-1] if path else None
            block = _Block(next(self._ids), key, salt, piece, parent, tick=self._tick)
            if parent is not None:
                parent.children += 1
            self._by_key[key] = self._by_id[block.id] = block
            path.append(block)
            new.append(block.id)
        if new:
            self._offer(path[-1])
        self._counters.inserted += len(new) * size
        return Insertion(self._as_match(path), tuple(new), evicted)

    def evict(self, blocks: int, *, now: float) -> tuple[int, ...]:
        self._advance(now)
        return self._evict(blocks, before=self._tick + 1)

    def usage(self, *, now: float) -> Usage:
        self._advance(now)
        used = len(self._by_id)
        free = None if self._capacity is None else self._capacity - used
        return Usage(self._capacity, used, free, self._pinned)

    def check_integrity(self) -> None:
        refs = dict.fromkeys(self._by_id, 0)
        children = dict.fromkeys(self._by_id, 0)
        for lease, path in self._leases.pins():
            _require(lease.match == self._as_match(path), "a lease's blocks are the ones it reported")
            for block in path:
                _require(self._by_id.get(block.id) is block, "a leased block is held")
                refs[block.id] += 1
        waiting = set(self._candidates)
        for block in self._by_id.values():
            parent = block.parent
            _require(self._by_key.get(block.key) is block, "every block is filed under its key")
            _require(len(block.tokens) == self._block_size, "every block is full")
            above = root_key(block.salt) if parent is None else parent.key
            _require(self._hash_block(above, block.tokens) == block.key, "a key commits to all before it")
            if parent is not None:
                _require(self._by_id.get(parent.id) is parent, "a held block's parent is held")
                _require(parent.salt == block.salt, "a chain keeps its salt")
                _require(parent.tick >= block.tick and parent.refs >= block.refs, "a parent outlives its children")
                children[parent.id] += 1
        for block in self._by_id.values():
            _require(block.refs == refs[block.id], "reference counts equal open leases")
            _require(block.children == children[block.id], "child counts equal children")
            if not block.refs and not block.children:
                _require((block.tick, block.id) in waiting, "every idle leaf can be evicted")
        _require(len(self._by_key) == len(self._by_id), "one key per block")
        _require(self._pinned == sum(count > 0 for count in refs.values()), "pinned blocks are counted")
        _require(self._capacity is None or len(self._by_id) <= self._capacity, "the budget holds")
        stored = self._counters.inserted - self._counters.evicted
        _require(stored == len(self._by_id) * self._block_size, "inserted - evicted = held")

    def _advance(self, now: float) -> None:
        for path in self._leases.advance(now):
            self._unpin(path)

    def _visit(self, tokens: Sequence[int], salt: str, limit: int | None) -> _Walk:
        size = self._block_size
        walk = _Walk(root_key(salt))
        parent: _Block | None = None
        for index in range(usable_blocks(len(tokens), limit, size)):
            piece = tuple(tokens[index * size : (index + 1) * size])
            key = self._hash_block(walk.key, piece)
            block = self._by_key.get(key)
            if block is None or block.tokens != piece or block.parent is not parent or block.salt != salt:
                break
            walk.key, parent = key, block
            walk.path.append(block)
        self._tick += 1
        for block in walk.path:
            block.tick = self._tick
        if walk.path:
            self._offer(walk.path[-1])
        return walk

    def _unpin(self, path: Sequence[_Block]) -> None:
        for block in path:
            block.refs -= 1
            self._pinned -= block.refs == 0
        for block in path:
            self._offer(block)

    def _offer(self, block: _Block) -> None:
        if block.refs or block.children:
            return
        heapq.heappush(self._candidates, (block.tick, block.id))
        if len(self._candidates) > 2 * len(self._by_id) + 64:
            self._candidates = [(b.tick, b.id) for b in self._by_id.values() if not b.refs and not b.children]
            heapq.heapify(self._candidates)

    def _evict(self, count: int, *, before: int) -> tuple[int, ...]:
        gone: list[int] = []
        while len(gone) < count and self._candidates and self._candidates[0][0] < before:
            tick, block_id = heapq.heappop(self._candidates)
            block = self._by_id.get(block_id)
            if block is None or block.refs or block.children or block.tick != tick:
                continue
            del self._by_id[block_id], self._by_key[block.key]
            gone.append(block_id)
            if block.parent is not None:
                block.parent.children -= 1
                self._offer(block.parent)
        self._counters.evicted += len(gone) * self._block_size
        return tuple(gone)

    def _as_match(self, path: Sequence[_Block]) -> Match:
        return Match(len(path) * self._block_size, tuple(block.id for block in path))


class NoPrefixIndex:
    """The baseline without a cache: every query misses, nothing is kept."""

    def __init__(self, block_size: int = DEFAULT_BLOCK_SIZE) -> None:
        check_shape(block_size, 0)
        self._block_size = block_size
        self._counters = Counters()
        self._leases: LeaseBook[tuple[()]] = LeaseBook()

    @property
    def block_size(self) -> int:
        return self._block_size

    @property
    def counters(self) -> Counters:
        return self._counters

    def match(self, tokens: Sequence[int], *, now: float, salt: str = "", limit: int | None = None) -> Match:
        self._leases.advance(now)
        self._counters.record(len(tokens), 0)
        return Match(0, ())

    def lease(
        self,
        tokens: Sequence[int],
        *,
        now: float,
        salt: str = "",
        limit: int | None = None,
        ttl: float | None = None,
    ) -> Lease:
        check_ttl(ttl)
        self._leases.advance(now)
        return self._leases.open(Match(0, ()), (), ttl)

    def renew(self, lease: Lease, *, now: float, ttl: float | None) -> bool:
        self._leases.advance(now)
        return self._leases.renew(lease, ttl)

    def release(self, lease: Lease, *, now: float) -> bool:
        self._leases.advance(now)
        return self._leases.close(lease) is not None

    def insert(self, tokens: Sequence[int], *, now: float, salt: str = "") -> Insertion:
        self._leases.advance(now)
        return Insertion(Match(0, ()), (), ())

    def evict(self, blocks: int, *, now: float) -> tuple[int, ...]:
        self._leases.advance(now)
        return ()

    def usage(self, *, now: float) -> Usage:
        self._leases.advance(now)
        return Usage(0, 0, 0, 0)

    def check_integrity(self) -> None:
        _require(self._counters.hits == 0, "nothing is ever hit")


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise IntegrityError(f"broken rule: {rule}")

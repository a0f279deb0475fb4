"""Blocks filed under chained keys: who holds them, who is using them, and what goes first when room runs out."""

from __future__ import annotations

import heapq
import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from simulator.leases import LeaseBook, check_ttl
from simulator.prefix_index import (
    DEFAULT_BLOCK_SIZE,
    Counters,
    Insertion,
    Lease,
    Match,
    Occupancy,
    check_shape,
    require,
    usable_blocks,
)

HashBlock = Callable[[bytes, Sequence[int]], bytes]


def root_key(salt: str) -> bytes:
    """The key every chain with this salt starts from."""
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=16, person=b"prefix-root").digest()


def chain_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    """A block's key, which commits to its own tokens and, through `parent`, to the salt and all earlier blocks."""
    return blake2b(parent + struct.pack(f"<{len(tokens)}q", *tokens), digest_size=16).digest()


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

    def peek(self, tokens: Sequence[int], *, salt: str = "") -> Match:
        return self._as_match(self._walk(tokens, salt, None).path)

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

    def holds(self, lease: Lease) -> bool:
        """True until the lease was released or was seen to have run out."""
        return self._leases.holds(lease)

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

    def occupancy(self, *, now: float) -> Occupancy:
        self._advance(now)
        used = len(self._by_id)
        free = None if self._capacity is None else self._capacity - used
        return Occupancy(self._capacity, used, free, self._pinned)

    def check_integrity(self) -> None:
        refs = dict.fromkeys(self._by_id, 0)
        children = dict.fromkeys(self._by_id, 0)
        for lease, path in self._leases.pins():
            require(lease.match == self._as_match(path), "a lease's blocks are the ones it reported")
            for block in path:
                require(self._by_id.get(block.id) is block, "a leased block is held")
                refs[block.id] += 1
        waiting = set(self._candidates)
        for block in self._by_id.values():
            parent = block.parent
            require(self._by_key.get(block.key) is block, "every block is filed under its key")
            require(len(block.tokens) == self._block_size, "every block is full")
            above = root_key(block.salt) if parent is None else parent.key
            require(self._hash_block(above, block.tokens) == block.key, "a key commits to all before it")
            if parent is not None:
                require(self._by_id.get(parent.id) is parent, "a held block's parent is held")
                require(parent.salt == block.salt, "a chain keeps its salt")
                require(parent.tick >= block.tick and parent.refs >= block.refs, "a parent outlives its children")
                children[parent.id] += 1
        for block in self._by_id.values():
            require(block.refs == refs[block.id], "reference counts equal open leases")
            require(block.children == children[block.id], "child counts equal children")
            if not block.refs and not block.children:
                require((block.tick, block.id) in waiting, "every idle leaf can be evicted")
        require(len(self._by_key) == len(self._by_id), "one key per block")
        require(self._pinned == sum(count > 0 for count in refs.values()), "pinned blocks are counted")
        require(self._capacity is None or len(self._by_id) <= self._capacity, "the budget holds")
        stored = self._counters.inserted - self._counters.evicted
        require(stored == len(self._by_id) * self._block_size, "inserted - evicted = held")

    def _advance(self, now: float) -> None:
        for path in self._leases.advance(now):
            self._unpin(path)

    def _walk(self, tokens: Sequence[int], salt: str, limit: int | None) -> _Walk:
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
        return walk

    def _visit(self, tokens: Sequence[int], salt: str, limit: int | None) -> _Walk:
        """Like `_walk`, and what was found counts as just used."""
        walk = self._walk(tokens, salt, limit)
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

"""A radix tree over the same blocks: the twin that keeps the block-hash index honest.

It holds no hashes at all. Edges are runs of whole blocks, compared token by token, and victims are found by looking at
every leaf. Slower and simpler, it must give the same ids, hits and evictions for any sequence of calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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

Piece = tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Node:
    parent: _Node | None
    pieces: list[Piece] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    children: dict[Piece, _Node] = field(default_factory=dict)
    refs: int = 0
    tick: int = 0


class RadixPrefixIndex:
    """Shared runs of blocks as tree edges. Hits align down to `block_size` because edges split only there."""

    def __init__(self, block_size: int = DEFAULT_BLOCK_SIZE, capacity_blocks: int | None = None) -> None:
        check_shape(block_size, capacity_blocks)
        self._block_size = block_size
        self._capacity = capacity_blocks
        self._counters = Counters()
        self._leases: LeaseBook[_Node] = LeaseBook()
        self._roots: dict[str, _Node] = {}
        self._ids = itertools.count()
        self._tick = 0
        self._used = 0

    @property
    def block_size(self) -> int:
        return self._block_size

    @property
    def counters(self) -> Counters:
        return self._counters

    def match(self, tokens: Sequence[int], *, now: float, salt: str = "", limit: int | None = None) -> Match:
        self._advance(now)
        match = self._as_match(self._visit(tokens, salt, limit))
        self._counters.record(len(tokens), match.tokens)
        return match

    def peek(self, tokens: Sequence[int], *, salt: str = "") -> Match:
        node, blocks = self._roots.get(salt) or _Node(None), list[int]()
        for piece in (pieces := iter(self._pieces(tokens, None))):
            child = node.children.get(piece)
            if child is None:
                break
            blocks.append(child.ids[0])
            for held, block in zip(child.pieces[1:], child.ids[1:], strict=True):
                if next(pieces, None) != held:
                    return Match(len(blocks) * self._block_size, tuple(blocks))
                blocks.append(block)
            node = child
        return Match(len(blocks) * self._block_size, tuple(blocks))

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
        end = self._visit(tokens, salt, limit)
        for node in _upwards(end):
            node.refs += 1
        return self._leases.open(self._as_match(end), end, ttl)

    def holds(self, lease: Lease) -> bool:
        """True until the lease was released or was seen to have run out."""
        return self._leases.holds(lease)

    def renew(self, lease: Lease, *, now: float, ttl: float | None) -> bool:
        self._advance(now)
        return self._leases.renew(lease, ttl)

    def release(self, lease: Lease, *, now: float) -> bool:
        self._advance(now)
        end = self._leases.close(lease)
        if end is None:
            return False
        _unpin(end)
        return True

    def insert(self, tokens: Sequence[int], *, now: float, salt: str = "") -> Insertion:
        self._advance(now)
        end = self._visit(tokens, salt, None)
        held = len(self._as_match(end).blocks)
        rest = self._pieces(tokens, None)[held:]
        evicted: tuple[int, ...] = ()
        if self._capacity is not None:
            evicted = self._evict(len(rest) - (self._capacity - self._used), before=self._tick)
            rest = rest[: self._capacity - self._used]
        new = [next(self._ids) for _ in rest]
        if rest:
            if end.parent is None:
                self._roots[salt] = end
            child = _Node(end, rest, new, tick=self._tick)
            end.children[rest[0]] = end = child
            self._used += len(rest)
            self._counters.inserted += len(rest) * self._block_size
        return Insertion(self._as_match(end), tuple(new), evicted)

    def evict(self, blocks: int, *, now: float) -> tuple[int, ...]:
        self._advance(now)
        return self._evict(blocks, before=self._tick + 1)

    def occupancy(self, *, now: float) -> Occupancy:
        self._advance(now)
        pinned = sum(len(node.ids) for node in self._nodes() if node.refs)
        free = None if self._capacity is None else self._capacity - self._used
        return Occupancy(self._capacity, self._used, free, pinned)

    def check_integrity(self) -> None:
        refs: dict[int, int] = {}
        for lease, end in self._leases.pins():
            require(self._as_match(end) == lease.match, "a lease still ends where it ended")
            for node in _upwards(end):
                refs[id(node)] = refs.get(id(node), 0) + 1
        ids: list[int] = []
        for node in self._nodes():
            require(bool(node.ids) and len(node.ids) == len(node.pieces), "edges are not empty")
            require(all(len(piece) == self._block_size for piece in node.pieces), "every block is full")
            parent = node.parent
            require(parent is not None and parent.children.get(node.pieces[0]) is node, "edges hang from their parent")
            require(node.refs == refs.get(id(node), 0), "reference counts equal open leases")
            if parent is not None and parent.parent is not None:
                require(parent.tick >= node.tick and parent.refs >= node.refs, "a parent outlives its children")
            ids += node.ids
        require(len(ids) == len(set(ids)) == self._used, "used blocks are counted once")
        require(self._capacity is None or self._used <= self._capacity, "the budget holds")
        stored = self._counters.inserted - self._counters.evicted
        require(stored == self._used * self._block_size, "inserted - evicted = held")

    def _advance(self, now: float) -> None:
        for end in self._leases.advance(now):
            _unpin(end)

    def _pieces(self, tokens: Sequence[int], limit: int | None) -> list[Piece]:
        size = self._block_size
        count = usable_blocks(len(tokens), limit, size)
        return [tuple(tokens[index * size : (index + 1) * size]) for index in range(count)]

    def _visit(self, tokens: Sequence[int], salt: str, limit: int | None) -> _Node:
        """The node where the longest held prefix ends, split off if it ends inside an edge; the path is refreshed."""
        self._tick += 1
        node = self._roots.get(salt) or _Node(None)
        pieces = self._pieces(tokens, limit)
        at = 0
        while at < len(pieces) and (child := node.children.get(pieces[at])) is not None:
            pairs = zip(child.pieces, pieces[at:], strict=False)
            shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            node = child if shared == len(child.pieces) else _split(child, shared)
            node.tick = self._tick
            at += shared
            if node is not child:
                break
        return node

    def _evict(self, count: int, *, before: int) -> tuple[int, ...]:
        gone: list[int] = []
        while len(gone) < count:
            idle = [node for node in self._nodes() if not node.children and not node.refs and node.tick < before]
            if not idle:
                break
            leaf = min(idle, key=lambda node: node.tick)
            keep = max(0, len(leaf.ids) - (count - len(gone)))
            gone += reversed(leaf.ids[keep:])
            if not keep and leaf.parent is not None:
                del leaf.parent.children[leaf.pieces[0]]
            del leaf.ids[keep:], leaf.pieces[keep:]
        self._used -= len(gone)
        self._counters.evicted += len(gone) * self._block_size
        return tuple(gone)

    def _nodes(self) -> Iterator[_Node]:
        waiting = [child for root in self._roots.values() for child in root.children.values()]
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield node

    def _as_match(self, end: _Node) -> Match:
        runs = [node.ids for node in _upwards(end)]
        blocks = tuple(itertools.chain.from_iterable(reversed(runs)))
        return Match(len(blocks) * self._block_size, blocks)


def _upwards(node: _Node) -> Iterator[_Node]:
    """From `node` up to, but not including, the root."""
    while node.parent is not None:
        yield node
        node = node.parent


def _unpin(end: _Node) -> None:
    for node in _upwards(end):
        node.refs -= 1


def _split(lower: _Node, at: int) -> _Node:
    """Cut an edge. The new node is the upper half, so a lease that ends at `lower` still ends there."""
    upper = _Node(lower.parent, lower.pieces[:at], lower.ids[:at], refs=lower.refs, tick=lower.tick)
    del lower.pieces[:at], lower.ids[:at]
    upper.children[lower.pieces[0]] = lower
    if lower.parent is not None:
        lower.parent.children[upper.pieces[0]] = upper
    lower.parent = upper
    return upper

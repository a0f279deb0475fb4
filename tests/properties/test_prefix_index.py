"""Both indexes under arbitrary call sequences, against each other and against plain lists."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from simulator.block_index import BlockPrefixIndex, chain_key
from simulator.prefix_index import Lease
from simulator.radix_index import RadixPrefixIndex

prompts = st.lists(st.integers(0, 1), max_size=14)
salts = st.sampled_from(["", "tenant"])
limits = st.none() | st.integers(0, 14)


def shared(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def longest_held(stored: list[list[int]], prompt: list[int], size: int) -> int:
    return max((shared(old[: len(old) // size * size], prompt) for old in stored), default=0)


@given(st.lists(st.tuples(prompts, salts), max_size=12), prompts, salts, st.integers(1, 5), limits)
def test_an_unbounded_hit_is_the_longest_common_prefix_aligned_down(stored, prompt, salt, size, limit) -> None:
    for index in (BlockPrefixIndex(size), RadixPrefixIndex(size)):
        for tokens, at in stored:
            index.insert(tokens, now=0, salt=at)
        usable = prompt if limit is None else prompt[:limit]
        best = longest_held([tokens for tokens, at in stored if at == salt], usable, size)
        assert index.match(prompt, now=0, salt=salt, limit=limit).tokens == best // size * size
        index.check_integrity()


@given(st.lists(prompts, max_size=8), prompts, st.integers(0, 6))
def test_a_weak_hash_never_invents_a_hit(stored, prompt, bits) -> None:
    index = BlockPrefixIndex(2, hash_block=lambda key, tokens: bytes([chain_key(key, tokens)[0] & ((1 << bits) - 1)]))
    for tokens in stored:
        index.insert(tokens, now=0)
        index.check_integrity()
    assert index.match(prompt, now=0).tokens <= longest_held(stored, prompt, 2)


class Twins(RuleBasedStateMachine):
    leases = Bundle("leases")

    @initialize(size=st.integers(1, 3), capacity=st.none() | st.integers(0, 10))
    def build(self, size: int, capacity: int | None) -> None:
        self.size, self.capacity, self.now = size, capacity, 0.0
        self.block, self.radix = BlockPrefixIndex(size, capacity), RadixPrefixIndex(size, capacity)
        self.held: dict[int, tuple[tuple[int, ...], str]] = {}
        self.open: dict[int, tuple[Lease, float]] = {}

    def contents(self, ids: tuple[int, ...]) -> list[int]:
        return [token for block in ids for token in self.held[block][0]]

    def drop(self, ids: tuple[int, ...]) -> None:
        leased = {block for lease, _ in self.open.values() for block in lease.match.blocks}
        assert not leased & set(ids), "a leased block was evicted"
        for block in ids:
            del self.held[block]

    @rule(tokens=prompts, salt=salts)
    def insert(self, tokens: list[int], salt: str) -> None:
        done = self.block.insert(tokens, now=self.now, salt=salt)
        assert done == self.radix.insert(tokens, now=self.now, salt=salt)
        self.drop(done.evicted)
        start = done.match.tokens - len(done.new) * self.size
        for position, block in enumerate(done.new):
            at = start + position * self.size
            self.held[block] = (tuple(tokens[at : at + self.size]), salt)
        assert self.contents(done.match.blocks) == tokens[: done.match.tokens]
        if self.capacity is None:
            assert done.match.tokens == len(tokens) // self.size * self.size

    @rule(tokens=prompts, salt=salts, limit=limits)
    def match(self, tokens: list[int], salt: str, limit: int | None) -> None:
        seen = self.block.peek(tokens, salt=salt)
        assert seen == self.radix.peek(tokens, salt=salt)
        queries, hits = self.block.counters.queries, self.block.counters.hits
        match = self.block.match(tokens, now=self.now, salt=salt, limit=limit)
        assert match == self.radix.match(tokens, now=self.now, salt=salt, limit=limit)
        assert match.blocks == seen.blocks[: len(match.blocks)]
        assert limit is not None or match == seen
        assert self.contents(match.blocks) == tokens[: match.tokens]
        assert all(self.held[block][1] == salt for block in match.blocks)
        assert self.block.counters.queries == queries + len(tokens)
        assert self.block.counters.hits == hits + match.tokens

    @rule(target=leases, tokens=prompts, salt=salts, ttl=st.none() | st.integers(1, 5))
    def lease(self, tokens: list[int], salt: str, ttl: int | None) -> tuple[Lease, Lease]:
        pair = tuple(index.lease(tokens, now=self.now, salt=salt, ttl=ttl) for index in (self.block, self.radix))
        assert pair[0].match == pair[1].match
        self.open[pair[0].id] = (pair[0], float("inf") if ttl is None else self.now + ttl)
        return pair

    @rule(pair=leases, ttl=st.none() | st.integers(1, 5))
    def renew(self, pair: tuple[Lease, Lease], ttl: int | None) -> None:
        alive = pair[0].id in self.open
        assert self.block.holds(pair[0]) is alive
        assert self.radix.holds(pair[1]) is alive
        assert self.block.renew(pair[0], now=self.now, ttl=ttl) is alive
        assert self.radix.renew(pair[1], now=self.now, ttl=ttl) is alive
        if alive:
            self.open[pair[0].id] = (pair[0], float("inf") if ttl is None else self.now + ttl)

    @rule(pair=consumes(leases))
    def release(self, pair: tuple[Lease, Lease]) -> None:
        alive = self.open.pop(pair[0].id, None) is not None
        assert self.block.release(pair[0], now=self.now) is alive
        assert self.radix.release(pair[1], now=self.now) is alive

    @rule(blocks=st.integers(0, 6))
    def evict(self, blocks: int) -> None:
        evictable = self.block.occupancy(now=self.now).evictable
        gone = self.block.evict(blocks, now=self.now)
        assert gone == self.radix.evict(blocks, now=self.now)
        assert len(gone) == min(blocks, evictable)
        self.drop(gone)

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.open = {key: held for key, held in self.open.items() if held[1] >= self.now}

    @invariant()
    def books_balance(self) -> None:
        room = self.block.occupancy(now=self.now)
        assert room == self.radix.occupancy(now=self.now)
        assert room.used == len(self.held)
        assert room.pinned == len({block for lease, _ in self.open.values() for block in lease.match.blocks})
        assert room.total == self.capacity
        if room.total is not None and room.free is not None:
            assert room.free >= 0
            assert room.free + room.used == room.total
        assert self.block.counters == self.radix.counters
        self.block.check_integrity()
        self.radix.check_integrity()


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

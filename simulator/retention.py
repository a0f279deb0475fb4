"""How long cached prefixes stay: every kept block lives until a lease on it runs out, or until room is needed."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.prefix_index import Lease, PrefixIndex

GRACE_S = 0.001
"""Added to every lifetime, so that rounding of large timestamps never takes a block before its time."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep a prompt's first `tokens` tokens for `ttl_s` seconds after the request's start."""

    tokens: int
    ttl_s: float


class Retention:
    """Time leases on the prefixes of an index. A block that no lease covers is dropped at the next `expire`.

    A request renews the blocks it used for the lifetime they were stored with, and gives new ones the lifetime it
    asks for. Where room is short, the longest unused lease ends first.
    """

    def __init__(self, index: PrefixIndex) -> None:
        self._index = index
        self._lifetimes: dict[int, float] = {}
        self._leases: deque[Lease] = deque()

    def expire(self, now: float) -> tuple[int, ...]:
        """Evicts all that no lease covers any more. -> ids of dropped blocks"""
        idle = self._index.occupancy(now=now).evictable
        gone = self._index.evict(idle, now=now) if idle else ()
        self.forget(gone)
        return gone

    def forget(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._lifetimes.pop(block, None)

    def make_room(self, blocks: int, now: float) -> None:
        """Ends leases, longest unused first, until `blocks` more fit or no lease is left."""
        while self._leases:
            room = self._index.occupancy(now=now)
            if room.free is None or room.free + room.evictable >= blocks:
                return
            self._index.release(self._leases.popleft(), now=now)

    def renew(self, tokens: Sequence[int], blocks: Sequence[int], keep: Sequence[Keep], salt: str, now: float) -> None:
        """Leases the path `blocks` of a prompt, each block for the longest of its own and the asked lifetime."""
        size = self._index.block_size
        reach: dict[float, int] = {}  # lifetime -> end of the prefix that it covers
        for position, block in enumerate(blocks, 1):
            asked = [k.ttl_s for k in keep if k.tokens >= position * size]
            held = self._lifetimes.get(block)
            lifetimes = asked if held is None else [*asked, held]
            if lifetimes:
                self._lifetimes[block] = longest = max(lifetimes)
                reach[longest] = position * size
        for ttl, end in reach.items():
            lease = self._index.lease(tokens[:end], now=now, salt=salt, ttl=ttl + GRACE_S)
            self._leases.append(lease)
        while self._leases and not self._index.holds(self._leases[0]):
            self._leases.popleft()

"""The baseline without a cache, behind the interface of the others."""

from __future__ import annotations

from collections.abc import Sequence

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
)


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

    def peek(self, tokens: Sequence[int], *, salt: str = "") -> Match:
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

    def holds(self, lease: Lease) -> bool:
        """True until the lease was released or was seen to have run out."""
        return self._leases.holds(lease)

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

    def occupancy(self, *, now: float) -> Occupancy:
        self._leases.advance(now)
        return Occupancy(0, 0, 0, 0)

    def check_integrity(self) -> None:
        require(self._counters.hits == 0, "nothing is ever hit")

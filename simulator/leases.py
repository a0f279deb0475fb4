"""Claims on cached prefixes that hold until they are released or their time is over."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from typing import Generic, TypeVar

from simulator.prefix_index import Lease, Match

Pin = TypeVar("Pin")


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

    def holds(self, lease: Lease) -> bool:
        held = self._open.get(lease.id)
        return held is not None and held[0] is lease

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
        while self._deadlines and self._deadlines[0][0] < now:
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

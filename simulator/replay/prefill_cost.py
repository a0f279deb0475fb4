"""How long a prefill takes, learnt from the pieces that were measured.

A piece of one block costs a constant for its own matrices and a share for the positions it looks back on, so its time
is linear in where it starts; a prompt's time is the sum of its pieces.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from simulator.engine import ChunkTime


@dataclass(slots=True)
class PrefillCost:
    """Least squares over whole pieces: seconds = base + slope * start. Shorter pieces are not learnt from."""

    block_size: int
    _count: int = 0
    _start: float = 0.0
    _seconds: float = 0.0
    _start_start: float = 0.0
    _start_seconds: float = 0.0
    _short: list[ChunkTime] = field(default_factory=list)

    def learn(self, chunks: Iterable[ChunkTime]) -> None:
        for chunk in chunks:
            if chunk.tokens < self.block_size:
                self._short.append(chunk)
                continue
            self._count += 1
            self._start += chunk.start
            self._seconds += chunk.seconds
            self._start_start += chunk.start * chunk.start
            self._start_seconds += chunk.start * chunk.seconds

    def seconds(self, tokens: int) -> float:
        """Modelled time of a prompt of `tokens` from nothing; a shorter last piece counts by its share."""
        base, slope = self._line()
        whole, rest = divmod(tokens, self.block_size)
        starts = self.block_size * whole * (whole - 1) / 2
        last = (base + slope * whole * self.block_size) * rest / self.block_size
        return base * whole + slope * starts + last

    def _line(self) -> tuple[float, float]:
        if not self._count:
            tokens = sum(chunk.tokens for chunk in self._short)
            seconds = sum(chunk.seconds for chunk in self._short)
            return (seconds / tokens * self.block_size if tokens else 0.0), 0.0
        spread = self._count * self._start_start - self._start**2
        slope = (self._count * self._start_seconds - self._start * self._seconds) / spread if spread > 0 else 0.0
        slope = max(0.0, slope)
        return (self._seconds - slope * self._start) / self._count, slope

"""The contract between the halves: what a request asked a prefix cache for, and what it was billed.

Standard library only. Writing and reading traces as files lives in `simulator.trace_files`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import is_not
from typing import Literal

Ttl = Literal["5m", "1h"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request by billing class. `input_tokens` excludes everything read from or written to the cache."""

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_5m_tokens: int = 0
    cache_creation_1h_tokens: int = 0
    output_tokens: int = 0

    @property
    def cache_creation_tokens(self) -> int:
        return self.cache_creation_5m_tokens + self.cache_creation_1h_tokens

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + self.cache_read_tokens + self.cache_creation_tokens


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of prompt tokens with one identity. Two prompts share a prefix exactly as far as their keys agree.

    `positions` counts the API content blocks that the segment stands for (the look-back is counted in them);
    `breakpoint` marks a cache breakpoint at the segment's end, with the TTL it asks for.
    """

    key: str
    tokens: int
    positions: int = 1
    breakpoint: Ttl | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One API call. Times are seconds on one clock; `parent` is the id of the request whose prompt this one extends."""

    id: str
    chain: str
    parent: str | None
    model: str
    scope: str
    salt: str
    started_at_s: float
    response_began_at_s: float
    segments: tuple[Segment, ...]
    output_tokens: int
    logged: Usage | None = None


Trace = Sequence[Request]


def shared_segments(one: tuple[Segment, ...], other: tuple[Segment, ...]) -> int:
    """How many leading segments of two prompts are equal. Segments that are the same objects take next to no time."""
    for i in compress(count(), map(is_not, one, other)):
        if one[i] != other[i]:
            return i
    return min(len(one), len(other))

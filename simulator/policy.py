"""Prefix-cache accounting in the way of Anthropic's prompt caching: what each request reads, writes and pays in full.

Rule sources, on https://platform.claude.com/docs/en/build-with-claude/prompt-caching:

* entries exist only where a request set a breakpoint; at most 4 of them; a read looks back 20 positions per
  breakpoint, itself included ("How automatic prefix checking works");
* lifetime of 5 minutes or 1 hour from the start of the request that wrote or last read the entry; longer lifetimes
  come first in a prompt; the A/B/C split of the bill ("Mixing different TTLs");
* a minimum length per model, below which nothing is cached and nothing refused; an entry serves others once its
  writer's response has begun ("Cache limitations");
* what does not share a model, an organisation and, since 2026-02-05, a workspace (`Request.scope`) shares nothing
  ("Cache storage and sharing"). A setting that breaks the whole prefix, as speed and effort can, is in `Request.salt`;
  one that breaks it from some point on changes the keys from there ("What invalidates the cache").

The documentation is silent on four points, decided here:

* An entry whose age equals its lifetime is alive (the documented lifetime is a minimum).
* A hit refreshes the entry it reads and every live entry inside it, since their content is read too.
* A hit keeps an entry's lifetime: asking for 1h on a live 5m entry bills no write and so buys no longer life.
* A breakpoint at or below the hit that has no entry gets one at no charge, living no longer than the entry read.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from simulator.trace import Request, Segment, Trace, Ttl, Usage, shared_segments

IsolationField = Literal["model", "scope", "salt"]

TTL_SECONDS: Final[Mapping[Ttl, float]] = {"5m": 300.0, "1h": 3600.0}

MIN_CACHEABLE_TOKENS: Final[Mapping[str, int]] = {
    "claude-fable-5": 512,
    "claude-mythos-5": 512,
    "claude-mythos-preview": 2048,
    "claude-opus-5": 512,
    "claude-opus-4-8": 1024,
    "claude-opus-4-7": 2048,
    "claude-opus-4-6": 4096,
    "claude-opus-4-5": 4096,
    "claude-opus-4": 1024,
    "claude-sonnet-5-5": 512,
    "claude-sonnet-5": 1024,
    "claude-sonnet-4": 1024,
    "claude-haiku-5-5": 512,
    "claude-haiku-4-5": 4096,
    "claude-3-5-haiku": 2048,
    "claude-3-haiku": 2048,
    "claude-3": 1024,
}
"""Shortest cacheable prompt by model family; the longest name contained in a model id decides.

Source: "Cache limitations" of the page named above. Platforms differ: https://github.com/BerriAI/litellm-docs/pull/49
measured between 2,038 and 2,067 tokens for claude-sonnet-4-6 on Bedrock. Pass another table to `Policy` there.
"""


@dataclass(frozen=True, slots=True)
class Policy:
    """The cache's rules. `ttl` overrides what breakpoints ask for; `isolation` names what requests must share."""

    min_cacheable_tokens: Mapping[str, int] = field(default_factory=lambda: MIN_CACHEABLE_TOKENS, hash=False)
    default_min_cacheable_tokens: int = 1024
    look_back: int = 20
    max_breakpoints: int = 4
    enabled: bool = True
    ttl: Ttl | None = None
    isolation: frozenset[IsolationField] = frozenset({"model", "scope", "salt"})

    def __post_init__(self) -> None:
        if self.look_back < 1:
            raise ValueError(f"look_back must be at least 1 (the breakpoint itself), not {self.look_back}")
        if self.max_breakpoints < 0:
            raise ValueError(f"max_breakpoints must not be negative, not {self.max_breakpoints}")

    def min_tokens(self, model: str) -> int:
        """Shortest prefix that `model` caches; provider prefixes, date suffixes and dots in the id do not matter."""
        dashed = model.replace(".", "-")
        names = [name for name in self.min_cacheable_tokens if name in dashed]
        return self.min_cacheable_tokens[max(names, key=len)] if names else self.default_min_cacheable_tokens


@dataclass(slots=True)
class _Entry:
    """A cached prefix: touched and available at times in seconds, living for `ttl` after `touched`."""

    touched: float
    available: float
    ttl: Ttl

    def alive(self, now: float) -> bool:
        return now - self.touched <= TTL_SECONDS[self.ttl]


class _Prompt(NamedTuple):
    """A prompt up to the end of each segment: identity of the cumulative content, and size in tokens and positions.

    `marks` are the indices of the segments that end with a breakpoint.
    """

    segments: tuple[Segment, ...]
    nodes: list[int]
    tokens: list[int]
    positions: list[int]
    marks: list[int]


class _Cache:
    """State of one simulation. Prefixes are interned as nodes of a trie, so equal nodes mean equal content."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._roots: dict[tuple[str | None, ...], int] = {}
        self._nodes: dict[tuple[int, str], int] = {}
        self._entries: dict[int, _Entry] = {}
        self._minimum: dict[str, int] = {}
        self._last: dict[tuple[str, int], _Prompt] = {}

    def serve(self, request: Request) -> Usage:
        """Bill one request and update the cache. Requests come in order of their start."""
        prompt = self._prompt(request)
        ttls = [self._policy.ttl or prompt.segments[i].breakpoint or "5m" for i in prompt.marks]
        self._check(request, ttls)
        total = prompt.tokens[-1] if prompt.tokens else 0
        if request.model not in self._minimum:
            self._minimum[request.model] = self._policy.min_tokens(request.model)
        minimum = self._minimum[request.model]
        marks = {i: ttl for i, ttl in zip(prompt.marks, ttls, strict=True) if prompt.tokens[i] >= minimum}
        hit = self._highest_hit(prompt, marks, request.started_at_s)
        read = 0 if hit is None else prompt.tokens[hit]
        one_hour = max((prompt.tokens[i] for i, ttl in marks.items() if ttl == "1h"), default=0)
        one_hour = max(read, one_hour)
        last = max(one_hour, prompt.tokens[max(marks)] if marks else 0)
        self._store(request, prompt, marks, hit)
        return Usage(
            input_tokens=total - last,
            cache_read_tokens=read,
            cache_creation_5m_tokens=last - one_hour,
            cache_creation_1h_tokens=one_hour - read,
            output_tokens=request.output_tokens,
        )

    def _prompt(self, request: Request) -> _Prompt:
        """What the chain's previous prompt has in common with this one is copied, so that long chains stay cheap."""
        honoured = self._policy.isolation
        group = (
            request.model if "model" in honoured else None,
            request.scope if "scope" in honoured else None,
            request.salt if "salt" in honoured else None,
        )
        root = self._roots.setdefault(group, -1 - len(self._roots))
        segments = request.segments
        nodes: list[int] = []
        tokens: list[int] = []
        positions: list[int] = []
        marks: list[int] = []
        if before := self._last.get((request.chain, root)):
            shared = shared_segments(before.segments, segments)
            nodes, tokens, positions = before.nodes[:shared], before.tokens[:shared], before.positions[:shared]
            marks = [i for i in before.marks if i < shared]
        node = nodes[-1] if nodes else root
        size, position = (tokens[-1], positions[-1]) if nodes else (0, 0)
        for i in range(len(nodes), len(segments)):
            segment = segments[i]
            node = self._nodes.setdefault((node, segment.key), len(self._nodes))
            size += segment.tokens
            position += segment.positions
            nodes.append(node)
            tokens.append(size)
            positions.append(position)
            if segment.breakpoint is not None:
                marks.append(i)
        prompt = _Prompt(segments, nodes, tokens, positions, marks)
        self._last[request.chain, root] = prompt
        return prompt

    def _check(self, request: Request, ttls: Sequence[Ttl]) -> None:
        """Raise ValueError where the API would refuse: too many breakpoints, or a 5m one before a 1h one."""
        most = self._policy.max_breakpoints
        if len(ttls) > most:
            raise ValueError(f"request {request.id}: {len(ttls)} breakpoints, at most {most} are allowed")
        if "5m" in ttls and "1h" in ttls[ttls.index("5m") :]:
            raise ValueError(f"request {request.id}: a 1h breakpoint follows a 5m one; longer TTLs must come first")

    def _highest_hit(self, prompt: _Prompt, marks: Iterable[int], now: float) -> int | None:
        """Index of the longest readable prefix: an entry within the look-back of some breakpoint."""
        for mark in sorted(marks, reverse=True):
            lowest = bisect_left(prompt.positions, prompt.positions[mark] - self._policy.look_back + 1)
            for i in range(mark, lowest - 1, -1):
                entry = self._entries.get(prompt.nodes[i])
                if entry is not None and entry.available <= now and entry.alive(now):
                    return i
        return None

    def _store(self, request: Request, prompt: _Prompt, marks: Mapping[int, Ttl], hit: int | None) -> None:
        """Refresh what the hit read, then leave an entry at every breakpoint that counts."""
        now = request.started_at_s
        available = max(now, request.response_began_at_s)
        read_ttl: Ttl | None = None
        if hit is not None:
            read_ttl = self._entries[prompt.nodes[hit]].ttl
            for held in filter(None, map(self._entries.get, prompt.nodes[: hit + 1])):
                if now - held.touched <= TTL_SECONDS[held.ttl]:
                    held.touched = now
        for i, asked in marks.items():
            within_hit = hit is not None and i <= hit
            ttl: Ttl = "5m" if within_hit and read_ttl == "5m" else asked
            entry = self._entries.get(prompt.nodes[i])
            if entry is None or not entry.alive(now):
                self._entries[prompt.nodes[i]] = _Entry(now, available, ttl)
            elif not within_hit:  # written by a request whose response has not begun: both writers pay
                entry.touched = now
                entry.available = min(entry.available, available)
                entry.ttl = "1h" if "1h" in (entry.ttl, ttl) else "5m"


def simulate(trace: Trace, policy: Policy) -> list[Usage]:
    """What each request of `trace` would be billed under `policy`, in the trace's order.

    Requests are served by start time (equal starts: in the trace's order). With caching disabled, every prompt token
    is input and breakpoints are not checked. Raises ValueError for a request that the API would refuse.
    """
    if not policy.enabled:
        return [Usage(sum(s.tokens for s in r.segments), output_tokens=r.output_tokens) for r in trace]
    cache = _Cache(policy)
    order: Iterable[int] = sorted(range(len(trace)), key=lambda i: trace[i].started_at_s)
    billed = {i: cache.serve(trace[i]) for i in order}
    return [billed[i] for i in range(len(trace))]

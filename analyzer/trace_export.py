"""Logged requests -> a trace that a prefix-cache policy can replay.

A prompt becomes segments that end where the log shows a cached position. Content that the next request kept has the
same keys; a prefix that was lost for another reason than time or model has changed keys from that position on.
Keys are numbers and hashes: no name, path or text of the log stands in a trace.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2s
from itertools import pairwise

import duckdb

from analyzer.errors import UsageError
from analyzer.queries import Scope
from analyzer.queries.history import LOST_TOKENS, Chain, LoggedRequest, chains, is_loss
from simulator.trace import Request, Segment, Ttl, Usage

FLOOR_BREAKPOINTS = 2
TTL_S: dict[Ttl, int] = {"5m": 300, "1h": 3600}


@dataclass(slots=True)
class _Content:
    """What a chain's next request can build on: segments up to the last cached position, `tokens` in all."""

    segments: list[Segment]
    tokens: int

    def kept(self, tokens: int) -> "_Content":
        """The part within the first `tokens`; a segment that is cut keeps its key only as a whole."""
        total = count = 0
        for segment in self.segments:
            if total + segment.tokens > tokens:
                break
            total += segment.tokens
            count += 1
        return _Content(self.segments[:count], total)


@dataclass(frozen=True, slots=True)
class Exported:
    """One request of the trace with the logged one behind it, and its place in its chain."""

    request: Request
    logged: LoggedRequest
    previous: LoggedRequest | None


def export_trace(connection: duckdb.DuckDBPyConnection, scope: Scope, session_id: str | None = None) -> list[Request]:
    """The requests that `scope` shows, in order of their start; of one session (an id or its beginning) if given.

    Raises UsageError where no session, or more than one, has that id.
    """
    trace = build_trace(chains(connection, scope))
    shown = {row[0] for row in connection.execute("SELECT request_key FROM shown").fetchall()}
    picked = [item for item in trace if item.logged.key in shown]
    if session_id is not None:
        sessions = {item.logged.known.session_id for item in picked}
        matching = sorted(name for name in sessions if name.startswith(session_id))
        if session_id in sessions:
            matching = [session_id]
        if len(matching) != 1:
            what = "no session" if not matching else f"{len(matching)} sessions"
            raise UsageError(f"{what} in scope begin with {session_id!r}", "list them with `ccache analyze --json`")
        picked = [item for item in picked if item.logged.known.session_id == matching[0]]
    kept = {item.request.id for item in picked}
    return [item.request if item.request.parent in kept else replace(item.request, parent=None) for item in picked]


def build_trace(history: Sequence[Chain]) -> list[Exported]:
    """Every native request of `history`, in order of its start, and never before its parent."""
    builder = _Builder(history)
    ordered = sorted(history, key=lambda chain: (chain[0].known.agent_id is not None, chain[0].known.started_at_s))
    exported = [item for chain in ordered for item in builder.chain(chain)]
    return sorted(exported, key=lambda item: (item.request.started_at_s, item.request.chain))


def lost_for_another_reason(previous: LoggedRequest, current: LoggedRequest, ttl: Ttl) -> bool:
    """Whether tokens were lost (the 2,000 and 5 % rule) though neither age nor another model explains it."""
    if current.known.boundary or current.known.prompt_tokens < previous.readable_tokens:
        return True
    if not is_loss(previous.readable_tokens, current.usage.cache_read_tokens):
        return False
    expired = current.known.started_at_s - previous.known.started_at_s > TTL_S[ttl]
    return not expired and current.known.model == previous.known.model and _salt(current) == _salt(previous)


class _Builder:
    def __init__(self, history: Sequence[Chain]) -> None:
        self._content: dict[str, _Content] = {}
        self._position: dict[tuple[str, str, int], _Content] = {}
        self._number = 0
        reads: dict[tuple[str, str, str], Counter[int]] = {}
        for chain in history:
            read = chain[0].usage.cache_read_tokens
            if read:
                reads.setdefault(_kind(chain[0]), Counter())[read] += 1
        self._static = {kind: found.most_common(1)[0][0] for kind, found in reads.items()}

    def chain(self, chain: Chain) -> list[Exported]:
        wrote = any(row.usage.cache_creation_tokens for row in chain)
        cuts = sorted(
            {
                row.usage.cache_read_tokens
                for previous, row in pairwise(chain)
                if row.usage.cache_read_tokens < previous.readable_tokens
            }
        )
        floors = [
            tokens
            for tokens, _ in Counter(
                row.usage.cache_read_tokens
                for previous, row in pairwise(chain)
                if 0 < row.usage.cache_read_tokens < previous.readable_tokens - LOST_TOKENS
            ).most_common(FLOOR_BREAKPOINTS)
        ]
        ttl: Ttl = "1h" if chain[0].usage.cache_creation_1h_tokens else "5m"
        content = _Content([], 0)
        previous: LoggedRequest | None = None
        found: list[Exported] = []
        at = answered = chain[0].known.started_at_s
        for row in chain:
            usage = row.usage
            # a clock that was set back: a request follows the answer before it
            at = answered if row.known.started_at_s < at else row.known.started_at_s
            answered = max(at, row.response_began_at_s)
            if previous is None:
                content = self._first(row)
            elif lost_for_another_reason(previous, row, ttl):
                content = content.kept(min(usage.cache_read_tokens, row.readable_tokens))
            elif content.tokens > row.readable_tokens:
                content = content.kept(row.readable_tokens)
            if usage.cache_creation_1h_tokens:
                ttl = "1h"
            elif usage.cache_creation_5m_tokens:
                ttl = "5m"
            if not row.native and row.key in self._content:
                content = self._content[row.key]
            else:
                content = self._grown(content, row.readable_tokens, cuts)
            self._content[row.key] = content
            self._position.setdefault((row.known.session_id, row.known.model, content.tokens), content)
            if row.native:
                segments = _marked(content.segments, floors, usage, ttl) if wrote else list(content.segments)
                if usage.input_tokens:
                    self._number += 1
                    segments.append(Segment(f"u{self._number}", usage.input_tokens))
                found.append(Exported(_request(row, previous, at, tuple(segments)), row, previous))
            previous = row
        return found

    def _first(self, row: LoggedRequest) -> _Content:
        """What a chain starts from: the prompt of a parent or sibling whose size it read, else the shared start."""
        read = row.usage.cache_read_tokens
        if row.known.agent_id is not None and read:
            shared = self._position.get((row.known.session_id, row.known.model, read))
            if shared is not None:
                return shared
        static = read or self._static.get(_kind(row), 0)
        if not 0 < static <= row.readable_tokens:
            return _Content([], 0)
        return _Content([Segment(_hashed("static", *_kind(row), str(static)), static)], static)

    def _grown(self, content: _Content, tokens: int, cuts: Sequence[int]) -> _Content:
        """`content` with new segments up to `tokens`, ending at each cut on the way."""
        segments, total = list(content.segments), content.tokens
        for end in (*(cut for cut in cuts if total < cut < tokens), tokens):
            if end > total:
                self._number += 1
                segments.append(Segment(f"c{self._number}", end - total))
                total = end
        return _Content(segments, total)


def _marked(segments: Sequence[Segment], floors: Sequence[int], usage: Usage, ttl: Ttl) -> list[Segment]:
    """Breakpoints at the chain's floors and at the end; where one request wrote both TTLs, also between the two."""
    marks: dict[int, Ttl] = dict.fromkeys(floors, ttl)
    total = sum(segment.tokens for segment in segments)
    mixed = total - usage.cache_creation_5m_tokens if usage.cache_creation_1h_tokens else 0
    if mixed and usage.cache_creation_5m_tokens:
        marks = dict.fromkeys((*(end for end in marks if end < mixed), mixed), "1h")
        ttl = "5m"
    marked: list[Segment] = []
    end = 0
    for segment in segments:
        start, end = end, end + segment.tokens
        if start < mixed < end and mixed in marks:
            marked.append(Segment(f"{segment.key}a", mixed - start, 1, "1h"))
            segment = Segment(f"{segment.key}b", end - mixed)
        mark = ttl if end == total else marks.get(end)
        marked.append(replace(segment, breakpoint=mark) if mark else segment)
    return marked


def _request(row: LoggedRequest, previous: LoggedRequest | None, at: float, segments: tuple[Segment, ...]) -> Request:
    return Request(
        id=row.key,
        chain=row.chain,
        parent=previous.key if previous is not None and previous.native else None,
        model=row.known.model,
        scope=_hashed(row.known.project),
        salt=_salt(row),
        started_at_s=at,
        response_began_at_s=max(row.response_began_at_s, at),
        segments=segments,
        output_tokens=row.usage.output_tokens,
        logged=row.usage,
    )


def _salt(row: LoggedRequest) -> str:
    return row.known.speed or "standard"


def _kind(row: LoggedRequest) -> tuple[str, str, str]:
    known = row.known
    return known.project, known.model, known.agent_type


def _hashed(*parts: str) -> str:
    return blake2s("\0".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()

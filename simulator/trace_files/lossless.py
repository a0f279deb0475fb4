"""The project's own trace format: JSON lines that keep everything a `Request` holds.

The first line is `{"format": "ccache-trace", "version": 1}`; every other line is one request. A prompt that grows is
not repeated: `shared_segments` counts the leading segments equal to those of the request before it in the same chain.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from simulator.trace import Request, Segment, Trace, Ttl, Usage, shared_segments
from simulator.trace_files import writable
from simulator.trace_files.lines import Count, Line, Seconds, Tokens

FORMAT: Final = "ccache-trace"
VERSION: Final = 1


class _Header(msgspec.Struct):
    format: str
    version: int


class _Segment(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    key: str
    tokens: Tokens
    positions: Count = 1
    breakpoint: Ttl | None = None


class _Usage(msgspec.Struct, forbid_unknown_fields=True):
    input_tokens: Tokens
    cache_read_tokens: Tokens
    cache_creation_5m_tokens: Tokens
    cache_creation_1h_tokens: Tokens
    output_tokens: Tokens


class _Row(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    id: str
    chain: str
    model: str
    started_at_s: Seconds
    response_began_at_s: Seconds
    segments: list[_Segment]
    output_tokens: Tokens
    parent: str | None = None
    scope: str = ""
    salt: str = ""
    shared_segments: Count = 0
    logged: _Usage | None = None


def decode(lines: Iterable[Line]) -> Iterator[Request]:
    """Requests of a file whose first line is the header. Raises TraceError."""
    rows = iter(lines)
    for first in rows:
        header = first.decode(msgspec.json.Decoder(_Header))
        if header.format != FORMAT:
            raise first.error(f"the format is {header.format!r:.40}, not {FORMAT!r}", "choose a trace file")
        if header.version != VERSION:
            raise first.error(f"trace version {header.version}, but this program reads {VERSION}", "update ccache")
        break
    decoder = msgspec.json.Decoder(_Row)
    interned: dict[_Segment, Segment] = {}
    last_prompt: dict[str, tuple[Segment, ...]] = {}
    known: set[str] = set()
    for line in rows:
        row = line.decode(decoder)
        if row.id in known:
            raise line.error(f"request id {row.id!r:.80} occurs twice", "delete one of the two lines")
        if row.parent is not None and row.parent not in known:
            raise line.error(f"unknown parent {row.parent!r:.80}", "put the parent before it, or set `parent` to null")
        known.add(row.id)
        before = last_prompt.get(row.chain, ())
        if row.shared_segments > len(before):
            raise line.error(
                f"`shared_segments` is {row.shared_segments}, but the request before it in its chain has {len(before)}",
                "keep the lines of a chain together and in order",
            )
        segments = before[: row.shared_segments] + tuple(
            interned.get(s) or interned.setdefault(s, Segment(s.key, s.tokens, s.positions, s.breakpoint))
            for s in row.segments
        )
        last_prompt[row.chain] = segments
        logged = None if row.logged is None else Usage(**msgspec.structs.asdict(row.logged))
        yield Request(
            row.id, row.chain, row.parent, row.model, row.scope, row.salt, row.started_at_s, row.response_began_at_s,
            segments, row.output_tokens, logged,
        )  # fmt: skip


def encode(trace: Trace) -> Iterator[bytes]:
    """The lines of a trace. Raises TraceError for a trace that `decode` would refuse."""
    yield msgspec.json.encode(_Header(FORMAT, VERSION)) + b"\n"
    last_prompt: dict[str, tuple[Segment, ...]] = {}
    known: set[str] = set()
    for request in trace:
        if request.id in known:
            raise writable.refused(request, "its id occurs twice")
        if request.parent is not None and request.parent not in known:
            raise writable.refused(request, f"its parent {request.parent!r:.80} does not come before it")
        known.add(request.id)
        shared = shared_segments(last_prompt.get(request.chain, ()), request.segments)
        last_prompt[request.chain] = request.segments
        writable.check(request, request.segments[shared:])
        usage = request.logged
        row = _Row(
            request.id, request.chain, request.model, request.started_at_s, request.response_began_at_s,
            [_Segment(s.key, s.tokens, s.positions, s.breakpoint) for s in request.segments[shared:]],
            request.output_tokens, request.parent, request.scope, request.salt, shared,
            None if usage is None else _Usage(
                usage.input_tokens, usage.cache_read_tokens, usage.cache_creation_5m_tokens,
                usage.cache_creation_1h_tokens, usage.output_tokens,
            ),
        )  # fmt: skip
        yield writable.encode(request, row)

"""The project's own trace format: JSON lines that keep everything a `Request` holds.

The first line is `{"format": "ccache-trace", "version": 1}`; every other line is one request. A prompt that grows is
not repeated: `shared_segments` counts the leading segments equal to those of the request before it in the same chain.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import msgspec

from simulator.errors import TraceError
from simulator.trace import Request, Segment, Trace, Ttl, Usage, shared_segments
from simulator.trace_files.lines import Line, Seconds, Tokens

FORMAT: Final = "ccache-trace"
VERSION: Final = 1
Count = Annotated[int, msgspec.Meta(ge=0, le=10**6)]


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
    encoder = msgspec.json.Encoder()
    yield encoder.encode(_Header(FORMAT, VERSION)) + b"\n"
    last_prompt: dict[str, tuple[Segment, ...]] = {}
    known: set[str] = set()
    for request in trace:
        shared = shared_segments(last_prompt.get(request.chain, ()), request.segments)
        last_prompt[request.chain] = request.segments
        own = request.segments[shared:]
        _check(request, own, known)
        known.add(request.id)
        usage = request.logged
        row = _Row(
            request.id, request.chain, request.model, request.started_at_s, request.response_began_at_s,
            [_Segment(s.key, s.tokens, s.positions, s.breakpoint) for s in own], request.output_tokens,
            request.parent, request.scope, request.salt, shared,
            None if usage is None else _Usage(
                usage.input_tokens, usage.cache_read_tokens, usage.cache_creation_5m_tokens,
                usage.cache_creation_1h_tokens, usage.output_tokens,
            ),
        )  # fmt: skip
        try:
            yield encoder.encode(row) + b"\n"
        except UnicodeEncodeError:
            raise _refused(request, "a name in it is not valid Unicode") from None


def _check(request: Request, segments: tuple[Segment, ...], known: set[str]) -> None:
    if request.id in known:
        raise _refused(request, "its id occurs twice")
    if request.parent is not None and request.parent not in known:
        raise _refused(request, f"its parent {request.parent!r:.80} does not come before it")
    if not (math.isfinite(request.started_at_s) and math.isfinite(request.response_began_at_s)):
        raise _refused(request, "its time is not a number")
    if request.output_tokens < 0 or any(s.tokens < 0 or s.positions < 0 for s in segments):
        raise _refused(request, "it has a negative count")


def _refused(request: Request, why: str) -> TraceError:
    return TraceError(f"request {request.id!r:.80} cannot be written: {why}", "correct the trace before writing it")

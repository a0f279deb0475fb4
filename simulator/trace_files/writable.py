"""What a request must be like so that the file it is written to can be read back."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from simulator.errors import TraceError
from simulator.trace import Request, Segment, Usage
from simulator.trace_files.lines import MAX_COUNT, MAX_SECONDS, MAX_TOKENS

_ENCODER: Final = msgspec.json.Encoder()


def check(request: Request, segments: Sequence[Segment]) -> None:
    """Raise TraceError for counts and times outside of what the readers accept. `segments`: those to be written."""
    for name, at in (("start", request.started_at_s), ("response", request.response_began_at_s)):
        if not abs(at) <= MAX_SECONDS:
            raise refused(request, f"the time of its {name} is {at}")
    if len(request.segments) > MAX_COUNT:
        raise refused(request, f"it has more than {MAX_COUNT:,} segments")
    counts = [request.output_tokens, *(segment.tokens for segment in segments)]
    counts.append(sum(counts[1:]))
    if (used := request.logged) is not None:
        counts += [getattr(used, name) for name in Usage.__slots__]
    if not all(0 <= count <= MAX_TOKENS for count in counts):
        raise refused(request, f"a count of tokens is negative or above {MAX_TOKENS:,}")
    if not all(0 <= segment.positions <= MAX_COUNT for segment in segments):
        raise refused(request, f"a count of positions is negative or above {MAX_COUNT:,}")


def encode(request: Request, row: Any) -> bytes:
    """One line of JSON. Raises TraceError for names that UTF-8 cannot hold."""
    try:
        return _ENCODER.encode(row) + b"\n"
    except UnicodeEncodeError:
        raise refused(request, "a name in it is not valid Unicode") from None


def refused(request: Request, why: str) -> TraceError:
    return TraceError(f"request {request.id!r:.80} cannot be written: {why}", "correct the trace before writing it")

"""Read a transcript from its beginning, or from where an earlier reading stopped.

The offset of a reading never passes the last complete newline. A last line without newline counts as it stands: as
data where it is a JSON object, as a broken line where it is not. When the file has grown it is read again and replaces
itself.
"""

from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from typing import BinaryIO

import msgspec

from analyzer.transcript.parser import LostThread, ParsedFile, State
from analyzer.transcript.records import decode, decode_lines
from analyzer.transcript.rows import Agent, Sighting

CHUNK_BYTES = 2 << 20
HASHED_BYTES = 4096


class Continuation(msgspec.Struct):
    """Where a reading stopped, how to recognize the same file, and the parser's state there."""

    offset: int
    head: str
    """Hash of the first 4 KiB; "" where the file had less: then `tail` covers all of it."""
    tail: str
    parser: State
    before_last: Sighting | None = None
    """The row that the last line, which had no newline, changed: as it was before."""


def read_transcript(
    file_id: int,
    path: str,
    mtime_ns: int,
    now: datetime,
    earlier: tuple[Continuation, list[Sighting], list[Agent]] | None = None,
) -> tuple[ParsedFile, Continuation | None, int, bool]:
    """The parsed file, where to go on next time, the bytes read, and whether it was continued. Raises OSError."""
    with open(path, "rb") as stream:
        hashed = 0
        if earlier is not None:
            kept, sightings, agents = earlier
            same, hashed = _is_same(stream, kept)
            if same:
                parsed = ParsedFile(file_id, path, mtime_ns, now, kept.parser)
                parsed.resume(_without_last_line(kept, sightings), agents)
                try:
                    continuation, read = _read(stream, parsed, kept.offset, kept.head)
                    return parsed, continuation, read + hashed, True
                except LostThread:
                    pass
        parsed = ParsedFile(file_id, path, mtime_ns, now)
        continuation, read = _read(stream, parsed, 0, "")
        return parsed, continuation, read + hashed, False


def _read(stream: BinaryIO, parsed: ParsedFile, offset: int, head: str) -> tuple[Continuation | None, int]:
    stream.seek(offset)
    before = offset
    last, tail = b"", b""
    for chunk, complete in _chunks(stream):
        if not complete:
            last = chunk
            break
        if offset == 0:
            head = _hash(chunk[:HASHED_BYTES])
        offset += len(chunk)
        tail = (tail + chunk[-HASHED_BYTES:])[-HASHED_BYTES:]
        records = decode_lines(chunk)
        if records is not None:
            for record in records:
                parsed.state.lines += 1
                parsed.take(record)
        else:
            for line in chunk[:-1].split(b"\n"):
                _take_line(parsed, line)
    state = parsed.snapshot()
    continuation = None
    if state is not None:
        stream.seek(max(0, offset - HASHED_BYTES))
        tail = tail if len(tail) == min(HASHED_BYTES, offset) else stream.read(min(HASHED_BYTES, offset))
        if offset < HASHED_BYTES:
            head = ""
        elif not head:
            stream.seek(0)
            head = _hash(stream.read(HASHED_BYTES))
        continuation = Continuation(offset, head, _hash(tail), state)
    if last.strip():
        rows = {key: msgspec.structs.replace(row) for key, row in parsed.sightings.items()}
        parsed.changing = None
        _take_line(parsed, last)
        if continuation is not None and parsed.changing is not None:
            continuation.before_last = rows.get(parsed.changing)
    parsed.finish()
    return continuation, offset - before + len(last)


def _take_line(parsed: ParsedFile, line: bytes) -> None:
    stripped = line.strip(b" \t\r\n")
    if parsed.state.lines == 0:
        stripped = stripped.removeprefix(b"\xef\xbb\xbf")
    parsed.state.lines += 1
    if not stripped:
        return
    record, invalid = decode(stripped)
    parsed.state.invalid_fields += invalid
    if record is None:
        parsed.state.broken_lines += 1
    else:
        parsed.take(record)


def _chunks(stream: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Whole lines, newline included, a few megabytes at a time; last, what follows the last newline."""
    pieces: list[bytes] = []
    while chunk := stream.read(CHUNK_BYTES):
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            pieces.append(chunk)
            continue
        if pieces:
            pieces.append(chunk[:cut])
            yield b"".join(pieces), True
        else:
            yield chunk[:cut], True
        pieces = [chunk[cut:]] if cut < len(chunk) else []
    if pieces:
        yield b"".join(pieces), False


def _is_same(stream: BinaryIO, kept: Continuation) -> tuple[bool, int]:
    """Whether the file still begins and goes on as it did up to the offset, and how many bytes that took."""
    head = stream.read(HASHED_BYTES) if kept.head else b""
    if kept.head and _hash(head) != kept.head:
        return False, len(head)
    stream.seek(max(0, kept.offset - HASHED_BYTES))
    tail = stream.read(min(HASHED_BYTES, kept.offset))
    return _hash(tail) == kept.tail, len(head) + len(tail)


def _without_last_line(kept: Continuation, sightings: list[Sighting]) -> list[Sighting]:
    """The rows as they were before a last line without newline."""
    rows = [row for row in sightings if row.ordinal <= kept.parser.lines]
    if kept.before_last is None:
        return rows
    same = (kept.before_last.rank, kept.before_last.ordinal)
    return [kept.before_last if (row.rank, row.ordinal) == same else row for row in rows]


def _hash(part: bytes) -> str:
    return blake2b(part, digest_size=16).hexdigest()

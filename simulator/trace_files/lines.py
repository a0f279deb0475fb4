"""Lines of plain and gzipped files in and out, with errors that say where."""

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from simulator.errors import TraceError

MAX_LINE_BYTES: Final = 1 << 28
"""256 MiB: a prompt of a million one-token blocks takes a thirtieth of it; more is not a trace."""

MAX_TOKENS: Final = 10**9
MAX_COUNT: Final = 10**6
"""Segments of a prompt, and positions of a segment."""
MAX_SECONDS: Final = 1e12

Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Seconds = Annotated[float, msgspec.Meta(ge=-MAX_SECONDS, le=MAX_SECONDS)]
Row = TypeVar("Row")


class Line(NamedTuple):
    """One line that is not blank, its number counted from 1, and the file it came from."""

    path: Path
    number: int
    data: bytes

    def error(self, message: str, hint: str) -> TraceError:
        return TraceError(f"{self.path}, line {self.number}: {message}", hint)

    def decode(self, decoder: "msgspec.json.Decoder[Row]") -> Row:
        """The line as a typed row. Raises TraceError that names the field at fault."""
        try:
            return decoder.decode(self.data)
        except msgspec.ValidationError as error:
            raise self.error(str(error).replace("`$.", "`"), "correct the line or delete it") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            cut = "the line is cut short" if not self.data.endswith(b"\n") else "this is not JSON"
            raise self.error(cut, "delete the line to use the rest, or export the trace again") from None


def read_lines(path: Path) -> Iterator[Line]:
    """Lines of a file, decompressed where it starts as gzip does. Raises TraceError where it cannot be read."""
    try:
        with path.open("rb") as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            stream: BufferedReader | gzip.GzipFile = gzip.open(raw) if packed else raw  # noqa: SIM115 - closed with `raw`
            number = 0
            while data := stream.readline(MAX_LINE_BYTES):
                number += 1
                if number == 1:
                    data = data.removeprefix(b"\xef\xbb\xbf")
                if len(data) == MAX_LINE_BYTES and not data.endswith(b"\n"):
                    raise TraceError(f"{path}, line {number}: longer than {MAX_LINE_BYTES >> 20} MiB", "not a trace")
                if not data.isspace():
                    yield Line(path, number, data)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise TraceError(f"{path}: the gzip data is damaged or cut short", "copy or download it again") from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}", "check the path and its permissions") from None


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write the lines, each with its line end, beside `path` and then move them there; pipes are written directly."""
    path = path.resolve()
    in_place = path.exists() and not path.is_file()
    target = path if in_place else path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with target.open("wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                    packed.writelines(lines)
            else:
                raw.writelines(lines)
        if not in_place:
            os.replace(target, path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}", "choose a folder you can write to") from None
    finally:
        if not in_place:
            target.unlink(missing_ok=True)

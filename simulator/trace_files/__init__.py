"""Traces as files: this project's lossless JSON lines, Mooncake JSON lines and WEKA JSON, gzipped or not.

`read_trace` tells the formats apart by their first line. Every fault of a file is one `TraceError` that names the
file, the line and what to do.
"""

from collections.abc import Iterable, Iterator
from itertools import chain as concatenate
from pathlib import Path
from typing import Literal

import msgspec

from simulator.errors import TraceError
from simulator.trace import Request, Trace
from simulator.trace_files import lossless, mooncake, weka
from simulator.trace_files.lines import Line, read_lines, write_lines

TraceFormat = Literal["ccache", "mooncake", "weka"]


def iter_trace(path: Path | str, block_tokens: int | None = None) -> Iterator[Request]:
    """The requests of one trace file in file order, read as they are asked for.

    `block_tokens` is the block size of Mooncake rows that do not state one (512 where it is not given).
    Raises TraceError.
    """
    path = Path(path)
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        raise TraceError(f"{path}: the file holds no requests", "export the trace again")
    found = _format(first)
    whole = concatenate([first], lines)
    if found == "ccache":
        return lossless.decode(whole)
    if found == "mooncake":
        return mooncake.decode(whole, block_tokens or mooncake.BLOCK_TOKENS)
    return weka.decode(path, b"".join(line.data for line in whole))


def read_trace(path: Path | str, block_tokens: int | None = None) -> list[Request]:
    """All requests of a trace file, or of all .json and .jsonl files (also .gz) of a folder merged by start time.

    Requests that start together stay in the order of their files' names and lines. Raises TraceError.
    """
    path = Path(path)
    if not path.is_dir():
        return list(iter_trace(path, block_tokens))
    names = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(names))
    if not files:
        raise TraceError(f"{path}: no trace files in this folder", "name a .jsonl or .json trace, or a folder of them")
    owner: dict[str, Path] = {}
    merged: list[Request] = []
    for file in files:
        for request in iter_trace(file, block_tokens):
            if owner.setdefault(request.id, file) != file:
                raise TraceError(
                    f"{file}: request id {request.id!r} is also in {owner[request.id].name}",
                    "replay the two files one at a time",
                )
            merged.append(request)
    return sorted(merged, key=lambda request: request.started_at_s)


def write_trace(
    path: Path | str,
    trace: Trace,
    trace_format: TraceFormat = "ccache",
    *,
    block_tokens: int | None = None,
    extra_fields: Iterable[mooncake.ExtraField] = (),
) -> None:
    """Write `trace` so that `read_trace` and, in the other two formats, other engines can replay it.

    Mooncake and WEKA files keep arrival times, lengths and shared prefixes in blocks of `block_tokens` (512 and 64
    where it is not given), WEKA files also models, chains and the times at which responses began; breakpoints, TTLs and
    usage are lost. A path that ends in `.gz` is compressed. The file appears once it is complete.
    Raises TraceError, also for a trace that could not be read back.
    """
    if trace_format == "mooncake":
        size = mooncake.BLOCK_TOKENS if block_tokens is None else block_tokens
        write_lines(Path(path), mooncake.encode(trace, size, frozenset(extra_fields)))
    elif trace_format == "weka":
        write_lines(Path(path), weka.encode(trace, weka.BLOCK_TOKENS if block_tokens is None else block_tokens))
    else:
        write_lines(Path(path), lossless.encode(trace))


def _format(first: Line) -> TraceFormat:
    try:
        fields = msgspec.json.decode(first.data, type=dict[str, msgspec.Raw])
    except RecursionError:
        raise first.error("nested too deep", "trace files are JSON lines or one JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        if first.data.lstrip().startswith(b"{") and first.number == 1 and not first.data.rstrip().endswith(b"}"):
            return "weka"  # an object over several lines, which WEKA files are allowed to be
        raise first.error("this is not a JSON object", "trace files are JSON lines or one JSON object") from None
    if "format" in fields:
        return "ccache"
    if "requests" in fields:
        return "weka"
    if "hash_ids" in fields or "input_length" in fields:
        return "mooncake"
    raise first.error(
        "neither a trace header, a Mooncake row nor a WEKA session", "write the trace with `ccache export --trace FILE`"
    )

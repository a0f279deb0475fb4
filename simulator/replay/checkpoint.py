"""A replay's progress in a file: one header line, then one line per finished request, so that a killed run goes on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from simulator.engine import ChunkTime
from simulator.errors import UsageError
from simulator.replay.results import ReplayedRequest

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished request and the timed pieces that the model of uncached times learns from."""

    row: ReplayedRequest
    chunks: tuple[ChunkTime, ...]


class _Header(msgspec.Struct):
    replay_checkpoint: int
    fingerprint: str


class Checkpoint:
    """Opens `path` for appending. `finished` are the requests of an earlier run of the very same replay.

    Raises UsageError where the file belongs to another replay or is no such file. A last line that was cut off by a
    kill is dropped.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path = path
        try:
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            complete = [line for line in lines if line.endswith(b"\n")]
            if lines and not complete:
                raise UsageError(f"{path} is not a replay's checkpoint", "name another file, or delete this one")
            self.finished: Sequence[Finished] = self._read(complete, fingerprint) if complete else ()
            self._file: BinaryIO = path.open("r+b" if complete else "wb")
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"cannot keep progress in {path}: {reason}", "name a file that can be written") from None
        if complete:
            self._file.truncate(sum(map(len, complete)))
            self._file.seek(0, 2)
        else:
            self._write(_Header(_VERSION, fingerprint))

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, finished: Finished) -> None:
        self._write(finished)

    def _write(self, record: object) -> None:
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()

    def _read(self, lines: Sequence[bytes], fingerprint: str) -> tuple[Finished, ...]:
        try:
            header = msgspec.json.decode(lines[0], type=_Header)
        except msgspec.DecodeError:
            header = None
        if header is None or header.replay_checkpoint != _VERSION:
            raise UsageError(f"{self._path} is not a replay's checkpoint", "name another file, or delete this one")
        if header.fingerprint != fingerprint:
            raise UsageError(
                f"{self._path} belongs to another replay (trace, policy, scale, capacity, model or --verify differ)",
                "name another file, or repeat the command that wrote it",
            )
        finished = []
        for number, line in enumerate(lines[1:], 2):
            try:
                finished.append(msgspec.json.decode(line, type=Finished))
            except msgspec.DecodeError as error:
                raise UsageError(f"{self._path}: line {number} is damaged: {error}", "delete the file") from None
        return tuple(finished)

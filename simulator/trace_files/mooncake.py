"""Mooncake trace rows: `timestamp` (ms), `input_length`, `output_length` and chained block hashes `hash_ids`.

Source of the format: https://github.com/kvcache-ai/Mooncake, FAST25-release/traces. An id stands for the prompt up to
and including its block of 512 tokens, the same in every request; the last block of a prompt may be partial.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal

import msgspec

from simulator.errors import TraceError
from simulator.trace import Request, Segment, Trace
from simulator.trace_files import writable
from simulator.trace_files.lines import Line, Tokens

BLOCK_TOKENS: Final = 512
ExtraField = Literal["block_size", "session_id"]
HashId = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Row(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
    input_length: Tokens
    output_length: Tokens
    hash_ids: list[HashId]
    block_size: Annotated[int, msgspec.Meta(ge=1, le=10**6)] | None = None
    session_id: str | int | None = None


class Blocks(dict[int, Segment]):
    """Segments by block id, made when first asked for, so that equal blocks are one object.

    Their `positions` is 0: a hash trace does not say where content blocks begin, so no look-back limit can be counted.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def __missing__(self, block: int) -> Segment:
        self[block] = segment = Segment(str(block), self.tokens, 0)
        return segment

    def prompt(self, ids: list[int], input_tokens: int, request_id: str) -> tuple[Segment, ...] | None:
        """The prompt's segments, or None where its length does not fit its ids.

        The ids may cover the prompt's last, partial block or leave it out; then the rest is a segment of its own.
        """
        rest = input_tokens - self.tokens * (len(ids) - 1)
        if 0 < rest < self.tokens and ids:
            return (*map(self.__getitem__, ids[:-1]), Segment(str(ids[-1]), rest, 0))
        rest -= self.tokens
        if not 0 <= rest < self.tokens:
            return None
        whole = tuple(map(self.__getitem__, ids))
        return (*whole, Segment(f"{request_id} rest", rest, 0)) if rest else whole


def decode(lines: Iterable[Line], block_tokens: int) -> Iterator[Request]:
    """Requests of Mooncake rows; a row without `session_id` is a chain of its own. Raises TraceError."""
    decoder = msgspec.json.Decoder(_Row)
    blocks: dict[int, Blocks] = {}
    previous: dict[str, str] = {}
    for line in lines:
        row = line.decode(decoder)
        size = row.block_size or block_tokens
        request_id = f"line {line.number}"
        segments = blocks.setdefault(size, Blocks(size)).prompt(row.hash_ids, row.input_length, request_id)
        if segments is None:
            raise line.error(
                f"{len(row.hash_ids)} blocks of {size} tokens do not make a prompt of {row.input_length} tokens",
                "give the block size of the trace, or correct the line",
            )
        chain = request_id if row.session_id is None else str(row.session_id)
        started = row.timestamp / 1000
        yield Request(request_id, chain, previous.get(chain), "", "", "", started, started, segments, row.output_length)
        previous[chain] = request_id


def encode(trace: Trace, block_tokens: int, extra_fields: frozenset[ExtraField]) -> Iterator[bytes]:
    """Rows in order of arrival, times counted from the first arrival and rounded to the millisecond.

    Two prompts share a block id exactly if model, scope, salt and everything up to the block's end agree. The ids
    cover the last, partial block. Raises TraceError.
    """
    if block_tokens < 1:
        raise TraceError(f"a block of {block_tokens} tokens", "choose at least 1 token a block")
    ids = BlockIds(block_tokens)
    arrivals = sorted(trace, key=lambda request: request.started_at_s)
    for request in arrivals:
        writable.check(request, request.segments)
        prompt_tokens = sum(segment.tokens for segment in request.segments)
        row: dict[str, Any] = {
            "timestamp": round((request.started_at_s - arrivals[0].started_at_s) * 1000),
            "input_length": prompt_tokens,
            "output_length": request.output_tokens,
            "hash_ids": list(ids.of(request)),
        }
        if "block_size" in extra_fields:
            row["block_size"] = block_tokens
        if "session_id" in extra_fields:
            row["session_id"] = request.chain
        yield writable.encode(request, row)


class BlockIds:
    """Dense ids of prompt positions, in order of first use. A position is a path of segments and an offset in it."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._paths: dict[tuple[object, ...], int] = {}
        self._blocks: dict[tuple[int, int], int] = {}

    def of(self, request: Request, partial: bool = True) -> Iterator[int]:
        """The ids of a prompt's blocks, of the last, partial one only if asked for."""
        path = self._paths.setdefault((request.model, request.scope, request.salt), len(self._paths))
        begin = 0
        boundary = self._block_tokens
        for segment in request.segments:
            path = self._paths.setdefault((path, segment.key, segment.tokens), len(self._paths))
            end = begin + segment.tokens
            while boundary <= end:
                yield self._blocks.setdefault((path, boundary - begin), len(self._blocks))
                boundary += self._block_tokens
            begin = end
        if partial and begin > boundary - self._block_tokens:
            yield self._blocks.setdefault((path, 0), len(self._blocks))

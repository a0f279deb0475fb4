"""WEKA session traces: one JSON object per Claude Code session, sub-agents nested in it.

Source of the format: https://github.com/callanjfox/kv-cache-tester, traces/. Ids are chained hashes of blocks of 64
tokens, local to one file; the last, partial block of a prompt has none.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from simulator.errors import TraceError
from simulator.trace import Request
from simulator.trace_files.lines import Seconds, Tokens
from simulator.trace_files.mooncake import Blocks, HashId


class _Call(msgspec.Struct, tag_field="type"):
    t: Seconds
    model: str
    input_tokens: Tokens = msgspec.field(name="in")
    output_tokens: Tokens = msgspec.field(name="out")
    hash_ids: list[HashId]
    ttft: Seconds | None = None
    api_time: Seconds | None = None


class _Plain(_Call, tag="n"):
    pass


class _Streamed(_Call, tag="s"):
    pass


class _Subagent(msgspec.Struct, tag_field="type", tag="subagent"):
    t: Seconds
    agent_id: str
    requests: "list[_Plain | _Streamed | _Subagent]"


class _Session(msgspec.Struct):
    id: str
    requests: list[_Plain | _Streamed | _Subagent]
    block_size: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 64


def decode(path: Path, data: bytes) -> Iterator[Request]:
    """Requests of one session by start time. Scope is the session, as its ids mean nothing outside it.

    A sub-agent's times count from its marker; where they already lie after it, they count from the session's start
    (both conventions are in use). The response begins at `ttft`, else with the end of the call. Raises TraceError.
    """
    try:
        session = msgspec.json.decode(data, type=_Session)
    except msgspec.ValidationError as error:
        raise TraceError(f"{path}: {str(error).replace('`$.', '`')}", "correct the entry or delete it") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TraceError(f"{path}: this is not a complete JSON object", "copy or download it again") from None
    blocks = Blocks(session.block_size)
    requests: list[Request] = []
    previous: dict[str, tuple[str, int | None]] = {}

    def walk(entries: "list[_Plain | _Streamed | _Subagent]", chain: str, offset: float) -> None:
        for entry in entries:
            if isinstance(entry, _Subagent):
                absolute = bool(entry.requests) and entry.requests[0].t >= entry.t
                walk(entry.requests, f"{chain}/{entry.agent_id}", offset if absolute else offset + entry.t)
                continue
            request_id = f"{session.id} #{len(requests)}"
            segments = blocks.prompt(entry.hash_ids, entry.input_tokens, request_id)
            if segments is None:
                raise TraceError(
                    f"{path}: request {len(requests)}: {len(entry.hash_ids)} blocks of {session.block_size} tokens do "
                    f"not make a prompt of {entry.input_tokens} tokens",
                    "correct the entry or delete it",
                )
            began = entry.ttft if entry.ttft is not None else entry.api_time or 0.0
            first = entry.hash_ids[0] if entry.hash_ids else None
            before, before_first = previous.get(chain, (None, None))
            parent = before if first is not None and first == before_first else None
            started = offset + entry.t
            requests.append(
                Request(
                    request_id, chain, parent, entry.model, session.id, "", started, started + began, segments,
                    entry.output_tokens,
                )
            )  # fmt: skip
            previous[chain] = (request_id, first)

    walk(session.requests, session.id, 0.0)
    yield from sorted(requests, key=lambda request: request.started_at_s)

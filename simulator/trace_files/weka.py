"""WEKA session traces: one JSON object per Claude Code session, sub-agents nested in it.

Source of the format: https://github.com/callanjfox/kv-cache-tester, traces/. Ids are chained hashes of blocks of 64
tokens, local to one file; the last, partial block of a prompt has none.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from simulator.errors import TraceError
from simulator.trace import Request, Trace
from simulator.trace_files import writable
from simulator.trace_files.lines import Seconds, Tokens
from simulator.trace_files.mooncake import BlockIds, Blocks, HashId

BLOCK_TOKENS: Final = 64


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
    block_size: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = BLOCK_TOKENS


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

    try:
        walk(session.requests, session.id, 0.0)
    except RecursionError:
        raise TraceError(f"{path}: sub-agents are nested too deep", "not a session that an agent ran") from None
    yield from sorted(requests, key=lambda request: request.started_at_s)


def encode(trace: Trace, block_tokens: int) -> Iterator[bytes]:
    """One session that holds all of `trace`: the chain of the first arrival, and every other chain as a sub-agent.

    Times count from the first arrival, a sub-agent's from its marker. What a trace does not know (kinds of content,
    stop reasons) is left empty; sub-agents have the status for which readers let the conversation around them go on.
    Prompts of different model, scope or salt share no id. Raises TraceError.
    """
    if block_tokens < 1:
        raise TraceError(f"a block of {block_tokens} tokens", "choose at least 1 token a block")
    arrivals = sorted(trace, key=lambda request: request.started_at_s)
    if not arrivals:
        raise TraceError("the trace holds no requests", "write a trace with at least one request")
    ids = BlockIds(block_tokens)
    main, begin = arrivals[0].chain, arrivals[0].started_at_s
    entries: list[dict[str, Any]] = []
    agents: dict[str, dict[str, Any]] = {}
    idle_since: dict[str, float] = {}
    for request in arrivals:
        writable.check(request, request.segments)
        into, since = entries, begin
        if request.chain != main:
            if request.chain not in agents:
                agents[request.chain] = {
                    "t": _seconds(request.started_at_s - begin), "type": "subagent", "agent_id": request.chain,
                    "subagent_type": "unknown", "status": "async_launched", "requests": [], "models": [],
                }  # fmt: skip
                entries.append(agents[request.chain])
            agent = agents[request.chain]
            into, since = agent["requests"], begin + agent["t"]
            if request.model not in agent["models"]:
                agent["models"].append(request.model)
        waited = max(0.0, request.response_began_at_s - request.started_at_s)
        think = max(0.0, request.started_at_s - idle_since.get(request.chain, request.started_at_s))
        idle_since[request.chain] = request.started_at_s + waited
        into.append({
            "t": max(0.0, _seconds(request.started_at_s - since)), "type": "s", "model": request.model,
            "in": sum(segment.tokens for segment in request.segments), "out": request.output_tokens,
            "hash_ids": list(ids.of(request, partial=False)), "input_types": [], "output_types": [], "stop": "",
            "ttft": _seconds(waited), "api_time": _seconds(waited), "think_time": _seconds(think),
        })  # fmt: skip
    session = {
        "id": main, "models": list(dict.fromkeys(request.model for request in arrivals)), "block_size": block_tokens,
        "hash_id_scope": "local", "requests": entries,
    }  # fmt: skip
    yield writable.encode(arrivals[0], session)


def _seconds(value: float) -> float:
    return round(value, 6)

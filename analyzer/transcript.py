"""One transcript file -> sightings of requests and the events around them. No database, no prices, no prompt text.

A *sighting* is one request as one file shows it, merged over its lines (RULES 1-4): every token field is the maximum.
"""

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

EARLIEST = datetime(2023, 1, 1, tzinfo=UTC)
LARGEST_COUNT = 10**12
LONGEST_TEXT = 4096
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
CHUNK_BYTES = 4 << 20
WORKTREE = re.compile(r"[/\\](?:\.claude[/\\]worktrees|\.worktrees)[/\\].*$")
DELTAS = frozenset({"deferred_tools_delta", "mcp_instructions_delta", "agent_listing_delta", "skill_listing"})
PLAIN_ATTACHMENTS = frozenset({"date_change", "hook_additional_context", "invoked_skills"})
SYSTEM_EVENTS = frozenset(
    {"compact_boundary", "microcompact_boundary", "api_error", "away_summary", "model_refusal_fallback"}
)


class _Record(msgspec.Struct):
    type: Any = None
    subtype: Any = None
    uuid: Any = None
    parentUuid: Any = None
    logicalParentUuid: Any = None
    timestamp: Any = None
    sessionId: Any = None
    requestId: Any = None
    version: Any = None
    cwd: Any = None
    gitBranch: Any = None
    entrypoint: Any = None
    isSidechain: Any = None
    isCompactSummary: Any = None
    isMeta: Any = None
    agentId: Any = None
    attributionAgent: Any = None
    teamName: Any = None
    effort: Any = None
    message: msgspec.Raw = msgspec.Raw(b"")
    data: msgspec.Raw = msgspec.Raw(b"")
    attachment: msgspec.Raw = msgspec.Raw(b"")
    toolUseResult: msgspec.Raw = msgspec.Raw(b"")
    compactMetadata: Any = None
    totalCostUSD: Any = None
    parentToolUseID: Any = None


class _Block(msgspec.Struct):
    type: Any = None
    name: Any = None
    id: Any = None
    text: Any = None
    input: msgspec.Raw = msgspec.Raw(b"")


class _Message(msgspec.Struct):
    id: Any = None
    model: Any = None
    usage: Any = None
    stop_reason: Any = None
    diagnostics: Any = None
    content: msgspec.Raw = msgspec.Raw(b"")


_record_decoder = msgspec.json.Decoder(_Record)
_message_decoder = msgspec.json.Decoder(_Message)
_blocks_decoder = msgspec.json.Decoder(list[_Block])
_any_decoder: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder()
T = TypeVar("T")


class ParsedFile:
    """What one transcript holds. `sightings`, `events` and `agents` are rows for the tables of the same names."""

    def __init__(self, path: str, mtime_ns: int, now: datetime) -> None:
        self.path = path
        self.mtime = _moment(mtime_ns)
        self.latest = now.timestamp() + 86_400
        self.stem = os.path.basename(path).removesuffix(".jsonl")
        self.is_agent_file = self.stem.startswith("agent-") or "/subagents/" in path
        self.lines = self.broken_lines = self.usage_lines = self.synthetic_lines = self.invalid_fields = 0
        self.bytes_read = 0
        self.first_timestamp: datetime | None = None
        self.first_cwd: str | None = None
        self.titles = 0
        self.sightings: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.agents: list[dict[str, Any]] = []
        self._last_timestamp: datetime | None = None
        self._undated: list[dict[str, Any]] = []
        self._root_of: dict[str, str] = {}
        self._request_on_path: dict[str, str] = {}
        self._segment: dict[str, int] = {}
        self._asked_at: dict[str, tuple[datetime | None, bool]] = {}
        self._task_types: dict[str, str] = {}

    def read(self) -> "ParsedFile":
        """Read the file once, in order. Raises OSError where it cannot be opened."""
        with open(self.path, "rb") as stream:
            for line in _lines(stream):
                self.bytes_read += len(line)
                stripped = line.strip(b" \t\r\n")
                if self.lines == 0:
                    stripped = stripped.removeprefix(b"\xef\xbb\xbf")
                self.lines += 1
                if stripped:
                    self._take(stripped)
        self._finish()
        return self

    def _take(self, line: bytes) -> None:
        try:
            record = _record_decoder.decode(line)
        except UNREADABLE:
            repaired = _repair(line, _record_decoder)
            if repaired is None:
                self.broken_lines += 1
                return
            record = repaired
        at = self._time(record.timestamp)
        if at is not None:
            self._last_timestamp = at
            if self.first_timestamp is None:
                self.first_timestamp = at
            for row in self._undated:
                row["first_line_at"] = row["first_line_at"] or at
            self._undated.clear()
        if self.first_cwd is None and isinstance(record.cwd, str) and record.cwd:
            self.first_cwd = WORKTREE.sub("", record.cwd[:LONGEST_TEXT])
        kind = record.type
        if kind == "assistant":
            chain = self._chain(record)
            self._assistant(record, record.message, at, chain, 1 if chain.startswith("side:") else 0)
        elif kind == "user":
            self._user(record, at)
        elif kind == "progress":
            self._progress(record)
        elif kind == "system":
            self._system(record, at)
        elif kind == "attachment":
            self._attachment(record, at)
        elif kind == "cost-state" and type(record.totalCostUSD) in (int, float) and 0 <= record.totalCostUSD <= 10**9:
            self._event(record, at, "cost_state", str(record.totalCostUSD))
        elif kind in ("ai-title", "summary"):
            self.titles += 1

    def _time(self, text: Any) -> datetime | None:
        if not isinstance(text, str):
            return None
        try:
            at = datetime.fromisoformat(text)
            at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
            return at if at >= EARLIEST and at.timestamp() <= self.latest else None
        except (ValueError, OverflowError):
            return None

    def _chain(self, record: _Record) -> str:
        uuid, parent = _text(record.uuid), _text(record.parentUuid)
        if uuid and parent and parent in self._request_on_path:
            self._request_on_path.setdefault(uuid, self._request_on_path[parent])
        agent = _text(record.agentId)
        if self.is_agent_file:
            chain = f"agent:{agent or self.stem.removeprefix('agent-')}"
        elif agent:
            chain = f"agent:{agent}"
        elif record.isSidechain is True:
            root = self._root_of.get(parent or "", uuid or "") if parent else (uuid or "")
            if uuid:
                self._root_of[uuid] = root
            chain = f"side:{root}"
        else:
            chain = "main"
        if record.parentUuid is None and record.subtype != "compact_boundary" and not record.isCompactSummary:
            if record.type in ("user", "assistant") and uuid:
                self._segment[chain] = self._segment.get(chain, 0) + 1
        elif record.subtype == "compact_boundary" and uuid:
            leaf = _text(record.logicalParentUuid) or ""
            if leaf in self._request_on_path:
                self._request_on_path[uuid] = self._request_on_path[leaf]
        return chain

    def _user(self, record: _Record, at: datetime | None) -> None:
        chain = self._chain(record)
        content = _content(record.message)
        is_result = bool(bytes(record.toolUseResult)) or any(block.type == "tool_result" for block in content)
        self._asked_at[chain] = (at, not is_result)
        if record.isCompactSummary is True:
            self._event(record, at, "compact_summary", None, chain)
        if any(
            isinstance(block.text, str) and block.text.startswith("[Request interrupted by user") for block in content
        ):
            self._event(record, at, "interrupt", None, chain)
        if bytes(record.toolUseResult)[:1] == b"{":
            result = _object(record.toolUseResult)
            agent, agent_type = _text(result.get("agentId")), _text(result.get("agentType"))
            if agent and agent_type:
                self._agent(agent, 2, agent_type)

    def _assistant(self, record: _Record, raw: msgspec.Raw, at: datetime | None, chain: str, rank: int) -> None:
        message = _message(raw)
        if message is None:
            self.broken_lines += bool(bytes(raw))
            return
        blocks = _blocks(message.content)
        tools = [
            block.name[:LONGEST_TEXT] for block in blocks if block.type == "tool_use" and isinstance(block.name, str)
        ]
        for block in blocks:
            if block.type == "tool_use" and block.name in ("Task", "Agent") and isinstance(block.id, str):
                agent_type = _text(_object(block.input).get("subagent_type"))
                if agent_type:
                    self._task_types[block.id] = agent_type
        usage = message.usage
        if not isinstance(usage, dict):
            return
        self.usage_lines += 1
        model = _text(message.model) or "unknown"
        if model.startswith("<"):
            self.synthetic_lines += 1
            if rank < 2:
                self._event(record, at, "synthetic", None, chain)
            return
        identity = _text(message.id)
        request, session, uuid = _text(record.requestId), _text(record.sessionId) or self.stem, _text(record.uuid)
        key: tuple[Any, ...]
        if identity and identity.startswith("msg_"):
            key = (rank, identity)
        elif identity:
            key = (rank, identity, request, None if request else session)
        else:
            key = (rank, None, uuid or f"{self.path}:{self.lines}")
        if uuid and rank < 2:
            parent_request = self._request_on_path.get(_text(record.parentUuid) or "")
            self._request_on_path[uuid] = identity or uuid
        else:
            parent_request = None
        row = self.sightings.get(key)
        if row is None:
            asked_at, after_prompt = self._asked_at.get(chain, (None, False))
            row = self.sightings[key] = {
                "rank": rank,
                "ordinal": self.lines,
                "message_id": identity,
                "request_id": request,
                "session_id": session,
                "uuid": uuid,
                "chain": f"{chain}#{self._segment.get(chain, 0)}",
                "parent_message_id": parent_request,
                "agent_id": chain.removeprefix("agent:") if chain.startswith("agent:") else None,
                "team": _text(record.teamName),
                "model": model,
                "first_line_at": at,
                "last_line_at": at,
                "started_at": asked_at,
                "after_prompt": after_prompt,
                "date_estimated": False,
                "version": _text(record.version),
                "cwd": _text(record.cwd),
                "branch": _text(record.gitBranch),
                "entrypoint": _text(record.entrypoint),
                "effort": _text(record.effort),
                "speed": None,
                "service_tier": None,
                "inference_geo": None,
                "stop_reason": None,
                "diagnostics": None,
                "lines": 0,
                "input": 0,
                "cache_read": 0,
                "output": 0,
                "creation_flat": 0,
                "creation_5m": 0,
                "creation_1h": 0,
                "has_split": False,
                "web_searches": 0,
                "iterations": None,
                "iterations_output": -1,
                "tools": [],
                "is_sidechain": record.isSidechain is True,
            }
            if at is None:
                row["date_estimated"] = True
                row["first_line_at"] = self._last_timestamp
                if self._last_timestamp is None:
                    self._undated.append(row)
        elif at is not None:
            if row["first_line_at"] is None or row["date_estimated"] or at < row["first_line_at"]:
                row["first_line_at"], row["date_estimated"] = at, False
            if row["last_line_at"] is None or at > row["last_line_at"]:
                row["last_line_at"] = at
        self._merge(row, usage, message)
        row["tools"] += [tool for tool in tools if tool not in row["tools"]]
        if (agent_type := _text(record.attributionAgent)) and row["agent_id"]:
            self._agent(row["agent_id"], 1, agent_type)

    def _merge(self, row: dict[str, Any], usage: dict[str, Any], message: _Message) -> None:
        row["lines"] += 1
        output = self._count(usage.get("output_tokens"))
        split = usage.get("cache_creation")
        split = split if isinstance(split, dict) else {}
        searches = usage.get("server_tool_use")
        searches = searches if isinstance(searches, dict) else {}
        for field, value in (
            ("input", usage.get("input_tokens")),
            ("cache_read", usage.get("cache_read_input_tokens")),
            ("creation_flat", usage.get("cache_creation_input_tokens")),
            ("creation_5m", split.get("ephemeral_5m_input_tokens")),
            ("creation_1h", split.get("ephemeral_1h_input_tokens")),
            ("web_searches", searches.get("web_search_requests")),
        ):
            row[field] = max(row[field], self._count(value))
        row["output"] = max(row["output"], output)
        row["has_split"] = row["has_split"] or bool(split)
        for field in ("speed", "service_tier", "inference_geo"):
            row[field] = _text(usage.get(field)) or row[field]
        row["stop_reason"] = _text(message.stop_reason) or row["stop_reason"]
        if isinstance(message.diagnostics, dict) and row["diagnostics"] in (None, "none"):
            reason = message.diagnostics.get("cache_miss_reason")
            row["diagnostics"] = (_text(reason.get("type")) if isinstance(reason, dict) else None) or "none"
        entries = usage.get("iterations")
        if output > row["iterations_output"]:
            row["iterations_output"] = output
            entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
            row["iterations"] = (
                [self._iteration(entry, row["model"]) for entry in entries] if len(entries) > 1 else None
            )

    def _iteration(self, entry: dict[str, Any], model: str) -> dict[str, Any]:
        split = entry.get("cache_creation")
        split = split if isinstance(split, dict) else {}
        five, hour = (
            self._count(split.get("ephemeral_5m_input_tokens")),
            self._count(split.get("ephemeral_1h_input_tokens")),
        )
        flat = self._count(entry.get("cache_creation_input_tokens"))
        return {
            "kind": _text(entry.get("type")) or "message",
            "model": _text(entry.get("model")) or model,
            "input_tokens": self._count(entry.get("input_tokens")),
            "cache_read_tokens": self._count(entry.get("cache_read_input_tokens")),
            "cache_creation_5m_tokens": five + max(0, flat - five - hour),
            "cache_creation_1h_tokens": hour,
            "output_tokens": self._count(entry.get("output_tokens")),
        }

    def _count(self, value: Any) -> int:
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_COUNT:
            self.invalid_fields += 1
            return 0
        return int(value)

    def _progress(self, record: _Record) -> None:
        if b'"agent_progress"' not in bytes(record.data):
            return
        data = _object(record.data)
        if data.get("type") != "agent_progress" or not isinstance(data.get("message"), dict):
            return
        inner_raw = data["message"]
        agent = _text(data.get("agentId")) or "unknown"
        agent_type = self._task_types.get(_text(record.parentToolUseID) or "")
        if agent_type:
            self._agent(agent, 3, agent_type)
        try:
            inner = _record_decoder.decode(msgspec.json.encode(inner_raw))
        except (*UNREADABLE, OverflowError):
            self.broken_lines += 1
            return
        inner.sessionId = inner.sessionId or record.sessionId
        for field in ("version", "cwd", "gitBranch", "entrypoint"):
            setattr(inner, field, getattr(inner, field) or getattr(record, field))
        at = self._time(inner.timestamp) or self._time(record.timestamp)
        chain = f"agent:{agent}"
        if inner.type == "assistant":
            self._assistant(inner, inner.message, at, chain, 2)
        elif inner.type == "user":
            self._asked_at[chain] = (at, False)

    def _system(self, record: _Record, at: datetime | None) -> None:
        chain = self._chain(record)
        subtype = _text(record.subtype)
        if subtype in SYSTEM_EVENTS:
            metadata = record.compactMetadata if isinstance(record.compactMetadata, dict) else {}
            self._event(record, at, subtype, _text(metadata.get("trigger")), chain)

    def _attachment(self, record: _Record, at: datetime | None) -> None:
        chain = self._chain(record)
        data = _object(record.attachment)
        kind = _text(data.get("type"))
        if kind in DELTAS:
            names = [*_names(data.get("addedNames")), *(f"-{name}" for name in _names(data.get("removedNames")))]
            if names and data.get("isInitial") is not True:
                self._event(record, at, kind, ",".join(names[:20]), chain)
        elif kind == "hook_success" and (hook := _text(data.get("hookName"))) and hook.startswith("SessionStart"):
            self._event(record, at, "session_start", hook.partition(":")[2], chain)
        elif kind in PLAIN_ATTACHMENTS:
            self._event(record, at, kind, None, chain)

    def _event(
        self, record: _Record, at: datetime | None, kind: str, detail: str | None, chain: str | None = None
    ) -> None:
        name = chain or "main"
        self.events.append(
            {
                "ordinal": self.lines,
                "chain": f"{name}#{self._segment.get(name, 0)}",
                "at": at,
                "kind": kind,
                "detail": detail,
                "uuid": _text(record.uuid),
            }
        )

    def _agent(self, agent: str, source: int, agent_type: str) -> None:
        row = {"agent_id": agent, "source": source, "agent_type": agent_type}
        if row not in self.agents[-8:]:
            self.agents.append(row)

    def _finish(self) -> None:
        for row in self.sightings.values():
            row["first_line_at"] = row["first_line_at"] or self.mtime
            row["last_line_at"] = row["last_line_at"] or row["first_line_at"]
            started = row["started_at"]
            row["started_at"] = min(started, row["first_line_at"]) if started else row["first_line_at"]
        if not self.is_agent_file:
            return
        agent = self.stem.removeprefix("agent-")
        for prefix in ("compact", "prompt_suggestion"):
            if agent.startswith(f"a{prefix}-"):
                self._agent(agent, 4, prefix)
        try:
            with open(self.path.removesuffix(".jsonl") + ".meta.json", "rb") as stream:
                meta = _object(msgspec.Raw(stream.read(1 << 20)))
        except OSError:
            return
        if meta.get("taskKind") == "in_process_teammate":
            self._agent(agent, 0, "teammate")
        elif agent_type := _text(meta.get("agentType")):
            self._agent(agent, 0, agent_type)


def _lines(stream: Any) -> Iterator[bytes]:
    rest = b""
    while chunk := stream.read(CHUNK_BYTES):
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            rest += chunk
            continue
        yield from (rest + head).split(b"\n")
        rest = tail
    if rest:
        yield rest


def _moment(mtime_ns: int) -> datetime:
    """A file time as an instant; the epoch where the calendar has no such day."""
    try:
        return datetime.fromtimestamp(mtime_ns / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _repair(raw: bytes, decoder: "msgspec.json.Decoder[T]") -> "T | None":
    """A second, slower reader for what the fast one refuses: lone surrogates, invalid UTF-8, BOMs or NULs around it."""
    try:
        value = json.loads(raw.decode("utf-8", "replace").strip("\ufeff\0 \t\r"))
        if not isinstance(value, dict):
            return None
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return decoder.decode(text)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _object(raw: Any) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except UNREADABLE:
        value = _repair(bytes(raw), _any_decoder)
    return value if isinstance(value, dict) else {}


def _message(raw: msgspec.Raw) -> _Message | None:
    try:
        return _message_decoder.decode(raw)
    except UNREADABLE:
        return _repair(bytes(raw), _message_decoder)


def _content(raw: msgspec.Raw) -> list[_Block]:
    message = _message(raw)
    return _blocks(message.content) if message else []


def _blocks(raw: msgspec.Raw) -> list[_Block]:
    if bytes(raw)[:1] == b"[":
        try:
            return _blocks_decoder.decode(raw)
        except UNREADABLE:
            return []
    if bytes(raw)[:1] == b'"':
        return [_Block(type="text", text=bytes(raw)[1:200].decode("utf-8", "replace"))]
    return []


def _text(value: Any) -> str | None:
    return value[:LONGEST_TEXT] if isinstance(value, str) and value else None


def _names(value: Any) -> list[str]:
    return [name[:LONGEST_TEXT] for name in value if isinstance(name, str)] if isinstance(value, list) else []

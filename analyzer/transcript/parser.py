"""Records of one transcript, in file order -> sightings, events and agents, and the state from which to go on."""

import os
import re
from datetime import UTC, datetime
from hashlib import blake2b

import msgspec

from analyzer.transcript import usage
from analyzer.transcript.events import attachment_event
from analyzer.transcript.records import LONGEST_TEXT, Block, Message, Record, Usage, any_object, convert, text
from analyzer.transcript.rows import Agent, Event, Sighting

EARLIEST = datetime(2023, 1, 1)
WINDOW = 16
MOST_CHAINS = 200
WORKTREE = re.compile(r"[/\\](?:\.claude[/\\]worktrees|\.worktrees)[/\\].*$")
SYSTEM_EVENTS = frozenset(
    {"compact_boundary", "microcompact_boundary", "api_error", "away_summary", "model_refusal_fallback"}
)

Key = tuple[int | str | None, ...]


class LostThread(Exception):
    """A continued file refers to a record that the kept state no longer knows: read it from its beginning."""


class State(msgspec.Struct):
    """What a parser must remember to go on after the last complete line; kept as JSON, about 1 kB a file."""

    lines: int = 0
    broken_lines: int = 0
    usage_lines: int = 0
    synthetic_lines: int = 0
    invalid_fields: int = 0
    titles: int = 0
    first_timestamp: datetime | None = None
    first_cwd: str | None = None
    last_timestamp: datetime | None = None
    request_on_path: dict[str, str] = {}
    """The latest records' uuids, each with the request that stands on its path to the root ("" for none)."""
    root_of: dict[str, str] = {}
    segment: dict[str, int] = {}
    asked_at: dict[str, tuple[datetime | None, bool]] = {}
    task_types: dict[str, str] = {}


class ParsedFile:
    """What one transcript holds so far. Feed it records in file order, then call `finish`."""

    def __init__(self, file_id: int, path: str, mtime_ns: int, now: datetime, state: State | None = None) -> None:
        self.file_id = file_id
        self.path = path
        self.mtime = _moment(mtime_ns)
        self.latest = datetime.fromtimestamp(now.timestamp() + 86_400, UTC).replace(tzinfo=None)
        self.stem = os.path.basename(path).removesuffix(".jsonl")
        self.is_agent_file = self.stem.startswith("agent-") or "/subagents/" in path
        self.continued = state is not None
        self.state = state or State()
        self.sightings: dict[Key, Sighting] = {}
        self.events: list[Event] = []
        self.agents: dict[Agent, None] = {}
        self.changing: Key | None = None
        self._merged: Key | None = None
        self._merged_usage: Usage | None = None
        self._undated: list[Sighting] = []

    def resume(self, sightings: list[Sighting], agents: list[Agent]) -> None:
        """Take back the rows of an earlier reading, so that later lines of a request are merged into them."""
        for row in sightings:
            self.sightings[
                self._key(row.rank, row.message_id, row.request_id, row.session_id, row.uuid, row.ordinal)
            ] = row
        self.agents.update(dict.fromkeys(agents))

    def snapshot(self) -> State | None:
        """A state to go on from; None where going on would need more than a state holds."""
        state = self.state
        if self._undated or max(len(state.segment), len(state.asked_at), len(state.task_types)) > MOST_CHAINS:
            return None
        path = dict(list(state.request_on_path.items())[-WINDOW:])
        kept = msgspec.structs.replace(
            state, request_on_path=path, root_of={uuid: state.root_of[uuid] for uuid in path if uuid in state.root_of}
        )
        return msgspec.json.decode(msgspec.json.encode(kept), type=State)

    def take(self, record: Record) -> None:
        """The next line. Raises LostThread."""
        at = self._time(record.timestamp)
        state = self.state
        if at is not None:
            state.last_timestamp = at
            if state.first_timestamp is None:
                state.first_timestamp = at
            if self._undated:
                for row in self._undated:
                    row.first_line_at = row.first_line_at or at
                self._undated.clear()
        if state.first_cwd is None and record.cwd:
            state.first_cwd = WORKTREE.sub("", record.cwd)
        kind = record.type
        if kind == "assistant":
            chain = self._chain(record)
            self._assistant(record, at, chain, 1 if chain.startswith("side:") else 0)
        elif kind == "user":
            self._user(record, at)
        else:
            self._other(record, at)

    def _other(self, record: Record, at: datetime | None) -> None:
        kind, state = record.type, self.state
        if kind == "system":
            chain = self._chain(record)
            if record.subtype in SYSTEM_EVENTS:
                metadata = any_object(record.compactMetadata) or {}
                self._event(record, at, record.subtype, text(metadata.get("trigger")), chain)
        elif kind == "attachment":
            chain = self._chain(record)
            if found := attachment_event(record.attachment):
                self._event(record, at, *found, chain)
        elif record.uuid:
            state.request_on_path.setdefault(record.uuid, "")
        if kind == "progress":
            if b'"agent_progress"' in bytes(record.data):
                self._progress(record)
        elif kind == "cost-state":
            if record.totalCostUSD is not None and 0 <= record.totalCostUSD <= 10**9:
                self._event(record, at, "cost_state", str(record.totalCostUSD), "main")
        elif kind in ("ai-title", "summary"):
            state.titles += 1

    def finish(self) -> None:
        """Date what no line dated, and look for the agent's own description beside the file."""
        for row in self.sightings.values():
            row.first_line_at = row.first_line_at or self.mtime
        if not self.is_agent_file:
            return
        agent = self.stem.removeprefix("agent-")
        for prefix in ("compact", "prompt_suggestion"):
            if agent.startswith(f"a{prefix}-"):
                self._agent(agent, 4, prefix)
        try:
            with open(self.path.removesuffix(".jsonl") + ".meta.json", "rb") as stream:
                meta = any_object(stream.read(1 << 20)) or {}
        except OSError:
            return
        if meta.get("taskKind") == "in_process_teammate":
            self._agent(agent, 0, "teammate")
        elif agent_type := text(meta.get("agentType")):
            self._agent(agent, 0, agent_type)

    def _time(self, stamp: str | None) -> datetime | None:
        if not stamp:
            return None
        try:
            at = datetime.fromisoformat(stamp.removesuffix("Z"))
            if at.tzinfo is not None:
                at = at.astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            return None
        return at if EARLIEST <= at <= self.latest else None

    def _chain(self, record: Record) -> str:
        state, uuid, parent, agent = self.state, record.uuid, record.parentUuid, record.agentId
        if uuid:
            paths = state.request_on_path
            on_path = paths.get(parent) if parent else None
            if parent and on_path is None and self.continued:
                raise LostThread
            if uuid not in paths:
                paths[uuid] = on_path or ""
        if self.is_agent_file:
            chain = f"agent:{agent or self.stem.removeprefix('agent-')}"
        elif agent:
            chain = f"agent:{agent}"
        elif record.isSidechain is True:
            root = state.root_of.get(parent or "", uuid or "")
            if uuid:
                state.root_of[uuid] = root
            chain = f"side:{root}"
        else:
            chain = "main"
        if parent is None and record.subtype != "compact_boundary" and not record.isCompactSummary:
            if record.type in ("user", "assistant") and uuid:
                state.segment[chain] = state.segment.get(chain, 0) + 1
        elif record.subtype == "compact_boundary" and uuid and record.logicalParentUuid:
            leaf = state.request_on_path.get(record.logicalParentUuid)
            if leaf is None and self.continued:
                raise LostThread
            if leaf:
                state.request_on_path[uuid] = leaf
        return chain

    def _user(self, record: Record, at: datetime | None) -> None:
        chain = self._chain(record)
        content = record.message.content if isinstance(record.message, Message) else None
        is_result, interrupted = record.toolUseResult is not msgspec.UNSET, False
        if isinstance(content, str):
            interrupted = content.startswith("[Request interrupted by user")
            if chain.startswith("side:"):
                self._task_of(chain, _digest(content))
        elif content:
            for block in content:
                is_result = is_result or block.type == "tool_result"
                interrupted = interrupted or (block.text or "").startswith("[Request interrupted by user")
        self.state.asked_at[chain] = (at, not is_result)
        if chain.startswith("side:"):
            self._task_of(chain, record.parentToolUseID or record.sourceToolUseID)
        if record.isCompactSummary is True:
            self._event(record, at, "compact_summary", None, chain)
        if interrupted:
            self._event(record, at, "interrupt", None, chain)
        result = record.toolUseResult
        agent, agent_type = getattr(result, "agentId", None), getattr(result, "agentType", None)
        if agent and agent_type:
            self._agent(agent, 2, agent_type)

    def _task_of(self, chain: str, task: str | None) -> None:
        if agent_type := self.state.task_types.get(task or ""):
            self._agent(chain, 3, agent_type)

    def _assistant(self, record: Record, at: datetime | None, chain: str, rank: int) -> None:
        message, state = record.message, self.state
        if not isinstance(message, Message):
            state.broken_lines += message is None
            return
        tools = self._tools(message.content) if isinstance(message.content, list) else []
        if message.usage is None:
            return
        state.usage_lines += 1
        model = message.model or "unknown"
        if model.startswith("<"):
            state.synthetic_lines += 1
            if rank < 2:
                self._event(record, at, "synthetic", None, chain)
            return
        identity, uuid = message.id or None, record.uuid
        session = record.sessionId or self.stem
        key = self._key(rank, identity, record.requestId, session, uuid, state.lines)
        parent_request = None
        if uuid and rank < 2:
            parent_request = state.request_on_path.get(record.parentUuid or "") or None
            state.request_on_path[uuid] = identity or uuid
        self.changing = key
        row = self.sightings.get(key)
        if row is None:
            row = self.sightings[key] = self._sighting(
                record, rank, chain, identity, session, model, at, parent_request
            )
            if message.context_management and message.context_management.applied_edits and rank < 2:
                kinds = sorted({edit.type or "edit" for edit in message.context_management.applied_edits})
                self._event(record, at, "context_edit", ",".join(kinds), chain)
        elif at is not None:
            if row.first_line_at is None or row.date_estimated or at < row.first_line_at:
                row.first_line_at, row.date_estimated = at, False
            if row.last_line_at is None or at > row.last_line_at:
                row.last_line_at = at
        # most lines of a split response repeat its usage
        if key == self._merged and message.usage == self._merged_usage:
            row.lines += 1
            row.stop_reason = message.stop_reason or row.stop_reason
            if message.diagnostics is not None:
                usage.diagnose(row, message.diagnostics)
        else:
            usage.merge(row, message)
            self._merged, self._merged_usage = key, message.usage
        for tool in tools:
            if tool not in row.tools:
                row.tools = [*row.tools, tool]
        if record.attributionAgent and row.agent_id:
            self._agent(row.agent_id, 1, record.attributionAgent)

    def _tools(self, content: list[Block]) -> list[str]:
        tools = []
        for block in content:
            if block.type == "tool_use" and block.name:
                tools.append(block.name)
                if block.name in ("Task", "Agent") and block.id:
                    task = any_object(block.input) or {}
                    if agent_type := text(task.get("subagent_type")):
                        self.state.task_types[block.id] = agent_type
                        if isinstance(task.get("prompt"), str):
                            self.state.task_types[_digest(task["prompt"])] = agent_type
        return tools

    def _key(
        self, rank: int, identity: str | None, request: str | None, session: str, uuid: str | None, ordinal: int
    ) -> Key:
        if identity and identity.startswith("msg_"):
            return (rank, identity)
        if identity:
            return (rank, identity, request or None, None if request else session)
        return (rank, None, uuid or ordinal)

    def _sighting(
        self,
        record: Record,
        rank: int,
        chain: str,
        identity: str | None,
        session: str,
        model: str,
        at: datetime | None,
        parent_request: str | None,
    ) -> Sighting:
        asked_at, after_prompt = self.state.asked_at.get(chain, (None, False))
        # in the order of the fields: by keyword it would take six times as long
        row = Sighting(
            self.file_id,
            rank,
            self.state.lines,
            identity,
            record.requestId or None,
            session,
            record.uuid or None,
            f"{chain}#{self.state.segment.get(chain, 0)}",
            parent_request,
            chain.removeprefix("agent:") if chain.startswith("agent:") else None,
            record.teamName or None,
            model,
            at or self.state.last_timestamp,
            at,
            asked_at,
            after_prompt,
            at is None,
            record.version or None,
            record.cwd or None,
            record.gitBranch or None,
            record.entrypoint or None,
            record.effort or None,
        )
        row.is_sidechain = record.isSidechain is True
        if row.first_line_at is None:
            self._undated.append(row)
        return row

    def _progress(self, record: Record) -> None:
        data = any_object(record.data) or {}
        if data.get("type") != "agent_progress" or not isinstance(data.get("message"), dict):
            return
        agent = text(data.get("agentId")) or "unknown"
        if agent_type := self.state.task_types.get(record.parentToolUseID or ""):
            self._agent(agent, 3, agent_type)
        inner, invalid = convert(data["message"])
        self.state.invalid_fields += invalid
        for field in ("sessionId", "version", "cwd", "gitBranch", "entrypoint"):
            setattr(inner, field, getattr(inner, field) or getattr(record, field))
        at = self._time(inner.timestamp) or self._time(record.timestamp)
        chain = f"agent:{agent}"
        if inner.type == "assistant":
            self._assistant(inner, at, chain, 2)
        elif inner.type == "user":
            self.state.asked_at[chain] = (at, False)

    def _event(self, record: Record, at: datetime | None, kind: str, detail: str | None, chain: str) -> None:
        state = self.state
        name = f"{chain}#{state.segment.get(chain, 0)}"
        self.events.append(Event(self.file_id, state.lines, name, at, kind, detail, record.uuid or None))

    def _agent(self, agent: str, source: int, agent_type: str) -> None:
        self.agents[Agent(self.file_id, agent[:LONGEST_TEXT], source, agent_type[:LONGEST_TEXT])] = None


def _digest(prompt: str) -> str:
    """Joins a task's prompt to the sidechain that begins with it, without keeping the prompt."""
    return blake2b(prompt.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _moment(mtime_ns: int) -> datetime:
    """A file time as an instant; the epoch where the calendar has no such day."""
    try:
        return datetime.fromtimestamp(mtime_ns / 1e9, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return datetime(1970, 1, 1)

"""The requests in scope as chains in file order, with what stands between them: the input of traces and what-ifs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import duckdb

from analyzer.queries.scope import Scope, select
from simulator.trace import Usage

LOST_TOKENS = 2_000
BOUNDARIES = frozenset({"compact_boundary", "microcompact_boundary", "compact_summary", "context_edit"})


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Circumstances:
    """All that is known of a request before it is answered. It has no field for what the answer tells.

    `prompt_tokens` is the size of its prompt; times are seconds since the epoch; `events` stand before it in the chain.
    """

    started_at_s: float
    date_estimated: bool
    prompt_tokens: int
    model: str
    speed: str | None
    effort: str | None
    version: str | None
    cwd: str | None
    branch: str | None
    entrypoint: str | None
    project: str
    session_id: str
    agent_id: str | None
    agent_type: str
    after_prompt: bool
    parent_message_id: str | None
    events: tuple[Event, ...]

    @property
    def boundary(self) -> bool:
        """A compaction, a clearing of tool results or /clear stands right before this request."""
        return any(e.kind in BOUNDARIES or (e.kind == "session_start" and e.detail == "clear") for e in self.events)


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request as its chain shows it. `usage` is that of its context (the last message entry); `native` is false
    for a copy of another file's request, which is context here and counted there."""

    key: str
    chain: str
    message_id: str | None
    native: bool
    response_began_at_s: float
    usage: Usage
    tools: tuple[str, ...]
    stop_reason: str | None
    known: Circumstances = field(repr=False)

    @property
    def readable_tokens(self) -> int:
        """What the next request of the chain could read."""
        return self.usage.cache_read_tokens + self.usage.cache_creation_tokens


Chain = Sequence[LoggedRequest]


@dataclass(slots=True)
class UsageRow:
    """One billed row of a request in scope; `main` is the row of the model that answered last."""

    key: str
    main: bool
    model: str
    at: datetime
    usage: Usage
    web_searches: int
    speed: str | None
    service_tier: str | None
    inference_geo: str | None
    project: str
    session_id: str
    chain: str


def is_loss(readable: int, read: int) -> bool:
    """The definition of a rebuild: at least 2,000 tokens and more than 5 % of what could be read, as in `rebuilds`."""
    lost = readable - read
    return lost >= LOST_TOKENS and lost * 20 > readable


def chains(connection: duckdb.DuckDBPyConnection, scope: Scope) -> list[list[LoggedRequest]]:
    """Every chain of the files in scope, whatever the filters; `rows` tells which requests the report shows."""
    select(connection, scope)
    return read_chains(connection)


def read_chains(connection: duckdb.DuckDBPyConnection) -> list[list[LoggedRequest]]:
    """As `chains`, for a connection whose scope was selected before."""
    events: dict[tuple[int, str], list[tuple[int, Event]]] = {}
    for file_id, chain, ordinal, kind, detail in connection.execute(
        """SELECT file_id, split_part(chain, '#', 1), ordinal, kind, coalesce(detail, '') FROM events
        WHERE file_id IN (SELECT file_id FROM chains) ORDER BY file_id, ordinal, kind, detail"""
    ).fetchall():
        events.setdefault((file_id, chain), []).append((ordinal, Event(kind, detail)))
    found: list[list[LoggedRequest]] = []
    here: tuple[int, str] | None = None
    waiting: list[tuple[int, Event]] = []
    position = 0
    for row in connection.execute(
        """SELECT c.file_id, c.chain, c.ordinal, c.request_key, c.is_native, c.own_message_id, c.parent_message_id,
            epoch(c.started_at), epoch(c.first_line_at), c.date_estimated, r.input, c.read_tokens,
            c.creation_5m_tokens, c.creation_1h_tokens, r.output_tokens, r.model, r.speed, r.effort, r.version, r.cwd,
            r.branch, k.entrypoint, r.project, r.session_id, r.agent_id, r.agent_type, k.after_prompt, r.tools,
            r.stop_reason
        FROM chains c JOIN requests r USING (request_key)
        JOIN request_keys k ON k.file_id = c.file_id AND k.chain = c.chain AND k.ordinal = c.ordinal
            AND k.request_key = c.request_key
        ORDER BY c.file_id, c.chain, c.ordinal, c.request_key"""
    ).fetchall():
        (file_id, chain, ordinal, key, native, own, parent, started, began, estimated, uncached, read, five, hour,
         output, model, speed, effort, version, cwd, branch, entrypoint, project, session, agent, agent_type,
         after_prompt, tools, stop_reason) = row  # fmt: skip
        if here != (file_id, chain):
            here = (file_id, chain)
            waiting = events.get((file_id, chain.partition("#")[0]), [])
            position = 0
            found.append([])
        between: list[Event] = []
        while position < len(waiting) and waiting[position][0] <= ordinal:
            between.append(waiting[position][1])
            position += 1
        usage = Usage(uncached, read, five, hour, output)
        found[-1].append(
            LoggedRequest(
                key=key,
                chain=f"{file_id}/{chain}",
                message_id=own,
                native=native,
                response_began_at_s=began,
                usage=usage,
                tools=tuple(tools or ()),
                stop_reason=stop_reason,
                known=Circumstances(
                    started_at_s=started,
                    date_estimated=estimated,
                    prompt_tokens=usage.prompt_tokens,
                    model=model,
                    speed=speed,
                    effort=effort,
                    version=version,
                    cwd=cwd,
                    branch=branch,
                    entrypoint=entrypoint,
                    project=project,
                    session_id=session,
                    agent_id=agent,
                    agent_type=agent_type,
                    after_prompt=bool(after_prompt),
                    parent_message_id=parent,
                    events=tuple(between) if found[-1] else (),
                ),
            )
        )
    return found


def read_rows(connection: duckdb.DuckDBPyConnection) -> list[UsageRow]:
    """The billed rows that the report shows, in time order; the scope was selected before."""
    cursor = connection.execute(
        """SELECT p.request_key, p.counts_request, p.model, p.first_line_at, p.input_tokens, p.cache_read_tokens,
            p.cache_creation_5m_tokens, p.cache_creation_1h_tokens, p.output_tokens, p.web_searches, p.speed,
            p.service_tier, p.inference_geo, p.project, p.session_id, r.file_id || '/' || r.chain
        FROM rows p JOIN requests r USING (request_key) ORDER BY p.first_line_at, p.request_key, p.entry"""
    )
    return [
        UsageRow(key, main, model, at.replace(tzinfo=UTC), Usage(*tokens), searches, *rest)
        for key, main, model, at, *tokens, searches, speed, tier, geo, project, session, chain in cursor.fetchall()
        for rest in [(speed, tier, geo, project, session, chain)]
    ]

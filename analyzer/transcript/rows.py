"""Rows for the raw tables; field names and their order are those of the table columns after `file_id`."""

from datetime import datetime

import msgspec


class Iteration(msgspec.Struct, gc=False):
    """One server-side pass of a request, billed by its own model."""

    kind: str
    model: str
    input_tokens: int
    cache_read_tokens: int
    cache_creation_5m_tokens: int
    cache_creation_1h_tokens: int
    output_tokens: int


class Sighting(msgspec.Struct, gc=False):
    """One request as one file shows it, merged over its lines: every token field is the maximum. Times are UTC."""

    file_id: int
    rank: int
    ordinal: int
    message_id: str | None
    request_id: str | None
    session_id: str
    uuid: str | None
    chain: str
    parent_message_id: str | None
    agent_id: str | None
    team: str | None
    model: str
    first_line_at: datetime | None
    last_line_at: datetime | None
    started_at: datetime | None
    after_prompt: bool
    date_estimated: bool
    version: str | None
    cwd: str | None
    branch: str | None
    entrypoint: str | None
    effort: str | None
    speed: str | None = None
    service_tier: str | None = None
    inference_geo: str | None = None
    stop_reason: str | None = None
    diagnostics: str | None = None
    lines: int = 0
    input: int = 0
    cache_read: int = 0
    output: int = 0
    creation_flat: int = 0
    creation_5m: int = 0
    creation_1h: int = 0
    has_split: bool = False
    web_searches: int = 0
    iterations: list[Iteration] | None = None
    iterations_output: int = -1
    tools: list[str] = []
    is_sidechain: bool = False


class Event(msgspec.Struct, gc=False):
    """Something in a chain that may explain a miss; `detail` never holds prompt text."""

    file_id: int
    ordinal: int
    chain: str
    at: datetime | None
    kind: str
    detail: str | None
    uuid: str | None


class Agent(msgspec.Struct, gc=False, frozen=True):
    """What one file says about the type of an agent; the smallest `source` is believed first."""

    file_id: int
    agent_id: str
    source: int
    agent_type: str

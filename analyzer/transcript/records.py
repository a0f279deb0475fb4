"""Lines -> typed records. The fast decoder takes what Claude Code writes; the tolerant one takes whatever is JSON.

Either way a field that is kept is at most `LONGEST_TEXT` long: a longer one sends its line to the tolerant decoder.
"""

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

LARGEST_COUNT = 10**12
LONGEST_TEXT = 4096
_OPENING, _CLOSING = b"{}"
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]
Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)]
T = TypeVar("T")


class Split(msgspec.Struct, gc=False):
    ephemeral_5m_input_tokens: Count | None = None
    ephemeral_1h_input_tokens: Count | None = None


class Searches(msgspec.Struct, gc=False):
    web_search_requests: Count | None = None


class Pass(msgspec.Struct, gc=False):
    """One entry of `usage.iterations`."""

    type: Text | None = None
    model: Text | None = None
    input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation: Split | None = None


class Usage(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation: Split | None = None
    server_tool_use: Searches | None = None
    speed: Text | None = None
    service_tier: Text | None = None
    inference_geo: Text | None = None
    iterations: list[Pass] | None = None


class MissReason(msgspec.Struct, gc=False):
    type: Text | None = None


class Diagnostics(msgspec.Struct, gc=False):
    cache_miss_reason: MissReason | None = None


class Edit(msgspec.Struct, gc=False):
    type: Text | None = None


class ContextManagement(msgspec.Struct, gc=False):
    applied_edits: list[Edit] | None = None


class Block(msgspec.Struct, gc=False):
    type: Text | None = None
    name: Text | None = None
    id: Text | None = None
    text: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"")


class Message(msgspec.Struct, gc=False):
    id: Text | None = None
    model: Text | None = None
    usage: Usage | None = None
    stop_reason: Text | None = None
    diagnostics: Diagnostics | None = None
    context_management: ContextManagement | None = None
    content: list[Block] | str | None = None


class ToolResult(msgspec.Struct, gc=False):
    agentId: Text | None = None
    agentType: Text | None = None


class Record(msgspec.Struct, gc=False):
    """One line. `message` is UNSET where the line has none and None where it is no object."""

    type: Text | None = None
    subtype: Text | None = None
    uuid: Text | None = None
    parentUuid: Text | None = None
    logicalParentUuid: Text | None = None
    timestamp: Text | None = None
    sessionId: Text | None = None
    requestId: Text | None = None
    version: Text | None = None
    cwd: Text | None = None
    gitBranch: Text | None = None
    entrypoint: Text | None = None
    isSidechain: bool | None = None
    isCompactSummary: bool | None = None
    agentId: Text | None = None
    attributionAgent: Text | None = None
    teamName: Text | None = None
    effort: Text | None = None
    parentToolUseID: Text | None = None
    sourceToolUseID: Text | None = None
    totalCostUSD: int | float | None = None
    message: Message | UnsetType | None = UNSET
    toolUseResult: ToolResult | list[msgspec.Raw] | str | int | float | bool | UnsetType | None = UNSET
    data: msgspec.Raw = msgspec.Raw(b"")
    attachment: msgspec.Raw = msgspec.Raw(b"")
    compactMetadata: msgspec.Raw = msgspec.Raw(b"")


_decoder = msgspec.json.Decoder(Record)


def decode_lines(chunk: bytes) -> list[Record] | None:
    """All lines of a chunk at once; None where one of them needs a closer look."""
    try:
        records = _decoder.decode_lines(chunk)
    except UNREADABLE:
        return None
    return records if len(records) == _lines(chunk) else None


def _lines(chunk: bytes) -> int:
    """How many lines there are, each from `{` to `}`; -1 where one is not.

    Between such lines one object ends and another begins, so that as many objects as lines are one on each line.
    """
    count, start = 0, 0
    while (end := chunk.find(b"\n", start)) >= 0:
        if chunk[start] != _OPENING or chunk[end - 1] != _CLOSING:
            return -1
        count, start = count + 1, end + 1
    return count


def decode(line: bytes) -> tuple[Record | None, int]:
    """One line, and how many of its usage fields were no counts; None for what is not a JSON object."""
    try:
        return _decoder.decode(line), 0
    except UNREADABLE:
        value = any_object(line)
        return (None, 0) if value is None else convert(value)


def any_object(raw: bytes | msgspec.Raw) -> dict[str, Any] | None:
    """A JSON object as a dict; lone surrogates, invalid UTF-8, BOMs and NULs around it are survived."""
    try:
        value = msgspec.json.decode(raw)
    except UNREADABLE:
        try:
            text = bytes(raw).decode("utf-8", "replace").strip("\ufeff\0 \t\r")
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def convert(value: dict[str, Any]) -> tuple[Record, int]:
    """A record from any object, field by field: what has the wrong type is left out, and counted in usage."""
    invalid = [0]

    def count(number: Any) -> int | None:
        if number is None:
            return None
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= LARGEST_COUNT:
            invalid[0] += 1
            return None
        return int(number)

    record = Record()
    for name in _TEXTS:
        setattr(record, name, text(value.get(name)))
    if value.get("parentUuid") is not None:
        record.parentUuid = record.parentUuid or ""
    for name in ("isSidechain", "isCompactSummary"):
        setattr(record, name, value.get(name) is True)
    if type(value.get("totalCostUSD")) in (int, float):
        record.totalCostUSD = value["totalCostUSD"]
    if "message" in value:
        record.message = _message(value["message"], count) if isinstance(value["message"], dict) else None
    if "toolUseResult" in value:
        result = value["toolUseResult"]
        known = isinstance(result, dict)
        record.toolUseResult = ToolResult(text(result.get("agentId")), text(result.get("agentType"))) if known else None
    for name in ("data", "attachment", "compactMetadata"):
        if isinstance(value.get(name), dict):
            setattr(record, name, raw(value[name]))
    return record, invalid[0]


def _message(value: dict[str, Any], count: Callable[[Any], int | None]) -> Message:
    usage = value.get("usage")
    content = value.get("content")
    diagnostics, management = value.get("diagnostics"), value.get("context_management")
    edits = management.get("applied_edits") if isinstance(management, dict) else None
    reason = diagnostics.get("cache_miss_reason") if isinstance(diagnostics, dict) else None
    return Message(
        id=text(value.get("id")),
        model=text(value.get("model")),
        usage=_usage(usage, count) if isinstance(usage, dict) else None,
        stop_reason=text(value.get("stop_reason")),
        diagnostics=Diagnostics(MissReason(text(reason.get("type"))) if isinstance(reason, dict) else None)
        if isinstance(diagnostics, dict)
        else None,
        context_management=ContextManagement([Edit(text(edit.get("type"))) for edit in _objects(edits)]),
        content=[
            Block(
                type=text(block.get("type")),
                name=text(block.get("name")),
                id=text(block.get("id")),
                text=text(block.get("text")),
                input=raw(block.get("input")),
            )
            for block in _objects(content)
        ]
        if isinstance(content, list)
        else content.encode("utf-8", "replace").decode()  # whole: a task is known by its prompt
        if isinstance(content, str)
        else None,
    )


def _usage(value: dict[str, Any], count: Callable[[Any], int | None]) -> Usage:
    searches = value.get("server_tool_use")
    usage = Usage(
        cache_creation=_split(value, count),
        server_tool_use=Searches(count(searches.get("web_search_requests"))) if isinstance(searches, dict) else None,
        iterations=[
            Pass(
                type=text(entry.get("type")),
                model=text(entry.get("model")),
                cache_creation=_split(entry, count),
                **{name: count(entry.get(name)) for name in _COUNTS},
            )
            for entry in _objects(value.get("iterations"))
        ],
    )
    for name in _COUNTS:
        setattr(usage, name, count(value.get(name)))
    for name in ("speed", "service_tier", "inference_geo"):
        setattr(usage, name, text(value.get(name)))
    return usage


def _split(value: dict[str, Any], count: Callable[[Any], int | None]) -> Split | None:
    split = value.get("cache_creation")
    if not isinstance(split, dict):
        return None
    return Split(count(split.get("ephemeral_5m_input_tokens")), count(split.get("ephemeral_1h_input_tokens")))


def text(value: Any) -> str | None:
    """A storable string: clipped, and without lone surrogates."""
    if not isinstance(value, str) or not value:
        return None
    return value[:LONGEST_TEXT].encode("utf-8", "replace").decode()


def raw(value: Any) -> msgspec.Raw:
    if value is None:
        return msgspec.Raw(b"")
    try:
        return msgspec.Raw(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        return msgspec.Raw(b"")


def _objects(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _refuse(name: str) -> None:
    raise ValueError(name)


_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_TEXTS = tuple(field.name for field in msgspec.structs.fields(Record) if field.type == Text | None)

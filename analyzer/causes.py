"""Why a cache miss happened: the closed list of causes, each with the evidence that it needs. Pure; no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from analyzer.prompt_snapshots import Change

Confidence = Literal["logged", "high", "medium", "low", "none"]

DIAGNOSED_SINCE = (2, 1, 120)
SECOND_REQUEST_LIMIT = 15_000
PINNED_REQUESTS = 3
DELTA_EVENTS = frozenset({"deferred_tools_delta", "mcp_instructions_delta"})

ADVICE: Mapping[str, str] = {
    "ttl_expired_5m": "the pause outlived the 5-minute TTL: an hour (promptCacheTtl) where `ccache whatif` says so",
    "ttl_expired_1h": "the pause outlived the 1-hour TTL: /compact before a long break, or start anew after it",
    "model_changed": "each model has its own cache: switch at the start of a task",
    "fast_mode_changed": "the first fast request rebuilds the conversation: choose the speed at the start",
    "effort_changed": "choose the effort before a long conversation, not within it",
    "tools_changed": "keep the tool list stable within a session",
    "deferred_tool_loaded": "ToolSearch loaded a tool into the prefix: load tools early, while the context is small",
    "mcp_changed": "a server connected or dropped: start MCP servers before the session and remove one that flaps",
    "system_prompt_changed": "check plugins, output style and settings that differ between starts",
    "version_changed": "Claude Code was upgraded: finish long sessions before an upgrade",
    "resumed": "resuming rebuilt the prefix: keep one process open for a long session",
    "directory_changed": "the working directory or branch is part of the prompt: one session per worktree",
    "messages_rewritten": "earlier messages were changed or dropped: expect this after edits and context trimming",
    "rewind_or_branch": "the conversation continued from an earlier point, or two terminals share the session",
    "interrupted": "an interrupted request leaves no entry: let cheap requests finish",
    "skill_loaded": "a skill changed the tools: newer versions keep the cache",
    "hook_context": "a hook re-sends its context at each turn: shorten or drop its additionalContext",
    "second_request": "the tail of the first request is laid out anew: small, and not yours to change",
    "floor_pinned": "only tools and system prompt are read, again and again: a known kind of bug; try another version",
    "likely_server_side": "nothing in the request changed and the TTL had not passed: not yours to change",
    "unknown": "the log shows no reason",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """A name of the closed list. `line` is the number of the record that shows it, where a record of its own does."""

    name: str
    confidence: Confidence
    evidence: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    text: str
    line: int | None = None


def cause_of(row: Mapping[str, Any], *, ignore_diagnostics: bool = False) -> Cause:
    """The cause of one row of `rebuild_evidence`, in the order: diagnosis, then what differs, then what stands between.

    With `ignore_diagnostics` the API's own verdict is not looked at, so that inference can be measured against it.
    """
    seen = _observed(row)
    diagnosis: str | None = None if ignore_diagnostics else row["diagnostics"]
    if diagnosis is not None and diagnosis in _REFINED:
        for name in _REFINED[diagnosis]:
            if name in seen:
                return Cause(name, "logged", f"diagnostics {diagnosis}; {seen[name].text}", seen[name].line)
        return Cause(_PLAIN[diagnosis], "logged", f"diagnostics {diagnosis}")
    unchanged = not ignore_diagnostics and diagnosis is None and _always_diagnosed(row)
    for name in _INFERENCE_ORDER:
        if name in seen and not (unchanged and name in _DENIED_BY_NULL):
            return Cause(name, _CONFIDENCE.get(name, "medium"), seen[name].text, seen[name].line)
    if unchanged:
        return Cause(
            "likely_server_side", "medium", "diagnostics null: the request did not change, yet little was read"
        )
    return Cause("unknown", "none", "")


_REFINED: Mapping[str, tuple[str, ...]] = {
    "previous_message_not_found": ("ttl_expired_5m", "ttl_expired_1h"),
    "model_changed": (),
    "tools_changed": (
        "deferred_tool_loaded",
        "mcp_changed",
        "version_changed",
        "resumed",
        "skill_loaded",
        "tools_changed",
    ),
    "system_changed": (
        "fast_mode_changed",
        "version_changed",
        "mcp_changed",
        "resumed",
        "system_prompt_changed",
        "directory_changed",
    ),
    "messages_changed": (
        "effort_changed",
        "resumed",
        "rewind_or_branch",
        "interrupted",
        "skill_loaded",
        "hook_context",
        "floor_pinned",
    ),
}
_PLAIN = {
    "previous_message_not_found": "likely_server_side",
    "model_changed": "model_changed",
    "tools_changed": "tools_changed",
    "system_changed": "system_prompt_changed",
    "messages_changed": "messages_rewritten",
}
_DIFFERENCES = (
    ("model_changed", "model"),
    ("fast_mode_changed", "speed"),
    ("effort_changed", "effort"),
    ("version_changed", "version"),
    ("resumed", "entrypoint"),
    ("directory_changed", "cwd"),
    ("directory_changed", "branch"),
)
_INFERENCE_ORDER = (
    "model_changed",
    "fast_mode_changed",
    "effort_changed",
    "ttl_expired_5m",
    "ttl_expired_1h",
    "version_changed",
    "resumed",
    "tools_changed",
    "system_prompt_changed",
    "directory_changed",
    "deferred_tool_loaded",
    "mcp_changed",
    "skill_loaded",
    "rewind_or_branch",
    "interrupted",
    "hook_context",
    "messages_rewritten",
    "second_request",
    "floor_pinned",
)
# an empty diagnosis says that tools, system and messages were the same, so none of these can be the cause
_DENIED_BY_NULL = frozenset(
    {"directory_changed", "deferred_tool_loaded", "mcp_changed", "skill_loaded", "hook_context", "messages_rewritten"}
)
_CONFIDENCE: Mapping[str, Confidence] = {
    "model_changed": "high",
    "ttl_expired_5m": "high",
    "ttl_expired_1h": "high",
    "resumed": "high",
    "tools_changed": "high",
    "system_prompt_changed": "high",
    "directory_changed": "low",
    "hook_context": "low",
    "second_request": "low",
}


def _observed(row: Mapping[str, Any]) -> dict[str, Seen]:
    seen: dict[str, Seen] = {}
    gap, ttl = row["gap_s"], row["ttl_s"]
    if gap is not None and ttl is not None and gap > ttl:
        seen["ttl_expired_5m" if ttl == 300 else "ttl_expired_1h"] = Seen(f"gap {gap:,.0f} s > TTL {ttl:,} s")
    for name, field in _DIFFERENCES:
        before, after = row[f"previous_{field}"], row[field]
        if field == "speed":
            # versions that do not log it, and gateways, run at the standard speed
            before, after = before or "standard", after or "standard"
        if before and after and before != after:
            seen.setdefault(name, Seen(f"{field} {before} -> {after}"))
    tools = row["previous_tools"] or ()
    if "ToolSearch" in tools:
        seen["deferred_tool_loaded"] = Seen("ToolSearch in the previous request")
    if "Skill" in tools:
        seen["skill_loaded"] = Seen("Skill in the previous request")
    for event in row["events"] or ():
        kind, detail, line = event["kind"], event["detail"] or "", event["ordinal"]
        if kind == "session_start" and detail == "resume":
            seen["resumed"] = Seen("SessionStart:resume", line)
        elif kind in DELTA_EVENTS:
            seen["mcp_changed"] = Seen(_delta(kind, detail), line)
        elif kind == "interrupt":
            seen["interrupted"] = Seen("request interrupted by the user", line)
        elif kind == "hook_additional_context":
            seen["hook_context"] = Seen("hook context added", line)
    change: Change | None = row.get("snapshot_change")
    if change and change.tools_text:
        seen["tools_changed"] = Seen(f"prompt snapshot: {change.tools_text}", row["snapshot_line"])
    if change and change.sections_text:
        seen["system_prompt_changed"] = Seen(f"prompt snapshot: {change.sections_text}", row["snapshot_line"])
    parent, previous = row["parent_message_id"], row["previous_message_id"]
    if parent and previous and parent != previous:
        seen["rewind_or_branch"] = Seen(f"extends {parent}, not {previous}")
    if row["context_shrank"]:
        seen["messages_rewritten"] = Seen("the prompt is shorter than what was cached")
    if row["n_in_chain"] == 1 and row["lost_tokens"] < SECOND_REQUEST_LIMIT:
        seen["second_request"] = Seen("second request of its chain")
    if row["run_length"] >= PINNED_REQUESTS:
        seen["floor_pinned"] = Seen(f"read {row['read_tokens']:,} tokens {row['run_length']:,} times in a row")
    return seen


def servers_of(kind: str, detail: str | None) -> frozenset[str]:
    """MCP servers that an event of DELTA_EVENTS names: of a tool `mcp__server__tool`, or named plainly."""
    names = {name.removeprefix("-") for name in (detail or "").split(",") if name}
    tools = {name.split("__")[1] for name in names if name.startswith("mcp__") and name.count("__") >= 2}
    return frozenset(tools | {name for name in names if kind == "mcp_instructions_delta"} - {""})


def _delta(kind: str, detail: str) -> str:
    """Who came and who went, servers before single tools."""
    names = detail.split(",")
    parts = []
    for verb, chosen in (
        ("added", [name for name in names if name and not name.startswith("-")]),
        ("removed", [name for name in names if name.startswith("-")]),
    ):
        who = sorted(servers_of(kind, ",".join(chosen))) or [name.removeprefix("-") for name in chosen]
        if who:
            parts.append(f"{verb} {', '.join(who[:5])}{f' and {len(who) - 5} more' if len(who) > 5 else ''}")
    return f"{kind}: {'; '.join(parts)}"


def _always_diagnosed(row: Mapping[str, Any]) -> bool:
    """The API answers with a diagnosis on first-party calls of these versions; a cloud or gateway id has none."""
    identity = row["message_id"] or ""
    first_party = identity.startswith("msg_") and not identity.startswith(("msg_bdrk_", "msg_vrtx_"))
    return first_party and _version(row["version"]) >= DIAGNOSED_SINCE


def _version(text: str | None) -> tuple[int, ...]:
    parts = (text or "").split("-")[0].split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()

"""Attachments that may explain a miss -> (kind, detail)."""

import json
from hashlib import blake2b
from typing import Any

import msgspec

from analyzer.transcript.records import LONGEST_TEXT, any_object, text

DELTAS = frozenset({"deferred_tools_delta", "mcp_instructions_delta", "agent_listing_delta", "skill_listing"})
PLAIN_ATTACHMENTS = frozenset({"date_change", "hook_additional_context", "invoked_skills"})


def attachment_event(attachment: msgspec.Raw) -> tuple[str, str | None] | None:
    """What an attachment tells, or None. Names are kept, texts only as hashes."""
    data = any_object(attachment) or {}
    kind = text(data.get("type"))
    if kind in DELTAS:
        names = [*_names(data.get("addedNames")), *(f"-{name}" for name in _names(data.get("removedNames")))]
        return (kind, ",".join(names[:20])) if names and data.get("isInitial") is not True else None
    if kind == "hook_success":
        hook = text(data.get("hookName")) or ""
        return ("session_start", hook.partition(":")[2]) if hook.startswith("SessionStart") else None
    if kind == "prompt_snapshot":
        return kind, _snapshot(data)
    return (kind, None) if kind in PLAIN_ATTACHMENTS else None


def _snapshot(data: dict[str, Any]) -> str:
    """`system=<hash>,… tools=<name>:<hash>,…`: two snapshots differ where the prefix that was sent differs."""
    parts = data.get("systemPrompt")
    tools = data.get("tools")
    system = ",".join(_hash(part) for part in parts) if isinstance(parts, list) else ""
    named = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    listed = ",".join(f"{text(tool.get('name')) or '?'}:{_hash(tool)}" for tool in named)
    return f"system={system} tools={listed}"[: 8 * LONGEST_TEXT]


def _hash(value: Any) -> str:
    encoded = json.dumps(value, sort_keys=True).encode()
    return blake2b(encoded, digest_size=4).hexdigest()


def _names(value: Any) -> list[str]:
    return [name for item in value if (name := text(item))] if isinstance(value, list) else []

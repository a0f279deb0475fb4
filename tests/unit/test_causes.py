"""Each cause from the smallest evidence that shows it, and the order in which causes are tried."""

from typing import Any

import pytest

from analyzer.causes import ADVICE, cause_of, servers_of
from analyzer.prompt_snapshots import Change

NOTHING: dict[str, Any] = {
    "gap_s": 20.0,
    "ttl_s": 3600,
    "diagnostics": None,
    "version": "2.1.100",
    "previous_version": "2.1.100",
    "model": "m",
    "previous_model": "m",
    "speed": None,
    "previous_speed": None,
    "effort": None,
    "previous_effort": None,
    "cwd": "/a",
    "previous_cwd": "/a",
    "branch": "main",
    "previous_branch": "main",
    "previous_tools": [],
    "events": None,
    "parent_message_id": None,
    "previous_message_id": "msg_1",
    "context_shrank": False,
    "n_in_chain": 7,
    "lost_tokens": 50_000,
    "run_length": 1,
    "message_id": "msg_2",
    "entrypoint": "cli",
    "previous_entrypoint": "cli",
    "read_tokens": 12_000,
}


def event(kind: str, detail: str = "") -> dict[str, Any]:
    return {"events": [{"kind": kind, "detail": detail, "ordinal": 41}]}


INFERRED = [
    ("ttl_expired_1h", {"gap_s": 3600.5}),
    ("ttl_expired_5m", {"gap_s": 301.0, "ttl_s": 300}),
    ("model_changed", {"model": "n"}),
    ("fast_mode_changed", {"speed": "fast", "previous_speed": "standard"}),
    ("effort_changed", {"effort": "low", "previous_effort": "high"}),
    ("version_changed", {"version": "2.1.101"}),
    ("resumed", event("session_start", "resume")),
    ("directory_changed", {"cwd": "/b"}),
    ("directory_changed", {"branch": "topic"}),
    ("deferred_tool_loaded", {"previous_tools": ["Read", "ToolSearch"]}),
    ("mcp_changed", event("mcp_instructions_delta", "github")),
    ("skill_loaded", {"previous_tools": ["Skill"]}),
    ("rewind_or_branch", {"parent_message_id": "msg_0"}),
    ("interrupted", event("interrupt")),
    ("hook_context", event("hook_additional_context")),
    ("messages_rewritten", {"context_shrank": True}),
    ("second_request", {"n_in_chain": 1, "lost_tokens": 14_999}),
    ("floor_pinned", {"run_length": 3}),
    ("unknown", {"run_length": 2}),
    ("resumed", {"entrypoint": "sdk-cli"}),
    ("unknown", {}),
    ("unknown", {"gap_s": 3600.0}),
    ("unknown", {"gap_s": None}),
    ("unknown", {"n_in_chain": 1, "lost_tokens": 15_000}),
    ("unknown", event("session_start", "startup")),
]


@pytest.mark.parametrize(("name", "changes"), INFERRED)
def test_one_piece_of_evidence_names_one_cause(name: str, changes: dict[str, Any]) -> None:
    cause = cause_of({**NOTHING, **changes})
    assert cause.name == name
    assert bool(cause.evidence) is (name != "unknown")


@pytest.mark.parametrize(
    ("diagnosis", "changes", "name"),
    [
        ("previous_message_not_found", {"gap_s": 4000.0}, "ttl_expired_1h"),
        ("previous_message_not_found", {}, "likely_server_side"),
        ("tools_changed", {}, "tools_changed"),
        ("tools_changed", {"previous_tools": ["ToolSearch"]}, "deferred_tool_loaded"),
        ("system_changed", {"gap_s": 4000.0}, "system_prompt_changed"),
        ("messages_changed", {}, "messages_rewritten"),
        ("messages_changed", event("interrupt"), "interrupted"),
        ("model_changed", {}, "model_changed"),
        ("unavailable", {}, "unknown"),
        ("unavailable", {"effort": "low", "previous_effort": "high"}, "effort_changed"),
    ],
)
def test_a_definite_diagnosis_beats_inference(diagnosis: str, changes: dict[str, Any], name: str) -> None:
    assert cause_of({**NOTHING, **changes, "diagnostics": diagnosis}).name == name


def test_hidden_diagnostics_are_not_looked_at() -> None:
    row = {**NOTHING, "diagnostics": "tools_changed"}
    assert cause_of(row, ignore_diagnostics=True).name == "unknown"


def test_an_empty_diagnosis_of_a_version_that_always_diagnoses_points_at_the_server() -> None:
    row = {**NOTHING, "version": "2.1.120", "previous_version": "2.1.120"}
    assert cause_of(row).name == "likely_server_side"
    assert cause_of(row, ignore_diagnostics=True).name == "unknown"


def test_null_of_a_cloud_or_gateway_id_proves_nothing() -> None:
    for identity in ("msg_bdrk_1", "msg_vrtx_1", "chatcmpl-1", None):
        row = {**NOTHING, "version": "2.1.120", "previous_version": "2.1.120", "message_id": identity}
        assert cause_of(row).name == "unknown"


def test_null_denies_what_would_have_changed_the_request_but_not_time() -> None:
    new = {**NOTHING, "version": "2.1.200", "previous_version": "2.1.200"}
    assert cause_of({**new, **event("hook_additional_context")}).name == "likely_server_side"
    assert cause_of({**new, **event("hook_additional_context"), "gap_s": 3601.0}).name == "ttl_expired_1h"


def test_evidence_names_the_record_and_the_server() -> None:
    row = {**NOTHING, **event("deferred_tools_delta", "mcp__github__issues,mcp__github__pulls,-mcp__jira__find")}
    cause = cause_of(row)
    assert (cause.name, cause.line) == ("mcp_changed", 41)
    assert cause.evidence == "deferred_tools_delta: added github; removed jira"
    assert servers_of("mcp_instructions_delta", "-sentry") == {"sentry"}
    assert servers_of("deferred_tools_delta", "WebFetch") == frozenset()


def test_prompt_snapshots_name_the_tool_or_the_section() -> None:
    change = Change(("mcp__github__issues",), "tools added mcp__github__issues", "system section 2 of 3 changed")
    row = {**NOTHING, "snapshot_change": change, "snapshot_line": 40}
    cause = cause_of(row)
    assert (cause.name, cause.confidence, cause.line) == ("tools_changed", "high", 40)
    assert cause.evidence == "prompt snapshot: tools added mcp__github__issues"
    told = cause_of({**row, "diagnostics": "system_changed", "cwd": "/b"})
    assert (told.name, told.confidence) == ("system_prompt_changed", "logged")
    assert told.evidence == "diagnostics system_changed; prompt snapshot: system section 2 of 3 changed"
    assert cause_of({**row, "gap_s": 4000.0}).name == "ttl_expired_1h", "an entry that expired needs no other cause"


def test_every_cause_has_its_advice() -> None:
    assert {name for name, _ in INFERRED} <= set(ADVICE)

"""Merge one line's usage into its sighting: every token field is the maximum over the request's lines."""

from analyzer.transcript.records import Diagnostics, Message, Pass, Split
from analyzer.transcript.rows import Iteration, Sighting

_NO_SPLIT = Split()


def merge(row: Sighting, message: Message) -> None:
    """`message.usage` must be there. The list of iterations is that of the line with the largest output."""
    usage = message.usage
    assert usage is not None
    row.lines += 1
    split = usage.cache_creation or _NO_SPLIT
    five, hour = split.ephemeral_5m_input_tokens or 0, split.ephemeral_1h_input_tokens or 0
    if split.ephemeral_5m_input_tokens is not None or split.ephemeral_1h_input_tokens is not None:
        row.has_split = True
    if (value := usage.input_tokens) and value > row.input:
        row.input = value
    if (value := usage.cache_read_input_tokens) and value > row.cache_read:
        row.cache_read = value
    if (value := usage.cache_creation_input_tokens) and value > row.creation_flat:
        row.creation_flat = value
    if five > row.creation_5m:
        row.creation_5m = five
    if hour > row.creation_1h:
        row.creation_1h = hour
    if usage.server_tool_use and (value := usage.server_tool_use.web_search_requests) and value > row.web_searches:
        row.web_searches = value
    row.speed = usage.speed or row.speed
    row.service_tier = usage.service_tier or row.service_tier
    row.inference_geo = usage.inference_geo or row.inference_geo
    row.stop_reason = message.stop_reason or row.stop_reason
    if message.diagnostics is not None:
        diagnose(row, message.diagnostics)
    output = usage.output_tokens or 0
    if output > row.output:
        row.output = output
    if output > row.iterations_output:
        row.iterations_output = output
        entries = usage.iterations or ()
        row.iterations = [_iteration(entry, row.model) for entry in entries] if len(entries) > 1 else None


def diagnose(row: Sighting, diagnostics: Diagnostics) -> None:
    """The API's own diagnosis: the first that is not null; "none" where it said that nothing was missed."""
    if row.diagnostics in (None, "none"):
        reason = diagnostics.cache_miss_reason
        row.diagnostics = (reason and reason.type) or "none"


def _iteration(entry: Pass, model: str) -> Iteration:
    split = entry.cache_creation or _NO_SPLIT
    five, hour = split.ephemeral_5m_input_tokens or 0, split.ephemeral_1h_input_tokens or 0
    return Iteration(
        kind=entry.type or "message",
        model=entry.model or model,
        input_tokens=entry.input_tokens or 0,
        cache_read_tokens=entry.cache_read_input_tokens or 0,
        cache_creation_5m_tokens=five + max(0, (entry.cache_creation_input_tokens or 0) - five - hour),
        cache_creation_1h_tokens=hour,
        output_tokens=entry.output_tokens or 0,
    )

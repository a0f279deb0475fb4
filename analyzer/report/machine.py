"""Reports for programs and pages: JSON (exact), CSV (exact, one table) and Markdown (rounded as on the terminal)."""

import csv
import io
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from analyzer.report.findings import findings_json, findings_markdown
from analyzer.report.formatting import (
    clean_text,
    counted,
    escape_markdown,
    format_count,
    format_moment,
    format_percent,
    format_tokens,
    format_usd,
    plain_decimal,
    share,
    zone_of,
)
from analyzer.results import AnalyzeReport, GroupRow, IngestResult, Meta, Quality, Totals, UnpricedModel

ROW_COLUMNS = (
    "key", "label", "requests", "input_tokens", "cache_creation_5m_tokens", "cache_creation_1h_tokens",
    "cache_read_tokens", "output_tokens", "cost_usd", "unpriced_requests", "hit_rate", "misses", "expected_rebuilds",
    "rewritten_tokens",
)  # fmt: skip
CSV_TABLES = ("model", "project", "session", "day", "agent_type", "ttl", "version")


def analyze_json(report: AnalyzeReport) -> dict[str, Any]:
    """Ready for json.dumps: money as exact decimal strings, times in ISO 8601, what is not known as null."""
    tables = {f"by_{by}": _table(report, by) for by in CSV_TABLES}
    return {
        "meta": _record(report.meta),
        "totals": _totals(report.totals),
        "findings": findings_json(report.findings),
        **tables,
        "quality": _record(report.quality),
        "ingest": _record(report.ingest),
    }


def analyze_csv(report: AnalyzeReport, by: str) -> str:
    if by not in CSV_TABLES:
        raise ValueError(f"no table {by!r}; one of {', '.join(CSV_TABLES)}")
    columns = ("day", *ROW_COLUMNS) if by == "day" else ROW_COLUMNS
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    for row in _table(report, by):
        writer.writerow(row | {"key": csv_text(row["key"]), "label": csv_text(row["label"])})
    return out.getvalue()


def analyze_markdown(report: AnalyzeReport, top: int = 10) -> str:
    totals, usage = report.totals, report.totals.usage
    everything = usage.prompt_tokens + usage.output_tokens
    spend = format_usd(usage.cost_usd) if usage.requests else "none"
    lines = ["# Prompt cache report", ""]
    if report.meta.sample_data:
        lines += ["**Sample data, not your sessions.**", ""]
    lines += [
        f"API-equivalent cost **{spend}** over {counted(usage.requests, 'request')}, "
        f"hit rate **{format_percent(usage.hit_rate)}**. "
        f"Prices: {escape_markdown(report.meta.price_source)}, {escape_markdown(report.meta.price_date)}.",
        "",
        *(f"- {escape_markdown(line)}" for line in scope_lines(report)),
        "",
    ]
    if usage.requests:
        lines += findings_markdown(report.findings)
    lines += markdown_table(
        ("Class", "Tokens", "Share", "Cost"),
        [
            (name, format_tokens(tokens), format_percent(share(tokens, everything)), _usd_of(totals, cost))
            for name, tokens, cost in classes_of(totals)
        ],
    )
    lines += [
        f"- Without caching: {_usd_of(totals, totals.uncached_cost_usd)}; saved: {_usd_of(totals, totals.saved_usd)}",
        f"- Written again by misses: {format_tokens(totals.miss_rewritten_tokens)} tokens in "
        f"{counted(totals.misses, 'miss')}, {_usd_of(totals, totals.miss_rewrite_cost_usd)}",
        f"- Written again by expected rebuilds: {format_tokens(totals.expected_rewritten_tokens)} tokens in "
        f"{counted(totals.expected_rebuilds, 'rebuild')}, {_usd_of(totals, totals.expected_rewrite_cost_usd)}",
        "",
    ]
    for title, rows in (
        ("Models", top_rows(report.by_model, top)),
        ("Projects", top_rows(report.by_project, top)),
        ("Sessions", top_rows(report.by_session, top)),
        ("Main and subagents", report.by_agent_type),
        ("Time to live of writes", report.by_ttl),
        ("Days", tuple(day.row for day in report.by_day)),
    ):
        if rows:
            lines += [f"## {title}", "", *_markdown_rows(rows)]
    lines += ["## Not in the numbers, or not exact in them", ""]
    lines += [f"- {escape_markdown(text)}: {format_count(count)}" for text, count in missing_from(report.quality)]
    for model in report.quality.unpriced_models:
        lines.append(f"- {escape_markdown(unpriced_line(model))}")
    return "\n".join(lines) + "\n"


def scope_lines(report: AnalyzeReport) -> tuple[str, ...]:
    """The period and the filters that the numbers hold for; not cleaned."""
    meta, usage = report.meta, report.totals.usage
    zone = zone_of(meta.timezone)
    since, until = (
        format_moment(moment, zone) for moment in (meta.since or usage.first_at, meta.until or usage.last_at)
    )
    chosen = (("projects", meta.projects), ("models", meta.models))
    return (
        f"{since or 'first log'} to {until or 'now'}, {meta.timezone}",
        *(f"only {what}: {', '.join(names)}" for what, names in chosen if names),
    )


def classes_of(totals: Totals) -> tuple[tuple[str, int, Decimal], ...]:
    """The billing classes in the order that every report shows them."""
    usage = totals.usage
    return (
        ("Cache writes, 5m", usage.cache_creation_5m_tokens, totals.cache_creation_5m_cost_usd),
        ("Cache writes, 1h", usage.cache_creation_1h_tokens, totals.cache_creation_1h_cost_usd),
        ("Cache reads", usage.cache_read_tokens, totals.cache_read_cost_usd),
        ("Uncached input", usage.input_tokens, totals.input_cost_usd),
        ("Output", usage.output_tokens, totals.output_cost_usd),
    )


def top_rows(rows: Sequence[GroupRow], top: int) -> tuple[GroupRow, ...]:
    """The dearest first; unpriced rows last, by tokens."""
    ranked = sorted(
        rows, key=lambda row: (row.cost_usd is not None, row.cost_usd or 0, row.prompt_tokens), reverse=True
    )
    return tuple(ranked[: max(0, top)])


def missing_from(quality: Quality) -> tuple[tuple[str, int], ...]:
    """What is not in the numbers, or only as a bound. The first six always, the rest where they happened."""
    always = (
        ("requests with no known price, tokens counted, cost not", quality.unpriced_requests),
        ("requests whose output tokens are a lower bound", quality.output_lower_bound_requests),
        ("broken lines skipped", quality.broken_lines),
        ("title calls that logs never hold", quality.titles_without_usage),
        ("recap calls that logs never hold", quality.recaps_without_usage),
        ("compaction calls that logs never hold", quality.compactions_without_usage),
    )
    where_any = (
        ("files no longer on disk, kept from before", quality.files_missing),
        ("files that could not be read", quality.files_unreadable),
        ("interrupted requests, possibly billed more", quality.interrupted_requests),
        ("API errors retried, usage unknown", quality.api_error_retries),
        ("requests known only from progress lines", quality.progress_only_requests),
        ("requests whose date is estimated", quality.date_estimated_requests),
        ("requests of unknown region, no surcharge", quality.region_unknown_requests),
        ("priority-tier requests at standard price", quality.priority_tier_requests),
        ("requests with no TTL split, assumed 5m", quality.ttl_assumed_5m_requests),
        ("requests of several iterations", quality.several_iterations_requests),
        ("invalid usage fields", quality.invalid_usage_fields),
        ("requests with zero usage", quality.zero_usage_requests),
        ("synthetic lines, not API calls", quality.synthetic_lines),
        ("copies of requests, counted once", quality.copied_requests),
        ("split lines merged into their request", quality.split_lines_merged),
    )
    return always + tuple(note for note in where_any if note[1])


def unpriced_line(model: UnpricedModel) -> str:
    return (
        f"no price for {clean_text(model.model)}: {format_count(model.requests)} requests, "
        f"{format_tokens(model.prompt_tokens)} prompt, {format_tokens(model.output_tokens)} output tokens"
    )


def _table(report: AnalyzeReport, by: str) -> list[dict[str, Any]]:
    if by == "day":
        return [{"day": day.day.isoformat(), **_row(day.row)} for day in report.by_day]
    rows: tuple[GroupRow, ...] = getattr(report, f"by_{by}")
    return [_row(row) for row in rows]


def _row(row: GroupRow) -> dict[str, Any]:
    return {column: _plain(getattr(row, column)) for column in ROW_COLUMNS}


def _totals(totals: Totals) -> dict[str, Any]:
    """The total row and everything beside it; money is null where nothing could be priced."""
    priced = totals.usage.cost_usd is not None
    beside = {field.name: getattr(totals, field.name) for field in fields(totals) if field.name != "usage"}
    beside["saved_usd"] = totals.saved_usd
    return _row(totals.usage) | {
        name: None if name.endswith("_usd") and not priced else _plain(value) for name, value in beside.items()
    }


def _record(record: Meta | Quality | IngestResult | UnpricedModel) -> dict[str, Any]:
    return {field.name: _plain(getattr(record, field.name)) for field in fields(record)}


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return plain_decimal(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, UnpricedModel):
        return _record(value)
    return value


def csv_text(text: str) -> str:
    """A spreadsheet must not take a name for a formula; '-home-me-project' is a plain name."""
    formula = text.startswith(("=", "+", "@")) or (text.startswith("-") and any(sign in text for sign in "=|(!"))
    return f"'{text}" if formula else text


def _usd_of(totals: Totals, cost: Decimal) -> str:
    return format_usd(None if totals.usage.cost_usd is None else cost)


def _markdown_rows(rows: Sequence[GroupRow]) -> list[str]:
    header = ("Name", "Requests", "Cost", "Hit rate", "Input", "Write 5m", "Write 1h", "Read", "Output", "Misses",
              "Rebuilds", "Written again")  # fmt: skip
    return markdown_table(
        header,
        [
            (
                escape_markdown(row.label),
                format_count(row.requests),
                format_usd(row.cost_usd) + ("\\*" if row.unpriced_requests and row.cost_usd is not None else ""),
                format_percent(row.hit_rate),
                format_tokens(row.input_tokens),
                format_tokens(row.cache_creation_5m_tokens),
                format_tokens(row.cache_creation_1h_tokens),
                format_tokens(row.cache_read_tokens),
                format_tokens(row.output_tokens),
                format_count(row.misses),
                format_count(row.expected_rebuilds),
                format_tokens(row.rewritten_tokens),
            )
            for row in rows
        ],
    )


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells are escaped already."""
    ruler = ["---"] + ["---:"] * (len(header) - 1)
    return [f"| {' | '.join(cells)} |" for cells in (header, ruler, *rows)] + [""]

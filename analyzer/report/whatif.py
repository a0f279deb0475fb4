"""`ccache whatif`: the scenarios as JSON, CSV and Markdown, and the sentences that every format has."""

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from analyzer.report.formatting import (
    NOT_KNOWN,
    clean_text,
    escape_markdown,
    format_count,
    format_percent,
    format_usd,
    plain_decimal,
)
from analyzer.report.machine import csv_text, markdown_table
from analyzer.whatif.results import ChainCosts, GroupCosts, Kind, ScenarioRow, WhatIfReport

COLUMNS = (
    "name", "cost_usd", "delta_usd", "delta_rate", "cache_read_tokens", "cache_creation_5m_tokens",
    "cache_creation_1h_tokens", "input_tokens", "output_tokens", "assumptions", "confidence",
)  # fmt: skip


def whatif_json(report: WhatIfReport) -> dict[str, Any]:
    """`scenarios` with `actual` first; money as exact decimal strings, null where no public price exists."""
    names = [row.name for row in report.scenarios]
    return {
        "scenarios": [scenario_row(row) for row in (report.actual, *report.scenarios)],
        "groups": [_group(group, names) for group in report.groups],
        "cheaper_without_cache": [_chain(chain) for chain in report.cheaper_without_cache],
        "requests": report.requests,
        "unpriced_requests": report.unpriced_requests,
        "price_source": clean_text(report.price_source),
        "price_date": report.price_date,
    }


def scenario_row(row: ScenarioRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "cost_usd": plain_decimal(row.cost_usd),
        "delta_usd": plain_decimal(row.delta_usd),
        "delta_rate": row.delta_rate,
        "cache_read_tokens": row.usage.cache_read_tokens,
        "cache_creation_5m_tokens": row.usage.cache_creation_5m_tokens,
        "cache_creation_1h_tokens": row.usage.cache_creation_1h_tokens,
        "input_tokens": row.usage.input_tokens,
        "output_tokens": row.usage.output_tokens,
        "assumptions": list(row.assumptions),
        "confidence": row.confidence,
    }


def _group(group: GroupCosts, names: Sequence[str]) -> dict[str, Any]:
    return {
        "key": clean_text(group.key),
        "label": clean_text(group.label),
        "actual_usd": plain_decimal(group.actual_usd),
        "scenarios": [
            {
                "name": name,
                "cost_usd": plain_decimal(cost),
                "delta_usd": None if cost is None else plain_decimal(cost - group.actual_usd),
            }
            for name, cost in zip(names, group.costs_usd, strict=True)
        ],
    }


def _chain(chain: ChainCosts) -> dict[str, Any]:
    return {
        "session_id": clean_text(chain.session_id),
        "project": clean_text(chain.project),
        "agent_id": None if chain.agent_id is None else clean_text(chain.agent_id),
        "requests": chain.requests,
        "actual_usd": plain_decimal(chain.actual_usd),
        "uncached_usd": plain_decimal(chain.uncached_usd),
    }


def whatif_csv(report: WhatIfReport) -> str:
    """The scenarios, one a line; with groups, one line for each group and scenario."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if report.groups:
        writer.writerow(("key", "name", "cost_usd", "delta_usd"))
        names = [row.name for row in report.scenarios]
        for group in report.groups:
            key = csv_text(clean_text(group.key))
            writer.writerow((key, "actual", plain_decimal(group.actual_usd), "0"))
            for name, cost in zip(names, group.costs_usd, strict=True):
                delta = None if cost is None else plain_decimal(cost - group.actual_usd)
                writer.writerow((key, name, plain_decimal(cost), delta))
        return out.getvalue()
    writer.writerow(COLUMNS)
    for row in (report.actual, *report.scenarios):
        cells = scenario_row(row) | {"assumptions": "; ".join(row.assumptions)}
        writer.writerow([cells[column] for column in COLUMNS])
    return out.getvalue()


def whatif_markdown(report: WhatIfReport, top: int) -> str:
    lines = ["# What if", "", *(escape_markdown(line) for line in headline(report)), ""]
    rows = [
        (
            escape_markdown(row.name),
            cost_cell(row.cost_usd),
            delta_cell(row.delta_usd),
            rate_cell(row.delta_rate),
            escape_markdown(row.gist),
            row.confidence,
        )
        for row in (report.actual, *report.scenarios)
    ]
    lines += markdown_table(("Scenario", "Cost", "Change", "Change, %", "Assumes", "Confidence"), rows)
    if report.groups:
        lines += markdown_table(
            ("", "Actual", "Best scenario", "Cost", "Change"), best_cells(report, top, markdown=True)
        )
    lines += [escape_markdown(line) for line in notes(report)]
    return "\n".join(lines) + "\n"


def headline(report: WhatIfReport) -> list[str]:
    """What would have saved most; of settings alone; with other answers or terms."""
    if not report.requests:
        return ["No request in scope."]
    if report.actual.cost_usd is None:
        return ["No request in scope has a known price: give rates with --prices FILE."]
    actual = format_usd(report.actual.cost_usd)
    best = _cheapest(report, ("cache", "work"))
    setting = _cheapest(report, ("cache",))
    lines = []
    if best is None and any(row.kind in ("cache", "work") for row in report.scenarios):
        lines = [f"No cache setting or habit in this table beats what was done ({actual})."]
    elif best is not None:
        lines = [f"{_saving(best)} of {actual} would have been saved by {best.name}: {best.gist}."]
    if setting is not None and setting is not best:
        lines.append(f"Of settings alone, {setting.name} saves most: {_saving(setting)}, {setting.gist}.")
    elif best is not None and setting is None:
        lines.append("No cache setting alone beats the one in force.")
    other = _cheapest(report, ("price", "model", "combination"))
    if other is not None:
        lines.append(f"With other answers or on other terms: {other.name}, {_saving(other)} saved of {actual}.")
    return lines or [f"Nothing here would have been cheaper than what was done ({actual})."]


def _cheapest(report: WhatIfReport, kinds: Sequence[Kind]) -> ScenarioRow | None:
    cheaper = [row for row in report.scenarios if row.kind in kinds and (row.delta_usd or 0) < 0]
    return min(cheaper, key=lambda row: row.delta_usd or Decimal(0), default=None)


def _saving(row: ScenarioRow) -> str:
    rate = format_percent(-(row.delta_rate or 0))
    return f"{format_usd(-(row.delta_usd or Decimal(0)))} ({rate}, confidence {row.confidence})"


def tells_uncached(report: WhatIfReport) -> bool:
    """Whether chains that were better off without a cache belong in the report."""
    asked = not report.chosen or any(row.name == "no-cache" for row in report.scenarios)
    return asked and bool(report.cheaper_without_cache)


def notes(report: WhatIfReport) -> list[str]:
    lines = []
    if tells_uncached(report):
        chains = report.cheaper_without_cache
        saved = sum((chain.actual_usd - chain.uncached_usd for chain in chains), Decimal(0))
        lines.append(
            f"{format_count(len(chains))} chains would have been cheaper with no cache at all, by {format_usd(saved)}"
            " in all: they wrote what nobody read."
        )
    if report.unpriced_requests:
        lines.append(f"{format_count(report.unpriced_requests)} requests have no known price and are in no scenario.")
    lines.append(f"API-equivalent cost; prices: {report.price_source}, {report.price_date}.")
    return lines


def best_cells(report: WhatIfReport, top: int, *, markdown: bool = False) -> list[tuple[str, ...]]:
    """For each group its cheapest scenario: (name, actual, scenario, cost, change); in the table of all scenarios,
    only of those that leave model and terms alone."""
    found: list[tuple[str, ...]] = []
    kinds = ("price", "model", "cache", "work", "combination") if report.chosen else ("cache", "work")
    for group in report.groups[:top]:
        costs = [
            (cost, row.name)
            for cost, row in zip(group.costs_usd, report.scenarios, strict=True)
            if cost is not None and row.kind in kinds
        ]
        cost, name = min(costs, default=(group.actual_usd, "actual"))
        if cost >= group.actual_usd:
            cost, name = group.actual_usd, "actual"
        label = escape_markdown(group.label) if markdown else group.label
        found.append((label, format_usd(group.actual_usd), name, format_usd(cost), delta_cell(cost - group.actual_usd)))
    return found


def cost_cell(usd: Decimal | None) -> str:
    return NOT_KNOWN if usd is None else format_usd(usd)


def delta_cell(usd: Decimal | None) -> str:
    if usd is None:
        return NOT_KNOWN
    return f"+{format_usd(usd)}" if usd > 0 else format_usd(usd)


def rate_cell(rate: float | None) -> str:
    if rate is None:
        return NOT_KNOWN
    return f"+{format_percent(rate)}" if rate > 0 else format_percent(rate)

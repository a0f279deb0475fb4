"""`ccache session` for programs: JSON and CSV."""

import csv
import io
from datetime import datetime
from decimal import Decimal
from typing import Any

from analyzer.report.formatting import clean_text, plain_decimal
from analyzer.report.machine import csv_text
from analyzer.report.misses import signature_row
from analyzer.results import SessionReport, SessionRequest, SpawnRow

REQUEST_COLUMNS = (
    "lane", "n", "message_id", "agent_id", "timestamp", "started_at", "model", "version", "effort", "speed",
    "input_tokens", "cache_read_tokens", "cache_creation_5m_tokens", "cache_creation_1h_tokens", "output_tokens",
    "prompt_tokens", "gap_s", "ttl_s", "readable_tokens", "lost_tokens", "mark", "cause", "signature", "evidence",
    "rewrite_cost_usd", "cost_usd", "location",
)  # fmt: skip


def session_json(report: SessionReport) -> dict[str, Any]:
    """The session, its `requests`, `events`, `agents` and `signatures`; money exact, times in UTC."""
    first = report.first
    return {
        "session_id": clean_text(report.session_id),
        "project": clean_text(report.project),
        "requests": [_request_row(request) for request in report.requests],
        "events": [
            {
                "timestamp": _iso(event.timestamp),
                "lane": clean_text(event.lane),
                "kind": event.kind,
                "detail": None if event.detail is None else clean_text(event.detail),
                "location": clean_text(event.location),
            }
            for event in report.events
        ],
        "agents": [agent_row(agent) for agent in report.agents],
        "signatures": [signature_row(row) for row in report.signatures],
        "first_request": first
        and {
            "cache_read_tokens": first.cache_read_tokens,
            "warm_rate": first.warm_rate,
            "thanks_to": first.whose and clean_text(first.whose),
            "written_at": _iso(first.written_at),
        },
    }


def agent_row(spawn: SpawnRow) -> dict[str, Any]:
    """One subagent for programs; `matched` is the proof of its verdict."""
    return {
        "session_id": clean_text(spawn.session_id),
        "agent_id": clean_text(spawn.agent_id),
        "agent_type": clean_text(spawn.agent_type),
        "model": clean_text(spawn.model),
        "started_at": _iso(spawn.started_at),
        "requests": spawn.requests,
        "first_read_tokens": spawn.first_read_tokens,
        "first_creation_tokens": spawn.first_creation_tokens,
        "verdict": spawn.verdict,
        "matched": {
            "whose": clean_text(spawn.whose),
            "position_tokens": spawn.position_tokens,
            "written_at": _iso(spawn.written_at),
        }
        if spawn.whose
        else None,
        "cost_usd": plain_decimal(spawn.cost_usd),
    }


def session_csv(report: SessionReport) -> str:
    """One row per request, the columns of the JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(REQUEST_COLUMNS)
    for request in report.requests:
        row = _request_row(request)
        row["evidence"] = "; ".join(row["evidence"])
        writer.writerow([csv_text(cell) if isinstance(cell, str) else cell for cell in row.values()])
    return out.getvalue()


def _request_row(request: SessionRequest) -> dict[str, Any]:
    rebuild = request.rebuild
    values = {
        "cause": rebuild and rebuild.cause,
        "signature": rebuild and rebuild.signature,
        "evidence": list(rebuild.evidence) if rebuild else [],
        "rewrite_cost_usd": rebuild and rebuild.rewrite_cost_usd,
    }
    row: dict[str, Any] = {}
    for name in REQUEST_COLUMNS:
        value = values[name] if name in values else getattr(request, name)
        if isinstance(value, Decimal):
            value = plain_decimal(value)
        elif isinstance(value, datetime):
            value = _iso(value)
        elif isinstance(value, str):
            value = clean_text(value)
        elif isinstance(value, list):
            value = [clean_text(part) for part in value]
        row[name] = value
    return row


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")

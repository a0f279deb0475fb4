"""`ccache session`: which session an id names, what its timeline holds, and how it looks from 5 to 5,000 requests."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path

import duckdb
import pytest
from rich.console import Console

from analyzer import database, discovery
from analyzer.errors import UsageError
from analyzer.ingest import ingest
from analyzer.queries import Scope, session
from analyzer.report.session import render_session, session_markdown
from analyzer.report.session_rows import session_csv, session_json
from analyzer.results import SessionReport, SessionRequest
from fixtures.session_log import Log, text

FIRST, SECOND = "5a3c1d10-0000-4000-8000-000000000001", "5a3cb7e2-0000-4000-8000-000000000002"


@pytest.fixture
def samples() -> Iterator[duckdb.DuckDBPyConnection]:
    with database.connect(":memory:") as connection:
        found, unreadable = discovery.find_transcripts([str(discovery.sample_root())])
        ingest(connection, found, unreadable, now=datetime(2026, 11, 29, tzinfo=UTC))
        yield connection


def test_ids_that_begin_alike_are_named_as_far_as_they_differ(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        log = Log(f"session_01a{number}b")
        log.ask(number)
        log.answer(number + 5, f"msg_alike_{number}", i=10, o=5)
        (tmp_path / f"{log.session}.jsonl").write_bytes(text(log))
    with database.connect(":memory:") as connection:
        ingest(connection, *discovery.find_transcripts([str(tmp_path)]), now=datetime(2026, 11, 29, tzinfo=UTC))
        for asked in ("session_", "elsewhere"):
            with pytest.raises(UsageError) as caught:
                session(connection, Scope(), asked)
            assert "session_01a3, session_01a2, session_01a1" in (caught.value.hint or "")


def test_a_clock_that_was_set_back_keeps_the_order(tmp_path: Path) -> None:
    log = Log("s1")
    for number, second in enumerate((10, -60, -50), 1):
        log.ask(second)
        log.answer(second + 5, f"msg_{number}", w5=500, r=9_000 if number > 1 else 0, o=50)
    (tmp_path / "s1.jsonl").write_bytes(text(log))
    with database.connect(":memory:") as connection:
        ingest(connection, *discovery.find_transcripts([str(tmp_path)]), now=datetime(2026, 11, 29, tzinfo=UTC))
        report = session(connection, Scope(), "s1")
    assert [(request.message_id, request.mark) for request in report.requests] == [
        ("msg_1", "first"), ("msg_2", None), ("msg_3", None),
    ]  # fmt: skip


def drawn(report: SessionReport, width: int = 80, **options: object) -> str:
    out = StringIO()
    render_session(report, Console(file=out, width=width, force_terminal=False), **options)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize(
    ("asked", "found"), [(FIRST, FIRST), (SECOND.upper(), SECOND), (SECOND[:36], SECOND), ("latest", SECOND)]
)
def test_an_id_its_beginning_or_latest(samples: duckdb.DuckDBPyConnection, asked: str, found: str) -> None:
    assert session(samples, Scope(), asked).session_id == found


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        ("5a3c", "2 sessions begin with 5a3c", "5a3cb7e2, 5a3c1d10"),
        ("5a3c1d11", "no session begins with 5a3c1d11", "did you mean 5a3c1d10"),
        ("zz", "no session begins with zz", "the latest are 5a3cb7e2, 5a3c1d10"),
        ("", "no session begins with ", "latest"),
    ],
)
def test_ambiguous_or_unknown(samples: duckdb.DuckDBPyConnection, asked: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        session(samples, Scope(), asked)
    assert caught.value.message == message
    assert hint in (caught.value.hint or "")


def test_nothing_in_scope(samples: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UsageError, match="no session in this scope"):
        session(samples, Scope(projects=("nowhere",)), "latest")


def test_json_has_every_request_mark_and_agent(samples: duckdb.DuckDBPyConnection) -> None:
    rows = session_json(session(samples, Scope(), FIRST))
    main = [row for row in rows["requests"] if row["lane"] == "main"]
    assert [row["n"] for row in main] == list(range(1, 34))
    assert {row["mark"]: row["cause"] for row in main if row["mark"]} == {
        "first": None, "miss": "ttl_expired_1h", "expected": "compaction",
    }  # fmt: skip
    (miss,) = [row for row in main if row["mark"] == "miss"]
    assert (miss["gap_s"], miss["ttl_s"], miss["readable_tokens"], miss["lost_tokens"]) == (
        4300.0,
        3600,
        57_800,
        43_800,
    )
    assert miss["rewrite_cost_usd"] == "0.34164"
    assert miss["location"] in miss["evidence"]
    assert [agent["agent_type"] for agent in rows["agents"]] == ["Explore", "Explore"]
    assert sum(agent["requests"] for agent in rows["agents"]) == len(rows["requests"]) - len(main)
    assert {event["kind"] for event in rows["events"]} >= {"compact_boundary"}
    total = sum(Decimal(row["cost_usd"]) for row in rows["requests"])
    agents = sum(Decimal(agent["cost_usd"]) for agent in rows["agents"])
    assert agents == sum(Decimal(row["cost_usd"]) for row in rows["requests"] if row["lane"] != "main") < total


def test_csv_and_markdown_have_the_same_requests(samples: duckdb.DuckDBPyConnection) -> None:
    report = session(samples, Scope(), FIRST)
    rows = list(csv.DictReader(io.StringIO(session_csv(report))))
    assert len(rows) == len(report.requests) == 45
    assert session_markdown(report, 5, True).count("\n| main ") == 33
    assert "40 more requests: --all" in session_markdown(report, 5, False)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_it_fits_and_shows_the_miss(samples: duckdb.DuckDBPyConnection, width: int) -> None:
    report = session(samples, Scope(), FIRST)
    text = drawn(report, width)
    assert all(len(line) <= width for line in text.splitlines())
    if width >= 80:
        assert "ttl_expired_1h, lost 43.8k" in text
        assert "Explore: 6 requests" in text
        assert "compaction (expected)" in text


def long_report(report: SessionReport, count: int) -> SessionReport:
    first, healthy = report.requests[0], report.requests[1]
    requests: list[SessionRequest] = [first]
    requests += [
        replace(healthy, n=n, timestamp=healthy.timestamp + timedelta(seconds=9 * n), cost_usd=Decimal("0.01"))
        for n in range(2, count + 1)
    ]
    miss = next(request for request in report.requests if request.mark == "miss")
    requests[count // 2] = replace(miss, n=count // 2 + 1, timestamp=requests[count // 2].timestamp)
    return replace(report, requests=tuple(requests), agents=(), events=())


def test_five_thousand_requests_are_folded(samples: duckdb.DuckDBPyConnection) -> None:
    report = long_report(session(samples, Scope(), FIRST), 5_000)
    text = drawn(report, top=10)
    lines = text.splitlines()
    assert len(lines) < 60
    assert "Requests, 10 of 5,000" in text
    assert "ttl_expired_1h" in text
    assert len(drawn(replace(report, requests=report.requests[:600]), everything=True).splitlines()) > 600


def test_folds_hold_all_the_money(samples: duckdb.DuckDBPyConnection) -> None:
    """Shown plus folded rows add up to the session: no request is lost between them."""
    report = long_report(session(samples, Scope(), FIRST), 50)
    text = drawn(report, top=4)
    folds = [line.split() for line in text.splitlines() if line.strip().startswith("...")]
    folded = sum(int(words[words.index("requests,") - 1]) for words in folds)
    assert folded + 4 == 50


def test_ascii_terminals_get_ascii(samples: duckdb.DuckDBPyConnection) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    render_session(session(samples, Scope(), FIRST), Console(file=out, width=80, force_terminal=False))
    out.seek(0)
    assert "# written" in out.read()

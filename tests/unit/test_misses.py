"""`ccache misses` on the sample sessions: two misses by expiry and one compaction, worked out by hand."""

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from analyzer import database, discovery
from analyzer.errors import UsageError
from analyzer.ingest import ingest
from analyzer.queries import Scope, misses
from analyzer.report.misses import SIGNATURE_COLUMNS, misses_csv, misses_json, misses_markdown, render_misses, summary
from analyzer.results import MissReport


def sample_report(causes: tuple[str, ...] = (), timezone: str = "UTC") -> MissReport:
    with database.connect(":memory:") as connection:
        found, unreadable = discovery.find_transcripts([str(discovery.sample_root())])
        ingest(connection, found, unreadable, now=datetime(2026, 11, 29, tzinfo=UTC))
        return misses(connection, Scope(timezone=timezone), causes=causes)


def test_causes_and_their_price() -> None:
    report = sample_report()
    assert [(miss.cause, miss.lost_tokens, miss.gap_s, miss.ttl_s) for miss in report.misses] == [
        # 24,000 + 13 x 2,600 cached, 14,000 read after 4,300 s; then 18,000 + 6 x 2,100 cached, 12,000 read after 540 s
        ("ttl_expired_1h", 43_800, 4_300.0, 3_600),
        ("ttl_expired_5m", 18_600, 540.0, 300),
    ]
    # opus-5-5: 1h write 8, read 0.20; sonnet-5-5 after 2026-10-07: 5m write 2.50, read 0.10 (USD per million tokens)
    assert [miss.rewrite_cost_usd for miss in report.misses] == [Decimal("0.34164"), Decimal("0.04464")]
    assert [rebuild.cause for rebuild in report.expected_rebuilds] == ["compaction"]
    assert [(row.key, row.misses) for row in report.by_cause] == [("ttl_expired_1h", 1), ("ttl_expired_5m", 1)]


def test_what_was_lost_and_what_was_written_again_are_told_apart() -> None:
    report = sample_report()
    assert summary(report).startswith("2 misses lost 62.4k cached tokens; writing them again cost $0.39 more")
    first, second = report.misses
    shortened = replace(report, misses=(replace(first, rewritten_tokens=33_800), second))
    assert summary(shortened).startswith("2 misses lost 62.4k cached tokens; writing 52.4k of them again cost")
    assert summary(sample_report(causes=("compaction",))) == "No misses. Expected rebuilds: 1 compaction."


def test_weeks_versions_and_a_filter_by_cause() -> None:
    report = sample_report()
    # 12 and 14 October 2026 lie in ISO week 42; the compaction is counted beside the misses
    assert [(row.key, row.misses, row.expected) for row in report.by_week] == [("2026-W42", 2, 1)]
    assert sum(row.misses for row in report.by_version) == 2
    assert sum(row.rewrite_cost_usd for row in report.by_version) == Decimal("0.38628")
    only = sample_report(causes=("ttl_expired_5m",))
    assert [miss.cause for miss in only.misses] == ["ttl_expired_5m"]
    assert only.expected_rebuilds == ()
    assert [rebuild.cause for rebuild in sample_report(causes=("compaction",)).expected_rebuilds] == ["compaction"]
    with pytest.raises(UsageError) as caught:
        sample_report(causes=("ttl_expired",))
    assert "ttl_expired_5m" in (caught.value.hint or "")


def test_the_week_is_that_of_the_reports_zone() -> None:
    # the misses stand on Monday the 12th and Wednesday the 14th; twelve hours west the first is still on Sunday
    assert sample_report().misses[0].timestamp.weekday() == 0
    assert [(row.key, row.misses) for row in sample_report(timezone="Etc/GMT+12").by_week] == [
        ("2026-W41", 1), ("2026-W42", 1),
    ]  # fmt: skip


def test_evidence_stands_in_the_file_at_that_line() -> None:
    for miss in sample_report().misses:
        path, _, line = miss.location.rpartition(":")
        record = json.loads(Path(path).read_text(encoding="utf-8").splitlines()[int(line) - 1])
        assert record["message"]["id"] == miss.message_id
        assert miss.location in miss.evidence


def test_first_requests_are_no_misses_and_say_how_warm_they_were() -> None:
    report = sample_report()
    assert [(first.chain.partition("#")[0], first.cache_read_tokens) for first in report.first_requests] == [
        ("main", 0), ("agent:e1", 0), ("agent:e2", 9_000), ("main", 0),
    ]  # fmt: skip
    assert {first.session_id for first in report.first_requests if first.whose} == set()
    assert report.first_requests[2].warm_rate == pytest.approx(9_000 / 15_400, rel=0.01)


def test_tables_for_spreadsheets() -> None:
    report = sample_report()
    rows = list(csv.DictReader(StringIO(misses_csv(report, "miss"))))
    assert [row["cause"] for row in rows] == ["ttl_expired_1h", "ttl_expired_5m"]
    assert next(csv.DictReader(StringIO(misses_csv(report, "cause"))))["rewrite_cost_usd"] == "0.34164"
    assert misses_csv(report, "signature").splitlines() == [",".join(SIGNATURE_COLUMNS)]
    assert misses_csv(MissReport((), (), ()), "week").startswith("week,misses,")
    assert "1 more" in misses_markdown(report, "miss", 1)


def test_json_is_plain_and_terminal_fits() -> None:
    report = sample_report()
    rows = misses_json(report)
    assert rows["misses"][0]["rewrite_cost_usd"] == "0.34164"
    assert rows["misses"][0]["timestamp"].endswith("Z")
    for width in (80, 120, 200):
        out = StringIO()
        render_misses(report, Console(file=out, width=width, force_terminal=False), top=5)
        assert "ttl_expired_1h" in out.getvalue()
        assert all(len(line) <= width for line in out.getvalue().splitlines())

"""`ccache misses` on the sample sessions: two misses by expiry and one compaction, worked out by hand."""

from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO

from rich.console import Console

from analyzer import database, discovery
from analyzer.ingest import ingest
from analyzer.queries import Scope, misses
from analyzer.report.misses import misses_json, render_misses
from analyzer.results import MissReport


def sample_report() -> MissReport:
    with database.connect(":memory:") as connection:
        found, unreadable = discovery.find_transcripts([str(discovery.sample_root())])
        ingest(connection, found, unreadable, now=datetime(2026, 11, 29, tzinfo=UTC))
        return misses(connection, Scope())


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

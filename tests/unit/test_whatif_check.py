"""The prediction of the log: blind to the answer it predicts, each rule where its cause stands, rates by hand."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from analyzer import database, discovery
from analyzer.ingest import ingest
from analyzer.queries import Scope, misses
from analyzer.queries.history import LoggedRequest, chains
from analyzer.whatif.check import check, checked, scored
from analyzer.whatif.results import Checked, CheckReport
from fixtures.session_log import ROOT, Log, text
from simulator.trace import Usage

NOW = datetime(2026, 11, 29, tzinfo=UTC)
SAMPLES = str(discovery.sample_root())


def history_of(*roots: str) -> list[list[LoggedRequest]]:
    with closing(database.connect(":memory:")) as connection:
        found, unreadable = discovery.find_transcripts(list(roots))
        ingest(connection, found, unreadable, now=NOW)
        return chains(connection, Scope())


def report_of(root: str) -> CheckReport:
    with closing(database.connect(":memory:")) as connection:
        found, unreadable = discovery.find_transcripts([root])
        ingest(connection, found, unreadable, now=NOW)
        return check(connection, Scope())


def keys(history: list[list[LoggedRequest]]) -> set[str]:
    return {row.key for chain in history for row in chain}


def test_nothing_of_an_answer_is_seen_before_it() -> None:
    """Another answer to request n, whatever it was, changes no prediction for n."""
    history = history_of(SAMPLES)
    shown = keys(history)
    before = {row.message_id: row for row in checked(history, shown)}
    tested = 0
    for number, chain in enumerate(history):
        for place in range(1, len(chain)):
            row = chain[place]
            prompt = row.usage.prompt_tokens
            other = replace(row, usage=Usage(prompt, 0, 0, 0, 9), tools=("ToolSearch",), stop_reason="refusal")
            changed = [*history[:number], [*chain[:place], other, *chain[place + 1 :]], *history[number + 1 :]]
            after = next(r for r in checked(changed, shown | {row.key}) if r.message_id == row.message_id)
            assert (after.predicted_read_tokens, after.reason) == (
                before[row.message_id].predicted_read_tokens, before[row.message_id].reason,
            )  # fmt: skip
            tested += 1
    assert tested > 10


def test_the_future_is_not_seen_either() -> None:
    history = history_of(SAMPLES)
    whole = {row.message_id: row for row in checked(history, keys(history))}
    ends = sorted(row.known.started_at_s for chain in history for row in chain)
    middle = ends[len(ends) // 2]
    past = [[row for row in chain if row.known.started_at_s <= middle] for chain in history]
    past = [chain for chain in past if chain]
    for row in checked(past, keys(past)):
        assert row.predicted_read_tokens == whole[row.message_id].predicted_read_tokens


@pytest.mark.parametrize(("case", "reason"), [
    ("cause_ttl_expired_5m", "ttl_expired_5m"), ("cause_ttl_expired_1h", "ttl_expired_1h"),
    ("cause_model_changed", "model_changed"), ("cause_effort_changed", "effort_changed"),
    ("cause_fast_mode_changed", "fast_mode_changed"), ("cause_resumed", "resumed"),
    ("cause_version_changed", "version_changed"), ("cause_messages_rewritten", "messages_rewritten"),
    ("cause_deferred_tool_loaded", "deferred_tool_loaded"), ("cause_rewind_or_branch", "rewind_or_branch"),
    ("expected_compaction", "compaction"), ("expected_cleared", "compaction"),
])  # fmt: skip
def test_each_rule_speaks_where_its_cause_stands(case: str, reason: str) -> None:
    report = report_of(str(ROOT / case))
    spoken = [row for row in report.rows if row.reason == reason]
    assert spoken
    assert any(row.predicted_miss and row.is_miss for row in spoken)


def log_of(folder: Path, log: Log) -> str:
    target = folder / "projects" / "-home-dev-shop" / f"{log.session}.jsonl"
    target.parent.mkdir(parents=True)
    target.write_bytes(text(log))
    return str(folder)


def test_an_undisturbed_conversation_is_predicted_to_the_token(tmp_path: Path) -> None:
    log = Log("calm")
    read = 0
    for place in range(6):
        log.ask(place * 60)
        log.answer(place * 60 + 3, f"msg_{place}", i=3, r=read, w5=10_000, o=10)
        read += 10_000
    report = report_of(log_of(tmp_path, log))
    assert [row.predicted_read_tokens for row in report.rows] == [10_000, 20_000, 30_000, 40_000, 50_000]
    assert (report.score.agreement, report.score.miss_precision, report.score.miss_recall) == (1.0, None, None)


def test_an_expired_prefix_falls_back_to_what_was_seen(tmp_path: Path) -> None:
    """Nothing was read at the start, so nothing is expected after an hour; a shared start of 9,000 would be."""
    log = Log("idle")
    for place, (second, read) in enumerate(((0, 9_000), (60, 30_000), (4_000, 9_000))):
        log.ask(second)
        log.answer(second + 3, f"msg_{place}", r=read, w5=40_000 - read, o=10)
    report = report_of(log_of(tmp_path, log))
    assert (report.rows[1].reason, report.rows[1].predicted_read_tokens) == ("ttl_expired_5m", 9_000)
    assert report.rows[1].agrees


def judged(readable: int, read: int, predicted: int, *, miss: bool, called: bool, expected: bool = False) -> Checked:
    agrees = abs(read - predicted) <= max(2_000, readable / 20)
    return Checked("msg", "s", readable, read, predicted, agrees, miss, called, expected, "kept" if not called else "x")


def test_rates_by_hand() -> None:
    rows = [
        judged(100_000, 100_000, 100_000, miss=False, called=False),
        judged(100_000, 95_500, 100_000, miss=False, called=False),
        judged(100_000, 0, 100_000, miss=True, called=False),
        judged(100_000, 0, 0, miss=True, called=True),
        judged(100_000, 100_000, 0, miss=False, called=True),
        judged(100_000, 10_000, 10_000, miss=True, called=True, expected=True),
    ]
    report = scored(rows, {"msg": "interrupted"})
    assert report.score.requests == 6
    assert (report.score.agreement, report.score.miss_precision, report.score.miss_recall) == (4 / 6, 2 / 3, 2 / 3)
    apart = report.without_expected
    assert (apart.requests, apart.agreement, apart.miss_precision, apart.miss_recall) == (5, 3 / 5, 1 / 2, 1 / 2)
    kept, called = report.by_reason
    assert (kept.reason, kept.requests, kept.agreed, kept.misses_overlooked) == ("kept", 3, 2, 1)
    assert (called.misses_called, called.false_alarms) == (2, 1)
    assert [(row.cause, row.misses, row.lost_tokens) for row in report.unforeseen] == [("interrupted", 1, 100_000)]


@pytest.mark.parametrize(("keeps", "called"), [(True, False), (False, True)])
def test_what_a_version_did_with_loaded_tools_it_does_again(tmp_path: Path, keeps: bool, called: bool) -> None:
    log = Log("search")
    log.ask(0)
    log.answer(3, "msg_1", r=5_000, w5=45_000, o=10, tools=("ToolSearch",))
    log.ask(30)
    log.answer(33, "msg_2", r=50_000 if keeps else 5_000, w5=1_000 if keeps else 46_000, o=10, tools=("ToolSearch",))
    log.ask(60)
    log.answer(63, "msg_3", r=51_000, w5=1_000, o=10)
    first, second = report_of(log_of(tmp_path, log)).rows
    assert (first.reason, first.predicted_miss) == ("deferred_tool_loaded", True)
    assert second.predicted_miss == called


def test_misses_are_those_of_the_miss_report() -> None:
    with closing(database.connect(":memory:")) as connection:
        found, unreadable = discovery.find_transcripts([str(ROOT)])
        ingest(connection, found, unreadable, now=NOW)
        told = misses(connection, Scope())
        report = check(connection, Scope())
    assert sum(row.is_miss for row in report.rows) == len(told.misses) + len(told.expected_rebuilds)
    assert sum(row.is_miss and row.expected for row in report.rows) == len(told.expected_rebuilds)

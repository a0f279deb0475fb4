"""Scenarios against arithmetic by hand, the published break-even formulas, and the price library's own calculator."""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from genai_prices import Usage as LibraryUsage
from genai_prices import calc_price

from analyzer import database, discovery
from analyzer.errors import UsageError
from analyzer.ingest import ingest
from analyzer.prices import PriceTable, load_price_file
from analyzer.queries import Scope, analyze, subagents
from analyzer.whatif.keep_alive import break_even_pings
from analyzer.whatif.models import token_factor
from analyzer.whatif.replay import moved
from analyzer.whatif.results import ScenarioRow, WhatIfReport
from analyzer.whatif.run import explain, whatif
from analyzer.whatif.scenarios import default_names, plan_of
from fixtures.session_log import AUTUMN, OPUS, SONNET, SUMMER, Log, text
from simulator.trace import Usage

NOW = datetime(2026, 11, 29, tzinfo=UTC)
MILLION = Decimal(1_000_000)
SAMPLES = str(discovery.sample_root())
# Sonnet 4.5, USD per million tokens: input, 5m write, 1h write, read, output
INPUT, FIVE, HOUR, READ, OUTPUT = map(Decimal, ("3", "3.75", "6", "0.30", "15"))


def usd(i: int, r: int, w5: int, w1: int, o: int) -> Decimal:
    return (i * INPUT + r * READ + w5 * FIVE + w1 * HOUR + o * OUTPUT) / MILLION


def idle_5m() -> Log:
    """5m writes; ten minutes pass before the third request, which finds nothing."""
    log = Log("idle")
    log.ask(0)
    log.answer(3, "msg_1", i=3, w5=20_000, o=100)
    log.ask(60)
    log.answer(63, "msg_2", i=3, r=20_000, w5=2_000, o=100)
    log.ask(660)
    log.answer(663, "msg_3", i=3, w5=25_000, o=100)
    return log


def idle_1h() -> Log:
    """1h writes; ten minutes pass before the second request, which reads all."""
    log = Log("hour")
    log.ask(0)
    log.answer(3, "msg_a", i=3, w1=20_000, o=100)
    log.ask(600)
    log.answer(603, "msg_b", i=3, r=20_000, w1=2_000, o=100)
    return log


def run(folder: Path, logs: Sequence[Log], *names: str, prices: PriceTable | None = None, **scope: Any) -> WhatIfReport:
    for log in logs:
        name = f"{log.session}/subagents/agent-{log.agent}.jsonl" if log.agent else f"{log.session}.jsonl"
        target = folder / "projects" / "-home-dev-shop" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text(log))
    return at(str(folder), *names, prices=prices, **scope)


def at(root: str, *names: str, prices: PriceTable | None = None, by: Any = None, **scope: Any) -> WhatIfReport:
    with closing(database.connect(":memory:")) as connection:
        found, unreadable = discovery.find_transcripts([root])
        ingest(connection, found, unreadable, now=NOW)
        return whatif(connection, Scope(**scope), prices, names=names, by=by, now=NOW)


def only(report: WhatIfReport) -> ScenarioRow:
    assert len(report.scenarios) == 1
    return report.scenarios[0]


def test_actual_is_what_analyze_says() -> None:
    with closing(database.connect(":memory:")) as connection:
        found, unreadable = discovery.find_transcripts([SAMPLES])
        result, _ = ingest(connection, found, unreadable, now=NOW)
        told = analyze(connection, Scope(), result).totals.usage
        report = whatif(connection, Scope(), names=("standard",), now=NOW)
    assert report.actual.cost_usd == told.cost_usd
    assert report.requests == told.requests
    for name in ("input_tokens", "cache_read_tokens", "cache_creation_5m_tokens", "output_tokens"):
        assert getattr(report.actual.usage, name) == getattr(told, name)


def test_one_hour_instead_of_five_minutes(tmp_path: Path) -> None:
    row = only(run(tmp_path, [idle_5m()], "all-1h"))
    assert row.usage == Usage(9, 42_000, 0, 25_000, 300)
    assert row.cost_usd == usd(9, 42_000, 0, 25_000, 300)
    # published: 0.75 W - (2 - r) S, in tokens at the input rate; W 47,000 written, S 22,000 of them again
    assert row.delta_usd == (Decimal("0.75") * 47_000 - Decimal("1.9") * 22_000) * INPUT / MILLION


def test_five_minutes_instead_of_one_hour(tmp_path: Path) -> None:
    row = only(run(tmp_path, [idle_1h()], "all-5m"))
    assert row.usage == Usage(6, 0, 42_000, 0, 200)
    # published: -0.75 W + (1.25 - r) S'; W 22,000 written, S' 20,000 to be written again
    assert row.delta_usd == (Decimal("-0.75") * 22_000 + Decimal("1.15") * 20_000) * INPUT / MILLION


@pytest.mark.parametrize(("log", "name"), [(idle_5m(), "all-5m"), (idle_1h(), "all-1h"), (idle_1h(), "fast-off"),
                                           (idle_1h(), "standard"), (idle_1h(), "global"), (idle_1h(), "sonnet-4-5"),
                                           (idle_5m(), "no-compaction"), (idle_5m(), "subagents-1h"),
                                           (idle_5m(), "compact-at-900k"), (idle_5m(), "resume")])  # fmt: skip
def test_what_changes_nothing_is_actual(tmp_path: Path, log: Log, name: str) -> None:
    report = run(tmp_path, [log], name)
    row = only(report)
    assert (row.usage, row.cost_usd, row.delta_usd, row.delta_rate) == (
        report.actual.usage, report.actual.cost_usd, 0, 0.0,
    )  # fmt: skip
    assert (row.changed_requests, row.added_calls) == (0, 0)


def test_no_cache_and_perfect_cache(tmp_path: Path) -> None:
    none, perfect = run(tmp_path, [idle_5m()], "no-cache", "perfect").scenarios
    assert none.usage == Usage(67_009, 0, 0, 0, 300)
    assert none.cost_usd == usd(67_009, 0, 0, 0, 300)
    assert perfect.usage == Usage(9, 42_000, 25_000, 0, 300)


def test_better_ttl_by_chain_and_by_setting(tmp_path: Path) -> None:
    """The idle 5m conversation gains from 1h, the 1h one is best left alone; one setting must serve both."""
    report = run(tmp_path, [idle_5m(), idle_1h()], "all-5m", "all-1h", "best-ttl", "best-setting")
    five, hour, best, setting = (row.cost_usd for row in report.scenarios)
    assert report.actual.cost_usd is not None
    assert best == usd(9, 42_000, 0, 25_000, 300) + usd(6, 20_000, 0, 22_000, 200)
    assert setting == hour == best
    assert five is not None
    assert five > report.actual.cost_usd
    assert 'promptCacheTtl "1h"' in report.scenarios[3].gist


def test_pings_are_paid_and_keep_the_prefix(tmp_path: Path) -> None:
    """Two pings fill the ten minutes. After the end eleven follow: (3.75 - 0.30) / 0.30 = 11.5."""
    row = only(run(tmp_path, [idle_5m()], "keep-alive"))
    assert row.added_calls == 2 + 11
    kept = usd(9, 42_000, 25_000, 0, 300)
    assert row.cost_usd == kept + usd(2 * 3, 2 * 22_000, 0, 0, 0) + usd(11 * 3, 11 * 25_000, 0, 0, 0)
    rare = only(run(tmp_path, [idle_5m()], "keep-alive-6m"))
    assert rare.usage.cache_read_tokens < row.usage.cache_read_tokens  # each comes too late, as does the request after


def test_compaction_at_a_limit(tmp_path: Path) -> None:
    """Start 20,000 (read); 30,000, 45,000, 60,000 tokens; at most 50,000 allowed, so the third begins anew."""
    log = Log("long")
    log.ask(0)
    log.answer(3, "msg_1", r=20_000, w1=10_000, o=100)
    log.ask(30)
    log.answer(33, "msg_2", r=30_000, w1=15_000, o=100)
    log.ask(60)
    log.answer(63, "msg_3", r=45_000, w1=15_000, o=100)
    log.ask(90)
    log.answer(93, "msg_4", r=60_000, w1=1_000, o=100)
    row = only(run(tmp_path, [log], "compact-at-50k"))
    call = (0, 45_000, 0, 0, 4_000)
    anew = (0, 20_000, 0, 12_000 + 15_000, 100)
    after = (0, 47_000, 0, 1_000, 100)
    first_two = (0, 50_000, 0, 25_000, 200)
    assert row.cost_usd == sum(usd(*part) for part in (first_two, call, anew, after))
    assert (row.changed_requests, row.added_calls) == (2, 1)


def test_without_the_logged_compaction(tmp_path: Path) -> None:
    log = Log("compacted")
    log.ask(0)
    log.answer(3, "msg_1", w1=100_000, o=100)
    log.add("system", 10, subtype="compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 100_100})
    log.ask(20)
    log.answer(23, "msg_2", r=20_000, w1=10_000, o=100)
    row = only(run(tmp_path, [log], "no-compaction"))
    assert row.usage == Usage(0, 20_000 + 70_000, 0, 110_000, 200)


def test_resumed_instead_of_new(tmp_path: Path) -> None:
    """The second session starts 200 s later: with 22,000 tokens of the first behind it instead of 15,000 of its own."""
    one, two = Log("one"), Log("two")
    one.ask(0)
    one.answer(3, "msg_1", w5=22_000, o=100)
    two.ask(200)
    two.answer(203, "msg_2", r=15_000, w5=1_000, o=100)
    row = only(run(tmp_path, [one, two], "resume"))
    assert row.usage == Usage(0, 15_000 + 7_000, 23_000, 0, 200)


def test_forks_and_inline_as_the_subagent_report_says() -> None:
    with closing(database.connect(":memory:")) as connection:
        found, unreadable = discovery.find_transcripts([SAMPLES])
        ingest(connection, found, unreadable, now=NOW)
        told = subagents(connection, Scope()).totals
        report = whatif(connection, Scope(), names=("subagents-as-forks", "subagents-inline"), now=NOW)
    assert told is not None
    fork, inline = report.scenarios
    assert fork.delta_usd == told.fork_cost_usd - told.compared_usd
    assert inline.delta_usd == told.inline_cost_usd - told.compared_usd


def test_another_model_scales_tokens_across_tokenizers(tmp_path: Path) -> None:
    row = only(run(tmp_path, [idle_1h()], "opus-5-5"))
    # each class of each request times 1.3: 3 -> 4, 20,000 -> 26,000, 2,000 -> 2,600, 100 -> 130
    assert row.usage == Usage(8, 26_000, 0, 28_600, 260)
    # 4, read 0.20, 1h write 8, output 20
    assert row.cost_usd == (8 * 4 + 26_000 * Decimal("0.2") + 28_600 * 8 + 260 * 20) / MILLION
    assert row.cost_usd == only(run(tmp_path, [idle_1h()], "claude-opus-5.5")).cost_usd
    assert any("1.3" in text for text in row.assumptions)


def test_the_same_tokenizer_keeps_tokens(tmp_path: Path) -> None:
    row = only(run(tmp_path, [idle_1h()], "opus-4-5"))
    assert row.usage == Usage(6, 20_000, 0, 22_000, 200)
    assert row.cost_usd == usd(6, 20_000, 0, 22_000, 200) * 5 / 3


def test_a_long_prompt_is_priced_in_its_own_band(tmp_path: Path) -> None:
    """Haiku 5.5 costs five times as much above 100,000 tokens: 80,000 become 104,000, 70,000 become 91,000."""
    log = Log("bands")
    log.ask(0)
    log.answer(3, "msg_1", w5=70_000, o=100)
    log.ask(60)
    log.answer(63, "msg_2", r=70_000, w5=10_000, o=100)
    row = only(run(tmp_path, [log], "haiku-5-5"))
    low = (91_000 * Decimal("0.125") + 130 * Decimal("0.5")) / MILLION
    high = (91_000 * Decimal("0.05") + 13_000 * Decimal("0.625") + 130 * Decimal("2.5")) / MILLION
    assert row.cost_usd == low + high


def test_one_model_keeps_what_a_change_of_model_lost(tmp_path: Path) -> None:
    log = Log("switch")
    log.ask(0)
    log.answer(3, "msg_1", w5=20_000, o=100)
    log.ask(60)
    log.answer(63, "msg_2", OPUS, w5=22_000, o=100)
    row = only(run(tmp_path, [log], "sonnet-4-5"))
    assert row.usage == Usage(0, 20_000, 22_000, 0, 200)
    assert row.cost_usd == usd(0, 20_000, 22_000, 0, 200)


def test_prices_combine_with_models_and_caches(tmp_path: Path) -> None:
    names = ("batch+opus-5-5", "opus-5-5", "batch+all-5m", "all-5m", "opus-5-5+us-only+batch")
    both, model, half, five, three = (row.cost_usd for row in run(tmp_path, [idle_1h()], *names).scenarios)
    assert model is not None
    assert five is not None
    assert (both, half, three) == (model / 2, five / 2, model / 2 * Decimal("1.1"))


def library(log: Sequence[Usage], model: str, day: str, context: dict[str, str] | None = None) -> Decimal:
    at = datetime.fromisoformat(f"{day}T10:00:00").replace(tzinfo=UTC)
    total = Decimal(0)
    for usage in log:
        counts = LibraryUsage(
            input_tokens=usage.prompt_tokens, cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_creation_tokens, cache_write_1h_tokens=usage.cache_creation_1h_tokens,
            output_tokens=usage.output_tokens,
        )  # fmt: skip
        total += calc_price(counts, model, provider_id="anthropic", genai_request_timestamp=at, price_context=context).total_price  # fmt: skip  # noqa: E501
    return total


USAGES = (Usage(3, 0, 5_000, 20_000, 100), Usage(3, 25_000, 1_000, 2_000, 150))


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-opus-5", "claude-haiku-5-5", "claude-sonnet-5"])
@pytest.mark.parametrize(("scenario", "context", "factor"), [
    ("standard", None, "1"), ("batch", {"processing": "batch"}, "1"), ("fast", {"speed": "fast"}, "1"),
    ("us-only", None, "1.1"), ("bedrock-regional", None, "1.1"), ("vertex-regional", None, "1.1"),
    ("fast+us-only", {"speed": "fast"}, "1.1"),
])  # fmt: skip
def test_tiers_as_the_price_library_counts_them(
    tmp_path: Path, model: str, scenario: str, context: dict[str, str] | None, factor: str
) -> None:
    log = Log("tiers", AUTUMN)
    for place, usage in enumerate(USAGES):
        log.ask(place * 30)
        log.answer(
            place * 30 + 3, f"msg_{place}", model, i=usage.input_tokens, r=usage.cache_read_tokens,
            w5=usage.cache_creation_5m_tokens, w1=usage.cache_creation_1h_tokens, o=usage.output_tokens,
        )  # fmt: skip
    row = only(run(tmp_path, [log], scenario))
    assert row.cost_usd == library(USAGES, model, AUTUMN, context) * Decimal(factor)
    assert row.usage == Usage(6, 25_000, 6_000, 22_000, 250)


def test_fast_logs_without_fast_mode(tmp_path: Path) -> None:
    log = Log("fast", AUTUMN)
    log.ask(0)
    log.answer(3, "msg_1", "claude-opus-5-5", w5=20_000, o=100, speed="fast")
    report = run(tmp_path, [log], "fast-off", "batch", "fast")
    usage = [Usage(0, 0, 20_000, 0, 100)]
    assert report.actual.cost_usd == library(usage, "claude-opus-5-5", AUTUMN, {"speed": "fast"})
    off, batch, fast = (row.cost_usd for row in report.scenarios)
    assert off == library(usage, "claude-opus-5-5", AUTUMN)
    assert batch == fast == report.actual.cost_usd  # no fast mode in batches


def test_todays_rates(tmp_path: Path) -> None:
    """Sonnet 5.5 read at 0.20 until 2026-10-07 and at 0.10 since."""
    log = Log("dated", "2026-10-01")
    log.ask(0)
    log.answer(3, "msg_1", "claude-sonnet-5-5", r=1_000_000)
    report = run(tmp_path, [log], "today")
    assert (report.actual.cost_usd, only(report).cost_usd) == (Decimal("0.2"), Decimal("0.1"))


def test_searches_are_not_discounted(tmp_path: Path) -> None:
    log = Log("search", AUTUMN)
    log.ask(0)
    log.answer(3, "msg_1", i=100_000, server_tool_use={"web_search_requests": 100})
    assert only(run(tmp_path, [log], "batch")).cost_usd == Decimal("0.15") + 1


def test_negotiated_rates(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        f'[[rates]]\nmodel = "{SONNET}"\ninput = 1\ncache_read = 1\ncache_creation_5m = 1\n'
        "cache_creation_1h = 1\noutput = 1\n"
    )
    own = load_price_file(file)
    report = run(tmp_path, [idle_1h()], "list-prices", "negotiated", prices=own)
    listed, negotiated = report.scenarios
    assert report.actual.cost_usd == negotiated.cost_usd == Decimal(6 + 20_000 + 22_000 + 200) / MILLION
    assert listed.cost_usd == usd(6, 20_000, 0, 22_000, 200)
    without = run(tmp_path, [idle_1h()], "negotiated", "priority")
    assert [row.cost_usd for row in without.scenarios] == [None, None]
    assert "--prices" in without.scenarios[0].gist
    assert "not publicly priced" in without.scenarios[1].gist


def test_unpriced_requests_are_in_no_scenario(tmp_path: Path) -> None:
    other = Log("other")
    other.ask(0)
    other.answer(3, "msg_x", "gpt-9", i=1_000, o=10)
    report = run(tmp_path, [idle_1h(), other], "no-cache", "opus-5-5")
    assert (report.requests, report.unpriced_requests) == (3, 1)
    assert report.scenarios[0].usage == Usage(42_006, 0, 0, 0, 200)
    alone = run(tmp_path / "alone", [other], "no-cache")
    assert (alone.actual.cost_usd, only(alone).cost_usd, only(alone).delta_rate) == (None, None, None)


def test_groups_add_up_to_the_table() -> None:
    names = default_names(own_prices=False)
    for by in ("project", "session", "model"):
        report = at(SAMPLES, *names, by=by)
        assert sum(group.actual_usd for group in report.groups) == report.actual.cost_usd
        for place, row in enumerate(report.scenarios):
            costs = [group.costs_usd[place] for group in report.groups]
            assert row.cost_usd == (None if None in costs else sum(cost or 0 for cost in costs))


def test_filters_choose_rows_not_predecessors(tmp_path: Path) -> None:
    report = run(tmp_path, [idle_5m()], "all-1h", since=f"{SUMMER}T10:05:00+00:00")
    assert report.requests == 1
    assert only(report).usage == Usage(3, 22_000, 0, 3_000, 100)


def test_a_loss_that_time_does_not_explain_stays(tmp_path: Path) -> None:
    """Ten minutes passed and the session was resumed: an hour's life would not have saved the prefix."""
    log = idle_5m()
    hook = {"type": "hook_success", "hookEvent": "SessionStart", "hookName": "SessionStart:resume", "content": ""}
    log.records.insert(4, {**log.records[4], "type": "attachment", "uuid": "hook", "attachment": hook})
    row = only(run(tmp_path, [log], "all-1h"))
    assert row.usage == Usage(9, 20_000, 0, 47_000, 300)


def test_chains_cheaper_without_cache_are_named(tmp_path: Path) -> None:
    lonely = Log("lonely")
    lonely.ask(0)
    lonely.answer(3, "msg_alone", i=3, w5=20_000, o=100)
    report = run(tmp_path, [lonely, idle_5m()], "no-cache")
    assert [(chain.session_id, chain.requests) for chain in report.cheaper_without_cache] == [("lonely", 1)]
    assert report.cheaper_without_cache[0].actual_usd == usd(3, 0, 20_000, 0, 100)
    assert report.cheaper_without_cache[0].uncached_usd == usd(20_003, 0, 0, 0, 100)


def test_explained(tmp_path: Path) -> None:
    run(tmp_path, [idle_5m(), idle_1h()])
    with closing(database.connect(":memory:")) as connection:
        found, unreadable = discovery.find_transcripts([str(tmp_path)])
        ingest(connection, found, unreadable, now=NOW)
        told = explain(connection, Scope(), None, "main-1h+batch", now=NOW)
    assert dict(told.changes) == {"ttl_main": "1h", "tier": "batch"}
    assert {chain.session_id for chain in told.chains} == {"idle", "hour"}
    assert sum(chain.delta_usd for chain in told.chains) == told.row.delta_usd


@pytest.mark.parametrize(("name", "near"), [
    ("bach", "batch"), ("sonet-5-5", "sonnet-5-5"), ("all-2h", "all-1h"), ("opus-9", "opus"), ("batch+", "a+b"),
    ("fork+all-1h", "subagents-as-forks"), ("keep-alive-0m", "keep-alive-4m"), ("compact-at-5k", "20k"),
    ("all-1h+all-5m", "combine"), ("no-cache+all-1h", "combine"), ("opus-5+sonnet-5", "combine"), ("", "a+b"),
])  # fmt: skip
def test_bad_names_get_suggestions(name: str, near: str) -> None:
    with pytest.raises(UsageError) as error:
        plan_of(name)
    assert error.value.exit_code == 2
    assert near in (error.value.hint or "")


def test_a_choice_that_needs_others_is_given_up(tmp_path: Path) -> None:
    """Every 400 s another session reads a shared start of 20,000 that only an hour's life keeps. One of them alone
    on 1h gains nothing: best-ttl is never dearer than what was done, nor than the best setting."""
    logs = []
    for place in range(4):
        log = Log(f"s{place}")
        log.ask(place * 400)
        log.answer(place * 400 + 3, f"msg_{place}", r=0 if place < 2 else 20_000, w5=20_500 if place < 2 else 500, o=10)
        logs.append(log)
    report = run(tmp_path, logs, "all-1h", "best-setting", "best-ttl")
    hour, setting, best = (row.cost_usd or Decimal(0) for row in report.scenarios)
    assert report.actual.cost_usd is not None
    assert best <= setting <= min(hour, report.actual.cost_usd)


@pytest.mark.parametrize(("write", "read", "pings"), [
    ("1.25", "0.1", 11), ("1.25", "0.05", 24), ("1.25", "0.025", 49), ("2", "0.1", 19), ("2", "0.05", 39),
    ("2", "0.025", 79),
])  # fmt: skip
def test_break_even_of_pings_as_published(write: str, read: str, pings: int) -> None:
    assert break_even_pings(Decimal(write), Decimal(read)) == pings


def test_one_speed_keeps_what_a_change_of_speed_lost(tmp_path: Path) -> None:
    """Opus 5.5: 4, 5m write 5, read 0.20, output 20; fast doubles each."""
    log = Log("toggled", AUTUMN)
    log.ask(0)
    log.answer(3, "msg_1", "claude-opus-5-5", w5=20_000, o=100)
    log.ask(60)
    log.answer(63, "msg_2", "claude-opus-5-5", w5=22_000, o=100, speed="fast")
    off, fast = run(tmp_path, [log], "fast-off", "fast").scenarios
    kept = (20_000 * Decimal("0.2") + 22_000 * 5 + 200 * 20) / MILLION
    assert (off.cost_usd, fast.cost_usd) == (kept, 2 * kept)
    assert off.usage == Usage(0, 20_000, 22_000, 0, 200)


def test_a_cold_compaction_is_written(tmp_path: Path) -> None:
    """The third request found nothing, so the summary's request before it would have found nothing either."""
    log = Log("cold")
    for place, (second, read, written) in enumerate(((0, 20_000, 10_000), (30, 30_000, 15_000), (4_000, 0, 60_000))):
        log.ask(second)
        log.answer(second + 3, f"msg_{place}", r=read, w1=written, o=100)
    row = only(run(tmp_path, [log], "compact-at-50k"))
    assert row.cost_usd == usd(0, 50_000 + 20_000, 0, 25_000 + 45_000 + 27_000, 4_300)


def test_what_the_log_read_already_is_not_read_twice() -> None:
    """Served late: the log read 100 where the simulated cache had lost it. A longer life adds nothing."""
    late = Usage(0, 100, 10, 0, 5)
    assert moved(late, Usage(0, 0, 110, 0, 5), Usage(0, 100, 0, 10, 5)) == Usage(0, 100, 0, 10, 5)
    # the log read 50 where 100 were expected; with 60 expected it would still have read 50
    assert moved(Usage(0, 50, 60, 0, 5), Usage(0, 100, 10, 0, 5), Usage(0, 60, 50, 0, 5)).cache_read_tokens == 50


def test_no_compaction_that_frees_nothing(tmp_path: Path) -> None:
    """What a compaction leaves (start 20,000 and 12,000) is more than these contexts: none is made."""
    log = Log("small")
    for place, (read, written) in enumerate(((20_000, 4_000), (24_000, 3_000), (27_000, 3_000))):
        log.ask(place * 30)
        log.answer(place * 30 + 3, f"msg_{place}", r=read, w1=written, o=100)
    report = run(tmp_path, [log], "compact-at-25k")
    assert only(report).usage == report.actual.usage


def test_a_session_still_running_is_not_resumed(tmp_path: Path) -> None:
    one, two = Log("one"), Log("two")
    for place, second in enumerate((0, 250)):
        one.ask(second)
        one.answer(second + 3, f"msg_1{place}", r=place * 22_000, w5=22_000 - place * 21_000, o=100)
    two.ask(200)
    two.answer(203, "msg_2", r=15_000, w5=1_000, o=100)
    report = run(tmp_path, [one, two], "resume")
    assert only(report).usage == report.actual.usage


@pytest.mark.parametrize(("logged", "target", "factor"), [
    ("claude-opus-4-6", "claude-opus-4-7", "1.3"), ("claude-opus-4-7", "claude-opus-4-8", "1"),
    ("claude-sonnet-4-5-20250929", "claude-haiku-4-5", "1"), ("claude-haiku-4-5-20251001", "claude-haiku-5-5", "1.3"),
    ("us.anthropic.claude-fable-5", "claude-opus-5", "1"), ("gpt-9", "claude-opus-5", "1"),
])  # fmt: skip
def test_tokenizers(logged: str, target: str, factor: str) -> None:
    assert token_factor(logged, target) == Decimal(factor)
    assert token_factor(target, logged) == 1 / Decimal(factor)


def test_regional_endpoints_have_no_fast_mode(tmp_path: Path) -> None:
    log = Log("fast", AUTUMN)
    log.ask(0)
    log.answer(3, "msg_1", "claude-opus-5-5", w5=20_000, o=100, speed="fast", inference_geo="us")
    row = only(run(tmp_path, [log], "bedrock-regional"))
    assert row.cost_usd == library([Usage(0, 0, 20_000, 0, 100)], "claude-opus-5-5", AUTUMN) * Decimal("1.1")

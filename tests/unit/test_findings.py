"""What to change: each saving worked out by hand, no miss counted twice, and honest silence where nothing helps."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from analyzer import database, discovery
from analyzer.advice import (
    EarlySpawn,
    LongChain,
    LongStep,
    Pause,
    TtlOption,
    compacted_saving,
    findings,
)
from analyzer.ingest import ingest
from analyzer.queries import Scope, analyze
from analyzer.report.findings import NOTHING, findings_json, findings_markdown, render_findings
from analyzer.report.screen import Screen
from analyzer.results import AnalyzeReport, Finding, Rebuild

MICRO = Decimal("0.000001")
MISS = Rebuild(
    session_id="s1",
    project="/home/dev/shop",
    chain="main#0",
    message_id="msg_1",
    timestamp=datetime(2026, 11, 1, tzinfo=UTC),
    model="claude-opus-5-5",
    version="2.1.300",
    cause="unknown",
    confidence="none",
    evidence=("/x.jsonl:9",),
    gap_s=20.0,
    ttl_s=300,
    readable_tokens=100_000,
    cache_read_tokens=0,
    lost_tokens=100_000,
    rewritten_tokens=100_000,
    rewrite_cost_usd=Decimal("0.48"),
    advice="",
    diagnosis=None,
    location="/x.jsonl:9",
    request_key="k1",
)


def of(misses: list[Rebuild], **more: Any) -> tuple[Finding, ...]:
    values: dict[str, Any] = {
        "ttl_options": [], "pauses": [], "long_chains": [], "compacted_to": 50_000, "early": [],
        "newest_version": "2.1.300", "spent_usd": Decimal(10), **more,
    }  # fmt: skip
    return findings(misses, **values)


def test_nothing_to_change_is_said() -> None:
    assert of([MISS]) == ()
    assert of([replace(MISS, cause="likely_server_side")]) == ()
    out = StringIO()
    render_findings(Screen(Console(file=out, width=100)), ())
    assert NOTHING in out.getvalue()
    assert NOTHING in findings_markdown(())


def test_small_savings_are_left_out() -> None:
    miss = replace(MISS, cause="effort_changed", rewrite_cost_usd=Decimal("0.0199"))
    assert of([miss]) == ()
    assert len(of([miss], spent_usd=Decimal("9.9"))) == 1


def test_a_flapping_server_is_named_and_priced() -> None:
    misses = [
        replace(MISS, cause="mcp_changed", servers=("github",), request_key="k1"),
        replace(MISS, cause="mcp_changed", servers=("github",), request_key="k2", session_id="s2"),
        replace(MISS, cause="mcp_changed", servers=("jira",), request_key="k3", rewrite_cost_usd=Decimal("0.1")),
    ]
    github, jira = of(misses)
    assert github.title == "MCP server github comes and goes"
    assert (github.saving_usd, github.misses, github.sessions) == (Decimal("0.96"), 2, ("s1", "s2"))
    assert "claude mcp remove github" in github.setting
    assert jira.saving_usd == Decimal("0.1")


def test_a_bug_names_the_version_to_leave() -> None:
    misses = [replace(MISS, signature="turn_rewrites", version="2.1.219")]
    (stay,) = of(misses, newest_version="2.1.226")
    assert stay.setting.startswith("stay on a version after 2.1.219")
    (leave,) = of(misses, newest_version="2.1.219")
    assert leave.setting.startswith("leave version 2.1.219")


def test_ttl_takes_the_better_of_both_per_project_and_says_where_not() -> None:
    options = [
        TtlOption("/a", "main", Decimal("1.5"), Decimal("-3"), 40, ("k1",)),
        TtlOption("/b", "main", Decimal("-2"), Decimal("0.7"), 60, ()),
        TtlOption("/c", "main", Decimal("-2"), Decimal("-0.7"), 60, ()),
        TtlOption("/a", "agent", Decimal("-1"), Decimal("0.4"), 30, ()),
    ]
    found = {one.kind: one for one in of([replace(MISS, cause="ttl_expired_5m", gap_s=900.0)], ttl_options=options)}
    assert {kind: one.saving_usd for kind, one in found.items()} == {
        "ttl_main_1h": Decimal("1.5"), "ttl_main_5m": Decimal("0.7"), "ttl_agent_5m": Decimal("0.4"),
    }  # fmt: skip
    assert "promptCacheTtl" in found["ttl_main_1h"].setting
    assert "ENABLE_PROMPT_CACHING_1H=1" in found["ttl_main_1h"].setting
    assert "subagentPromptCacheTtl" in found["ttl_agent_5m"].setting
    assert found["ttl_main_1h"].misses == 1


def test_keep_alive_is_rewrite_minus_pings_and_never_a_bridged_miss() -> None:
    miss = replace(MISS, cause="ttl_expired_5m", gap_s=900.0)
    # 900 s / 270 s = 3 pings, each 100,000 read at 0.20 and 20 tokens out at 20 (USD per million tokens)
    pause = Pause("k1", 900.0, 300, 100_000, Decimal("0.48"), MICRO / 5, 20 * MICRO)
    assert pause.saving_usd == Decimal("0.48") - 3 * (Decimal("0.02") + Decimal("0.0004"))
    (found,) = of([miss], pauses=[pause])
    assert (found.kind, found.saving_usd) == ("keep_alive", pause.saving_usd)
    bridged = TtlOption("/home/dev/shop", "main", Decimal("1.5"), Decimal(-3), 40, ("k1",))
    assert [one.kind for one in of([miss], pauses=[pause], ttl_options=[bridged])] == ["ttl_main_1h"]
    long = replace(pause, gap_s=9_000.0)
    assert long.saving_usd < 0
    assert of([miss], pauses=[long]) == ()


def step(prompt: int, rebuilt: bool = False) -> LongStep:
    return LongStep(prompt, prompt - 1000, rebuilt, MICRO / 5, 8 * MICRO, 20 * MICRO)


def test_compaction_pays_what_it_costs_and_saves_what_it_drops() -> None:
    chain = LongChain("s1", "/x:1", (step(150_000), step(210_000), step(220_000), step(230_000)))
    # at 210,000: read it, 4,000 out, 50,000 written; from then on 160,000 fewer are read by three requests
    cost = 210_000 * MICRO / 5 + 4_000 * 20 * MICRO + 50_000 * 8 * MICRO
    assert compacted_saving(chain, 200_000, 50_000) == 3 * 160_000 * MICRO / 5 - cost
    assert of([], long_chains=[chain]) == (), "three requests do not pay for a compaction"


def test_a_real_compaction_ends_the_imagined_one() -> None:
    grown = [step(210_000 + 100 * turn) for turn in range(100)]
    chain = LongChain("s1", "/x:1", (*grown, step(60_000, True), *(step(60_000) for _ in range(50))))
    assert compacted_saving(chain, 200_000, 50_000) == compacted_saving(
        LongChain("s1", "/x:1", tuple(grown)), 200_000, 50_000
    )
    (found,) = of([], long_chains=[chain])
    assert found.kind == "long_sessions"


def test_spawns_started_too_early() -> None:
    early = EarlySpawn("s1", "Explore", "/x:1", 10_000, 5 * MICRO, MICRO)
    (found,) = of([], early=[early, early], spent_usd=Decimal(1))
    assert found.saving_usd == 2 * 10_000 * 4 * MICRO


def sample() -> AnalyzeReport:
    with database.connect(":memory:") as connection:
        found, unreadable = discovery.find_transcripts([str(discovery.sample_root())])
        ingest(connection, found, unreadable, now=datetime(2026, 11, 29, tzinfo=UTC))
        return analyze(connection, Scope())


def test_the_other_ttl_from_the_sample_rows() -> None:
    """The figure in SQL against the same sum over the sample's main requests, written out here."""
    report = sample()
    (found,) = [one for one in report.findings if one.kind == "ttl_main_5m"]
    usd = {name: Decimal(value) * MICRO for name, value in (("write_5m", 5), ("write_1h", 8))}
    written = sum(row.cache_creation_1h_tokens for row in report.by_ttl)
    # every gap of the 1h session is 40 s but one of 4,300 s, whose request read 14,000; the first one read nothing
    read_after_pause = 14_000
    lost = read_after_pause * (usd["write_5m"] - MICRO / 5)
    assert found.saving_usd == written * (usd["write_1h"] - usd["write_5m"]) - lost


def test_json_is_exact_and_the_terminal_fits() -> None:
    report = sample()
    for row, one in zip(findings_json(report.findings), report.findings, strict=True):
        assert Decimal(row["saving_usd"]) == one.saving_usd
    for width in (40, 80, 120):
        out = StringIO()
        render_findings(Screen(Console(file=out, width=width, force_terminal=False)), report.findings)
        assert all(len(line) <= width for line in out.getvalue().splitlines())


CAUSES = ("unknown", "ttl_expired_5m", "ttl_expired_1h", "mcp_changed", "model_changed", "resumed", "tools_changed")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(CAUSES),
            st.sampled_from([None, "ttl_flip", "warm_resume", "turn_rewrites"]),
            st.sampled_from([(), ("github",), ("github", "jira")]),
            st.integers(1, 900),
            st.sampled_from(["/a", "/b"]),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_no_miss_is_counted_twice(rows: list[tuple[Any, ...]], bridge: bool) -> None:
    misses = [
        replace(MISS, request_key=f"k{n}", cause=cause, signature=signature, servers=servers, gap_s=900.0,
                rewrite_cost_usd=Decimal(cents) / 100, project=project)
        for n, (cause, signature, servers, cents, project) in enumerate(rows)
    ]  # fmt: skip
    expired = [miss for miss in misses if miss.cause.startswith("ttl") and miss.signature in (None, "ttl_flip")]
    cost = {miss.request_key: miss.rewrite_cost_usd or Decimal(0) for miss in misses}
    bridged = [miss.request_key for miss in expired if miss.project == "/a"]
    gain = sum((cost[key] for key in bridged), Decimal(0)) if bridge else Decimal(-1)
    options = [TtlOption("/a", "main", gain, Decimal(-1), 9, tuple(bridged))]
    pauses = [Pause(miss.request_key, 900.0, 300, 1_000, cost[miss.request_key], MICRO, MICRO) for miss in expired]
    found = of(misses, ttl_options=options, pauses=pauses, spent_usd=Decimal(0))
    assert sum(one.misses for one in found) <= len(misses)
    assert sum(one.saving_usd for one in found) <= sum(cost.values())


def test_an_entry_that_had_expired_anyway_is_no_habits_fault() -> None:
    switched = replace(MISS, cause="model_changed")
    assert [one.kind for one in of([switched])] == ["model_changed"]
    late = replace(switched, gap_s=301.0, request_key="k2")
    assert of([late]) == ()
    (both,) = of([switched, late])
    assert (both.saving_usd, both.misses) == (Decimal("0.48"), 1)

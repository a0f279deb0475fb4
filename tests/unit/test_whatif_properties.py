"""What must hold for any conversation: nothing changed means nothing moved, and the bounds are bounds."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer import database, discovery
from analyzer.ingest import ingest
from analyzer.queries import Scope
from analyzer.queries.history import Circumstances, LoggedRequest, UsageRow, chains
from analyzer.whatif.compute import Outcome, Scenarios
from analyzer.whatif.replay import lifetimes, moved, replayed
from analyzer.whatif.scenarios import plan_of
from analyzer.whatif.tariff import Till
from analyzer.whatif.work import Work, is_main
from fixtures.session_log import ROOT
from simulator.policy import Policy, simulate
from simulator.trace import Ttl, Usage

NOW = datetime(2026, 11, 29, tzinfo=UTC)
START = datetime(2026, 8, 10, 10, tzinfo=UTC).timestamp()
MODEL = "claude-sonnet-4-5-20250929"

turns = st.tuples(
    st.sampled_from([5.0, 30.0, 299.0, 300.0, 301.0, 1_000.0, 3_599.0, 3_601.0, 90_000.0]),
    st.integers(0, 8_000),
    st.integers(0, 50),
    st.sampled_from(["kept", "kept", "kept", "late", "lost"]),
)
drawn_chains = st.lists(
    st.tuples(st.sampled_from(["5m", "1h"]), st.lists(turns, min_size=1, max_size=8)), min_size=1, max_size=3
)


def conversation(number: int, ttl: str, steps: list[tuple[float, int, int, str]]) -> list[LoggedRequest]:
    """Requests that read what the rules give them, except where one was served late or lost without a cause."""
    life = 300 if ttl == "5m" else 3_600
    at, readable = START + number * 7, 0
    found = []
    for place, (gap, new, uncached, kind) in enumerate(steps):
        at += gap if place else 0
        alive = readable if (place and gap <= life) or kind == "late" else 0
        read = 0 if kind == "lost" else alive
        written = readable + new + (3_000 if place == 0 else 0) - read
        five, hour = (written, 0) if ttl == "5m" else (0, written)
        usage = Usage(uncached, read, five, hour, 100)
        readable = read + written
        found.append(
            LoggedRequest(
                key=f"{number}-{place}", chain=f"{number}/main#0", message_id=f"msg_{number}_{place}", native=True,
                response_began_at_s=at + 2, usage=usage, tools=(), stop_reason="end_turn",
                known=Circumstances(
                    started_at_s=at, date_estimated=False, prompt_tokens=usage.prompt_tokens, model=MODEL, speed=None,
                    effort=None, version="2.1.200", cwd="/x", branch=None, entrypoint="cli", project=f"/p{number}",
                    session_id=f"s{number}", agent_id=None, agent_type="main", after_prompt=True,
                    parent_message_id=None, events=(),
                ),
            )
        )  # fmt: skip
    return found


def scenarios_of(drawn: list[tuple[str, list[tuple[float, int, int, str]]]]) -> Scenarios:
    history = [conversation(number, ttl, steps) for number, (ttl, steps) in enumerate(drawn)]
    rows = [
        UsageRow(
            r.key, True, MODEL, datetime.fromtimestamp(r.known.started_at_s, UTC), r.usage, 0, None, "standard", None,
            r.known.project, r.known.session_id, r.chain,
        )
        for chain in history
        for r in chain
    ]  # fmt: skip
    return Scenarios(Work(history, rows), Till(None), NOW)


def under(scenarios: Scenarios, name: str) -> Outcome:
    return scenarios.outcome(plan_of(name))


@settings(max_examples=150, deadline=None)
@given(drawn_chains)
def test_bounds_and_conservation(drawn: list[tuple[str, list[tuple[float, int, int, str]]]]) -> None:
    scenarios = scenarios_of(drawn)
    actual = scenarios.actual
    for name in (
        "all-5m",
        "all-1h",
        "main-1h",
        "best-ttl",
        "best-setting",
        "no-cache",
        "perfect",
        "keep-alive",
        "fast-off",
    ):
        outcome = under(scenarios, name)
        for old, new in zip(actual.bill, outcome.bill, strict=False):
            assert new.row is old.row
            assert new.usage.prompt_tokens == old.usage.prompt_tokens
            assert new.usage.output_tokens == old.usage.output_tokens
            assert min(new.usage.input_tokens, new.usage.cache_read_tokens, new.usage.cache_creation_5m_tokens,
                       new.usage.cache_creation_1h_tokens) >= 0  # fmt: skip
            if name in ("main-1h", "all-1h", "perfect", "keep-alive"):
                assert new.usage.cache_read_tokens >= old.usage.cache_read_tokens
            if name == "all-5m":
                assert new.usage.cache_read_tokens <= old.usage.cache_read_tokens
    assert under(scenarios, "perfect").total <= actual.total
    assert under(scenarios, "best-setting").total <= actual.total
    assert under(scenarios, "best-ttl").total <= under(scenarios, "best-setting").total
    assert under(scenarios, "best-setting").total <= min(
        under(scenarios, "main-1h").total, under(scenarios, "main-5m").total
    )
    for name in ("fast-off", "standard", "subagents-1h", "subagents-5m", "sonnet-4-5", "subagents-inline"):
        outcome = under(scenarios, name)
        assert outcome.total == actual.total
        assert [billed.usage for billed in outcome.bill] == [billed.usage for billed in actual.bill]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["5m", "1h"]), st.lists(turns, min_size=1, max_size=8))
def test_the_lifetime_in_force_is_actual(ttl: str, steps: list[tuple[float, int, int, str]]) -> None:
    scenarios = scenarios_of([(ttl, steps)])
    outcome = under(scenarios, f"all-{ttl}")
    assert [billed.usage for billed in outcome.bill] == [billed.usage for billed in scenarios.actual.bill]
    assert outcome.total == scenarios.actual.total


@settings(max_examples=150, deadline=None)
@given(st.lists(turns.map(lambda t: (*t[:3], "kept")), min_size=1, max_size=8))
def test_one_hour_against_the_gap_rule(steps: list[tuple[float, int, int, str]]) -> None:
    """A second road to `all-1h`: no cache is simulated, a request reads all that came before if the gap allows."""
    scenarios = scenarios_of([("5m", steps)])
    readable, wanted = 0, Decimal(0)
    for place, (gap, new, uncached, _) in enumerate(steps):
        read = readable if place and gap <= 3_600 else 0
        readable += new + (3_000 if place == 0 else 0)
        wanted += (uncached * 3 + read * Decimal("0.3") + (readable - read) * 6 + 100 * 15) / Decimal(1_000_000)
    assert under(scenarios, "all-1h").total == wanted


def test_a_run_of_what_is_touched_is_a_run_of_everything() -> None:
    """Skipping requests that the change cannot reach gives what simulating all of them gives."""
    with closing(database.connect(":memory:")) as connection:
        found, unreadable = discovery.find_transcripts([str(discovery.sample_root()), str(ROOT)])
        ingest(connection, found, unreadable, now=NOW)
        work = Work(chains(connection, Scope()), ())
    lives: list[tuple[Ttl | None, Ttl | None]] = [("5m", None), (None, "1h"), ("1h", "5m")]
    for main, agents in lives:
        for model in (None, "claude-opus-5-5"):
            trace = [
                replace(
                    item.request,
                    model=model or item.request.model,
                    segments=tuple(
                        replace(segment, breakpoint=(main if is_main(item) else agents) or segment.breakpoint)
                        if segment.breakpoint
                        else segment
                        for segment in item.request.segments
                    ),
                )
                for item in work.trace
            ]
            whole = dict(zip((request.id for request in trace), simulate(trace, Policy()), strict=True))
            assert replayed(work, ttl_of=lifetimes(main, agents), model=model) == whole


counts = st.builds(Usage, *[st.integers(0, 5_000)] * 4, st.just(7))


@given(counts, counts, counts)
def test_moving_keeps_the_prompt(logged: Usage, one: Usage, other: Usage) -> None:
    assert moved(logged, one, one) is logged
    new = moved(logged, one, other)
    assert new.prompt_tokens == logged.prompt_tokens
    assert new.output_tokens == logged.output_tokens
    assert min(new.input_tokens, new.cache_read_tokens, new.cache_creation_5m_tokens, new.cache_creation_1h_tokens) >= 0

"""The indexed verdicts against a twin that looks at every pair, written straight from the rule."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.sharing import Spawn, Verdict, Writer, Writers, judge

START = datetime(2026, 11, 1, tzinfo=UTC)
SECONDS = st.one_of(st.integers(0, 20), st.integers(0, 900))
TOKENS = st.sampled_from([0, 5_000, 11_000, 30_000])
AGENTS = ("a1", "a2", "a3", "a4")


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


@st.composite
def requests(draw: st.DrawFn) -> Writer:
    started = draw(SECONDS)
    return Writer(
        draw(st.sampled_from(["s", "t"])),
        draw(st.sampled_from([None, *AGENTS])),
        draw(st.sampled_from(["m", "n"])),
        "/a",
        at(started),
        at(started + draw(st.integers(0, 40))),
        draw(TOKENS),
        draw(TOKENS),
        draw(st.sampled_from([300, 3600])),
    )


@st.composite
def spawned(draw: st.DrawFn) -> list[Spawn]:
    found = []
    for agent in draw(st.lists(st.sampled_from(AGENTS), unique=True)):
        started = draw(SECONDS)
        began = started + draw(st.integers(0, 40))
        kind, model = draw(st.sampled_from(["Explore", "Plan"])), draw(st.sampled_from(["m", "n"]))
        found.append(Spawn("s", agent, kind, model, "/a", at(started), at(began), draw(TOKENS), 1_000))
    return found


def twin(spawn: Spawn, spawns: list[Spawn], writers: list[Writer]) -> str:
    own = ("s", spawn.agent_id)
    if spawn.read_tokens == 0:
        for other in spawns:
            alike = (other.agent_type, other.model) == (spawn.agent_type, spawn.model) and other is not spawn
            if alike and other.started_at <= spawn.started_at < other.response_began_at:
                return "too_early"
        return "cold"
    proofs = [
        writer
        for writer in writers
        if writer.session_id == "s"
        and writer.agent_id != spawn.agent_id
        and writer.model == spawn.model
        and writer.position_tokens == spawn.read_tokens
        and writer.response_began_at <= spawn.started_at <= writer.started_at + timedelta(seconds=writer.ttl_s)
    ]
    if any(writer.agent_id is None for writer in proofs):
        return "shares_with_parent"
    if proofs:
        return "shares_with_siblings"
    for writer in writers:
        same = (writer.model, writer.cwd, writer.read_tokens) == (spawn.model, spawn.cwd, spawn.read_tokens)
        if same and (writer.session_id, writer.agent_id) != own:
            return "shares_static_prefix"
    return "partial_unknown"


@settings(max_examples=300, deadline=None)
@given(spawned(), st.lists(requests(), max_size=30))
def test_every_verdict_is_the_twins(spawns: list[Spawn], writers: list[Writer]) -> None:
    verdicts = judge(spawns, Writers(writers))
    assert [verdict.name for verdict in verdicts] == [twin(spawn, spawns, writers) for spawn in spawns]
    for spawn, verdict in zip(spawns, verdicts, strict=True):
        assert_proof(spawn, verdict, writers)


def assert_proof(spawn: Spawn, verdict: Verdict, writers: list[Writer]) -> None:
    """Whoever is named did cache it: such a request exists, in time, and none of its kind is later."""
    if verdict.name not in ("shares_with_parent", "shares_with_siblings"):
        return
    whose = None if verdict.whose == "parent" else verdict.whose
    assert verdict.position_tokens == spawn.read_tokens
    assert any(
        (writer.session_id, writer.agent_id, writer.model) == ("s", whose, spawn.model)
        and writer.position_tokens == spawn.read_tokens
        and writer.started_at == verdict.written_at
        for writer in writers
    )

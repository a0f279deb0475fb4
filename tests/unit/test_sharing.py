"""Each sharing verdict from the smallest set of requests that shows it."""

import sys
from datetime import UTC, datetime, timedelta

import pytest

from analyzer.sharing import First, Spawn, Writer, Writers, judge, warmed_by

START = datetime(2026, 11, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def spawn(agent: str = "a1", read: int = 0, started: float = 100, began: float = 105) -> Spawn:
    return Spawn("s", agent, "Explore", "m", "/a", at(started), at(began), read, 9_000)


def writer(
    agent: str | None = None,
    position: int = 40_000,
    *,
    session: str = "s",
    model: str = "m",
    read: int = 0,
    ttl: int = 300,
) -> Writer:
    return Writer(session, agent, model, "/a", at(0), at(6), read, position, ttl)


@pytest.mark.parametrize(
    ("read", "writers", "name", "whose"),
    [
        (40_000, [writer()], "shares_with_parent", "parent"),
        (40_000, [writer("a0")], "shares_with_siblings", "a0"),
        (40_000, [writer("a0"), writer()], "shares_with_parent", "parent"),
        (39_999, [writer()], "partial_unknown", None),
        (40_000, [writer(model="other")], "partial_unknown", None),
        (40_000, [writer(ttl=99)], "partial_unknown", None),
        (40_000, [writer(ttl=100)], "shares_with_parent", "parent"),
        (40_000, [writer("a1")], "partial_unknown", None),
        (5_400, [writer("b1", session="t", read=5_400)], "shares_static_prefix", "t/b1"),
        (5_400, [writer("a1", read=5_400)], "partial_unknown", None),
        (0, [writer()], "cold", None),
    ],
)
def test_verdict_and_proof(read: int, writers: list[Writer], name: str, whose: str | None) -> None:
    (verdict,) = judge([spawn(read=read)], Writers(writers))
    assert (verdict.name, verdict.whose) == (name, whose)


def test_siblings_started_at_once_come_too_early() -> None:
    verdicts = judge(
        [spawn("a1", started=100), spawn("a2", started=101, began=106), spawn("a3", started=107, began=112)],
        Writers([]),
    )
    assert [verdict.name for verdict in verdicts] == ["cold", "too_early", "cold"]


def test_three_at_one_instant_all_come_too_early() -> None:
    verdicts = judge([spawn("a1"), spawn("a2"), spawn("a3")], Writers([]))
    assert [verdict.name for verdict in verdicts] == ["too_early"] * 3


def test_a_first_request_is_warm_thanks_to_whoever_had_its_prefix() -> None:
    first = First("t", None, "m", "/a", at(100), 40_000)
    exact, alike = writer(), writer("b1", read=40_000, position=90_000)
    assert warmed_by(first, Writers([alike, exact])) is exact
    assert warmed_by(first, Writers([alike])) is alike
    assert warmed_by(first, Writers([writer(ttl=99)])) is None
    assert warmed_by(First("t", None, "m", "/a", at(100), 0), Writers([writer(position=0)])) is None


def test_many_like_spawns_are_judged_in_about_linear_time() -> None:
    """All of one type, all reading and writing the same: the worst case for looking anybody up. Calls are counted."""

    def calls(count: int) -> int:
        spawns = [spawn(f"a{n}", 11_000 * (n % 2), 100 + n / 10, 102 + n / 10) for n in range(count)]
        known = [writer(f"a{n}", 11_000, read=11_000) for n in range(count)]
        made = 0

        def count_one(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(count_one)
        try:
            judge(spawns, Writers(known))
        finally:
            sys.setprofile(before)
        return made

    assert calls(1_600) < 12 * calls(200), "8 times the spawns; 64 times would be quadratic"

"""Each known bug from the shortest chain that shows its pattern, and the healthy neighbours that do not."""

from dataclasses import replace

import pytest

from analyzer.signatures import MEANING, Step, Writes, detect, ttl_flip, version_order

GOOD = Step("", 50_000, 800, False, True, False, False, "2.1.9", "2.1.9")


def steps(*changes: dict[str, object]) -> list[Step]:
    """One healthy step per entry, with these changes; keys are k0, k1, ..."""
    return [
        replace(GOOD, key=f"k{number}", read_tokens=50_000 + number, **change) for number, change in enumerate(changes)
    ]


def names(chain: str, chain_steps: list[Step]) -> list[tuple[str, tuple[str, ...]]]:
    return [(signature.name, signature.keys) for signature in detect(chain, chain_steps)]


def lost(read: int = 12_000, written: int = 60_000, **more: object) -> list[Step]:
    return [replace(GOOD, missed=True, read_tokens=read, creation_tokens=written, **more)]


def chain(*parts: list[Step]) -> list[Step]:
    joined = [step for part in parts for step in part]
    return [replace(step, key=f"k{number}") for number, step in enumerate(joined)]


def test_a_healthy_chain_shows_nothing() -> None:
    assert names("main#0", steps({}, {}, {"after_prompt": True}, {})) == []


def test_read_pinned_at_the_floor_after_healthy_requests() -> None:
    assert names("main#0", chain(steps({}), lost(), lost(), lost())) == [("read_pinned_at_floor", ("k1", "k2", "k3"))]
    assert names("main#0", chain(steps({}), lost(), lost())) == []


def test_frozen_breakpoint_from_the_start_with_a_growing_write() -> None:
    frozen = chain(lost(5_327, 20_000), lost(5_327, 24_000), lost(5_327, 29_000))
    assert names("agent:a#0", frozen) == [("frozen_breakpoint", ("k0", "k1", "k2"))]


def test_expiry_is_no_bug() -> None:
    assert names("main#0", chain(lost(warm=False), lost(warm=False), lost(warm=False))) == []


def test_every_wake_of_a_parked_subagent() -> None:
    work = steps({}, {}, {}, {})
    woken = chain(work, lost(6_000, 90_000, after_prompt=True), work, lost(6_000, 99_000, after_prompt=True), work)
    assert names("agent:a#0", woken) == [("wake_rewrites", ("k4", "k9"))]
    assert names("main#0", woken) == [], "two user turns are too few to tell"
    one = chain(work, lost(6_000, 90_000, after_prompt=True), work, steps({"after_prompt": True}))
    assert names("agent:a#0", one) == []


def test_user_turns_that_rewrite_while_tool_calls_do_not() -> None:
    work = steps({}, {}, {}, {})
    parts = [part for turn in range(3) for part in (work, lost(9_000 + turn, 90_000, after_prompt=True))]
    assert names("main#0", chain(*parts)) == [("turn_rewrites", ("k4", "k9", "k14"))]
    noisy = chain(*parts, lost(7_000), lost(7_001))
    assert names("main#0", noisy) == [], "misses within turns speak against it"


def test_resume_in_a_warm_cache() -> None:
    assert names("main#0", chain(steps({}), lost(resumed=True))) == [("warm_resume", ("k1",))]
    assert names("main#0", chain(steps({}), lost(resumed=True, warm=False))) == []


def test_version_flip_flop_needs_the_way_back() -> None:
    there = lost(previous_version="2.1.9", version="2.1.4")
    back = lost(previous_version="2.1.4", version="2.1.9")
    assert names("main#0", chain(steps({}), there, steps({}), back)) == [("version_flip_flop", ("k1", "k3"))]
    assert names("main#0", chain(steps({}), there, steps({}))) == []


@pytest.mark.parametrize(
    ("rows", "flip"),
    [
        ([("1", 9, 0), ("2", 8, 0), ("3", 0, 9)], ("2", "3")),
        ([("1", 9, 0), ("2", 8, 0)], None),
        ([("1", 9, 0), ("2", 0, 4)], None),
        ([("1", 9, 0), ("2", 0, 9), ("3", 9, 0)], None),
        ([("1", 9, 1), ("2", 0, 9)], None),
    ],
)
def test_ttl_flip(rows: list[tuple[str, int, int]], flip: tuple[str, str] | None) -> None:
    many = [Writes(*row, frozenset({f"{row[0]}a", f"{row[0]}b"})) for row in rows]
    assert ttl_flip(many) == flip
    assert ttl_flip([replace(row, sessions=frozenset({row.key})) for row in many[-2:]]) is None


def test_versions_order_as_numbers() -> None:
    assert sorted(["2.1.10", "2.1.9", "2.1.9-beta"], key=version_order) == ["2.1.9", "2.1.9-beta", "2.1.10"]


def test_every_signature_has_a_meaning() -> None:
    assert all(text.endswith(")") for text in MEANING.values())

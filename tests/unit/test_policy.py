"""Each caching rule on its smallest example.

Sections named in docstrings are those of https://platform.claude.com/docs/en/build-with-claude/prompt-caching.
"""

import sys
from dataclasses import replace

import pytest

from simulator.policy import MIN_CACHEABLE_TOKENS, Policy, simulate
from simulator.trace import Request, Segment, Ttl, Usage

ANY_SIZE = Policy(min_cacheable_tokens={}, default_min_cacheable_tokens=0)


def seg(key: str, tokens: int = 100, bp: Ttl | None = None, positions: int = 1) -> Segment:
    return Segment(key, tokens, positions, bp)


def req(
    start: float, *segments: Segment, began: float | None = None, model: str = "m", scope: str = "", salt: str = ""
) -> Request:
    began = start + 1 if began is None else began
    return Request(f"r{start}", "c", None, model, scope, salt, start, began, segments, 7)


def reads(*requests: Request, policy: Policy = ANY_SIZE) -> list[int]:
    return [usage.cache_read_tokens for usage in simulate(requests, policy)]


def test_write_then_read_and_the_rest_is_input() -> None:
    """See "Tracking cache performance": `input_tokens` are those after the last cache breakpoint."""
    prompt = (seg("a", 100, "5m"), seg("b", 30))
    assert simulate([req(0, *prompt), req(10, *prompt)], ANY_SIZE) == [
        Usage(input_tokens=30, cache_creation_5m_tokens=100, output_tokens=7),
        Usage(input_tokens=30, cache_read_tokens=100, output_tokens=7),
    ]


def test_a_shared_prefix_without_a_breakpoint_is_not_read() -> None:
    """See "How automatic prefix checking works": cache writes happen only at a breakpoint."""
    assert reads(req(0, seg("a"), seg("b", bp="5m")), req(10, seg("a"), seg("c", bp="5m"))) == [0, 0]


def test_the_key_is_cumulative() -> None:
    """See "How automatic prefix checking works": the hash of a position covers everything before it."""
    assert reads(req(0, seg("a"), seg("b", bp="5m")), req(10, seg("x"), seg("b", bp="5m"))) == [0, 0]


def test_reading_needs_a_breakpoint() -> None:
    """See "How automatic prefix checking works": a read looks back from a breakpoint."""
    assert reads(req(0, seg("a", bp="5m")), req(10, seg("a"))) == [0, 0]


@pytest.mark.parametrize(("between", "read"), [(18, 100), (19, 0)])
@pytest.mark.parametrize("lumped", [False, True])
def test_look_back_is_20_positions_with_the_breakpoint_as_the_first(between: int, read: int, lumped: bool) -> None:
    """See "How automatic prefix checking works": at most 20 positions, the breakpoint itself being the first."""
    filler = [seg("f", positions=between)] if lumped else [seg(f"f{i}") for i in range(between)]
    assert reads(req(0, seg("a", bp="5m")), req(10, seg("a"), *filler, seg("z", bp="5m"))) == [0, read]


def test_each_breakpoint_looks_back() -> None:
    """See "How automatic prefix checking works": further breakpoints look back from where they are."""
    filler = [seg(f"f{i}") for i in range(30)]
    assert reads(req(0, seg("a", bp="5m")), req(10, seg("a", bp="5m"), *filler, seg("z", bp="5m"))) == [0, 100]


def test_more_than_four_breakpoints_are_refused() -> None:
    """See "When to use multiple breakpoints": up to 4."""
    four = [seg(str(i), bp="5m") for i in range(4)]
    simulate([req(0, *four)], ANY_SIZE)
    with pytest.raises(ValueError, match="5 breakpoints, at most 4"):
        simulate([req(0, *four, seg("e", bp="5m"))], ANY_SIZE)


@pytest.mark.parametrize(("ttl", "age", "read"), [("5m", 300, 100), ("5m", 301, 0), ("1h", 3600, 100), ("1h", 3601, 0)])
def test_an_entry_lives_through_its_ttl(ttl: Ttl, age: float, read: int) -> None:
    """See "How prompt caching works": 5 minutes by default, "1-hour cache duration" where asked for."""
    assert reads(req(0, seg("a", bp=ttl)), req(age, seg("a", bp=ttl))) == [0, read]


def test_age_counts_from_the_start_of_the_request_not_from_its_response() -> None:
    """See "How prompt caching works": the lifetime counts from the request's start, not from its response's end."""
    assert reads(req(0, seg("a", bp="5m"), began=60), req(301, seg("a", bp="5m"))) == [0, 0]


def test_a_hit_refreshes() -> None:
    """See "How prompt caching works": the cache is refreshed for no additional cost each time it is used."""
    assert reads(*(req(t, seg("a", bp="5m")) for t in (0, 250, 500, 801))) == [0, 100, 100, 0]


def test_a_hit_refreshes_the_shorter_entries_inside() -> None:
    long = (seg("a", bp="5m"), seg("b", bp="5m"))
    assert reads(req(0, *long), req(250, *long), req(500, seg("a", bp="5m"))) == [0, 200, 100]


def test_a_hit_does_not_lengthen_an_entrys_ttl() -> None:
    assert reads(req(0, seg("a", bp="5m")), req(10, seg("a", bp="1h")), req(400, seg("a", bp="5m"))) == [0, 100, 0]


def test_a_breakpoint_below_the_hit_gets_an_entry_for_nothing() -> None:
    first = req(0, seg("a"), seg("b", bp="5m"))
    second = req(10, seg("a", bp="1h"), seg("b", bp="5m"))
    third = req(20, seg("a", bp="5m"))
    usages = simulate([first, second, third, req(321, seg("a", bp="5m"))], ANY_SIZE)
    assert [u.cache_read_tokens for u in usages] == [0, 200, 100, 0]
    assert usages[1].cache_creation_tokens == 0


def test_5m_before_1h_is_refused_unless_overridden() -> None:
    """See "Mixing different TTLs": entries with a longer TTL must come first."""
    wrong = req(0, seg("a", bp="5m"), seg("b", bp="1h"))
    with pytest.raises(ValueError, match="longer TTLs must come first"):
        simulate([wrong], ANY_SIZE)
    simulate([wrong], Policy(ttl="5m"))


def test_the_bill_splits_at_hit_one_hour_breakpoint_and_last_breakpoint() -> None:
    """See "Mixing different TTLs": read to A, write B - A for an hour and C - B for five minutes; the rest is input."""
    prompt = (seg("a", 100, "1h"), seg("b", 20, "1h"), seg("c", 3, "5m"), seg("d", 4))
    usage = simulate([req(0, seg("a", 100, "1h")), req(10, *prompt)], ANY_SIZE)[1]
    assert usage == Usage(4, 100, 3, 20, 7)


@pytest.mark.parametrize(("model", "minimum"), [
    ("claude-opus-4-5-20251101", 4096), ("us.anthropic.claude-opus-4-1-20250805-v1:0", 1024),
    ("claude-opus-4-7", 2048), ("claude-opus-5-5", 512), ("claude-sonnet-5", 1024), ("claude-sonnet-5-5", 512),
    ("claude-haiku-4-5", 4096), ("claude-3-5-haiku-20241022", 2048), ("unknown", 1024),
    ("anthropic/claude-opus-4.6", 4096), ("claude-fable-5-2", 512), ("claude-sonnet-4-6", 1024),
    ("claude-3-7-sonnet-20250219", 1024), ("claude-haiku-5-5", 512), ("claude-opus-4-8[1m]", 1024),
])  # fmt: skip
def test_below_the_models_minimum_nothing_is_cached(model: str, minimum: int) -> None:
    """See "Cache limitations": the minimum per model; shorter prompts are not cached and not refused."""
    short, exact = (req(0, seg("a", n, "5m"), model=model) for n in (minimum - 1, minimum))
    assert simulate([short], Policy()) == [Usage(minimum - 1, output_tokens=7)]
    assert simulate([exact], Policy()) == [Usage(0, 0, minimum, 0, 7)]


def test_an_entry_serves_once_its_writers_response_began() -> None:
    """See "Cache limitations": an entry becomes available once the first response begins."""
    first = req(0, seg("a", bp="5m"), began=5)
    assert reads(first, req(4, seg("a", bp="5m"), began=9)) == [0, 0]
    assert reads(first, req(5, seg("a", bp="5m"))) == [0, 100]
    assert reads(first, req(4, seg("a", bp="5m"), began=9), req(6, seg("a", bp="5m"))) == [0, 0, 100]


def test_of_two_writers_at_once_the_longer_lifetime_holds() -> None:
    """Both pay for their write, so what either paid for is there."""
    for ttls in (("5m", "1h"), ("1h", "5m")):
        writers = [req(i, seg("a", bp=ttl), began=9) for i, ttl in enumerate(ttls)]  # type: ignore[arg-type]
        assert reads(*writers, req(400, seg("a", bp="5m"))) == [0, 0, 100]


def test_results_follow_the_traces_order_and_time_the_clock() -> None:
    assert reads(req(10, seg("a", bp="5m")), req(0, seg("a", bp="5m"))) == [100, 0]


@pytest.mark.parametrize("name", ["model", "scope", "salt"])
def test_isolation(name: str) -> None:
    """See "Cache storage and sharing": per organisation and workspace (scope). "What invalidates the cache": model;
    speed and effort where they do (salt).
    """
    one, two = (req(t, seg("a", bp="5m"), **{name: str(t)}) for t in (0, 10))  # type: ignore[arg-type]
    assert reads(one, two) == [0, 0]
    assert reads(one, two, policy=Policy({}, 0, isolation=ANY_SIZE.isolation - {name})) == [0, 100]


def test_ttl_override_and_disabled() -> None:
    pair = [req(0, seg("a", bp="5m")), req(400, seg("a", bp="5m"))]
    assert simulate(pair, Policy({}, 0, ttl="1h")) == [Usage(0, 0, 0, 100, 7), Usage(0, 100, 0, 0, 7)]
    assert simulate(pair, Policy({}, 0, enabled=False)) == [Usage(100, output_tokens=7)] * 2


def test_a_platforms_own_minimum() -> None:
    """https://github.com/BerriAI/litellm-docs/pull/49: on Bedrock 2,038 tokens were not cached, 2,067 were."""
    bedrock = Policy({**MIN_CACHEABLE_TOKENS, "claude-sonnet-4-6": 2048})
    model = "us.anthropic.claude-sonnet-4-6-v1:0"
    short, long = (simulate([req(0, seg("a", n, "5m"), model=model)], bedrock)[0] for n in (2038, 2067))
    assert (short.input_tokens, long.cache_creation_5m_tokens) == (2038, 2067)


def test_a_breakpoint_below_the_minimum_leaves_later_ones_alone() -> None:
    """See "Cache limitations": what counts is the length of the prefix that a breakpoint ends."""
    prompt = (seg("a", 1023, "5m"), seg("b", 1, "5m"))
    usages = simulate([req(t, *prompt) for t in (0, 10)], Policy())
    assert [(u.cache_creation_5m_tokens, u.cache_read_tokens) for u in usages] == [(1024, 0), (0, 1024)]
    assert simulate([req(0, *prompt), req(10, seg("a", 1023, "5m"))], Policy())[1].input_tokens == 1023


def test_the_work_grows_with_the_number_of_requests() -> None:
    """Ten times the conversations take ten times the calls, and hardly more."""

    def calls(conversations: int) -> int:
        trace = []
        for c in range(conversations):
            prompt: tuple[Segment, ...] = (seg(f"system {c}", 5000, "5m"),)
            for n in range(50):
                prompt = (*prompt, seg(f"a{n}"), seg(f"b{n}"))
                last = replace(prompt[-1], breakpoint="5m")
                trace.append(replace(req(n, *prompt[:-1], last), id=f"{c} {n}", chain=str(c)))
        counted = 0

        def count(*_: object) -> None:
            nonlocal counted
            counted += 1

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            simulate(trace, ANY_SIZE)
        finally:
            sys.setprofile(before)
        return counted

    assert calls(100) < 11 * calls(10)


def test_empty_prompt_and_empty_trace() -> None:
    assert simulate([], ANY_SIZE) == []
    assert simulate([req(0)], ANY_SIZE) == [Usage(output_tokens=7)]


def test_nonsense_policies_are_refused() -> None:
    with pytest.raises(ValueError, match="look_back"):
        Policy(look_back=0)
    with pytest.raises(ValueError, match="max_breakpoints"):
        Policy(max_breakpoints=-1)

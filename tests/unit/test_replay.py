# ruff: noqa: E402
"""Traces through plan and engine: reuse is the policy's read in whole blocks, kills and odd clocks do no harm."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from simulator.engine import ChunkTime, Engine
from simulator.errors import TraceError, UsageError
from simulator.forward import LlamaForward
from simulator.replay.checkpoint import Checkpoint
from simulator.replay.plan import POLICY_NAMES, Prompts, make_plan, prompt_tokens
from simulator.replay.prefill_cost import PrefillCost
from simulator.replay.results import rescaled, sampled
from simulator.replay.run import Measuring, fingerprint, run_plan
from simulator.trace import Request, Segment, Usage
from tests.tiny_llama import tiny_llama

WINDOW = 1024
NO_MEASURING = Measuring(samples=0)


@pytest.fixture(scope="module")
def forward():
    return LlamaForward(tiny_llama(hidden=36, layers=1, context=WINDOW))


def request(name: str, at: float, *segments: Segment, began: float | None = None, **fields) -> Request:
    known = {"chain": "main", "parent": None, "model": "claude-sonnet-4", "scope": "s", "salt": "", "output_tokens": 9}
    return Request(
        id=name, started_at_s=at, response_began_at_s=at if began is None else began, segments=segments,
        **{**known, **fields},
    )  # fmt: skip


def turn(number: int, tokens: int, ttl: str | None = "5m") -> Segment:
    return Segment(f"turn {number}", tokens, breakpoint=ttl)


def conversation(turns: int = 12, *, tokens: int = 1_700, gap: float = 60.0, ttl: str | None = "5m") -> list[Request]:
    """A system prompt and turns that extend each other; only the last two segments carry breakpoints."""
    trace = []
    for n in range(turns):
        segments = [Segment("system", 9_000, breakpoint="1h" if ttl == "1h" else ttl)]
        segments += [turn(k, tokens, ttl if k >= n - 1 else None) for k in range(n + 1)]
        trace.append(request(f"m{n}", n * gap, *segments))
    return trace


def play(trace, forward, policy="logged", *, block=64, window=WINDOW, factor=None, budget=None, **options):
    plan = make_plan(trace, policy, window=window, block_size=block, factor=factor)
    engine = Engine(forward, block_size=block, budget_bytes=budget)
    return run_plan(plan, engine, **{"measuring": NO_MEASURING, **options})


def assert_as_the_policy_says(replay) -> None:
    for row in replay.requests:
        prompt = row.reused_tokens + row.computed_tokens
        readable = int(row.policy.cache_read_tokens / Fraction(replay.scale).limit_denominator(10**6))
        assert row.reused_tokens == replay.block_size * (min(readable, prompt - 1) // replay.block_size)
        assert row.reused_tokens == row.expected_reused_tokens


@pytest.mark.parametrize("policy", POLICY_NAMES)
@pytest.mark.parametrize("block", [16, 64])
def test_reuse_is_the_policys_read_in_whole_blocks(forward, policy, block: int) -> None:
    replay = play(conversation(), forward, policy, block=block)
    assert_as_the_policy_says(replay)
    assert replay.scale == pytest.approx((9_000 + 12 * 1_700) / WINDOW)
    assert (replay.totals.reused_tokens > 0) is (policy != "none")


def test_at_full_size_the_policys_read_is_met_exactly_where_it_ends_on_a_block(forward) -> None:
    segments = [Segment("system", 512, breakpoint="5m"), Segment("a", 128, breakpoint="5m")]
    trace = [request("1", 0, *segments), request("2", 9, *segments, Segment("b", 100, breakpoint="5m"))]
    trace = [replace(each, model="claude-opus-5") for each in trace]  # caches from 512 tokens on
    replay = play(trace, forward)
    assert replay.scale == 1
    assert [row.policy.cache_read_tokens for row in replay.requests] == [0, 640]
    assert [row.reused_tokens for row in replay.requests] == [0, 640]
    assert [row.engine for row in replay.requests] == [Usage(0, 0, 640), Usage(36, 640, 64)]
    assert [row.below_resolution_tokens for row in replay.requests] == [0, 0]


def test_every_turn_is_verified_bit_for_bit(forward) -> None:
    replay = play(conversation(6), forward, measuring=Measuring(verify=True))
    assert (replay.totals.verified, replay.totals.mismatched) == (6, 0)
    assert all(row.measured for row in replay.requests)


def test_a_wrong_bit_in_the_cache_is_reported(forward) -> None:
    plan = make_plan(conversation(4), "logged", window=WINDOW, block_size=64)
    engine = Engine(forward)

    def spoil(row) -> None:
        if row.request_id == "m1":
            engine.store[0][0, 1] += 1e-3
            engine._workspace.resident.clear()

    replay = run_plan(plan, engine, measuring=Measuring(verify=True), progress=spoil)
    assert [row.verified for row in replay.requests] == [True, True, False, False]


def test_a_gap_of_exactly_the_lifetime_reads_and_a_longer_one_does_not(forward) -> None:
    for gap, alive in ((300.0, True), (300.5, False)):
        replay = play(conversation(2, gap=gap), forward)
        assert (replay.requests[1].reused_tokens > 0) is alive
        assert (replay.requests[1].policy.cache_read_tokens > 0) is alive
        assert_as_the_policy_says(replay)


def test_one_hour_keeps_what_five_minutes_lose(forward) -> None:
    trace = conversation(5, gap=1_000)
    short, long = (play(trace, forward, policy) for policy in ("5m", "1h"))
    assert short.totals.reused_tokens == 0 < long.totals.reused_tokens


def test_what_expired_takes_no_memory(forward) -> None:
    trace = [*conversation(3), request("other", 900, Segment("z", 4_000, breakpoint="5m"))]
    short, long = (play(trace, forward, policy).requests[-1].kv_bytes for policy in ("5m", "1h"))
    assert 0 < short < long


def test_concurrent_identical_siblings_all_compute_and_a_later_one_reads(forward) -> None:
    prompt = [Segment("system", 9_000, breakpoint="5m"), Segment("task", 700, breakpoint="5m")]
    trace = [request("first", 0, *prompt, began=5), request("second", 1, *prompt, began=6), request("late", 7, *prompt)]
    replay = play(trace, forward)
    assert [row.reused_tokens > 0 for row in replay.requests] == [False, False, True]
    assert_as_the_policy_says(replay)
    assert replay.requests[1].kv_bytes == replay.requests[0].kv_bytes, "the same blocks are stored once"


def test_duplicate_requests_read_all_but_the_last_block(forward) -> None:
    trace = [*conversation(1), replace(conversation(1)[0], id="again", started_at_s=1.0)]
    replay = play(trace, forward)
    assert replay.requests[1].computed_tokens <= 64
    assert_as_the_policy_says(replay)


def test_scopes_and_models_do_not_share(forward) -> None:
    first = conversation(1)[0]
    trace = [
        first,
        replace(first, id="b", scope="other", started_at_s=1),
        replace(first, id="c", salt="x", started_at_s=2),
    ]
    assert play(trace, forward).totals.reused_tokens == 0
    assert play(trace, forward, "auto").totals.reused_tokens == 0


def test_what_fills_no_block_is_counted_as_below_resolution_not_as_lost(forward) -> None:
    tail = Segment("big", 200_000, breakpoint="5m")
    small = Segment("system", 5_000, breakpoint="5m")
    trace = [request("a", 0, small), request("b", 1, small, tail)]
    row = play(trace, forward).requests[1]
    assert (row.policy.cache_read_tokens, row.reused_tokens, row.below_resolution_tokens) == (5_000, 0, 5_000)


def test_requests_out_of_order_are_served_by_their_clock_and_counted(forward) -> None:
    trace = conversation(4)
    replay = play([trace[1], trace[0], *trace[2:]], forward)
    assert [row.request_id for row in replay.requests] == ["m0", "m1", "m2", "m3"]
    assert replay.reordered == 1
    assert all(row.gap_s >= 0 for row in replay.requests)


def test_a_response_that_began_before_its_request_serves_others_from_its_start(forward) -> None:
    trace = conversation(3)
    trace[0] = replace(trace[0], response_began_at_s=-50.0)
    assert play(trace, forward).requests[1].reused_tokens > 0


def test_a_capacity_costs_reuse_but_never_bits_or_bytes(forward) -> None:
    budget = 5 * 64 * forward.kv_shape.token_bytes
    trace = conversation(5) + [
        replace(r, id=f"x{r.id}", scope="x", started_at_s=r.started_at_s + 1) for r in conversation(5)
    ]
    replay = play(trace, forward, budget=budget, measuring=Measuring(verify=True))
    assert max(row.kv_bytes for row in replay.requests) <= budget
    assert replay.totals.mismatched == 0
    assert replay.totals.reused_tokens < play(trace, forward).totals.reused_tokens


def test_prompts_are_the_same_in_every_run_and_differ_from_the_first_changed_key() -> None:
    plan = make_plan(conversation(3), "logged", window=WINDOW, block_size=64)
    one, two = ([Prompts(plan.factor, 512).tokens(p) for p in plan.requests] for _ in range(2))
    assert one == two
    assert [len(ids) for ids in one] == [planned.tokens for planned in plan.requests]
    assert one[1][: len(one[0])] == one[0]
    assert min(map(min, one)) >= 32
    trace = conversation(3)
    changed = replace(trace[2].segments[0], key="system changed")
    trace[2] = replace(trace[2], segments=(changed, *trace[2].segments[1:]))
    ids = [
        Prompts(plan.factor, 512).tokens(p) for p in make_plan(trace, "logged", window=WINDOW, block_size=64).requests
    ]
    assert ids[:2] == one[:2]
    assert sum(a == b for a, b in zip(ids[2], one[2], strict=True)) < len(ids[2]) / 20


class Killed(Exception):
    pass


def test_a_killed_replay_goes_on_and_ends_with_the_same_figures(forward, tmp_path: Path) -> None:
    trace = conversation(8)
    whole = play(trace, forward)
    plan = make_plan(trace, "logged", window=WINDOW, block_size=64)
    path = tmp_path / "progress.jsonl"

    def kill(row) -> None:
        if row.request_id == "m4":
            raise Killed

    for attempt in range(2):
        engine = Engine(forward)
        with Checkpoint(path, fingerprint(plan, engine, NO_MEASURING, None)) as checkpoint:
            assert len(checkpoint.finished) == 5 * attempt
            if not attempt:
                with pytest.raises(Killed):
                    run_plan(plan, engine, measuring=NO_MEASURING, checkpoint=checkpoint, progress=kill)
                continue
            resumed = run_plan(plan, engine, measuring=NO_MEASURING, checkpoint=checkpoint)
        with path.open("ab") as file:
            file.write(b'{"row": {"cut off')
    assert resumed.requests[5].restored_tokens > 0
    timeless = {"prefill_s": 0.0, "assemble_s": 0.0, "prefill_uncached_s": 0.0, "restored_tokens": 0, "peak_bytes": 0}
    assert [replace(r, **timeless) for r in resumed.requests] == [replace(r, **timeless) for r in whole.requests]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello\n", "not a replay's checkpoint"),
        (b"hello", "not a replay's checkpoint"),
        (b'{"replay_checkpoint": 1, "fingerprint": "of another"}\n', "belongs to another replay"),
        (b'{"replay_checkpoint": 1, "fingerprint": "mine"}\n{"row": 1}\n', "line 2 is damaged"),
    ],
)
def test_foreign_and_damaged_checkpoints_are_refused_and_left_alone(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        Checkpoint(path, "mine")
    assert path.read_bytes() == content


def test_a_checkpoint_that_tells_another_story_is_refused(forward, tmp_path: Path) -> None:
    plan = make_plan(conversation(3), "logged", window=WINDOW, block_size=64)
    with Checkpoint(tmp_path / "progress.jsonl", "mine") as checkpoint:
        run_plan(plan, Engine(forward), measuring=NO_MEASURING, checkpoint=checkpoint)
    other = make_plan(conversation(3, gap=900), "logged", window=WINDOW, block_size=64)
    with Checkpoint(tmp_path / "progress.jsonl", "mine") as checkpoint:
        with pytest.raises(UsageError, match="the trace says 0 for m1"):
            run_plan(other, Engine(forward), checkpoint=checkpoint)
        with pytest.raises(UsageError, match="more requests than the trace"):
            run_plan(
                make_plan(conversation(1), "logged", window=WINDOW, block_size=64),
                Engine(forward),
                checkpoint=checkpoint,
            )


def test_times_without_cache_are_measured_or_marked(forward) -> None:
    replay = play(conversation(8), forward, measuring=Measuring(samples=2))
    measured = [row.measured for row in replay.requests]
    assert measured[0], "a cold request is its own measurement"
    assert sum(measured) == 3
    assert all(row.prefill_uncached_s > 0 for row in replay.requests)


def test_the_cost_model_finds_a_line_exactly() -> None:
    cost = PrefillCost(64)
    cost.learn(ChunkTime(start, 64, 0.2 + start * 0.001) for start in (0, 64, 128, 640))
    expected = sum(0.2 + start * 0.001 for start in range(0, 640, 64)) + (0.2 + 0.64) / 2
    assert cost.seconds(672) == pytest.approx(expected)
    only_short = PrefillCost(64)
    assert only_short.seconds(100) == 0
    only_short.learn([ChunkTime(0, 10, 0.1)])
    assert only_short.seconds(64) == pytest.approx(0.64)


def test_engine_usage_scales_back_to_the_whole_prompt(forward) -> None:
    replay = play(conversation(5), forward)
    for row in replay.requests:
        real = rescaled(row, replay.scale)
        assert real.prompt_tokens == row.prompt_tokens
        assert min(real.input_tokens, real.cache_read_tokens, real.cache_creation_tokens) >= 0


def test_samples_span_the_lengths() -> None:
    assert sampled([5, 1, 9, 3], 2) == {1, 2}
    assert sampled([5, 1, 9, 3], 9) == {0, 1, 2, 3}
    assert sampled([5, 1, 9, 3], 1) == {2}
    assert sampled([], 3) == sampled([5], 0) == frozenset()


def test_impossible_plans_are_refused() -> None:
    options = {"window": 100, "block_size": 64}
    with pytest.raises(TraceError, match="no requests"):
        make_plan([], "logged", **options)
    with pytest.raises(UsageError, match=r"a scale of 0\.5"):
        make_plan(conversation(1), "logged", factor=Fraction(1, 2), **options)
    with pytest.raises(UsageError, match=r"10700 tokens, is 5350 at scale 2: more than the window of 100"):
        make_plan(conversation(1), "logged", factor=Fraction(2), **options)
    crowded = [request("m", 0, *(turn(n, 10) for n in range(6)))]
    with pytest.raises(TraceError, match="6 breakpoints"):
        make_plan(crowded, "logged", **options)


def test_an_engine_of_another_block_size_is_refused(forward) -> None:
    plan = make_plan(conversation(1), "logged", window=WINDOW, block_size=64)
    with pytest.raises(UsageError, match="blocks of 64 on an engine with blocks of 16"):
        run_plan(plan, Engine(forward, block_size=16))


def test_traces_without_breakpoints_get_one_at_each_prompts_end(forward) -> None:
    trace = [
        request(f"r{n}", n, *(Segment(f"b{k}", 64, 0) for k in range(20 + 3 * n)), Segment(f"rest {n}", 20, 0))
        for n in range(5)
    ]
    replay = play(trace, forward, "5m", factor=Fraction(3))
    assert [row.policy.cache_read_tokens for row in replay.requests] == [0] + [64 * (20 + 3 * n) for n in range(4)]
    assert_as_the_policy_says(replay)


def test_a_prompt_of_no_tokens_at_this_scale_runs_as_one_token(forward) -> None:
    trace = [request("tiny", 0, Segment("hi", 3)), *conversation(2, gap=1.0)]
    row = play(trace, forward).requests[0]
    assert (row.prompt_tokens, row.reused_tokens, row.computed_tokens) == (3, 0, 1)
    assert prompt_tokens(trace[0]) == 3

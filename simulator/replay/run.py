"""A plan on an engine: every request in turn, on the trace's own clock."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

from simulator.engine import ChunkTime, Engine, EngineRequest, Prefilled
from simulator.errors import UsageError
from simulator.replay.checkpoint import Checkpoint, Finished
from simulator.replay.plan import Plan, Planned, Prompts
from simulator.replay.prefill_cost import PrefillCost
from simulator.replay.results import Replay, ReplayedRequest, sampled

Progress = Callable[[ReplayedRequest], None]


@dataclass(frozen=True, slots=True)
class Measuring:
    """`samples` requests that reuse something are also run without the cache; with `verify` all are, and compared."""

    samples: int = 3
    verify: bool = False


def run_plan(
    plan: Plan,
    engine: Engine,
    *,
    measuring: Measuring | None = None,
    budget_bytes: int | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress = lambda row: None,
) -> Replay:
    """Serves every request of `plan`. What `checkpoint` says is finished is only entered into the books.

    Raises UsageError for a checkpoint that does not fit the plan, and for an engine with another block size.
    """
    measuring = measuring or Measuring()
    if engine.index.block_size != plan.block_size:
        raise UsageError(
            f"a plan for blocks of {plan.block_size} on an engine with blocks of {engine.index.block_size}",
            "make both with one block size",
        )
    prompts = Prompts(plan.factor, engine.forward.vocabulary)
    reusing = [i for i, planned in enumerate(plan.requests) if planned.expected_reused]
    chosen = sampled([plan.requests[i].tokens for i in reusing], measuring.samples)
    measured = {reusing[i] for i in chosen}
    cost = PrefillCost(plan.block_size)
    rows: list[ReplayedRequest] = []
    for finished in _resumed(plan, engine, prompts, checkpoint):
        cost.learn(finished.chunks)
        rows.append(finished.row)
        progress(finished.row)
    for position in range(len(rows), len(plan.requests)):
        finished = _serve(plan, plan.requests[position], engine, prompts, measuring.verify, position in measured)
        cost.learn(finished.chunks)
        rows.append(finished.row)
        if checkpoint is not None:
            checkpoint.append(finished)
        progress(finished.row)
    return Replay(
        policy=plan.policy,
        scale=float(plan.factor),
        window=plan.window,
        block_size=plan.block_size,
        budget_bytes=budget_bytes,
        requests=tuple(
            row if row.measured else replace(row, prefill_uncached_s=cost.seconds(planned.tokens))
            for row, planned in zip(rows, plan.requests, strict=True)
        ),
        reordered=plan.reordered,
    )


def fingerprint(plan: Plan, engine: Engine, measuring: Measuring, budget_bytes: int | None) -> str:
    """Identity of a replay for its checkpoint."""
    shape = engine.forward.kv_shape
    parts = (plan.fingerprint, plan.block_size, plan.window, shape, engine.forward.vocabulary, measuring, budget_bytes)
    return sha256(repr(parts).encode()).hexdigest()


def _resumed(plan: Plan, engine: Engine, prompts: Prompts, checkpoint: Checkpoint | None) -> Iterator[Finished]:
    done = checkpoint.finished if checkpoint is not None else ()
    if len(done) > len(plan.requests):
        raise UsageError("the checkpoint holds more requests than the trace", "name another checkpoint file")
    for finished, planned in zip(done, plan.requests, strict=False):
        reused = engine.remember(_request(planned, prompts), now=planned.request.started_at_s)
        if (finished.row.request_id, finished.row.reused_tokens) != (planned.request.id, reused):
            raise UsageError(
                f"the checkpoint says that request {finished.row.request_id} reused {finished.row.reused_tokens} "
                f"tokens, the trace says {reused} for {planned.request.id}",
                "delete the checkpoint file and start over",
            )
        yield finished


def _request(planned: Planned, prompts: Prompts) -> EngineRequest:
    return EngineRequest(prompts.tokens(planned), planned.salt, planned.readable, planned.kept)


def _serve(plan: Plan, planned: Planned, engine: Engine, prompts: Prompts, verify: bool, measure: bool) -> Finished:
    request = _request(planned, prompts)
    served = engine.serve(request, now=planned.request.started_at_s)
    chunks: tuple[ChunkTime, ...] = served.chunks
    reference: Prefilled | None = None
    if verify or (measure and served.reused_tokens):
        reference = engine.prefill_without_cache(request.tokens)
        chunks += reference.chunks
    cold = not served.reused_tokens
    uncached_s = served.prefill_s if cold else reference.seconds if reference is not None else 0.0
    row = ReplayedRequest(
        request_id=planned.request.id,
        chain=planned.request.chain,
        gap_s=planned.gap_s,
        prompt_tokens=planned.policy.prompt_tokens,
        logged=planned.request.logged,
        policy=planned.policy,
        engine=served.usage,
        expected_reused_tokens=planned.expected_reused,
        below_resolution_tokens=plan.below_resolution(planned),
        reused_tokens=served.reused_tokens,
        computed_tokens=served.computed_tokens,
        restored_tokens=served.restored_tokens,
        prefill_s=served.prefill_s,
        assemble_s=served.assemble_s,
        prefill_uncached_s=uncached_s,
        measured=cold or reference is not None,
        verified=engine.is_exact(served, request, reference) if verify and reference is not None else None,
        kv_bytes=served.kv_bytes,
        peak_bytes=served.peak_bytes,
    )
    return Finished(row, chunks)

"""Running a replay from a command: sizes as people write them, the model, a progress bar."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.cli.options import load_model
from simulator.errors import UsageError
from simulator.trace import Request

if TYPE_CHECKING:
    from simulator.forward import LlamaForward
    from simulator.replay.plan import PolicyName
    from simulator.replay.results import Replay, ReplayedRequest

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """`window` None: the model's; `capacity_bytes` None: no limit; `limit` None: all requests."""

    policy: "PolicyName" = "logged"
    window: int | None = None
    scale: float | None = None
    block_size: int = 64
    capacity_bytes: int | None = None
    limit: int | None = None
    samples: int = 3
    verify: bool = False
    checkpoint: Path | None = None


def parse_bytes(text: str) -> int:
    """`512MiB`, `2g`, `1048576` -> bytes. Raises UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise UsageError(f"{text!r} is not a size", "write bytes, or a number with KiB, MiB or GiB: 512MiB")
    return int(float(found[1]) * _UNITS[found[2]])


def load_forward(model: str | None) -> "LlamaForward":
    """The model's weights in the engine's layout. Raises ModelError, MissingExtraError."""
    loaded = load_model(model)
    from simulator.forward import LlamaForward

    return LlamaForward(loaded.model)


def replay_trace(trace: Sequence[Request], options: ReplayOptions, forward: "LlamaForward") -> "Replay":
    """Plans and runs `trace`; a fresh engine for every call. Raises UsageError, TraceError."""
    from simulator.engine import Engine
    from simulator.replay.checkpoint import Checkpoint
    from simulator.replay.plan import make_plan
    from simulator.replay.run import Measuring, fingerprint, run_plan

    window = min(options.window or forward.context, forward.context)
    if options.scale is not None and not 0 < options.scale < 1e9:
        raise UsageError(f"a scale of {options.scale:g}", "give real tokens per model token, 1 or more")
    plan = make_plan(
        trace[: options.limit],
        options.policy,
        window=window,
        block_size=options.block_size,
        factor=None if options.scale is None else Fraction(options.scale).limit_denominator(10**6),
    )
    engine = Engine(forward, block_size=options.block_size, budget_bytes=options.capacity_bytes)
    measuring = Measuring(options.samples, options.verify)
    with progress_bar(f"replaying under {options.policy}", len(plan.requests)) as advance:

        def progress(row: "ReplayedRequest") -> None:
            advance()

        if options.checkpoint is None:
            return run_plan(plan, engine, measuring=measuring, budget_bytes=options.capacity_bytes, progress=progress)
        identity = fingerprint(plan, engine, measuring, options.capacity_bytes)
        with Checkpoint(options.checkpoint, identity) as checkpoint:
            return run_plan(
                plan,
                engine,
                measuring=measuring,
                budget_bytes=options.capacity_bytes,
                checkpoint=checkpoint,
                progress=progress,
            )


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[], None]]:
    """One step a request, on a terminal only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from simulator.cli.rendering import notes

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = notes()
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)

"""A parent and its subagents, four ways: what each child reads of what was there before it."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from simulator.engine import Engine
from simulator.forward import LlamaForward
from simulator.replay.plan import make_plan
from simulator.replay.results import ReplayedRequest
from simulator.replay.run import Measuring, run_plan
from simulator.trace import Request, Segment

SpawnKind = Literal["own", "fork", "staggered", "at_once"]
SPAWN_KINDS: Final[tuple[SpawnKind, ...]] = ("own", "fork", "staggered", "at_once")

SPAWN_MEANINGS: Final[dict[SpawnKind, str]] = {
    "own": "each child has a system prompt and tools of its own",
    "fork": "each child goes on where the parent is",
    "staggered": "children of one kind, each after the last one's response began",
    "at_once": "children of one kind, all at the same moment",
}


@dataclass(frozen=True, slots=True)
class Family:
    """Sizes in real tokens; a response begins `response_s` seconds after its request."""

    children: int = 3
    system_tokens: int = 20_000
    conversation_tokens: int = 40_000
    task_tokens: int = 2_000
    model: str = "claude-sonnet-4-5"
    response_s: float = 5.0


@dataclass(frozen=True, slots=True)
class SpawnOutcome:
    """`parent` ran first; `children` in order of their start."""

    kind: SpawnKind
    scale: float
    parent: ReplayedRequest
    children: tuple[ReplayedRequest, ...]


def family_trace(kind: SpawnKind, family: Family) -> list[Request]:
    """The parent's request, then each child's first one."""
    parent_system = Segment("parent: tools and system prompt", family.system_tokens, breakpoint="5m")
    conversation = Segment("parent: conversation", family.conversation_tokens, breakpoint="5m")
    trace = [_request("parent", None, 0.0, (parent_system, conversation), family)]
    for child in range(family.children):
        task = Segment(f"task of child {child}", family.task_tokens, breakpoint="5m")
        started = 2 * family.response_s * (1 if kind == "at_once" else child + 1)
        segments: tuple[Segment, ...]
        if kind == "fork":
            segments = (parent_system, conversation, task)
        else:
            owner = f"child {child}" if kind == "own" else "children"
            segments = (Segment(f"{owner}: tools and system prompt", family.system_tokens, breakpoint="5m"), task)
        trace.append(_request(f"child {child + 1}", "parent", started, segments, family))
    return trace


def spawn(kind: SpawnKind, family: Family, forward: LlamaForward, *, window: int, block_size: int = 64) -> SpawnOutcome:
    """One way on real tensors. Raises UsageError for a window the model does not have."""
    window = min(window, forward.context)
    longest = family.system_tokens + family.conversation_tokens + family.task_tokens
    factor = max(Fraction(1), Fraction(longest, window))  # one scale for all kinds
    plan = make_plan(family_trace(kind, family), "logged", window=window, block_size=block_size, factor=factor)
    replay = run_plan(plan, Engine(forward, block_size=block_size), measuring=Measuring(samples=1))
    return SpawnOutcome(kind, replay.scale, replay.requests[0], replay.requests[1:])


def _request(name: str, parent: str | None, started: float, segments: tuple[Segment, ...], family: Family) -> Request:
    return Request(
        id=name,
        chain=name,
        parent=parent,
        model=family.model,
        scope="one organisation",
        salt="",
        started_at_s=started,
        response_began_at_s=started + family.response_s,
        segments=segments,
        output_tokens=0,
    )

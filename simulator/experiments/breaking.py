"""One change in a prompt that was cached: how much of it is computed again, by where the change is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import shake_128
from typing import Final, Literal

from simulator.engine import Engine, EngineRequest
from simulator.errors import UsageError
from simulator.forward import LlamaForward
from simulator.replay.plan import SPECIAL_IDS
from simulator.retention import Keep
from simulator.trace import Usage

BreakKind = Literal["timestamp", "tools", "token"]
BREAK_KINDS: Final[tuple[BreakKind, ...]] = ("timestamp", "tools", "token")

BREAK_MEANINGS: Final[dict[BreakKind, str]] = {
    "timestamp": "a timestamp is inserted",
    "tools": "a tool trades places with the next one",
    "token": "one token is another one",
}

TIMESTAMP_TOKENS: Final = 12
TOOLS: Final = 8
TOOLS_SHARE: Final = 0.4
"""The first 40 % of the prompt are tool definitions of equal length."""

_FOREVER_S = 1e9


@dataclass(frozen=True, slots=True)
class Break:
    """One changed prompt, run while the unchanged one is cached. `position` is where the change begins."""

    kind: BreakKind
    position: int
    tokens: int
    reused_tokens: int
    computed_tokens: int
    prefill_s: float
    usage: Usage


@dataclass(frozen=True, slots=True)
class Breaks:
    """`cold_s` is the unchanged prompt from nothing, `unchanged` the same prompt asked again."""

    tokens: int
    block_size: int
    cold_s: float
    unchanged: Break
    breaks: tuple[Break, ...]


def break_prompts(
    forward: LlamaForward,
    *,
    tokens: int,
    points: int,
    kinds: Sequence[BreakKind] = BREAK_KINDS,
    block_size: int = 64,
    progress: Callable[[], None] = lambda: None,
) -> Breaks:
    """Runs each kind of change at `points` positions. Raises UsageError for a prompt too short or too long."""
    if tokens < 2 * TOOLS / TOOLS_SHARE or points < 2:
        raise UsageError(f"{tokens} tokens and {points} positions", "give at least 40 tokens and 2 positions")
    engine = Engine(forward, block_size=block_size)
    base = _token_ids("prompt", tokens, forward.vocabulary)
    whole = (Keep(tokens, _FOREVER_S),)
    engine.check(EngineRequest(base + [base[0]] * TIMESTAMP_TOKENS))
    cold = engine.serve(EngineRequest(base, keep=whole), now=0)
    progress()

    def run(kind: BreakKind, position: int, changed: list[int]) -> Break:
        served = engine.serve(EngineRequest(changed, keep=()), now=0)
        progress()
        reused, computed = served.reused_tokens, served.computed_tokens
        usage = Usage(0, reused, computed)
        return Break(kind, position, len(changed), reused, computed, served.prefill_s, usage)

    unchanged = run("token", tokens, base)
    found = [
        run(kind, position, changed_prompt(kind, base, position, forward.vocabulary))
        for kind in kinds
        for position in break_positions(kind, tokens, points)
    ]
    return Breaks(tokens, block_size, cold.prefill_s, unchanged, tuple(found))


def break_positions(kind: BreakKind, tokens: int, points: int) -> list[int]:
    """Where a kind of change is tried: tools at their beginnings, the others evenly over the whole prompt."""
    if kind == "tools":
        size = int(tokens * TOOLS_SHARE) // TOOLS
        return [size * tool for tool in range(TOOLS - 1)]
    return sorted({round(k * (tokens - 1) / (points - 1)) for k in range(points)})


def changed_prompt(kind: BreakKind, base: Sequence[int], position: int, vocabulary: int) -> list[int]:
    """The prompt with its change at `position`; what comes before is the same."""
    if kind == "timestamp":
        stamp = _token_ids("12:34", TIMESTAMP_TOKENS, vocabulary)
        if stamp[0] == base[position]:
            stamp[0] = _another(stamp[0], vocabulary)
        return [*base[:position], *stamp, *base[position:]]
    if kind == "tools":
        size = int(len(base) * TOOLS_SHARE) // TOOLS
        first, second = base[position : position + size], base[position + size : position + 2 * size]
        return [*base[:position], *second, *first, *base[position + 2 * size :]]
    return [*base[:position], _another(base[position], vocabulary), *base[position + 1 :]]


def _another(token: int, vocabulary: int) -> int:
    return token + 1 if token + 1 < vocabulary else token - 1


def _token_ids(name: str, count: int, vocabulary: int) -> list[int]:
    first = SPECIAL_IDS if vocabulary > 2 * SPECIAL_IDS else 0
    stream = shake_128(name.encode()).digest(4 * count)
    words = (int.from_bytes(stream[at : at + 4], "little") for at in range(0, len(stream), 4))
    return [first + word % (vocabulary - first) for word in words]

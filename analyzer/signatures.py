"""Known cache bugs as patterns over a chain of requests. Pure; no I/O.

The patterns are those of public reports in anthropics/claude-code; each needs several misses inside the TTL.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

PINNED_MISSES = 3
MIN_WAKES = 2
MIN_TURN_MISSES = 3
MIN_WRITES = 5
MIN_SESSIONS = 2

MEANING: Mapping[str, str] = {
    "read_pinned_at_floor": "from one request on only tools and system prompt are read and the whole history is written"
    " again, seconds apart (as in #40524, #40652)",
    "frozen_breakpoint": "the read never moves from its first value while each request writes the grown conversation"
    " again (as seen in 2.1.269 and 2.1.270)",
    "wake_rewrites": "each time a parked subagent is woken it writes its whole context again (as in #87215, #88444,"
    " #91971)",
    "turn_rewrites": "the history is written again at the start of user turns, not within them (as in #83913, #96101)",
    "warm_resume": "resuming inside the TTL rebuilt the conversation (as in #34629, #93490)",
    "version_flip_flop": "two versions of Claude Code take turns in one session, and each switch rebuilds it (as in"
    " #86749)",
    "ttl_flip": "the writes went from the 1-hour to the 5-minute TTL (as in #46829, #84253)",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a chain after its first. `missed`: a rebuild that no boundary explains."""

    key: str
    read_tokens: int
    creation_tokens: int
    missed: bool
    warm: bool
    """The gap before it was inside the TTL."""
    after_prompt: bool
    """It answers a user or wake-up message, not a tool result."""
    resumed: bool
    version: str | None
    previous_version: str | None


@dataclass(frozen=True, slots=True)
class Signature:
    name: str
    keys: tuple[str, ...]
    evidence: str


def detect(chain: str, steps: Sequence[Step]) -> list[Signature]:
    """The patterns that the steps of one chain, in order, show; a miss belongs to the first that holds it."""
    found: list[Signature] = []
    taken: set[str] = set()
    for signature in (*_pinned(steps), *_at_prompts(chain, steps), *_resumes(steps), *_flip_flops(steps)):
        keys = tuple(key for key in signature.keys if key not in taken)
        if keys:
            taken.update(keys)
            found.append(Signature(signature.name, keys, signature.evidence))
    return found


def _warm_misses(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(step.key for step in steps if step.missed and step.warm)


def _pinned(steps: Sequence[Step]) -> list[Signature]:
    found = []
    position = 0
    for read, group in groupby(steps, key=lambda step: step.read_tokens):
        run = list(group)
        keys = _warm_misses(run)
        if len(keys) >= PINNED_MISSES:
            whole = position == 0 and len(run) == len(steps)
            grows = run[-1].creation_tokens > run[0].creation_tokens
            name = "frozen_breakpoint" if whole and grows else "read_pinned_at_floor"
            found.append(Signature(name, keys, f"read {read:,} tokens on {len(run):,} requests in a row"))
        position += len(run)
    return found


def _at_prompts(chain: str, steps: Sequence[Step]) -> list[Signature]:
    """Misses at nearly every wake of a subagent, or at most user turns of a main conversation, and hardly elsewhere."""
    at, within = [step for step in steps if step.after_prompt], [step for step in steps if not step.after_prompt]
    warm = [step for step in at if step.warm]
    keys = _warm_misses(warm)
    inner = len(_warm_misses(within))
    agent = chain.startswith("agent:")
    enough = MIN_WAKES if agent else MIN_TURN_MISSES
    often = 0.8 if agent else 0.5
    if len(keys) < enough or len(keys) < often * len(warm) or not within or inner > 0.1 * len(within):
        return []
    what = "wakes" if agent else "user turns"
    evidence = f"{len(keys):,} of {len(warm):,} {what} inside the TTL, {inner:,} of {len(within):,} other requests"
    return [Signature("wake_rewrites" if agent else "turn_rewrites", keys, evidence)]


def _resumes(steps: Sequence[Step]) -> list[Signature]:
    resumed = [step for step in steps if step.resumed and step.warm]
    keys = _warm_misses(resumed)
    return [Signature("warm_resume", keys, f"{len(keys):,} of {len(resumed):,} resumes inside the TTL")] if keys else []


def _flip_flops(steps: Sequence[Step]) -> list[Signature]:
    switches = [
        step for step in steps if step.version and step.previous_version and step.version != step.previous_version
    ]
    left = [step.previous_version for step in switches]
    back = [step for number, step in enumerate(switches) if step.version in left[: number + 1]]
    keys = _warm_misses(switches)
    if not back or not keys:
        return []
    path = " -> ".join(str(version) for version in (left[0], *(step.version for step in switches[:4])))
    return [Signature("version_flip_flop", keys, f"{path}{' ...' if len(switches) > 4 else ''}")]


@dataclass(frozen=True, slots=True)
class Writes:
    """How many requests of main conversations, of which sessions, wrote to each TTL on one day or in one version."""

    key: str
    hour: int
    five: int
    sessions: frozenset[str]


def ttl_flip(rows: Sequence[Writes]) -> tuple[str, str] | None:
    """The neighbours (before, after) between which writes went from all 1h to all 5m and stayed there; else None."""
    for number in range(len(rows) - 1, 0, -1):
        before, after = rows[:number], rows[number:]
        old, new = sum(row.hour for row in before), sum(row.five for row in after)
        strayed = sum(row.five for row in before) + sum(row.hour for row in after)
        last, first = before[-1], after[0]
        several = all(
            len(frozenset().union(*(row.sessions for row in side))) >= MIN_SESSIONS for side in (before, after)
        )
        clean = several and last.hour > 9 * last.five and first.five > 9 * first.hour
        if clean and min(old, new) >= MIN_WRITES and strayed * 20 <= old + new:
            return last.key, first.key
    return None


def version_order(version: str) -> tuple[tuple[int, int | str], ...]:
    """2.1.9 before 2.1.10; what is not a number goes after numbers, by its text."""
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in version.replace("-", ".").split("."))

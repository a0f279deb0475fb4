"""What every request of a trace should read and leave in the cache, in the tokens of a small model's window.

A trace is scaled down by one factor. Positions are scaled, not lengths: a segment that ends at real position p ends at
floor(p / factor), so prompts that share a beginning share it after scaling, wherever it ends.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import blake2b, sha256, shake_128
from struct import unpack
from typing import Final, Literal

from simulator.errors import TraceError, UsageError
from simulator.policy import TTL_SECONDS, Policy, simulate
from simulator.retention import Keep
from simulator.trace import Request, Trace, Ttl, Usage

PolicyName = Literal["logged", "5m", "1h", "none", "auto"]
POLICY_NAMES: Final[tuple[PolicyName, ...]] = ("logged", "5m", "1h", "none", "auto")
SPECIAL_IDS: Final = 32
"""Token ids below this one are control tokens in SmolLM2's vocabulary; prompts are made without them."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One request as it will be run. Usage is in real tokens, all else in model tokens.

    `readable` and `kept` are None where the cache is automatic: all that is held may be read, all is kept.
    `expected_reused` is what the policy's read comes to in whole blocks. `gap_s`: since the previous request began.
    """

    request: Request
    gap_s: float
    tokens: int
    policy: Usage
    readable: int | None
    kept: tuple[Keep, ...] | None
    expected_reused: int
    salt: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`factor` real tokens become one model token. Requests are in order of their start."""

    policy: PolicyName
    factor: Fraction
    window: int
    block_size: int
    requests: tuple[Planned, ...]
    reordered: int
    fingerprint: str

    def below_resolution(self, planned: Planned) -> int:
        """Real tokens that the policy reads but that do not fill a last whole block of the model's cache."""
        if planned.readable is None:
            return 0
        return max(0, planned.policy.cache_read_tokens - math.floor(planned.expected_reused * self.factor))


def make_plan(
    trace: Trace, policy: PolicyName, *, window: int, block_size: int, factor: Fraction | None = None
) -> Plan:
    """Scales `trace` so that its longest prompt fills `window`, unless `factor` is given; never scales up.

    Raises UsageError for a factor at which the longest prompt does not fit, TraceError for an empty trace or one that
    the policy's rules refuse.
    """
    if not trace:
        raise TraceError("the trace holds no requests", "name a session or a trace with at least one request")
    longest = max(prompt_tokens(request) for request in trace)
    if factor is None:
        factor = max(Fraction(1), Fraction(longest, window))
    if factor < 1:
        raise UsageError(f"a scale of {float(factor):g}", "a replay scales down: give 1 or more")
    if longest // factor > window:
        raise UsageError(
            f"the longest prompt, {longest} tokens, is {longest // factor} at scale {float(factor):g}: more than the "
            f"window of {window}",
            f"give a scale of at least {math.ceil(longest / window)}, or none to have it chosen",
        )
    if _lacks_breakpoints(trace, policy):
        trace = mark_prompt_ends(trace)
    order = sorted(range(len(trace)), key=lambda i: trace[i].started_at_s)
    reordered = sum(1 for before, after in itertools.pairwise(trace) if after.started_at_s < before.started_at_s)
    billed = predict(trace, policy)
    planned = []
    clock = trace[order[0]].started_at_s
    for i in order:
        planned.append(_planned(trace[i], billed[i], policy, factor, block_size, trace[i].started_at_s - clock))
        clock = trace[i].started_at_s
    return Plan(policy, factor, window, block_size, tuple(planned), reordered, _fingerprint(planned, policy, factor))


def predict(trace: Trace, policy: PolicyName) -> list[Usage]:
    """What each request is billed under a policy, in real tokens. Raises TraceError where the API would refuse one."""
    if policy == "auto":
        return _automatic(trace)
    rules = Policy(enabled=policy != "none", ttl=policy if policy in ("5m", "1h") else None)
    try:
        return simulate(trace, rules)
    except ValueError as error:
        raise TraceError(str(error), "the trace breaks a rule of the API: export it again or correct it") from None


def mark_prompt_ends(trace: Trace) -> list[Request]:
    """For traces that know no breakpoints: one at every prompt's end and one before its last segment.

    In traces of block hashes the last segment is a partial block that no other prompt continues.
    """
    marked = []
    for request in trace:
        segments = [*request.segments]
        for position in range(max(0, len(segments) - 2), len(segments)):
            segments[position] = replace(segments[position], breakpoint="5m")
        marked.append(replace(request, segments=tuple(segments)))
    return marked


def _lacks_breakpoints(trace: Trace, policy: PolicyName) -> bool:
    """True for a trace of another system; a logged session without breakpoints keeps the policy `logged` as it was."""
    if policy in ("none", "auto") or any(s.breakpoint for request in trace for s in request.segments):
        return False
    return policy != "logged" or all(request.logged is None for request in trace)


def prompt_tokens(request: Request) -> int:
    return sum(segment.tokens for segment in request.segments)


class Prompts:
    """Token ids for a trace's prompts, the same in every run: they follow from the segments' keys alone.

    A segment's ids depend on all keys before it, so prompts agree exactly as far as their keys do.
    """

    def __init__(self, factor: Fraction, vocabulary: int) -> None:
        self._factor = factor
        self._first = SPECIAL_IDS if vocabulary > 2 * SPECIAL_IDS else 0
        self._choices = vocabulary - self._first
        self._digests: dict[tuple[bytes, str], bytes] = {}

    def tokens(self, planned: Planned) -> list[int]:
        """The prompt's ids; a prompt too short for one model token has one."""
        digest = planned.salt.encode("utf-8", "surrogatepass")
        end = at = 0
        ids: list[int] = []
        for segment in planned.request.segments:
            digest = self._digest(digest, segment.key)
            end += segment.tokens
            upto = math.floor(end / self._factor)
            if upto > at:
                ids += self._stream(digest, upto - at)
                at = upto
        return ids or self._stream(digest, 1)

    def _digest(self, above: bytes, key: str) -> bytes:
        found = self._digests.get((above, key))
        if found is None:
            found = blake2b(above + b"\0" + key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            self._digests[above, key] = found
        return found

    def _stream(self, digest: bytes, count: int) -> list[int]:
        words = unpack(f"<{count}I", shake_128(digest).digest(4 * count))
        return [word % self._choices + self._first for word in words]


def _planned(
    request: Request, billed: Usage, policy: PolicyName, factor: Fraction, block_size: int, gap_s: float
) -> Planned:
    tokens = max(1, math.floor(prompt_tokens(request) / factor))
    read = billed.cache_read_tokens
    readable = math.floor(read / factor)
    expected = min(readable, tokens - 1) // block_size * block_size
    salt = "\0".join((request.model, request.scope, request.salt))
    if policy == "auto":
        return Planned(request, gap_s, tokens, billed, None, None, expected, salt)
    one_hour = read + billed.cache_creation_1h_tokens
    ends: list[tuple[int, Ttl]] = [(read, _ttl_at(request, read, policy)), (one_hour, "1h")]
    ends.append((one_hour + billed.cache_creation_5m_tokens, "5m"))
    kept: list[Keep] = []
    below = 0
    for position, (end, ttl) in enumerate(ends):
        if end > below or (position == 0 and end):
            kept.append(Keep(math.floor(end / factor), TTL_SECONDS[ttl]))
        below = end
    return Planned(request, gap_s, tokens, billed, readable, tuple(kept), expected, salt)


def _ttl_at(request: Request, position: int, policy: PolicyName) -> Ttl:
    """Lifetime of the entry read up to `position`: that of the first breakpoint there or after it."""
    end = 0
    for segment in request.segments:
        end += segment.tokens
        if segment.breakpoint is not None and end >= position:
            return policy if policy in ("5m", "1h") else segment.breakpoint
    return "5m"


def _automatic(trace: Trace) -> list[Usage]:
    """Unbounded automatic prefix caching: a prompt reads as far as its keys have been seen, and writes the rest."""
    order = sorted(range(len(trace)), key=lambda i: trace[i].started_at_s)
    nodes: dict[tuple[object, ...], int] = {}
    billed: dict[int, Usage] = {}
    for i in order:
        request = trace[i]
        root: tuple[object, ...] = (request.model, request.scope, request.salt)
        node = nodes.setdefault(root, len(nodes))
        read = 0
        seen = True
        for segment in request.segments:
            seen = seen and (node, segment.key) in nodes
            node = nodes.setdefault((node, segment.key), len(nodes))
            read += segment.tokens if seen else 0
        written = prompt_tokens(request) - read
        billed[i] = Usage(0, read, written, 0, request.output_tokens)
    return [billed[i] for i in range(len(trace))]


def _fingerprint(planned: Sequence[Planned], policy: PolicyName, factor: Fraction) -> str:
    digest = sha256(f"{policy} {factor}".encode())
    for piece in _identity(planned):
        digest.update(piece.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _identity(planned: Sequence[Planned]) -> Iterator[str]:
    for each in planned:
        request = each.request
        yield f"\n{request.id}\0{each.salt}\0{request.started_at_s}\0{each.policy}"
        for segment in request.segments:
            yield f"\0{segment.key}\0{segment.tokens}"

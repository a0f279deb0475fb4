"""What the next request should read from the cache, one step ahead, by documented rules. Pure; no I/O.

Sources, all on platform.claude.com/docs/en/build-with-claude/prompt-caching and code.claude.com/docs/en/prompt-caching:
lifetime from the start of the request that wrote or read an entry; one cache per model; what invalidates a prefix
(tools, system, speed, effort, earlier messages); what Claude Code keeps and breaks (compaction, resume, upgrades).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from analyzer.queries.history import Circumstances, LoggedRequest, is_loss

LARGEST_START = 50_000
"""Tools and system prompt measure 5K-35K in published reports; a first read above this is a copied conversation."""
EFFORT_KEEPS_SINCE = (2, 1, 260)
EFFORT_KEEPS_CACHE = ("opus-5-5", "fable-5-1", "fable-5-2", "mythos-5-1", "mythos-5-2")
UPGRADE_KEPT_SINCE = (2, 1, 265)
"""From about here a resumed conversation keeps the system prompt it began with (Claude Code docs)."""
PINNED_AFTER = 3
"""As many equal low reads in a row as make a pinned floor; fewer are coincidence."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """`tokens` to be read and the rule that says so; `kept` where no rule speaks against reading everything."""

    tokens: int
    reason: str


def tolerance(readable: int) -> float:
    return max(2_000, 0.05 * readable)


@dataclass(slots=True)
class _Seen:
    """What one chain has shown so far."""

    ttl_s: int = 300
    first_read: int = 0
    floor: dict[str, int] = field(default_factory=dict)
    expired_read: int | None = None
    last_of_model: dict[str, LoggedRequest] = field(default_factory=dict)
    position: dict[str, int] = field(default_factory=dict)
    was_fast: bool = False
    pinned_read: int = 0
    pinned: int = 0


@dataclass(slots=True)
class _Start:
    """The part of the prompt that chains share: its size as last seen, and when it was last used."""

    tokens: int
    used_at_s: float
    ttl_s: int


class Predictor:
    """Learns from answered requests and predicts the next one from its circumstances alone."""

    def __init__(self) -> None:
        self._chains: dict[str, _Seen] = {}
        self._starts: dict[tuple[str, str, str], _Start] = {}
        # Where a loaded tool goes, ahead of the prompt or behind it, is the program's habit: it holds for a version.
        self._search_keeps: dict[str | None, bool] = {}

    def predict(self, chain: str, previous: LoggedRequest, known: Circumstances) -> Prediction:
        """The read of the request that follows `previous` in `chain`, before anything of its answer is known."""
        seen = self._chains[chain]
        readable = min(previous.readable_tokens, known.prompt_tokens)
        for rule in _RULES:
            reason = rule(seen, previous, known)
            if reason is None or (reason == "deferred_tool_loaded" and self._search_keeps.get(known.version)):
                continue
            if reason == "model_changed":
                return Prediction(min(readable, self._other_model(seen, known)), reason)
            if reason.startswith("ttl_expired") or (
                reason in ("compaction", "messages_rewritten") and _expired(seen, previous, known)
            ):
                return Prediction(min(readable, self._after_expiry(seen, known)), reason)
            if reason == "rewind_or_branch":
                assert known.parent_message_id is not None
                return Prediction(min(readable, seen.position[known.parent_message_id]), reason)
            if reason == "floor_pinned":
                return Prediction(min(readable, seen.pinned_read), reason)
            return Prediction(min(readable, self._floor(seen, known)), reason)
        return Prediction(readable, "kept")

    def learn(self, chain: str, previous: LoggedRequest | None, row: LoggedRequest, reason: str) -> None:
        """Take in an answered request; `reason` is what had been predicted for it."""
        known, usage = row.known, row.usage
        read = usage.cache_read_tokens
        seen = self._chains.setdefault(chain, _Seen(first_read=read))
        if usage.cache_creation_1h_tokens:
            seen.ttl_s = 3600
        elif usage.cache_creation_5m_tokens:
            seen.ttl_s = 300
        lost = previous is not None and is_loss(previous.readable_tokens, read)
        if previous is not None and "ToolSearch" in previous.tools and reason in ("kept", "deferred_tool_loaded"):
            self._search_keeps[known.version] = not lost
        if lost and reason.startswith("ttl_expired"):
            seen.expired_read = read
        elif lost and read:
            seen.floor[known.model] = read
        seen.pinned = (
            0
            if not lost or reason not in ("kept", "floor_pinned")
            else (seen.pinned + 1 if read == seen.pinned_read else 1)
        )
        seen.pinned_read = read
        seen.last_of_model[known.model] = row
        if row.message_id is not None:
            seen.position[row.message_id] = row.readable_tokens
        seen.was_fast = seen.was_fast or known.speed == "fast"
        start = self._starts.get(_kind(known))
        tokens = read if (previous is None or lost) and 0 < read <= LARGEST_START else start.tokens if start else 0
        self._starts[_kind(known)] = _Start(tokens, known.started_at_s, seen.ttl_s)

    def _floor(self, seen: _Seen, known: Circumstances) -> int:
        """Tools and system: what a broken prefix still reads."""
        if known.model in seen.floor:
            return seen.floor[known.model]
        if 0 < seen.first_read <= LARGEST_START:
            return seen.first_read
        start = self._starts.get(_kind(known))
        return start.tokens if start else 0

    def _after_expiry(self, seen: _Seen, known: Circumstances) -> int:
        """Only a start that other chains kept warm outlives an idle conversation."""
        start = self._starts.get(_kind(known))
        if start and known.started_at_s - start.used_at_s <= start.ttl_s:
            return start.tokens
        if seen.expired_read is not None:
            return seen.expired_read
        return seen.first_read if seen.first_read <= LARGEST_START else 0

    def _other_model(self, seen: _Seen, known: Circumstances) -> int:
        last = seen.last_of_model.get(known.model)
        if last is not None and known.started_at_s - last.known.started_at_s <= seen.ttl_s:
            return last.readable_tokens
        start = self._starts.get(_kind(known))
        return start.tokens if start and known.started_at_s - start.used_at_s <= start.ttl_s else 0


Rule = Callable[[_Seen, LoggedRequest, Circumstances], str | None]


def _boundary(_: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    return "compaction" if known.boundary else None


def _model(_: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    return "model_changed" if known.model != previous.known.model else None


def _speed(seen: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    """Only the first fast request of a conversation breaks it; later toggles keep the cache."""
    return "fast_mode_changed" if known.speed == "fast" and not seen.was_fast else None


def _effort(_: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    if not known.effort or not previous.known.effort or known.effort == previous.known.effort:
        return None
    keeps = any(name in known.model for name in EFFORT_KEEPS_CACHE) and version_of(known) >= EFFORT_KEEPS_SINCE
    return None if keeps else "effort_changed"


def _expired(seen: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    if known.date_estimated or previous.known.date_estimated:
        return None
    if known.started_at_s - previous.known.started_at_s <= seen.ttl_s:
        return None
    return "ttl_expired_5m" if seen.ttl_s == 300 else "ttl_expired_1h"


def _resumed(_: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    return "resumed" if any(e.kind == "session_start" and e.detail == "resume" for e in known.events) else None


def _upgraded(_: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    """A running conversation keeps its program; another version means another start, with another system prompt."""
    before, after = previous.known.version, known.version
    changed = before and after and before != after
    return "version_changed" if changed and version_of(known) < UPGRADE_KEPT_SINCE else None


def _branched(seen: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    parent = known.parent_message_id
    return "rewind_or_branch" if parent in seen.position and parent != previous.message_id else None


def _shrank(_: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    return "messages_rewritten" if known.prompt_tokens < previous.readable_tokens else None


def _tool_search(_: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    """A deferred tool that is loaded joins `tools`, ahead of everything else."""
    return "deferred_tool_loaded" if "ToolSearch" in previous.tools else None


def _pinned(seen: _Seen, previous: LoggedRequest, known: Circumstances) -> str | None:
    """A prefix that differs on every request (a changing byte in its history) does not heal by itself."""
    return "floor_pinned" if seen.pinned >= PINNED_AFTER else None


_RULES: tuple[Rule, ...] = (
    _boundary,
    _model,
    _expired,
    _speed,
    _effort,
    _resumed,
    _upgraded,
    _branched,
    _shrank,
    _tool_search,
    _pinned,
)


def version_of(known: Circumstances) -> tuple[int, ...]:
    parts = (known.version or "").split("-")[0].split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def _kind(known: Circumstances) -> tuple[str, str, str]:
    return known.project, known.model, known.agent_type


def broken_by_change(previous: LoggedRequest | None, row: LoggedRequest) -> bool:
    """Whether something besides time, model and speed broke the prefix, so that no longer life would have saved it."""
    if previous is None:
        return False
    seen = _Seen()
    return any(rule(seen, previous, row.known) for rule in (_boundary, _effort, _resumed, _upgraded, _shrank))

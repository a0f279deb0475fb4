"""Whose cache did a subagent's first request read? Verdicts with the numbers that prove them. Pure; no I/O."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Writer:
    """A request as others may read it: `position_tokens` = its read + creation, alive for `ttl_s` after its start."""

    session_id: str
    agent_id: str | None
    model: str
    cwd: str | None
    started_at: datetime
    response_began_at: datetime
    read_tokens: int
    position_tokens: int
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Spawn:
    """The first request of a subagent."""

    session_id: str
    agent_id: str
    agent_type: str
    model: str
    cwd: str | None
    started_at: datetime
    response_began_at: datetime
    read_tokens: int
    creation_tokens: int


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    whose: str | None = None
    position_tokens: int | None = None
    written_at: datetime | None = None
    """When the entry that was read began its life; None where the log shows only that others read the same."""


@dataclass(frozen=True, slots=True)
class First:
    """The first request of any chain; `agent_id` is None for a main conversation."""

    session_id: str
    agent_id: str | None
    model: str
    cwd: str | None
    started_at: datetime
    read_tokens: int


_ByTtl = dict[int, list[Writer]]


class Writers:
    """Requests by what others may read of them. Look-ups walk back in time from the reader and stop at the first."""

    def __init__(self, writers: Iterable[Writer]) -> None:
        self._at_position: dict[tuple[str, int, str, bool], _ByTtl] = {}
        self._anyone_at: dict[tuple[str, int], _ByTtl] = {}
        self._at_read: dict[tuple[str, str | None, int], _ByTtl] = {}
        for writer in sorted(writers, key=lambda writer: writer.started_at):
            position = writer.position_tokens
            in_session = (writer.model, position, writer.session_id, writer.agent_id is None)
            for lists in (
                self._at_position.setdefault(in_session, {}),
                self._anyone_at.setdefault((writer.model, position), {}),
                self._at_read.setdefault((writer.model, writer.cwd, writer.read_tokens), {}),
            ):
                lists.setdefault(writer.ttl_s, []).append(writer)

    def in_session(self, first: First | Spawn, *, parent: bool) -> Writer | None:
        """The latest request of the same session whose entry holds exactly what `first` read, inside its TTL."""
        return _latest(self._at_position.get((first.model, first.read_tokens, first.session_id, parent), {}), first)

    def anywhere(self, first: First | Spawn) -> Writer | None:
        """The same over all sessions."""
        return _latest(self._anyone_at.get((first.model, first.read_tokens), {}), first)

    def same_read(self, first: First | Spawn) -> Writer | None:
        """Another chain that read the same prefix in the same directory, the latest inside its TTL."""
        return _latest(self._readers(first), first)

    def ever_same_read(self, first: First | Spawn) -> Writer | None:
        """Another chain that read the same prefix in the same directory at any time."""
        readers = (reader for same_ttl in self._readers(first).values() for reader in same_ttl)
        return next((reader for reader in readers if _other(reader, first)), None)

    def _readers(self, first: First | Spawn) -> _ByTtl:
        return self._at_read.get((first.model, first.cwd, first.read_tokens), {})


def _other(writer: Writer, first: First | Spawn) -> bool:
    return (writer.session_id, writer.agent_id) != (first.session_id, first.agent_id)


def _latest(writers: _ByTtl, first: First | Spawn) -> Writer | None:
    """The lists are in order of start, one per TTL, so that the walk back ends with the first expired entry."""
    found: Writer | None = None
    for ttl_s, same_ttl in writers.items():
        end = bisect_right(same_ttl, first.started_at, key=lambda writer: writer.started_at)
        for place in range(end - 1, -1, -1):
            writer = same_ttl[place]
            if first.started_at - writer.started_at > timedelta(seconds=ttl_s):
                break
            if writer.response_began_at <= first.started_at and _other(writer, first):
                if found is None or writer.started_at > found.started_at:
                    found = writer
                break
    return found


def name_of(writer: Writer, session_id: str) -> str:
    """Who that is, told from inside `session_id`."""
    if writer.session_id == session_id:
        return writer.agent_id or "parent"
    return f"{writer.session_id}/{writer.agent_id}" if writer.agent_id else writer.session_id


def warmed_by(first: First, writers: Writers) -> Writer | None:
    """Who had cached what the first request of a chain read: exactly, else the latest who read the same prefix."""
    if first.read_tokens == 0:
        return None
    return writers.anywhere(first) or writers.same_read(first)


def judge(spawns: Sequence[Spawn], writers: Writers) -> list[Verdict]:
    """One verdict per spawn, in order.

    `shares_with_parent`, `shares_with_siblings`: the read equals, to the token, what an earlier request of the parent
    or of a sibling had cached, same model, within its TTL. `shares_static_prefix`: the same read on another chain, same
    model and directory. `too_early`: nothing read while a sibling of the same type and model had started but not yet
    answered. `cold`: nothing read. `partial_unknown`: something was read, from nobody whom the log shows.
    """
    early = too_early(spawns)
    return [_judge(spawn, writers, early) for spawn in spawns]


def too_early(spawns: Sequence[Spawn]) -> frozenset[tuple[str, str]]:
    """Spawns that began while one of the same session, type and model, begun no later, had not answered yet."""
    alike: dict[tuple[str, str, str], list[Spawn]] = {}
    for spawn in spawns:
        alike.setdefault((spawn.session_id, spawn.agent_type, spawn.model), []).append(spawn)
    early: set[tuple[str, str]] = set()
    for group in alike.values():
        group.sort(key=lambda spawn: spawn.started_at)
        answered: datetime | None = None
        for started_at, same_start in groupby(group, key=lambda spawn: spawn.started_at):
            at_once = sorted(same_start, key=lambda spawn: spawn.response_began_at)
            for spawn in at_once:
                like = at_once[-2] if spawn is at_once[-1] and len(at_once) > 1 else at_once[-1]
                waiting = like is not spawn and like.response_began_at > started_at
                if waiting or (answered is not None and answered > started_at):
                    early.add((spawn.session_id, spawn.agent_id))
            last = at_once[-1].response_began_at
            answered = last if answered is None else max(answered, last)
    return frozenset(early)


def _judge(spawn: Spawn, writers: Writers, early: frozenset[tuple[str, str]]) -> Verdict:
    if spawn.read_tokens == 0:
        return Verdict("too_early" if (spawn.session_id, spawn.agent_id) in early else "cold")
    for name, is_parent in (("shares_with_parent", True), ("shares_with_siblings", False)):
        proof = writers.in_session(spawn, parent=is_parent)
        if proof:
            return Verdict(name, name_of(proof, spawn.session_id), proof.position_tokens, proof.started_at)
    alive = writers.same_read(spawn)
    other = alive or writers.ever_same_read(spawn)
    if other:
        whose = name_of(other, spawn.session_id)
        return Verdict("shares_static_prefix", whose, spawn.read_tokens, alive.started_at if alive else None)
    return Verdict("partial_unknown", None, spawn.read_tokens)

"""Whose cache did a subagent's first request read? Verdicts with the numbers that prove them. Pure; no I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


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


def judge(spawns: Sequence[Spawn], writers: Iterable[Writer]) -> list[Verdict]:
    """One verdict per spawn, in order.

    `shares_with_parent`, `shares_with_siblings`: the read equals, to the token, what an earlier request of the parent
    or of a sibling had cached, same model, within its TTL. `shares_static_prefix`: the same read on another chain, same
    model and directory. `too_early`: nothing read while a sibling of the same type and model had started but not yet
    answered. `cold`: nothing read. `partial_unknown`: something was read, from nobody whom the log shows.
    """
    at_position: dict[tuple[str, int], list[Writer]] = {}
    at_read: dict[tuple[str, str | None, int], set[tuple[str, str | None]]] = {}
    for writer in writers:
        at_position.setdefault((writer.model, writer.position_tokens), []).append(writer)
        chains = at_read.setdefault((writer.model, writer.cwd, writer.read_tokens), set())
        chains.add((writer.session_id, writer.agent_id))
    alike: dict[tuple[str, str, str], list[Spawn]] = {}
    for spawn in spawns:
        alike.setdefault((spawn.session_id, spawn.agent_type, spawn.model), []).append(spawn)
    return [
        _judge(
            spawn,
            at_position.get((spawn.model, spawn.read_tokens), ()),
            at_read.get((spawn.model, spawn.cwd, spawn.read_tokens), set()),
            alike[spawn.session_id, spawn.agent_type, spawn.model],
        )
        for spawn in spawns
    ]


def _judge(
    spawn: Spawn, writers: Sequence[Writer], chains: set[tuple[str, str | None]], alike: Sequence[Spawn]
) -> Verdict:
    if spawn.read_tokens == 0:
        early = any(
            other.agent_id != spawn.agent_id and other.started_at <= spawn.started_at < other.response_began_at
            for other in alike
        )
        return Verdict("too_early" if early else "cold")
    for name, is_parent in (("shares_with_parent", True), ("shares_with_siblings", False)):
        proofs = [
            writer
            for writer in writers
            if writer.session_id == spawn.session_id
            and (writer.agent_id is None) is is_parent
            and writer.agent_id != spawn.agent_id
            and writer.response_began_at <= spawn.started_at <= writer.started_at + timedelta(seconds=writer.ttl_s)
        ]
        if proofs:
            proof = max(proofs, key=lambda writer: writer.started_at)
            return Verdict(name, proof.agent_id or "parent", proof.position_tokens, proof.started_at)
    if chains - {(spawn.session_id, spawn.agent_id)}:
        return Verdict("shares_static_prefix", None, spawn.read_tokens)
    return Verdict("partial_unknown", None, spawn.read_tokens)

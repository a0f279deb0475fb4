"""A scenario as a plan: which part of what happened is changed. Plans of different parts combine."""

from dataclasses import dataclass, fields, replace
from typing import Literal

from analyzer.errors import UsageError
from analyzer.whatif.results import Confidence, Kind
from simulator.trace import Ttl

CacheShape = Literal[
    "off", "perfect", "best-ttl", "best-setting", "keep-alive", "compact", "no-compaction", "resume", "fork", "inline"
]


@dataclass(frozen=True, slots=True)
class Changes:
    """None leaves a part as it was. `number` belongs to `cache`: minutes between pings, or tokens at a compaction."""

    cache: CacheShape | None = None
    number: int | None = None
    ttl_main: Ttl | None = None
    ttl_agents: Ttl | None = None
    model: str | None = None
    speed: Literal["standard", "fast"] | None = None
    tier: Literal["standard", "batch", "priority"] | None = None
    place: Literal["us", "global", "regional"] | None = None
    today: bool | None = None
    list_prices: bool | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A named scenario: its changes, one short line for the table, what it assumes, and how far to trust it."""

    name: str
    kind: Kind
    changes: Changes
    gist: str
    assumptions: tuple[str, ...]
    confidence: Confidence


_ORDER: tuple[Confidence, ...] = ("exact", "high", "medium", "low")


def combined(plans: list[Plan]) -> Plan:
    """One plan that makes all the changes. Raises UsageError where two of them change the same part."""
    if len(plans) == 1:
        return plans[0]
    changes = plans[0].changes
    for plan in plans[1:]:
        for part in fields(Changes):
            value = getattr(plan.changes, part.name)
            if value is None:
                continue
            mine = getattr(changes, part.name)
            if mine is not None and mine != value:
                raise UsageError(
                    f"{plan.name} cannot be combined with {plans[0].name}: both change the same thing",
                    "combine a price, a model and one cache scenario, such as batch+sonnet-5-5",
                )
            changes = replace(changes, **{part.name: value})
    if changes.cache and (changes.ttl_main or changes.ttl_agents):
        raise UsageError(
            f"{'+'.join(plan.name for plan in plans)} cannot be combined: both change the cache",
            "combine a price, a model and one cache scenario, such as batch+sonnet-5-5",
        )
    return Plan(
        name="+".join(plan.name for plan in plans),
        kind="combination",
        changes=changes,
        gist="; ".join(plan.gist for plan in plans),
        assumptions=tuple(text for plan in plans for text in plan.assumptions),
        confidence=max((plan.confidence for plan in plans), key=_ORDER.index),
    )

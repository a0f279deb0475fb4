"""How a scenario's name, such as `batch+sonnet-5-5` or `keep-alive-4m`, becomes a plan."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache

from analyzer.errors import UsageError
from analyzer.prices import known_models
from analyzer.whatif.catalogue import FIXED, compaction_plan, model_plan
from analyzer.whatif.models import canonical_model
from analyzer.whatif.plan import Changes, Plan, combined

_KEEP_ALIVE = re.compile(r"keep-alive-(\d{1,4})m(?:in)?")
_COMPACT = re.compile(r"compact-at-(\d{1,5})k")
ALIASES = {
    "5m": "all-5m",
    "1h": "all-1h",
    "uncached": "no-cache",
    "us": "us-only",
    "bedrock": "bedrock-regional",
    "vertex": "vertex-regional",
    "list": "list-prices",
    "forks": "subagents-as-forks",
    "inline": "subagents-inline",
}
"""Other words for fixed scenarios."""
FAMILIES = ("fable", "opus", "sonnet", "haiku")


@lru_cache(maxsize=1)
def newest_models() -> tuple[str, ...]:
    """The newest model of each family, as scenario names: `opus-5-5`."""
    found = []
    for family in FAMILIES:
        versions = [name for name in known_models() if name.startswith(f"claude-{family}-")]
        if versions:
            newest = max(versions, key=lambda name: [int(part) for part in name.split("-")[2:] if part.isdecimal()])
            found.append(newest.removeprefix("claude-"))
    return tuple(found)


def default_names(*, own_prices: bool) -> list[str]:
    """The table without `--scenario`: all fixed scenarios and the newest model of each family."""
    hidden = () if own_prices else ("list-prices",)
    names = [name for name in FIXED if name not in hidden]
    first_cache = next(place for place, name in enumerate(names) if FIXED[name].kind != "price")
    return [*names[:first_cache], *newest_models(), *names[first_cache:]]


def plan_of(name: str) -> Plan:
    """The plan behind a name; parts joined by `+` combine. Raises UsageError for an unknown part, with what is near."""
    parts = [part.strip().replace("_", "-") for part in name.strip().lower().split("+")]
    return combined([_single(part) for part in parts])


def plans_of(names: Sequence[str]) -> list[Plan]:
    """The plans of several names, each once."""
    return list({plan.name: plan for plan in map(plan_of, names)}.values())


def _single(name: str) -> Plan:
    name = ALIASES.get(name, name)
    if name in FIXED:
        return FIXED[name]
    if ping := _KEEP_ALIVE.fullmatch(name):
        return _every(int(ping[1]), name)
    if at := _COMPACT.fullmatch(name):
        return compaction_plan(int(at[1]) * 1000)
    model = canonical_model(name)
    if model is not None:
        return model_plan(model)
    near = _near(name)
    raise UsageError(
        f"unknown scenario: {name or '(empty)'}",
        f"did you mean {', '.join(near)}?" if near else "a scenario of the table, a model such as sonnet-5-5, or a+b",
    )


def _near(name: str) -> list[str]:
    """Names that hold what was typed, then names spelled much like it."""
    models = [known.removeprefix("claude-") for known in known_models()]
    names = [*FIXED, "keep-alive-4m", "compact-at-150k", *models]
    holding = [known for known in names if len(name) > 2 and name in known]
    return list(dict.fromkeys([*holding, *get_close_matches(name, names, 4, 0.5)]))[:4]


def _every(minutes: int, name: str) -> Plan:
    if minutes < 1:
        raise UsageError(f"unknown scenario: {name}", "pings are at least a minute apart: keep-alive-4m")
    base = FIXED["keep-alive"]
    gist = f"idle main conversations pinged every {minutes} min"
    said = f"a ping repeats the last prompt with no output every {minutes} minutes"
    return Plan(
        name,
        base.kind,
        Changes(cache="keep-alive", number=minutes),
        gist,
        (gist, said, *base.assumptions[2:]),
        base.confidence,
    )

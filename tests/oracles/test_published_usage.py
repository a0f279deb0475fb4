"""The policy against usage that others measured on the real API: every printed count, to the integer.

What is predicted is the split of each prompt into read, written and input; where prompts agree and where their
breakpoints lie comes from what the sources say of their clients.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.policy import Policy, simulate
from tests.oracles.published_usage import Series, counts_of, load

SERIES = {series.id: series for series in load()}
RELATIONS = ("chain", "ttl-expiry-partial", "ttl-refresh-on-read", "shared-prefix-", "frozen-prefix")


def differences(series: Series, policy: Policy) -> list[tuple[int, str, int, int]]:
    """(request, count, printed, simulated) wherever the two differ."""
    usages = [counts_of(usage) for usage in simulate(series.trace, policy)]
    return [
        (i, name, printed, usages[i][name])
        for i, counts in enumerate(series.printed)
        for name, printed in (counts or {}).items()
        if usages[i][name] != printed
    ]


@pytest.mark.parametrize("name", SERIES)
def test_every_printed_count(name: str) -> None:
    assert differences(SERIES[name], SERIES[name].policy) == []


def test_enough_is_compared() -> None:
    series = [s for s in SERIES.values() if s.relation.startswith(RELATIONS)]
    compared = [sum(len(counts) for counts in s.printed if counts) for s in series]
    assert (len(series), sum(compared)) == (16, 243)
    assert all(compared)
    assert all(s.source.startswith("https://") for s in SERIES.values())


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("code-puppy-640-ttl", Policy(ttl="1h")),
        ("cc-84289-subagent-5m-expiry", Policy(ttl="1h")),
        ("cache-tax-4-keepwarm-1h", Policy(ttl="5m")),
        ("litellm-docs-49-min", Policy()),
        ("gaia-3026-haiku", Policy({}, 13_697)),
        ("cookbook-multiturn", Policy(enabled=False)),
    ],
)
def test_the_series_tell_wrong_rules_from_right_ones(name: str, wrong: Policy) -> None:
    assert differences(SERIES[name], wrong)


def test_without_the_ping_the_hour_is_over() -> None:
    """The published point of a keep-warm ping: minute 62 reads because minute 50 did."""
    series = SERIES["cache-tax-4-keepwarm-1h"]
    usages = simulate([series.trace[0], series.trace[2]], series.policy)
    assert usages[1].cache_read_tokens == 0


def test_before_the_first_response_a_retry_writes_again() -> None:
    """The aborted stream's entry serves its retry only because a response had begun."""
    series = SERIES["holaos-549-retry"]
    first, retry = series.trace
    early = [first, replace(retry, started_at_s=51.0, response_began_at_s=60.0)]
    assert [usage.cache_read_tokens for usage in simulate(early, series.policy)] == [0, 0]


def test_the_fixture_is_the_collection_it_was_taken_from(foreign_traces: Path) -> None:
    """Second road: every series of the wanted relations is here, and every exact count is the one collected."""
    collected = json.loads((foreign_traces / "usage-series.json").read_text("utf-8"))["series"]
    wanted = [s for s in collected if s["relation"].startswith(RELATIONS) and len(s["requests"]) > 1]
    assert {s["id"] for s in wanted} <= SERIES.keys()
    for theirs in wanted:
        series = SERIES[theirs["id"]]
        assert theirs["source"] == series.source
        printed = [counts for counts in series.printed if counts is not None]
        for row, counts in zip(theirs["requests"], printed, strict=True):
            rounded = any(word in (row["note"] or "") for word in ("approx", "rounded"))
            exact = {"input": row["input"]}
            if not rounded:
                exact |= {"read": row["cache_read"], "written": row["cache_creation"]}
            both = {name: row[f"cache_creation_{name[-2:]}"] for name in ("written_5m", "written_1h") if name in counts}
            ours = {name: count for name, count in counts.items() if name in ("input", "read")}
            if any(name.startswith("written") for name in counts):
                ours["written"] = counts.get("written", 0) + sum(counts[name] for name in both)
            assert ours == {name: count for name, count in exact.items() if count is not None}
            assert both == {name: counts[name] for name in both}

"""Misses and sums in, findings out: what to change, what it would have saved, and why that is believed. Pure; no I/O.

No miss is counted in two findings. A saving is what the logged requests cost minus what the same requests would have
cost; where a change also makes some requests dearer, that is taken off.
"""

from collections.abc import Sequence
from decimal import Decimal

from analyzer.advice.habits import bug_findings, habit_findings
from analyzer.advice.length import LONG_TOKENS, LongChain, LongStep, compacted_saving, long_findings
from analyzer.advice.timing import (
    EarlySpawn,
    Pause,
    TtlOption,
    best_ttl,
    early_findings,
    keep_alive_findings,
    ttl_findings,
)
from analyzer.results import Finding, Rebuild

__all__ = [
    "LONG_TOKENS",
    "EarlySpawn",
    "LongChain",
    "LongStep",
    "Pause",
    "TtlOption",
    "compacted_saving",
    "findings",
]

LEAST_USD = Decimal("0.01")
LEAST_SHARE = Decimal("0.002")


def findings(
    misses: Sequence[Rebuild],
    ttl_options: Sequence[TtlOption],
    pauses: Sequence[Pause],
    long_chains: Sequence[LongChain],
    compacted_to: int,
    early: Sequence[EarlySpawn],
    newest_version: str | None,
    spent_usd: Decimal,
) -> tuple[Finding, ...]:
    """Everything worth changing, largest saving first; what saves under 0.2 % of the spend is left out."""
    by_key = {miss.request_key: miss for miss in misses}
    found = [
        *ttl_findings(ttl_options, by_key),
        *long_findings(long_chains, compacted_to),
        *early_findings(early),
    ]
    bridged = {key for option in ttl_options if best_ttl(option) == "1h" for key in option.expired_keys}
    shortened = {option.project for option in ttl_options if option.bucket == "main" and best_ttl(option) == "5m"}
    found += keep_alive_findings(
        [
            pause
            for pause in pauses
            if pause.key in by_key
            and pause.key not in bridged
            and not (pause.ttl_s == 3600 and by_key[pause.key].project in shortened)
        ],
        by_key,
    )
    avoidable = [miss for miss in misses if not _expired(miss)]
    found += bug_findings(avoidable, newest_version)
    found += habit_findings([miss for miss in avoidable if miss.signature in (None, "ttl_flip")])
    least = max(LEAST_USD, spent_usd * LEAST_SHARE)
    return tuple(
        sorted(
            (one for one in found if one.saving_usd >= least), key=lambda one: (-one.saving_usd, one.kind, one.title)
        )
    )


def _expired(miss: Rebuild) -> bool:
    """Whether the entry had ended anyway, so that another habit would have saved nothing."""
    return miss.gap_s is not None and miss.ttl_s is not None and miss.gap_s > miss.ttl_s

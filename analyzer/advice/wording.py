"""The parts and words that findings share."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

from analyzer.results import Finding, Rebuild

NOTHING = Decimal(0)
SHOWN = 5
REREAD = "each would have read what it wrote again"


def finding(
    kind: str,
    title: str,
    saving: Decimal,
    setting: str,
    assumption: str,
    evidence: Sequence[str],
    misses: Sequence[Rebuild],
) -> Finding:
    dearest = sorted(misses, key=lambda miss: (-(miss.rewrite_cost_usd or NOTHING), miss.location))
    return Finding(
        kind=kind,
        title=title,
        saving_usd=saving,
        setting=setting,
        assumption=assumption,
        evidence=tuple(evidence),
        misses=len(misses),
        sessions=tuple(dict.fromkeys(miss.session_id for miss in dearest))[:SHOWN],
        locations=tuple(miss.location for miss in dearest)[:SHOWN],
    )


def grouped(misses: Iterable[Rebuild], key: Callable[[Rebuild], str]) -> dict[str, list[Rebuild]]:
    groups: dict[str, list[Rebuild]] = {}
    for miss in misses:
        groups.setdefault(key(miss), []).append(miss)
    return groups


def cost(misses: Iterable[Rebuild]) -> Decimal:
    return sum((miss.rewrite_cost_usd or NOTHING for miss in misses), NOTHING)


def misses_of(misses: Sequence[Rebuild]) -> str:
    return "1 miss" if len(misses) == 1 else f"{len(misses):,} misses"


def chains_of(misses: Sequence[Rebuild]) -> str:
    count = len({(miss.session_id, miss.chain) for miss in misses})
    return "1 chain" if count == 1 else f"{count:,} chains"


def project_names(paths: Sequence[str]) -> str:
    return some([path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or path for path in paths])


def some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def span(seconds: float) -> str:
    minutes = round(seconds / 60, 1)
    return f"{minutes:g} min" if minutes < 120 else f"{minutes / 60:.1f} h"

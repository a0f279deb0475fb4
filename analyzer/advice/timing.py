"""What other lifetimes, fewer pauses and later spawns would have saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from analyzer.advice.wording import NOTHING, REREAD, SHOWN, finding, project_names, span
from analyzer.results import Finding, Rebuild

PING_SHARE_OF_TTL = 0.9
PING_OUTPUT_TOKENS = 20

TTL_SETTINGS: Mapping[tuple[str, str], str] = {
    ("main", "1h"): '"promptCacheTtl": "1h" in settings.json (2.1.242 or later), or ENABLE_PROMPT_CACHING_1H=1 (2.1.108'
    " or later)",
    ("main", "5m"): '"promptCacheTtl": "5m" in settings.json (2.1.242 or later), or FORCE_PROMPT_CACHING_5M=1',
    ("agent", "1h"): '"subagentPromptCacheTtl": "1h" in settings.json (2.1.242 or later), or'
    " CLAUDE_CODE_SUBAGENT_PROMPT_CACHE_TTL=1h",
    ("agent", "5m"): '"subagentPromptCacheTtl": "5m" in settings.json (2.1.242 or later), or'
    " CLAUDE_CODE_SUBAGENT_PROMPT_CACHE_TTL=5m",
}


@dataclass(frozen=True, slots=True)
class TtlOption:
    """What one project's main conversations or subagents would have saved under each TTL (USD; may be negative)."""

    project: str
    bucket: str
    """`main` or `agent`."""
    saved_with_1h_usd: Decimal
    saved_with_5m_usd: Decimal
    requests: int
    expired_keys: tuple[str, ...]
    """Misses after 5 to 60 minutes of pause, which an hour would have bridged."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A miss by expiry with the rates (USD per token) that keeping it warm would have had."""

    key: str
    gap_s: float
    ttl_s: int
    readable_tokens: int
    rewrite_usd: Decimal
    read_rate: Decimal
    output_rate: Decimal

    @property
    def pings(self) -> int:
        return int(self.gap_s / (self.ttl_s * PING_SHARE_OF_TTL))

    @property
    def saving_usd(self) -> Decimal:
        ping = self.readable_tokens * self.read_rate + PING_OUTPUT_TOKENS * self.output_rate
        return self.rewrite_usd - self.pings * ping


@dataclass(frozen=True, slots=True)
class EarlySpawn:
    """A subagent that read nothing as its like had not answered yet; `shared_tokens` is what its like read later."""

    session_id: str
    agent_type: str
    location: str
    shared_tokens: int
    write_rate: Decimal
    read_rate: Decimal


def best_ttl(option: TtlOption) -> str | None:
    best = max(option.saved_with_1h_usd, option.saved_with_5m_usd)
    if best <= 0:
        return None
    return "1h" if best == option.saved_with_1h_usd else "5m"


def ttl_findings(options: Sequence[TtlOption], by_key: Mapping[str, Rebuild]) -> list[Finding]:
    found = []
    for (bucket, ttl), setting in TTL_SETTINGS.items():
        chosen = [option for option in options if option.bucket == bucket and best_ttl(option) == ttl]
        if not chosen:
            continue
        chosen.sort(key=lambda option: -(option.saved_with_1h_usd if ttl == "1h" else option.saved_with_5m_usd))
        saving = sum((one.saved_with_1h_usd if ttl == "1h" else one.saved_with_5m_usd for one in chosen), NOTHING)
        others = sum(option.bucket == bucket for option in options) - len(chosen)
        who = "main conversations" if bucket == "main" else "subagents"
        misses = [by_key[key] for option in chosen for key in option.expired_keys if key in by_key]
        flips = sum(miss.signature == "ttl_flip" for miss in misses)
        where = f"in {project_names([option.project for option in chosen])}"
        if ttl == "1h":
            title = f"Write {who} for one hour {where}"
            evidence = [f"{len(misses):,} misses after pauses of 5 to 60 minutes, in 5-minute entries"]
            if flips:
                evidence.append(f"{flips:,} of them after the writes had fallen from 1h to 5m (ttl_flip)")
            assumption = f"{REREAD}; the 1-hour rate for everything else written there for 5 minutes is taken off"
        else:
            title = f"Write {who} for five minutes {where}"
            misses = []
            evidence = [f"{sum(one.requests for one in chosen):,} requests there; too few pauses need the dearer hour"]
            assumption = (
                "all written for an hour would have cost the 5-minute rate; what requests after longer pauses would"
                " have written again is taken off"
            )
        if others:
            evidence.append(f"nothing to gain in {others:,} other {'project' if others == 1 else 'projects'}")
        setting += "; in the project's .claude/settings.json where it is not for all" if others else ""
        found.append(finding(f"ttl_{bucket}_{ttl}", title, saving, setting, assumption, evidence, misses))
    return found


def keep_alive_findings(pauses: Sequence[Pause], by_key: Mapping[str, Rebuild]) -> list[Finding]:
    worth = [pause for pause in pauses if pause.pings and pause.saving_usd > 0]
    if not worth:
        return []
    pings = sum(pause.pings for pause in worth)
    longest = max(pause.gap_s for pause in worth)
    evidence = [
        f"{len(worth):,} of {len(pauses):,} pauses were short enough for it to pay, the longest {span(longest)}",
        f"{pings:,} pings in all, one each {span(270)} (5m) or {span(3240)} (1h)",
    ]
    saving = sum((pause.saving_usd for pause in worth), NOTHING)
    return [
        finding(
            "keep_alive",
            "Keep conversations warm over pauses, or end them before",
            saving,
            "a short scheduled prompt (/loop) in the open session before the TTL ends; or /compact before a long pause",
            f"known in advance; each ping reads the prefix and answers {PING_OUTPUT_TOKENS} tokens",
            evidence,
            [by_key[pause.key] for pause in worth],
        )
    ]


def early_findings(early: Sequence[EarlySpawn]) -> list[Finding]:
    if not early:
        return []
    types = sorted({spawn.agent_type for spawn in early})
    saving = sum((spawn.shared_tokens * (spawn.write_rate - spawn.read_rate) for spawn in early), NOTHING)
    return [
        Finding(
            kind="spawned_too_early",
            title="Start one subagent of a type first, its like after it has answered",
            saving_usd=saving,
            setting="launch the first alone, or raise CLAUDE_CODE_WORKFLOW_PREFIX_STAGGER_MS for workflows",
            assumption="each would have read what others of its type and model read at their start, and no more",
            evidence=(f"{len(early):,} subagents began before a like one had answered: {', '.join(types[:SHOWN])}",),
            misses=0,
            sessions=tuple(dict.fromkeys(spawn.session_id for spawn in early))[:SHOWN],
            locations=tuple(spawn.location for spawn in early)[:SHOWN],
        )
    ]

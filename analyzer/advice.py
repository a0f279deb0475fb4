"""Misses and sums in, findings out: what to change, what it would have saved, and why that is believed. Pure; no I/O.

No miss is counted in two findings. A saving is what the logged requests cost minus what the same requests would have
cost; where a change also makes some requests dearer, that is taken off.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from analyzer.results import Finding, Rebuild
from analyzer.signatures import MEANING, version_order

NOTHING = Decimal(0)
LEAST_USD = Decimal("0.01")
LEAST_SHARE = Decimal("0.002")
SHOWN = 5
PING_SHARE_OF_TTL = 0.9
PING_OUTPUT_TOKENS = 20
LONG_TOKENS = 200_000
SUMMARY_TOKENS = 4_000

TTL_SETTINGS: Mapping[tuple[str, str], str] = {
    ("main", "1h"): '"promptCacheTtl": "1h" in settings.json (2.1.242 or later), or ENABLE_PROMPT_CACHING_1H=1 (2.1.108'
    " or later)",
    ("main", "5m"): '"promptCacheTtl": "5m" in settings.json (2.1.242 or later), or FORCE_PROMPT_CACHING_5M=1',
    ("agent", "1h"): '"subagentPromptCacheTtl": "1h" in settings.json (2.1.242 or later), or'
    " CLAUDE_CODE_SUBAGENT_PROMPT_CACHE_TTL=1h",
    ("agent", "5m"): '"subagentPromptCacheTtl": "5m" in settings.json (2.1.242 or later), or'
    " CLAUDE_CODE_SUBAGENT_PROMPT_CACHE_TTL=5m",
}
REREAD = "each would have read what it wrote again"


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
class LongStep:
    """One request of a long conversation. `rebuilt`: a compaction or a like boundary came right before it."""

    prompt_tokens: int
    read_tokens: int
    rebuilt: bool
    read_rate: Decimal
    write_rate: Decimal
    output_rate: Decimal


@dataclass(frozen=True, slots=True)
class LongChain:
    session_id: str
    location: str
    steps: tuple[LongStep, ...]


@dataclass(frozen=True, slots=True)
class EarlySpawn:
    """A subagent that read nothing as its like had not answered yet; `shared_tokens` is what its like read later."""

    session_id: str
    agent_type: str
    location: str
    shared_tokens: int
    write_rate: Decimal
    read_rate: Decimal


def compacted_saving(chain: LongChain, limit: int, after: int) -> Decimal:
    """What the chain would have saved, had it been compacted to `after` tokens each time it passed `limit`; USD.

    Each compaction costs one read of the conversation, its summary as output, and `after` tokens written.
    """
    saved, dropped = NOTHING, 0
    for step in chain.steps:
        if step.rebuilt or step.prompt_tokens < dropped + after:
            dropped = 0
        kept = step.prompt_tokens - dropped
        if kept > limit:
            saved -= kept * step.read_rate + SUMMARY_TOKENS * step.output_rate + after * step.write_rate
            dropped += kept - after
        saved += min(step.read_tokens, dropped) * step.read_rate
    return saved


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
        *_ttl(ttl_options, by_key),
        *_long(long_chains, compacted_to),
        *_early(early),
    ]
    bridged = {key for option in ttl_options if _best(option) == "1h" for key in option.expired_keys}
    shortened = {option.project for option in ttl_options if option.bucket == "main" and _best(option) == "5m"}
    found += _keep_alive(
        [
            pause
            for pause in pauses
            if pause.key in by_key
            and pause.key not in bridged
            and not (pause.ttl_s == 3600 and by_key[pause.key].project in shortened)
        ],
        by_key,
    )
    found += _by_signature(misses, newest_version)
    found += _by_cause([miss for miss in misses if miss.signature in (None, "ttl_flip")])
    least = max(LEAST_USD, spent_usd * LEAST_SHARE)
    return tuple(
        sorted(
            (one for one in found if one.saving_usd >= least), key=lambda one: (-one.saving_usd, one.kind, one.title)
        )
    )


def _best(option: TtlOption) -> str | None:
    best = max(option.saved_with_1h_usd, option.saved_with_5m_usd)
    if best <= 0:
        return None
    return "1h" if best == option.saved_with_1h_usd else "5m"


def _ttl(options: Sequence[TtlOption], by_key: Mapping[str, Rebuild]) -> list[Finding]:
    found = []
    for (bucket, ttl), setting in TTL_SETTINGS.items():
        chosen = [option for option in options if option.bucket == bucket and _best(option) == ttl]
        if not chosen:
            continue
        chosen.sort(key=lambda option: -(option.saved_with_1h_usd if ttl == "1h" else option.saved_with_5m_usd))
        saving = sum((one.saved_with_1h_usd if ttl == "1h" else one.saved_with_5m_usd for one in chosen), NOTHING)
        others = sum(option.bucket == bucket for option in options) - len(chosen)
        who = "main conversations" if bucket == "main" else "subagents"
        misses = [by_key[key] for option in chosen for key in option.expired_keys if key in by_key]
        flips = sum(miss.signature == "ttl_flip" for miss in misses)
        where = f"in {_projects([option.project for option in chosen])}"
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
        found.append(_finding(f"ttl_{bucket}_{ttl}", title, saving, setting, assumption, evidence, misses))
    return found


def _keep_alive(pauses: Sequence[Pause], by_key: Mapping[str, Rebuild]) -> list[Finding]:
    worth = [pause for pause in pauses if pause.pings and pause.saving_usd > 0]
    if not worth:
        return []
    pings = sum(pause.pings for pause in worth)
    longest = max(pause.gap_s for pause in worth)
    evidence = [
        f"{len(worth):,} of {len(pauses):,} pauses were short enough for it to pay, the longest {_span(longest)}",
        f"{pings:,} pings in all, one each {_span(270)} (5m) or {_span(3240)} (1h)",
    ]
    saving = sum((pause.saving_usd for pause in worth), NOTHING)
    return [
        _finding(
            "keep_alive",
            "Keep conversations warm over pauses, or end them before",
            saving,
            "a short scheduled prompt (/loop) in the open session before the TTL ends; or /compact before a long pause",
            f"known in advance; each ping reads the prefix and answers {PING_OUTPUT_TOKENS} tokens",
            evidence,
            [by_key[pause.key] for pause in worth],
        )
    ]


def _long(chains: Sequence[LongChain], after: int) -> list[Finding]:
    saved = [(compacted_saving(chain, LONG_TOKENS, after), chain) for chain in chains]
    worth = sorted(((saving, chain) for saving, chain in saved if saving > 0), key=lambda item: -item[0])
    if not worth:
        return []
    above = sum(step.prompt_tokens > LONG_TOKENS for _, chain in worth for step in chain.steps)
    most = max(step.prompt_tokens for _, chain in worth for step in chain.steps)
    return [
        Finding(
            kind="long_sessions",
            title="Compact or restart conversations that grow past 200,000 tokens",
            saving_usd=sum((saving for saving, _ in worth), NOTHING),
            setting="/compact or /clear between tasks; a smaller autoCompactWindow in settings.json does it alone",
            assumption=f"compacted to {after:,} tokens on passing 200,000, each time for one read, {SUMMARY_TOKENS:,}"
            " output tokens and a new write; what a summary forgets costs nothing",
            evidence=(
                f"{above:,} requests above 200,000 tokens in {len(worth):,}"
                f" {'conversation' if len(worth) == 1 else 'conversations'}, the longest {most:,}",
            ),
            misses=0,
            sessions=tuple(dict.fromkeys(chain.session_id for _, chain in worth))[:SHOWN],
            locations=tuple(chain.location for _, chain in worth)[:SHOWN],
        )
    ]


def _early(early: Sequence[EarlySpawn]) -> list[Finding]:
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


def _by_signature(misses: Sequence[Rebuild], newest: str | None) -> list[Finding]:
    found = []
    for name, held in _grouped((miss for miss in misses if miss.signature), lambda miss: str(miss.signature)).items():
        if name == "ttl_flip":
            continue
        versions = sorted({miss.version for miss in held if miss.version}, key=version_order)
        evidence = [MEANING[name], f"{_count(held)} in {_chains(held)}, versions {_some(versions)}"]
        leave = f"leave version {versions[-1]} (claude update)" if versions else "another version (claude update)"
        if newest and versions and version_order(newest) > version_order(versions[-1]):
            evidence.append(f"not seen in {newest}, the newest version here")
            leave = f"stay on a version after {versions[-1]}"
        if name == "warm_resume":
            leave += "; until then keep one process open instead of resuming"
        elif name == "version_flip_flop":
            leave = "use one version of Claude Code on every terminal and scheduled job that shares a session"
        elif name == "turn_rewrites":
            leave += "; without hooks that add context, where there are any"
        title = f"A known bug rewrites the cache: {name}"
        found.append(_finding(f"bug_{name}", title, _cost(held), leave, REREAD, evidence, held))
    return found


_HABITS: Mapping[str, tuple[str, str]] = {
    "model_changed": ("Choose the model at the start of a task", "/model before the first prompt, or a new session"),
    "fast_mode_changed": ("Choose the speed at the start of a task", "/fast before the first prompt"),
    "effort_changed": ("Choose the effort at the start of a task", "/effort before the first prompt"),
    "resumed": ("Keep a long conversation in one process", "leave the terminal open instead of --resume; update first"),
    "version_changed": (
        "Upgrade between conversations, not within one",
        "DISABLE_AUTOUPDATER=1 while long sessions run, claude update between them",
    ),
    "directory_changed": (
        "One session per directory and branch",
        "start a session in the worktree, do not move into it",
    ),
    "deferred_tool_loaded": (
        "Load deferred tools early, or all at the start",
        "name the tools in the first prompt, or ENABLE_TOOL_SEARCH=false to load all at the start",
    ),
    "hook_context": ("A hook adds context that rewrites the conversation", "drop or shorten its additionalContext"),
    "skill_loaded": ("A skill changed the tools in an old version", "claude update: later versions keep the cache"),
    "interrupted": (
        "Interrupting a request throws its cache entry away",
        "queue the next prompt instead of pressing Esc",
    ),
    "rewind_or_branch": (
        "Rewinding, or two terminals on one session, writes a branch anew",
        "one terminal per session",
    ),
    "tools_changed": (
        "The tool list changed within a session",
        "keep MCP servers, permissions and plugins as they are while a session runs",
    ),
    "system_prompt_changed": (
        "The system prompt changed within a session",
        "keep plugins, output style and settings the same between the starts of one conversation",
    ),
}


def _by_cause(misses: Sequence[Rebuild]) -> list[Finding]:
    found = []
    for server, held in _grouped(
        (miss for miss in misses if miss.cause == "mcp_changed"), lambda miss: ", ".join(miss.servers)
    ).items():
        name = server or "an MCP server"
        plural = "," in server
        found.append(
            _finding(
                "mcp_server",
                f"MCP {'servers' if plural else 'server'} {name} {'come and go' if plural else 'comes and goes'}"
                if server
                else "The tool list of an MCP server changes",
                _cost(held),
                f"claude mcp remove {server or 'NAME'}, or wait with the first prompt until it is connected (/mcp)",
                REREAD,
                [f"{_count(held)} right after it connected or dropped, in {_chains(held)}"],
                held,
            )
        )
    for cause, (title, setting) in _HABITS.items():
        held = [miss for miss in misses if miss.cause == cause]
        if held:
            evidence = [f"{_count(held)} with cause {cause} in {_chains(held)}"]
            found.append(_finding(cause, title, _cost(held), setting, REREAD, evidence, held))
    return found


def _finding(
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


def _grouped(misses: Iterable[Rebuild], key: Callable[[Rebuild], str]) -> dict[str, list[Rebuild]]:
    groups: dict[str, list[Rebuild]] = {}
    for miss in misses:
        groups.setdefault(key(miss), []).append(miss)
    return groups


def _cost(misses: Iterable[Rebuild]) -> Decimal:
    return sum((miss.rewrite_cost_usd or NOTHING for miss in misses), NOTHING)


def _count(misses: Sequence[Rebuild]) -> str:
    return "1 miss" if len(misses) == 1 else f"{len(misses):,} misses"


def _chains(misses: Sequence[Rebuild]) -> str:
    count = len({(miss.session_id, miss.chain) for miss in misses})
    return "1 chain" if count == 1 else f"{count:,} chains"


def _projects(paths: Sequence[str]) -> str:
    return _some([path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or path for path in paths])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _span(seconds: float) -> str:
    minutes = round(seconds / 60, 1)
    return f"{minutes:g} min" if minutes < 120 else f"{minutes / 60:.1f} h"

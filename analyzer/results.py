"""What the queries return and every report is made from. No I/O, no arithmetic beyond sums of its own fields."""

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

from simulator.trace import Usage

__all__ = ["AnalyzeReport", "DayRow", "GroupRow", "IngestResult", "Meta", "Quality", "Totals", "UnpricedModel", "Usage"]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One row of a table: tokens by class and their API-equivalent cost in USD, summed over `requests` requests.

    `cost_usd` is None where not one request of the row could be priced (never a silent zero).
    """

    key: str
    label: str
    requests: int
    input_tokens: int
    cache_creation_5m_tokens: int
    cache_creation_1h_tokens: int
    cache_read_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    unpriced_requests: int
    first_at: datetime | None = None
    last_at: datetime | None = None
    misses: int = 0
    expected_rebuilds: int = 0
    rewritten_tokens: int = 0

    @property
    def cache_creation_tokens(self) -> int:
        return self.cache_creation_5m_tokens + self.cache_creation_1h_tokens

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + self.cache_creation_tokens + self.cache_read_tokens

    @property
    def hit_rate(self) -> float | None:
        return self.cache_read_tokens / self.prompt_tokens if self.prompt_tokens else None


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole scope: `usage` plus its cost split by billing class, what caching saved, and what was written again."""

    usage: GroupRow
    input_cost_usd: Decimal
    cache_creation_5m_cost_usd: Decimal
    cache_creation_1h_cost_usd: Decimal
    cache_read_cost_usd: Decimal
    output_cost_usd: Decimal
    web_search_cost_usd: Decimal
    uncached_cost_usd: Decimal
    """What the priced requests would have cost with no cache at all."""
    misses: int
    miss_rewritten_tokens: int
    miss_rewrite_cost_usd: Decimal
    expected_rebuilds: int
    expected_rewritten_tokens: int
    expected_rewrite_cost_usd: Decimal

    @property
    def saved_usd(self) -> Decimal:
        """Saved by caching; negative when writes were never read back."""
        return self.uncached_cost_usd - (self.usage.cost_usd or Decimal(0))


@dataclass(frozen=True, slots=True)
class DayRow:
    """One calendar day in the report's time zone."""

    day: date
    row: GroupRow


@dataclass(frozen=True, slots=True)
class UnpricedModel:
    model: str
    requests: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Quality:
    """What is not in the numbers, or only as a bound; every count that ingest or pricing had to set aside."""

    files: int = 0
    files_missing: int = 0
    files_unreadable: int = 0
    lines: int = 0
    broken_lines: int = 0
    synthetic_lines: int = 0
    zero_usage_requests: int = 0
    copied_requests: int = 0
    split_lines_merged: int = 0
    progress_only_requests: int = 0
    output_lower_bound_requests: int = 0
    date_estimated_requests: int = 0
    region_unknown_requests: int = 0
    priority_tier_requests: int = 0
    ttl_assumed_5m_requests: int = 0
    several_iterations_requests: int = 0
    invalid_usage_fields: int = 0
    unpriced_requests: int = 0
    unpriced_models: tuple[UnpricedModel, ...] = ()
    compactions_without_usage: int = 0
    recaps_without_usage: int = 0
    titles_without_usage: int = 0
    api_error_retries: int = 0
    interrupted_requests: int = 0
    cost_state_usd: Decimal | None = None
    """Claude Code's own running total (cost-state records) where logs hold one."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What one ingest read. `bytes_read` is 0 when nothing changed."""

    files_seen: int = 0
    files_read: int = 0
    files_appended: int = 0
    files_missing: int = 0
    bytes_read: int = 0
    lines_read: int = 0
    broken_lines: int = 0
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Meta:
    version: str
    timezone: str
    price_source: str
    price_date: str
    scope: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    projects: tuple[str, ...]
    models: tuple[str, ...]
    database: str
    sample_data: bool = False


@dataclass(frozen=True, slots=True)
class Rebuild:
    """One miss or expected rebuild: what was lost, why, and what writing it again cost over reading it (USD)."""

    session_id: str
    project: str
    chain: str
    message_id: str | None
    timestamp: datetime
    model: str
    version: str | None
    cause: str
    confidence: str
    evidence: tuple[str, ...]
    gap_s: float | None
    ttl_s: int | None
    readable_tokens: int
    cache_read_tokens: int
    lost_tokens: int
    rewritten_tokens: int
    rewrite_cost_usd: Decimal | None
    advice: str
    diagnosis: str | None
    signature: str | None = None
    """Name of the known bug whose pattern the chain shows around this request."""
    servers: tuple[str, ...] = ()
    """MCP servers that connected or dropped between the two requests."""
    location: str = ""
    """The request's own record, as file:line; `evidence` holds it too."""
    request_key: str = ""


@dataclass(frozen=True, slots=True)
class MissRow:
    """Misses with one cause, of one ISO week (2026-W48) or of one version; `expected` are its other rebuilds."""

    key: str
    misses: int
    lost_tokens: int
    rewrite_cost_usd: Decimal
    expected: int = 0


@dataclass(frozen=True, slots=True)
class SignatureRow:
    """A known bug's pattern, found in one chain (or, for a TTL flip, over the whole scope)."""

    name: str
    meaning: str
    session_id: str
    project: str
    chain: str
    misses: int
    lost_tokens: int
    rewrite_cost_usd: Decimal
    versions: tuple[str, ...]
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """The first request of a chain: a cold start, never a miss. `whose` had cached what it read, where logs show it."""

    session_id: str
    project: str
    chain: str
    timestamp: datetime
    model: str
    cache_read_tokens: int
    cache_creation_tokens: int
    input_tokens: int
    whose: str | None
    written_at: datetime | None

    @property
    def warm_rate(self) -> float:
        prompt = self.cache_read_tokens + self.cache_creation_tokens + self.input_tokens
        return self.cache_read_tokens / prompt if prompt else 0.0


@dataclass(frozen=True, slots=True)
class MissReport:
    misses: tuple[Rebuild, ...]
    expected_rebuilds: tuple[Rebuild, ...]
    by_cause: tuple[MissRow, ...]
    by_week: tuple[MissRow, ...] = ()
    by_version: tuple[MissRow, ...] = ()
    signatures: tuple[SignatureRow, ...] = ()
    first_requests: tuple[FirstRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class SpawnRow:
    """One subagent: what its first request read and wrote, whose cache that was, what the agent cost (USD)."""

    session_id: str
    project: str
    agent_id: str
    agent_type: str
    model: str
    started_at: datetime
    requests: int
    first_read_tokens: int
    first_creation_tokens: int
    verdict: str
    whose: str | None
    position_tokens: int | None
    written_at: datetime | None
    cost_usd: Decimal | None
    cold_start_usd: Decimal | None = None
    """What its first request wrote or sent uncached."""
    fork_cost_usd: Decimal | None = None
    inline_cost_usd: Decimal | None = None
    """Estimates; None where the main conversation before the spawn is not in the logs or has no price."""


@dataclass(frozen=True, slots=True)
class SpawnTotals:
    """Sums over subagents. `compared_usd`: what those `compared` with estimates cost, to lay beside the estimates."""

    key: str
    spawns: int
    requests: int
    first_read_tokens: int
    first_creation_tokens: int
    verdicts: tuple[tuple[str, int], ...]
    cost_usd: Decimal | None
    cold_start_usd: Decimal | None
    compared: int
    compared_usd: Decimal
    fork_cost_usd: Decimal
    inline_cost_usd: Decimal


@dataclass(frozen=True, slots=True)
class SubagentReport:
    spawns: tuple[SpawnRow, ...]
    by_type: tuple[SpawnTotals, ...] = ()
    totals: SpawnTotals | None = None

    @property
    def sentence(self) -> str:
        """The answer in one sentence, with counts."""
        if not self.spawns:
            return "No subagents in scope."
        count = {name: sum(spawn.verdict == name for spawn in self.spawns) for name in {s.verdict for s in self.spawns}}
        parent, total = count.get("shares_with_parent", 0), len(self.spawns)
        does = "do" if parent == total else "do not" if parent == 0 else "sometimes"
        rest = ", ".join(
            f"{number:,} {name}" for name, number in sorted(count.items(), key=lambda item: (-item[1], item[0]))
        )
        unseen = all(spawn.cost_usd is not None and spawn.fork_cost_usd is None for spawn in self.spawns)
        if parent == 0 and unseen:
            return (
                "Whether your subagents share the main conversation's prefix cannot be told: none of these"
                f" {total:,} has a main conversation before it in these logs ({rest})."
            )
        return f"Your subagents {does} share the main conversation's prefix: {parent:,} of {total:,} ({rest})."


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """One request of a session. `lane` is `main`, or the chain of a subagent or inline sidechain; `n` counts in it."""

    lane: str
    n: int
    message_id: str | None
    agent_id: str | None
    timestamp: datetime
    started_at: datetime
    model: str
    version: str | None
    effort: str | None
    speed: str | None
    input_tokens: int
    cache_read_tokens: int
    cache_creation_5m_tokens: int
    cache_creation_1h_tokens: int
    output_tokens: int
    gap_s: float | None
    ttl_s: int | None
    readable_tokens: int | None
    lost_tokens: int
    mark: str | None
    """`first` of its chain, `miss`, `expected` (rebuild), or None."""
    rebuild: Rebuild | None
    cost_usd: Decimal | None
    location: str

    @property
    def cache_creation_tokens(self) -> int:
        return self.cache_creation_5m_tokens + self.cache_creation_1h_tokens

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + self.cache_creation_tokens + self.cache_read_tokens


@dataclass(frozen=True, slots=True)
class SessionEvent:
    timestamp: datetime | None
    lane: str
    kind: str
    detail: str | None
    location: str


@dataclass(frozen=True, slots=True)
class SessionReport:
    """One session, its requests and events in time order; `first` is the main conversation's first request."""

    session_id: str
    project: str
    timezone: str
    requests: tuple[SessionRequest, ...]
    events: tuple[SessionEvent, ...]
    agents: tuple[SpawnRow, ...]
    signatures: tuple[SignatureRow, ...]
    first: FirstRequest | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change: what it would have saved over the scope (USD), the exact setting, and the proof.

    `saving_usd` is a difference worked out request by request under `assumption`; findings of one report share no miss.
    """

    kind: str
    title: str
    saving_usd: Decimal
    setting: str
    assumption: str
    evidence: tuple[str, ...]
    misses: int
    sessions: tuple[str, ...]
    locations: tuple[str, ...]
    """Some of the records that show it, as file:line, dearest first."""


@dataclass(frozen=True, slots=True)
class AnalyzeReport:
    meta: Meta
    totals: Totals
    by_model: tuple[GroupRow, ...]
    by_project: tuple[GroupRow, ...]
    by_session: tuple[GroupRow, ...]
    by_day: tuple[DayRow, ...]
    by_agent_type: tuple[GroupRow, ...]
    by_ttl: tuple[GroupRow, ...]
    """Two rows, "5m" and "1h": requests whose writes went to that TTL (a request that wrote nothing is in neither)."""
    by_version: tuple[GroupRow, ...]
    quality: Quality
    ingest: IngestResult = field(default_factory=IngestResult)
    findings: tuple[Finding, ...] = ()

"""What the what-ifs return and their report is made from. No I/O."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from simulator.trace import Usage

Confidence = Literal["exact", "high", "medium", "low"]
Kind = Literal["price", "model", "cache", "work", "bound", "combination"]
"""What a scenario changes: rates only; the model; a cache setting; the way of working; nothing one can do; several."""


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """One scenario over all rows in scope. Costs in USD; `cost_usd` is None where no public price exists."""

    name: str
    kind: Kind
    usage: Usage
    cost_usd: Decimal | None
    delta_usd: Decimal | None
    delta_rate: float | None
    changed_requests: int
    added_calls: int
    gist: str
    assumptions: tuple[str, ...]
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class GroupCosts:
    """One project, session or model: what it cost, and what it would have cost under each scenario, in their order."""

    key: str
    label: str
    actual_usd: Decimal
    costs_usd: tuple[Decimal | None, ...]


@dataclass(frozen=True, slots=True)
class ChainCosts:
    """One chain that would have been cheaper with no cache at all."""

    session_id: str
    project: str
    agent_id: str | None
    requests: int
    actual_usd: Decimal
    uncached_usd: Decimal


@dataclass(frozen=True, slots=True)
class WhatIfReport:
    actual: ScenarioRow
    scenarios: tuple[ScenarioRow, ...]
    requests: int
    unpriced_requests: int
    groups: tuple[GroupCosts, ...]
    cheaper_without_cache: tuple[ChainCosts, ...]
    price_source: str
    price_date: str
    chosen: bool = False
    """Whether the scenarios were asked for by name."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One request: what the log says was read beside what the rules predicted from the log before it."""

    message_id: str | None
    session_id: str
    readable_tokens: int
    logged_read_tokens: int
    predicted_read_tokens: int
    agrees: bool
    is_miss: bool
    predicted_miss: bool
    expected: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CauseScore:
    """How one predicted reason fared: how often it spoke, how often it agreed, misses it called rightly and wrongly."""

    reason: str
    requests: int
    agreed: int
    misses_called: int
    false_alarms: int
    misses_overlooked: int


@dataclass(frozen=True, slots=True)
class Score:
    """Rates are None where nothing was to be judged."""

    requests: int
    agreement: float | None
    miss_precision: float | None
    miss_recall: float | None


@dataclass(frozen=True, slots=True)
class Unforeseen:
    """Misses that no rule predicted, by the cause that the miss report finds for them afterwards."""

    cause: str
    misses: int
    lost_tokens: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    score: Score
    without_expected: Score
    by_reason: tuple[CauseScore, ...]
    unforeseen: tuple[Unforeseen, ...]
    rows: tuple[Checked, ...]


@dataclass(frozen=True, slots=True)
class ChainChange:
    """What a scenario does to one chain; delta in USD."""

    session_id: str
    project: str
    agent_id: str | None
    requests: int
    actual_usd: Decimal
    delta_usd: Decimal


@dataclass(frozen=True, slots=True)
class Explanation:
    """One scenario in full, beside what was logged; `chains` are those it changes most."""

    row: ScenarioRow
    actual: ScenarioRow
    changes: tuple[tuple[str, str], ...]
    chains: tuple[ChainChange, ...]

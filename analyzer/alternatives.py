"""What a subagent's work would have cost as a fork of the main conversation, or inline in it. Pure; no I/O.

Both estimates keep the agent's own turns (its answers, its tool results, its pauses) and swap the prefix: instead of
its own system prompt and tools, every request carries the main conversation as it stood at the spawn, at that model.
A fork writes for 5 minutes, as Claude Code's forks do. Inline, the main conversation also re-reads all that the agent
gathered until it is next compacted or ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

TASK_TOKENS = 500
"""What a fork adds first: its task. Published measurements of forks wrote 345 and 475 tokens on their first request."""
ASSUMED = (
    f"as forks or inline: the same turns at the main conversation's model on top of its context at the spawn, the task"
    f" {TASK_TOKENS} tokens; inline also re-read by the main conversation until its next compaction"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One request of the agent."""

    input_tokens: int
    cache_read_tokens: int
    cache_creation_tokens: int
    output_tokens: int

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + self.cache_read_tokens + self.cache_creation_tokens


@dataclass(frozen=True, slots=True)
class Parent:
    """The main conversation at the spawn. Rates in USD per token at its model; `write` is that of its own TTL."""

    context_tokens: int
    later_requests: int
    input_rate: Decimal
    read_rate: Decimal
    write_5m_rate: Decimal
    write_rate: Decimal
    output_rate: Decimal


def fork_cost(steps: Sequence[Step], parent: Parent) -> Decimal:
    """USD for the agent's requests as a fork."""
    return _on_parent(steps, parent, parent.write_5m_rate)


def inline_cost(steps: Sequence[Step], parent: Parent) -> Decimal:
    """USD for the same turns in the main conversation, with what its later requests then re-read."""
    gathered = TASK_TOKENS + max(0, steps[-1].prompt_tokens - steps[0].prompt_tokens)
    return _on_parent(steps, parent, parent.write_rate) + gathered * parent.later_requests * parent.read_rate


def _on_parent(steps: Sequence[Step], parent: Parent, write_rate: Decimal) -> Decimal:
    cost = Decimal(0)
    for step in steps:
        own = TASK_TOKENS + max(0, step.prompt_tokens - steps[0].prompt_tokens)
        uncached = 0 if step is steps[0] else min(step.input_tokens, own)
        written = TASK_TOKENS if step is steps[0] else min(step.cache_creation_tokens, own - uncached)
        read = parent.context_tokens + own - written - uncached
        cost += uncached * parent.input_rate + read * parent.read_rate + written * write_rate
        cost += step.output_tokens * parent.output_rate
    return cost

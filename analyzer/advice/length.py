"""What compacting long conversations would have saved."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from analyzer.advice.wording import NOTHING, SHOWN
from analyzer.results import Finding

LONG_TOKENS = 200_000
SUMMARY_TOKENS = 4_000


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


def long_findings(chains: Sequence[LongChain], after: int) -> list[Finding]:
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

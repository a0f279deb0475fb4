"""What changes with the model: the tokenizer and the context window."""

from decimal import ROUND_HALF_UP, Decimal

from analyzer.prices import known_models
from analyzer.prices.model_ids import parse_model_id
from simulator.trace import Usage

TOKEN_RATIO = Decimal("1.3")
"""Claude 4.7 and later make about 30 % more tokens of the same text than 4.6 and earlier (Claude API docs, Models)."""
NEW_TOKENIZER_SINCE = (4, 7)
LONG_WINDOW = 1_000_000
SHORT_WINDOW = 200_000
_LONG_SINCE = (4, 6)
"""Models from 4.6 on have a window of a million tokens, those before and Haiku 4.5 of 200,000 (Claude API docs)."""


def canonical_model(name: str) -> str | None:
    """The priced model meant by `sonnet-5-5`, `claude-sonnet-5-5` or `sonnet-5.5`; None if there is none."""
    text = name.strip().lower().replace(".", "-")
    for candidate in (text, f"claude-{text}"):
        parsed = parse_model_id(candidate)
        if parsed is not None and parsed.generation is not None and parsed.canonical in known_models():
            return parsed.canonical
    return None


def token_factor(logged: str, target: str) -> Decimal:
    """By how much the same text becomes more or fewer tokens; 1 where one of the two tokenizers is not known."""
    one, other = parse_model_id(logged), parse_model_id(target)
    if one is None or other is None or one.generation is None or other.generation is None:
        return Decimal(1)
    before, after = one.generation >= NEW_TOKENIZER_SINCE, other.generation >= NEW_TOKENIZER_SINCE
    return Decimal(1) if before == after else TOKEN_RATIO if after else 1 / TOKEN_RATIO


def in_tokens_of(usage: Usage, factor: Decimal) -> Usage:
    """Every class scaled, to the nearest token."""
    if factor == 1:
        return usage
    return Usage(
        *(
            int((Decimal(tokens) * factor).to_integral_value(ROUND_HALF_UP))
            for tokens in (
                usage.input_tokens,
                usage.cache_read_tokens,
                usage.cache_creation_5m_tokens,
                usage.cache_creation_1h_tokens,
                usage.output_tokens,
            )
        )
    )


def window_of(model: str) -> int:
    parsed = parse_model_id(model)
    known = parsed is not None and parsed.generation is not None
    return LONG_WINDOW if not known or parsed.generation >= _LONG_SINCE else SHORT_WINDOW  # type: ignore[union-attr, operator]

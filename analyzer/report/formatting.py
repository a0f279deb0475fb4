"""How a number or a name looks in every report. Names come from session logs and are hostile until cleaned here."""

import re
import unicodedata
from datetime import UTC, datetime, tzinfo
from decimal import ROUND_HALF_UP, Decimal
from zoneinfo import ZoneInfo

NOT_KNOWN = "n/a"
_BREAKS = {"\n", "\r", "\t", "\v", "\f", "\x85", "\u2028", "\u2029"}
_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x90\x9d])[^\x07\x1b\x9c\n]{0,200}(?:\x07|\x1b\\|\x9c)"
)
_DROPPED = {"Cc", "Cf", "Cs", "Co"}
_MARKDOWN_SPECIAL = set("\\`*_[]<>|~&#$")


def clean_text(text: str) -> str:
    """One line with no escape sequences, control, bidirectional or surrogate characters: safe in any table."""
    if text.isprintable() and "  " not in text and text == text.strip():
        return text
    spaced = "".join(" " if character in _BREAKS else character for character in _ESCAPE_SEQUENCE.sub("", text))
    kept = "".join(character for character in spaced if unicodedata.category(character) not in _DROPPED)
    return " ".join(kept.split())


def escape_markdown(text: str) -> str:
    cleaned = clean_text(text)
    return "".join(f"\\{character}" if character in _MARKDOWN_SPECIAL else character for character in cleaned)


def format_count(count: int) -> str:
    return f"{count:,}"


def counted(count: int, thing: str) -> str:
    plural = thing + ("es" if thing.endswith("ss") else "s")
    return f"{format_count(count)} {thing if count == 1 else plural}"


def format_tokens(tokens: int) -> str:
    """999, 1.2k, 3.4M, 5.6B; rounding never shows 1000.0k."""
    if abs(tokens) < 1000:
        return str(tokens)
    scaled = float(tokens)
    for unit in ("k", "M", "B"):
        scaled /= 1000
        if abs(scaled) < 999.95:
            return f"{scaled:.1f}{unit}"
    return f"{scaled / 1000:,.1f}T"


def format_usd(usd: Decimal | None) -> str:
    """Cents, or four decimals below one cent; None is not zero and does not look like it."""
    if usd is None:
        return "unpriced"
    sign, size = ("-" if usd < 0 else ""), abs(usd)
    if size == 0:
        return "$0.00"
    if size < Decimal("0.0001"):
        return f"{sign}<$0.0001"
    step = Decimal("0.0001") if size < Decimal("0.01") else Decimal("0.01")
    return f"{sign}${size.quantize(step, ROUND_HALF_UP):,f}"


def format_percent(rate: float | None) -> str:
    """One decimal; 0.0% and 100.0% are kept for exactly none and exactly all."""
    if rate is None:
        return NOT_KNOWN
    if 0 < rate < 0.001:
        return "<0.1%"
    if 0.999 < rate < 1:
        return ">99.9%"
    return f"{rate * 100:.1f}%"


def plain_decimal(value: Decimal | None) -> str | None:
    """Exact, no exponent."""
    return None if value is None else format(value, "f")


def share(part: int | Decimal, whole: int | Decimal | None) -> float | None:
    return float(part) / float(whole) if whole else None


def zone_of(name: str) -> tzinfo:
    """The zone of that name; UTC where there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return UTC


def format_moment(moment: datetime | None, zone: tzinfo) -> str:
    """Date and minute in `zone`; "" for None. A time without a zone is UTC."""
    if moment is None:
        return ""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(zone).strftime("%Y-%m-%d %H:%M")

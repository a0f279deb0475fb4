"""What a model has cost and costs: its price periods, for `ccache prices`."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from analyzer.prices.listed import BAND_SAMPLE, EARLIEST, Rates, change_points, list_rates
from analyzer.prices.model_ids import parse_model_id
from analyzer.prices.overlay import overlay
from analyzer.prices.rates import modified


@dataclass(frozen=True, slots=True)
class PriceRow:
    """A period in which a model has one price, for one prompt band and one speed; `valid_until` is exclusive."""

    valid_from: datetime | None
    valid_until: datetime | None
    band: int
    speed: str
    rates: Rates
    source: str


def known_models() -> list[str]:
    """Every Claude model with a list price, by canonical id."""
    from genai_prices.data_snapshot import get_snapshot

    provider = next(provider for provider in get_snapshot().providers if provider.id == "anthropic")
    parsed = (parse_model_id(model.id) for model in provider.models)
    names = {model.canonical for model in parsed if model is not None and model.generation is not None}
    names |= set(overlay().alias)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return sorted(name for name in names if list_rates(name, now, 0, False) is not None)


def describe(model: str) -> list[PriceRow]:
    """The model's price history: one row per speed, band and period in which something differs."""
    parsed = parse_model_id(model)
    if parsed is None or parsed.generation is None:
        return []
    canonical = overlay().alias.get(parsed.canonical, parsed.canonical)
    starts = [None, *(change_points(canonical) or ())]
    found: list[PriceRow] = []
    for fast in (False, True):
        previous: list[PriceRow] = []
        for band in range(len(BAND_SAMPLE)):
            rows: list[PriceRow] = []
            for index, start in enumerate(starts):
                end = starts[index + 1] if index + 1 < len(starts) else None
                at = start or EARLIEST
                listed = list_rates(parsed.canonical, at, band, fast)
                standard = list_rates(parsed.canonical, at, band, False)
                if listed is None or standard is None or (fast and listed.input == standard.input):
                    continue
                rates = modified(listed, parsed, None, None)
                if rows and rows[-1].rates == rates and rows[-1].valid_until == start:
                    rows[-1] = replace(rows[-1], valid_until=end)
                else:
                    rows.append(PriceRow(start, end, band, "fast" if fast else "standard", rates, rates.source))
            same = [(row.valid_from, row.valid_until, row.rates) for row in previous]
            found += [row for row in rows if (row.valid_from, row.valid_until, row.rates) not in same]
            previous = rows
    return found

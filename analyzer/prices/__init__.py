"""Dated prices of Claude models, per request."""

from analyzer.prices.model_ids import is_regional, region_unknown
from analyzer.prices.rates import (
    PriceEntry,
    PriceRow,
    PriceTable,
    Rates,
    band_of,
    describe,
    known_models,
    load_price_file,
    min_cacheable_tokens,
    price_source,
    rates_for,
)

__all__ = [
    "PriceEntry",
    "PriceRow",
    "PriceTable",
    "Rates",
    "band_of",
    "describe",
    "is_regional",
    "known_models",
    "load_price_file",
    "min_cacheable_tokens",
    "price_source",
    "rates_for",
    "region_unknown",
]

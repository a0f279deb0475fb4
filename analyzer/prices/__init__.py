"""Dated prices of Claude models, per request."""

from analyzer.prices.history import PriceRow, describe, known_models
from analyzer.prices.listed import BAND_SAMPLE, Rates
from analyzer.prices.model_ids import is_regional, region_unknown
from analyzer.prices.price_file import PriceEntry, PriceTable, load_price_file
from analyzer.prices.rates import band_of, min_cacheable_tokens, price_signature, price_source, rates_for

__all__ = [
    "BAND_SAMPLE",
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
    "price_signature",
    "price_source",
    "rates_for",
    "region_unknown",
]

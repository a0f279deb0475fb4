"""`overlay.toml`: dated corrections and additions to the library's prices, typed."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from importlib import resources
from typing import Any

COLUMNS = ("input", "cache_read", "cache_creation_5m", "cache_creation_1h", "output")


@dataclass(frozen=True, slots=True)
class Period:
    model: str
    valid_from: datetime | None
    valid_until: datetime | None
    source: str
    values: Mapping[str, Decimal]
    speed: str = "standard"
    over: int = 0


@dataclass(frozen=True, slots=True)
class Overlay:
    as_of: str
    batch: Decimal
    geo_us: Decimal
    regional: Decimal
    regional_gov: Decimal
    web_search_usd: Decimal
    regional_since: tuple[int, int]
    regional_premium: frozenset[str]
    regional_gov_prefixes: frozenset[str]
    geo_models: frozenset[str]
    alias: Mapping[str, str]
    dated: tuple[Period, ...]
    fast: tuple[Period, ...]
    long_context: tuple[Period, ...]
    min_cacheable: Mapping[str, int]


def overlay_text() -> str:
    return resources.files("analyzer.prices").joinpath("overlay.toml").read_text("utf-8")


@lru_cache(maxsize=1)
def overlay() -> Overlay:
    raw = tomllib.loads(overlay_text())
    multipliers, regional = raw["multipliers"], raw["regional"]
    return Overlay(
        as_of=raw["as_of"],
        batch=Decimal(multipliers["batch"]),
        geo_us=Decimal(multipliers["inference_geo_us"]),
        regional=Decimal(multipliers["regional"]),
        regional_gov=Decimal(multipliers["regional_gov"]),
        web_search_usd=Decimal(multipliers["web_search_usd"]),
        regional_since=(regional["since"][0], regional["since"][1]),
        regional_premium=frozenset(regional["premium"]),
        regional_gov_prefixes=frozenset(regional["gov"]),
        geo_models=frozenset(raw["inference_geo"]["models"]),
        alias={row["model"]: row["as"] for row in raw["alias"]},
        dated=_periods(raw["dated"]),
        fast=_periods(raw["fast"]),
        long_context=_periods(raw["long_context"]),
        min_cacheable={model: row["tokens"] for row in raw["min_cacheable"] for model in row["models"]},
    )


def instant(value: object) -> datetime | None:
    """A TOML date, datetime or ISO string as an aware UTC instant; a bare date is its midnight."""
    if value is None:
        return None
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    raise ValueError(f"not a date: {value!r}")


def within(at: datetime, start: datetime | None, end: datetime | None) -> bool:
    return (start is None or at >= start) and (end is None or at < end)


def _periods(rows: Iterable[Mapping[str, Any]]) -> tuple[Period, ...]:
    names = (*COLUMNS, "input_x", "output_x")
    return tuple(
        Period(
            model=row["model"],
            valid_from=instant(row.get("from")),
            valid_until=instant(row.get("until")),
            source=row["source"],
            values={name: Decimal(row[name]) for name in names if name in row},
            speed=row.get("speed", "standard"),
            over=row.get("over", 0),
        )
        for row in rows
    )

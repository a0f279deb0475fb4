"""Prices: list rates agree with the library, and each modifier moves exactly what it should."""

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import PricesError
from analyzer.prices import (
    PriceTable,
    Rates,
    band_of,
    describe,
    is_regional,
    known_models,
    load_price_file,
    min_cacheable_tokens,
    price_source,
    rates_for,
    region_unknown,
)
from analyzer.prices.model_ids import parse_model_id

D = Decimal
COLUMNS = ("input", "cache_read", "cache_creation_5m", "cache_creation_1h", "output")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def maybe(model: str, when: str = "2026-11-01", **given: Any) -> Rates | None:
    arguments: dict[str, Any] = {"prompt_tokens": 0, "speed": None, "inference_geo": None, "service_tier": None}
    return rates_for(model, at(when), **{**arguments, **given})


def rate(model: str, when: str = "2026-11-01", **given: Any) -> Rates:
    found = maybe(model, when, **given)
    assert found is not None
    return found


def vector(rates: Rates) -> tuple[Decimal, ...]:
    return tuple(getattr(rates, name) for name in COLUMNS)


def usd(model: str, when: str, tokens: dict[str, int], **given: Any) -> Decimal:
    prompt = sum(count for name, count in tokens.items() if name != "output")
    rates = rate(model, when, prompt_tokens=prompt, **given)
    total = sum((getattr(rates, name) * count for name, count in tokens.items()), D(0))
    return total / 1_000_000


M = 1_000_000


@pytest.mark.parametrize(
    ("model", "when", "tokens", "given", "expected"),
    [
        ("claude-opus-5-5", "2026-11-01", {"cache_read": M}, {}, "0.2"),
        ("claude-opus-5-5[1m]", "2026-11-01", {"cache_creation_1h": M}, {}, "8"),
        ("claude-sonnet-5-5", "2026-09-30", {"cache_read": M}, {}, "0.2"),
        ("claude-sonnet-5-5", "2026-10-08", {"cache_read": M}, {}, "0.1"),
        ("claude-opus-4-7", "2026-06-01", {"input": 100_000}, {"speed": "fast"}, "3"),
        ("claude-opus-5", "2026-08-01", {"cache_read": M}, {"speed": "fast"}, "1"),
        ("claude-opus-4-5-20251101", "2026-01-01", {"input": 100_000}, {"service_tier": "batch"}, "0.25"),
        ("claude-opus-5-5", "2026-11-01", {"input": 100_000}, {"inference_geo": "us"}, "0.44"),
        ("claude-haiku-5-5", "2026-11-01", {"input": 1, "cache_read": 100_000}, {}, "0.0050005"),
        ("claude-opus-4-6", "2026-02-20", {"input": 250_000}, {}, "2.5"),
        ("claude-mythos-5-1", "2026-10-01", {"cache_read": M}, {}, "0.25"),
        ("global.anthropic.claude-opus-4-5-20251101-v1:0", "2026-10-01", {"input": 100_000}, {}, "0.5"),
        ("claude-opus-5", "2026-10-01", {"input": 100_000}, {}, "0.5"),
        ("claude-sonnet-4-5-20250929", "2026-01-01", {"input": 100_000, "output": 10_000}, {}, "0.45"),
    ],
)
def test_reference_prices(model: str, when: str, tokens: dict[str, int], given: dict[str, Any], expected: str) -> None:
    assert usd(model, when, tokens, **given) == D(expected)


@pytest.mark.parametrize(
    "model",
    ["<synthetic>", "claude-opus-9", "gpt-9", "", "claude-mythos-preview", "deepseek-v4-pro", "gpt-5", "claude-opus"],
)
def test_unknown_models_have_no_price(model: str) -> None:
    assert maybe(model) is None
    assert describe(model) == []


def test_a_longer_version_number_is_another_model() -> None:
    """The library matches by beginning: it would price a 4.10 as 4.1."""
    assert maybe("claude-opus-4-10") is None
    assert maybe("claude-opus-4-60") is None
    assert rate("claude-opus-4-1-20250805").input == 15


def _library_cost(model: str, when: str, reads: int, write_5m: int, write_1h: int, fresh: int, **context: str) -> D:
    from genai_prices import Usage, calc_price

    usage = Usage(
        input_tokens=fresh + reads + write_5m + write_1h,
        cache_read_tokens=reads,
        cache_write_tokens=write_5m + write_1h,
        cache_write_1h_tokens=write_1h,
        output_tokens=700,
    )
    stamp = at(when)
    return calc_price(
        usage, model, provider_id="anthropic", genai_request_timestamp=stamp, price_context=dict(context)
    ).total_price


ALIASES = {"claude-mythos-5", "claude-mythos-5-1"}
NATIVE = [model for model in known_models() if model not in ALIASES]


@pytest.mark.parametrize("model", NATIVE)
@pytest.mark.parametrize("when", ["2025-12-01", "2026-02-20", "2026-03-13", "2026-06-01", "2026-10-14", "2026-11-20"])
@pytest.mark.parametrize("reads", [0, 97_800, 97_801, 197_800, 197_801, 600_000])
def test_standard_requests_agree_with_the_library(model: str, when: str, reads: int) -> None:
    if model == "claude-sonnet-5-5" and when < "2026-10-07":
        pytest.skip("the overlay knows the earlier read price")
    if model == "claude-sonnet-4" and when < "2026-04-30" and reads > 197_800:
        pytest.skip("the overlay knows the long-context price")
    tokens = {"cache_read": reads, "cache_creation_5m": 1_000, "cache_creation_1h": 1_100, "input": 100, "output": 700}
    assert usd(model, when, tokens) == _library_cost(model, when, reads, 1_000, 1_100, 100)


@pytest.mark.parametrize("model", NATIVE)
def test_batch_and_fast_agree_with_the_library_where_it_has_them(model: str) -> None:
    from genai_prices.data_snapshot import get_snapshot

    _, info = get_snapshot().find_provider_model(model, None, "anthropic", None)
    tokens = {"cache_read": 9_000, "cache_creation_5m": 1_000, "cache_creation_1h": 500, "input": 100, "output": 700}
    whens = [variant.when for variant in info.price_variants or ()]
    if {"processing": "batch"} in whens:
        expected = _library_cost(model, "2026-11-20", 9_000, 1_000, 500, 100, processing="batch")
        assert usd(model, "2026-11-20", tokens, service_tier="batch") == expected
    if {"speed": "fast"} in whens:
        expected = _library_cost(model, "2026-11-20", 9_000, 1_000, 500, 100, speed="fast")
        assert usd(model, "2026-11-20", tokens, speed="fast") == expected


def test_every_tier_of_the_library_starts_at_a_band() -> None:
    from genai_prices.data_snapshot import get_snapshot
    from genai_prices.types import ConditionalPrice, TieredPrices

    provider = next(provider for provider in get_snapshot().providers if provider.id == "anthropic")
    starts = set()
    for model in provider.models:
        listed = model.prices if isinstance(model.prices, list) else [ConditionalPrice(prices=model.prices)]
        for price in (row.prices for row in listed):
            for name in ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok"):
                value = getattr(price, name)
                if isinstance(value, TieredPrices):
                    starts |= {tier.start for tier in value.tiers}
    assert starts == {100_000, 200_000}


def test_bands() -> None:
    assert [band_of(n) for n in (0, 100_000, 100_001, 200_000, 200_001)] == [0, 0, 1, 1, 2]


def test_a_band_prices_the_whole_request_output_included() -> None:
    assert rate("claude-haiku-5-5", prompt_tokens=100_000).output == D("0.5")
    assert vector(rate("claude-haiku-5-5", prompt_tokens=100_001)) == tuple(
        map(D, ("0.5", "0.05", "0.625", "1", "2.5"))
    )


def test_long_context_of_sonnet_4_has_a_beginning_and_an_end() -> None:
    long = {"prompt_tokens": 200_001}
    assert vector(rate("claude-sonnet-4", "2025-09-01", **long)) == tuple(map(D, ("6", "0.6", "7.5", "12", "22.5")))
    assert rate("claude-sonnet-4", "2025-08-11", **long).input == 3
    assert rate("claude-sonnet-4", "2026-04-30", **long).input == 3
    assert rate("claude-sonnet-4", "2025-09-01", prompt_tokens=200_000).input == 3


def test_long_context_of_the_4_6_generation_ended_in_march() -> None:
    assert rate("claude-sonnet-4-6", "2026-03-12T23:00", prompt_tokens=200_001).output == D("22.5")
    assert rate("claude-sonnet-4-6", "2026-03-13", prompt_tokens=200_001).output == 15


def test_the_read_cut_happens_at_midnight_utc() -> None:
    assert rate("claude-sonnet-5-5", "2026-10-06T23:59:59").cache_read == D("0.2")
    assert rate("claude-sonnet-5-5", "2026-10-07").cache_read == D("0.1")


@pytest.mark.parametrize(
    ("when", "prompt", "expected"),
    [
        ("2026-01-01", 0, ("15", "1.5", "18.75", "30", "75")),
        ("2026-02-10", 0, ("15", "1.5", "18.75", "30", "75")),
        ("2026-02-17T07:59", 0, ("15", "1.5", "18.75", "30", "75")),
        ("2026-02-17T08:00", 0, ("30", "3", "37.5", "60", "150")),
        ("2026-03-01", 200_000, ("30", "3", "37.5", "60", "150")),
        ("2026-03-01", 200_001, ("60", "6", "75", "120", "225")),
        ("2026-03-13", 200_001, ("30", "3", "37.5", "60", "150")),
        ("2026-11-01", 0, ("30", "3", "37.5", "60", "150")),
    ],
)
def test_fast_mode_of_opus_4_6(when: str, prompt: int, expected: tuple[str, ...]) -> None:
    assert vector(rate("claude-opus-4-6", when, prompt_tokens=prompt, speed="fast")) == tuple(map(D, expected))


def test_fast_after_its_end_keeps_the_last_fast_rate() -> None:
    assert rate("claude-opus-4-7", "2026-11-01", speed="fast").input == 30
    assert rate("claude-opus-4-8", "2026-12-15", speed="fast").input == 10


def test_fast_on_a_model_without_a_fast_rate_says_so() -> None:
    found = rate("claude-sonnet-4-6", speed="fast")
    assert vector(found) == vector(rate("claude-sonnet-4-6"))
    assert "no fast rate" in found.source


def test_fast_keeps_the_price_of_a_search() -> None:
    assert rate("claude-opus-5", speed="fast").web_search_usd == D("0.01")


@pytest.mark.parametrize("region", ["us", "eu", "jp", "au", "apac"])
def test_regional_premium_from_4_5_on(region: str) -> None:
    name = f"{region}.anthropic.claude-sonnet-4-5-20250929-v1:0"
    base = rate("claude-sonnet-4-5")
    assert vector(rate(name)) == tuple(value * D("1.1") for value in vector(base))
    assert rate(name).web_search_usd == base.web_search_usd
    assert rate(f"{region}.anthropic.claude-opus-4-1-20250805-v1:0").input == 15


def test_govcloud_costs_a_fifth_more() -> None:
    assert rate("us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0").input == D("3.6")


def test_global_and_bare_bedrock_ids_cost_the_base_rate() -> None:
    for name in ("global.anthropic.claude-opus-4-6-v1", "anthropic.claude-opus-4-6-v1:0", "claude-opus-4-6@default"):
        assert vector(rate(name)) == vector(rate("claude-opus-4-6"))


def test_us_geography_only_on_first_party_ids_of_4_6_and_later() -> None:
    us = {"inference_geo": "us"}
    for model in known_models():
        parsed = parse_model_id(model)
        assert parsed is not None
        assert parsed.generation is not None
        factor = D("1.1") if parsed.generation >= (4, 6) else D(1)
        assert vector(rate(model, **us)) == tuple(value * factor for value in vector(rate(model))), model
    assert rate("us.anthropic.claude-opus-4-6-v1", **us).input == D("5.5")
    assert rate("global.anthropic.claude-opus-4-6-v1", **us).input == 5
    assert rate("anthropic.claude-opus-4-6-v1", **us).input == 5
    assert rate("claude-opus-4-6@default", **us).input == 5
    for geo in ("global", "not_available", "", None):
        assert rate("claude-opus-4-6", inference_geo=geo).input == 5


def test_batch_halves_tokens_but_not_searches_and_stacks() -> None:
    found = rate("claude-opus-5-5", service_tier="batch", inference_geo="us")
    assert vector(found) == tuple(value * D("0.55") for value in vector(rate("claude-opus-5-5")))
    assert found.web_search_usd == D("0.01")


def test_priority_is_priced_at_list() -> None:
    assert vector(rate("claude-opus-5", service_tier="priority")) == vector(rate("claude-opus-5"))


@pytest.mark.parametrize(
    ("name", "same_as"),
    [
        ("claude-3-sonnet-20240229", "claude-3-sonnet"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
        ("claude-opus-4-0", "claude-opus-4"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("claude-sonnet-5[1m]", "claude-sonnet-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet"),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/global.anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
        ("claude-mythos-5", "claude-fable-5"),
    ],
)
def test_spellings_of_one_model(name: str, same_as: str) -> None:
    assert rate(name) == rate(same_as)


def test_regions_that_ids_name() -> None:
    assert is_regional("us.anthropic.claude-opus-4-6-v1")
    assert is_regional("global.anthropic.claude-opus-4-6-v1")
    assert not is_regional("claude-opus-4-6")
    assert not is_regional("gpt-5")
    assert region_unknown("msg_bdrk_01abc")
    assert not region_unknown("msg_01abc")
    assert region_unknown("anthropic.claude-opus-4-6-v1")
    assert not region_unknown("eu.anthropic.claude-opus-4-6-v1")


def test_haiku_3_does_not_follow_the_usual_multipliers() -> None:
    assert vector(rate("claude-3-haiku-20240307")) == tuple(map(D, ("0.25", "0.03", "0.3", "0.5", "1.25")))


def test_naive_times_are_refused_and_zones_are_converted() -> None:
    ask: dict[str, Any] = {"prompt_tokens": 0, "speed": None, "inference_geo": None, "service_tier": None}
    with pytest.raises(ValueError, match="aware"):
        rates_for("claude-opus-5", datetime(2026, 11, 1), **ask)
    found = rates_for("claude-sonnet-5-5", datetime.fromisoformat("2026-10-07T01:00:00+02:00"), **ask)
    assert found is not None
    assert found.cache_read == D("0.2")


def test_importing_prices_leaves_the_library_alone() -> None:
    code = "import analyzer.prices as p, sys; p.price_source(); p.band_of(1); assert 'genai_prices' not in sys.modules"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_price_source_names_version_and_date() -> None:
    from importlib.metadata import version

    assert price_source() == (f"genai-prices {version('genai-prices')} bundled snapshot + overlay", "2026-11-29")


def test_minimum_cacheable_length_is_known_for_every_priced_model() -> None:
    assert {model for model in known_models() if min_cacheable_tokens(model) is None} == set()
    assert min_cacheable_tokens("us.anthropic.claude-opus-4-6-v1") == 4096
    assert min_cacheable_tokens("gpt-5") is None


def test_description_is_dated() -> None:
    reads = [(row.valid_until, row.rates.cache_read) for row in describe("claude-sonnet-5-5")]
    assert reads == [(at("2026-10-07"), D("0.2")), (None, D("0.1"))]
    haiku = [(row.band, row.rates.input) for row in describe("claude-haiku-5-5")]
    assert haiku == [(0, D("0.1")), (1, D("0.5"))]
    fast = [row.rates.input for row in describe("claude-opus-4-6") if row.speed == "fast" and row.band == 0]
    assert fast == [15, 30]
    assert {row.speed for row in describe("claude-opus-5")} == {"standard", "fast"}
    assert all(describe(model) for model in known_models())


ENTRY = 'model = "{model}"\ninput = 1.1\noutput = "5"\ncache_read = 0.1\ncache_creation_5m = 1\ncache_creation_1h = 2\n'


def table(tmp_path: Path, *bodies: str) -> PriceTable:
    file = tmp_path / "prices.toml"
    file.write_text("".join(f"[[rates]]\n{body}\n" for body in bodies))
    return load_price_file(file)


def test_own_prices_replace_list_prices_within_their_dates(tmp_path: Path) -> None:
    opus = ENTRY.format(model="claude-opus-4-6") + "from = 2026-06-01\nuntil = 2026-07-01\n"
    own = table(tmp_path, opus, ENTRY.format(model="deepseek-v4-pro"))
    assert vector(rate("claude-opus-4-6", "2026-06-15", overrides=own)) == tuple(map(D, ("1.1", "0.1", "1", "2", "5")))
    assert rate("claude-opus-4-6", "2026-07-01", overrides=own).input == 5
    assert rate("claude-opus-4-6", "2026-05-31T23:59", overrides=own).input == 5
    assert rate("deepseek-v4-pro", overrides=own).source == "price file prices.toml"
    assert rate("claude-opus-4-6", "2026-06-15", overrides=own, service_tier="batch").input == D("0.55")
    assert rate("us.anthropic.claude-opus-4-6-v1", "2026-06-15", overrides=own).input == D("1.21")
    assert rate("claude-opus-4-6", "2026-06-15", overrides=own, speed="fast").input == D("6.6")


def test_the_last_matching_entry_of_a_price_file_wins(tmp_path: Path) -> None:
    first = ENTRY.format(model="claude-mythos-preview")
    own = table(tmp_path, first, first.replace("1.1", "25"))
    assert rate("claude-mythos-preview", overrides=own).input == 25


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("rates = 1", "no [[rates]]"),
        ("[[rates", "not valid TOML"),
        ('[[rates]]\nmodel = "x"', "missing input"),
        ("[[rates]]\n" + ENTRY.format(model="x") + "colour = 1", "unknown key colour"),
        ("[[rates]]\n" + ENTRY.format(model="x").replace("1.1", "-1"), "input is not a price"),
        ("[[rates]]\n" + ENTRY.format(model="x").replace("1.1", "nan"), "input is not a price"),
        ("[[rates]]\n" + ENTRY.format(model="x").replace("1.1", "true"), "input is not a price"),
        ("[[rates]]\n" + ENTRY.format(model="x") + 'from = "soon"', "soon"),
        ("[[rates]]\n" + ENTRY.format(model="x") + "from = 2026-02-01\nuntil = 2026-01-01", "not before"),
        ("[[rates]]\n" + ENTRY.format(model=""), "model is not a name"),
    ],
)
def test_a_bad_price_file_is_one_clear_error(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(PricesError) as caught:
        load_price_file(file)
    assert part in caught.value.message
    assert caught.value.hint


def test_a_missing_price_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(PricesError, match="none"):
        load_price_file(tmp_path / "none.toml")

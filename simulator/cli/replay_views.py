"""A replay as JSON, as a table and as a chart of characters."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simulator.replay.results import Replay, ReplayedRequest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from simulator.trace import Usage

Dollars = Mapping[str, str | None]
"""Cost in USD by what was priced (`logged`, `policy`, `engine`, `without_cache`); None where a price is not known."""

_ROWS = 40


def as_json(replay: Replay, dollars: Dollars | None) -> dict[str, Any]:
    totals = replay.totals
    return {
        "scale": replay.scale,
        "policy": replay.policy,
        "window": replay.window,
        "block_size": replay.block_size,
        "capacity_bytes": replay.budget_bytes,
        "requests": [_row_json(row) for row in replay.requests],
        "totals": {
            "requests": totals.requests,
            "prompt_tokens": totals.prompt_tokens,
            "logged_read_tokens": totals.logged_read_tokens,
            "policy_read_tokens": totals.policy_read_tokens,
            "policy_creation_tokens": totals.policy_creation_tokens,
            "reused_tokens": totals.reused_tokens,
            "computed_tokens": totals.computed_tokens,
            "below_resolution_tokens": totals.below_resolution_tokens,
            "prefill_s": totals.prefill_s,
            "prefill_uncached_s": totals.prefill_uncached_s,
            "speedup": totals.speedup,
            "prefill_ratio": totals.prefill_ratio,
            "measured": totals.measured,
            "verified": totals.verified,
            "mismatched": totals.mismatched,
            "kv_bytes": totals.kv_bytes,
            "peak_bytes": totals.peak_bytes,
            "reordered": replay.reordered,
            "cost_usd": None if dollars is None else dict(dollars),
        },
    }


def _row_json(row: ReplayedRequest) -> dict[str, Any]:
    return {
        "message_id": row.request_id,
        "chain": row.chain,
        "gap_s": row.gap_s,
        "prompt_tokens": row.prompt_tokens,
        "logged": None if row.logged is None else _usage_json(row.logged),
        "policy": _usage_json(row.policy),
        "engine": {
            "reused_tokens": row.reused_tokens,
            "computed_tokens": row.computed_tokens,
            "expected_reused_tokens": row.expected_reused_tokens,
            "restored_tokens": row.restored_tokens,
            "prefill_s": row.prefill_s,
            "assemble_s": row.assemble_s,
            "prefill_uncached_s": row.prefill_uncached_s,
            "measured": row.measured,
            "verified": row.verified,
        },
        "below_resolution_tokens": row.below_resolution_tokens,
        "kv_bytes": row.kv_bytes,
    }


def _usage_json(usage: "Usage") -> dict[str, int]:
    return {
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_creation_tokens": usage.cache_creation_tokens,
    }


def show(replay: Replay, console: "Console", dollars: Dollars | None) -> None:
    """Heading, one line per request, chart, totals. Narrow terminals get fewer columns, never cut numbers."""
    console.print(heading(replay))
    console.print()
    console.print(_table(replay, console.width, console.options.ascii_only))
    hidden = len(replay.requests) - _ROWS
    if hidden > 0:
        console.print(f"and {hidden} more; --json lists every request", style="dim")
    console.print()
    for line in _chart(replay.requests, console.width, console.options.ascii_only):
        console.print(line)
    console.print()
    show_totals(replay, console, dollars)


def heading(replay: Replay) -> str:
    capacity = "no capacity limit" if replay.budget_bytes is None else f"at most {size(replay.budget_bytes)} of K/V"
    scale = "at full size" if replay.scale == 1 else f"1 model token for {replay.scale:.2f} real ones"
    return (
        f"policy {replay.policy}, {scale} (window {replay.window:,}), blocks of {replay.block_size} tokens, {capacity}"
    )


def show_totals(replay: Replay, console: "Console", dollars: Dollars | None) -> None:
    from simulator.cli.rendering import pairs

    totals = replay.totals
    prompt = max(1, totals.prompt_tokens)
    rows = [("requests", f"{totals.requests:,}" + (f", {replay.reordered} out of order" if replay.reordered else ""))]
    if totals.logged_read_tokens is not None:
        rows.append(("logged", f"{share(totals.logged_read_tokens, prompt)} of prompt tokens read from the cache"))
    rows.append(("policy predicts", f"{share(totals.policy_read_tokens, prompt)} read"))
    model_tokens = totals.reused_tokens + totals.computed_tokens
    rows.append(
        (
            "engine",
            f"{share(totals.reused_tokens, max(1, model_tokens))} reused: {totals.reused_tokens:,} of {model_tokens:,} "
            f"model tokens, {totals.computed_tokens:,} computed",
        )
    )
    if totals.below_resolution_tokens:
        note = f"{totals.below_resolution_tokens:,} real tokens read fill no whole block of the model's cache"
        rows.append(("below resolution", note))
    times = f"{clock(totals.prefill_s)} with the cache, {clock(totals.prefill_uncached_s)} without"
    if totals.speedup is not None:
        times += f": {totals.speedup:.1f} times as fast"
    rows.append(("prefill", times))
    rows.append(("measured", f"{totals.measured} of {totals.requests} times without cache; ~ marks modelled ones"))
    if totals.verified or totals.mismatched:
        rows.append(("verified", f"{totals.verified} equal bit for bit, {totals.mismatched} not"))
    rows.append(("K/V held", f"{size(totals.kv_bytes)} at most, {size(totals.peak_bytes)} with the running request"))
    for name, amount in (dollars or {}).items():
        rows.append((f"cost, {name.replace('_', ' ')}", "no price known" if amount is None else usd(amount)))
    console.print(pairs(rows))


def show_comparison(replays: Sequence[Replay], costs: Sequence[Dollars | None], console: "Console") -> None:
    """Two policies over one trace, figure by figure."""
    from simulator.cli.rendering import table

    console.print(f"{replays[0].totals.requests:,} requests, {heading(replays[0]).partition(', ')[2]}")
    console.print()
    drawn = table("", *(replay.policy for replay in replays), right=tuple(range(1, len(replays) + 1)))
    totals = [replay.totals for replay in replays]
    drawn.add_row("read, predicted", *(share(t.policy_read_tokens, max(1, t.prompt_tokens)) for t in totals))
    drawn.add_row("tokens reused", *(f"{t.reused_tokens:,}" for t in totals))
    drawn.add_row("tokens computed", *(f"{t.computed_tokens:,}" for t in totals))
    drawn.add_row("prefill", *(clock(t.prefill_s) for t in totals))
    drawn.add_row("prefill without cache", *(clock(t.prefill_uncached_s) for t in totals))
    drawn.add_row("K/V held, at most", *(size(t.kv_bytes) for t in totals))
    if any(cost is not None for cost in costs):
        amounts = [(cost or {}).get("policy") for cost in costs]
        drawn.add_row("cost, predicted", *("no price known" if a is None else usd(a) for a in amounts))
    console.print(drawn)


def _table(replay: Replay, width: int, ascii_only: bool) -> Any:
    from simulator.cli.rendering import table

    logged = any(row.logged is not None for row in replay.requests)
    columns = ["#", "gap", "prompt"]
    columns += ["logged read", "write"] if logged and width >= 100 else ["logged read"] if logged else []
    columns += ["policy read", "write"] if width >= 100 else ["policy read"]
    columns += ["reused", "computed", "prefill", "without"]
    columns += ["K/V"] if width >= 90 else []
    drawn = table(*columns, right=tuple(range(len(columns))))
    for number, row in enumerate(replay.requests[:_ROWS], 1):
        cells = [str(number), gap(row.gap_s), short(row.prompt_tokens)]
        if logged:
            cells += _billed(row.logged, width)
        cells += _billed(row.policy, width)
        reused = f"{row.reused_tokens:,}"
        if not row.reused_tokens and row.below_resolution_tokens:
            reused = f"<{replay.block_size}"
        wrong = "" if row.verified is not False else " !"
        cells += [reused, f"{row.computed_tokens:,}{wrong}", clock(row.prefill_s)]
        cells.append(("" if row.measured else "~") + clock(row.prefill_uncached_s))
        cells += [size(row.kv_bytes)] if width >= 90 else []
        drawn.add_row(*cells)
    return drawn


def _billed(usage: "Usage | None", width: int) -> list[str]:
    if usage is None:
        return ["-", "-"] if width >= 100 else ["-"]
    read, write = short(usage.cache_read_tokens), short(usage.cache_creation_tokens)
    return [read, write] if width >= 100 else [read]


def _chart(rows: Sequence[ReplayedRequest], width: int, ascii_only: bool, height: int = 8) -> "list[Text]":
    """Prefill time per request: solid with the cache, shaded what it would take without."""
    from rich.text import Text

    room = max(10, width - 10)
    count = min(room, len(rows))
    groups = [rows[at * len(rows) // count : (at + 1) * len(rows) // count] for at in range(count)]
    bar = max(1, min(4, room // count - 1))
    without = [max(row.prefill_uncached_s for row in group) for group in groups]
    cached = [max(row.prefill_s for row in group) for group in groups]
    top = max(*without, *cached, 1e-9)
    solid, shade = ("#", ".") if ascii_only else ("█", "░")
    lines = [Text("prefill per request: solid with the cache, shaded without", "dim")]
    for level in reversed(range(height)):
        mark = clock(top) if level == height - 1 else "0" if level == 0 else ""
        line = Text(f"{mark:>8} ", "dim")
        for low, high in zip(cached, without, strict=True):
            filled = low / top * height > level + (0.5 if level else 0)
            under = high / top * height > level + (0.5 if level else 0)
            line.append((solid if filled else shade if under else " ") * bar, "cyan" if filled else "dim")
            line.append(" " if bar > 1 or count <= room // 2 else "")
        lines.append(line)
    return lines


def clock(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"


def usd(amount: str) -> str:
    """Cents from a dollar on, below it as many digits as tell something."""
    value = float(amount)
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def gap(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def short(tokens: int) -> str:
    return f"{tokens:,}" if tokens < 10_000 else f"{tokens / 1000:,.1f}K" if tokens < 10**6 else f"{tokens / 1e6:,.1f}M"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def size(count: int) -> str:
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count} B"

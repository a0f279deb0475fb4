"""The experiments as tables, charts of characters and chart files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.cli.replay_views import clock, share, size, usd

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.experiments.breaking import Breaks
    from simulator.experiments.spawning import SpawnOutcome
    from simulator.experiments.sweep import SweepCell
    from simulator.replay.results import Replay

LogRow = tuple[str, int, int, int]
"""Verdict on a subagent's first request, subagents, tokens they read, tokens of their prompts."""


def breaks_json(found: "Breaks", costs: Sequence[str | None], real_tokens: int, model: str) -> dict[str, Any]:
    """`costs` has one item a break, in the order of `found.breaks`, for a prompt of `real_tokens`."""
    return {
        "tokens": found.tokens,
        "block_size": found.block_size,
        "real_tokens": real_tokens,
        "price_model": model,
        "cold_prefill_s": found.cold_s,
        "unchanged": {"reused_tokens": found.unchanged.reused_tokens, "prefill_s": found.unchanged.prefill_s},
        "breaks": [
            {
                "kind": each.kind,
                "position": each.position,
                "reused_tokens": each.reused_tokens,
                "computed_tokens": each.computed_tokens,
                "prefill_s": each.prefill_s,
                "cost_usd": cost,
            }
            for each, cost in zip(found.breaks, costs, strict=True)
        ],
    }


def show_breaks(found: "Breaks", costs: Sequence[str | None], real_tokens: int, model: str, console: "Console") -> None:
    from rich.text import Text

    from simulator.cli.rendering import table
    from simulator.experiments.breaking import BREAK_MEANINGS

    console.print(
        f"A cached prompt of {found.tokens:,} tokens: {clock(found.cold_s)} from nothing, "
        f"{clock(found.unchanged.prefill_s)} asked again unchanged"
    )
    solid, shade = ("#", ".") if console.options.ascii_only else ("█", "░")
    room = max(8, min(40, console.width - 58))
    for kind, meaning in BREAK_MEANINGS.items():
        rows = [(each, cost) for each, cost in zip(found.breaks, costs, strict=True) if each.kind == kind]
        if not rows:
            continue
        console.print()
        console.print(f"{meaning} at", style="bold")
        drawn = table("position", "reused", "computed", "prefill", "cost", "", right=(0, 1, 2, 3, 4))
        for each, cost in rows:
            filled = round(room * each.reused_tokens / each.tokens)
            bar = Text(solid * filled, "cyan") + Text(shade * (room - filled), "dim")
            price = "-" if cost is None else usd(cost)
            cells = (
                f"{each.position:,}",
                f"{each.reused_tokens:,}",
                f"{each.computed_tokens:,}",
                clock(each.prefill_s),
            )
            drawn.add_row(*cells, price, bar)
        console.print(drawn)
    console.print()
    console.print(
        f"cost: a prompt of {real_tokens:,} tokens of {model}, reused part read, the rest written for 5 minutes"
    )


def write_breaks_chart(found: "Breaks", path: Path) -> None:
    rows = [
        {"position": each.position, "value": value, "change": each.kind, "what": what}
        for each in found.breaks
        for what, value in (("reused tokens", each.reused_tokens), ("prefill seconds", each.prefill_s))
    ]
    _panels(rows, "what", ("reused tokens", "prefill seconds"), "position", "change", "position of the change", path)


def spawns_json(outcomes: "Sequence[SpawnOutcome]", logged: Sequence[LogRow] | None) -> dict[str, Any]:
    return {
        "kinds": [
            {
                "kind": outcome.kind,
                "scale": outcome.scale,
                "children": [
                    {
                        "policy_read_tokens": row.policy.cache_read_tokens,
                        "prompt_tokens": row.prompt_tokens,
                        "reused_tokens": row.reused_tokens,
                        "computed_tokens": row.computed_tokens,
                        "prefill_s": row.prefill_s,
                        "prefill_uncached_s": row.prefill_uncached_s,
                        "measured": row.measured,
                    }
                    for row in outcome.children
                ],
            }
            for outcome in outcomes
        ],
        "logged": None
        if logged is None
        else [
            {"verdict": verdict, "subagents": count, "first_read_tokens": read, "first_prompt_tokens": prompt}
            for verdict, count, read, prompt in logged
        ],
    }


def show_spawns(outcomes: "Sequence[SpawnOutcome]", logged: Sequence[LogRow] | None, console: "Console") -> None:
    from simulator.cli.rendering import table
    from simulator.experiments.spawning import SPAWN_MEANINGS

    for outcome in outcomes:
        console.print(f"{outcome.kind}: {SPAWN_MEANINGS[outcome.kind]}", style="bold")
        drawn = table(
            "child", "prompt", "policy read", "reused", "computed", "prefill", "without", right=tuple(range(7))
        )
        for number, row in enumerate(outcome.children, 1):
            mark = "" if row.measured else "~"
            drawn.add_row(
                str(number),
                f"{row.prompt_tokens:,}",
                f"{row.policy.cache_read_tokens:,}",
                f"{row.reused_tokens:,}",
                f"{row.computed_tokens:,}",
                clock(row.prefill_s),
                mark + clock(row.prefill_uncached_s),
            )
        console.print(drawn)
        console.print()
    console.print(
        f"prompt and policy read in real tokens, reused and computed in model tokens (1 for {outcomes[0].scale:.1f})",
        style="dim",
    )
    if logged is None:
        return
    console.print()
    console.print("your logs, first request of each subagent", style="bold")
    if not logged:
        console.print("no subagents")
        return
    drawn = table("verdict", "subagents", "of their prompt read", right=(1, 2))
    for verdict, count, read, prompt in logged:
        drawn.add_row(verdict, f"{count:,}", share(read, max(1, prompt)))
    console.print(drawn)


def sweep_json(cells: "Sequence[SweepCell]", costs: Sequence[str | None]) -> dict[str, Any]:
    return {
        "cells": [
            {
                "policy": cell.policy,
                "capacity_bytes": cell.capacity_bytes,
                "requests": cell.requests,
                "prompt_tokens": cell.prompt_tokens,
                "read_tokens": cell.read_tokens,
                "hit_rate": cell.hit_rate,
                "cost_usd": cost,
            }
            for cell, cost in zip(cells, costs, strict=True)
        ]
    }


def show_sweep(cells: "Sequence[SweepCell]", costs: Sequence[str | None], console: "Console") -> None:
    """Hit rate with a bar, and dollars: one block of lines a policy."""
    from rich.text import Text

    from simulator.cli.rendering import table

    solid = "#" if console.options.ascii_only else "█"
    room = max(8, min(40, console.width - 48))
    console.print(f"{cells[0].requests:,} requests, {cells[0].prompt_tokens:,} prompt tokens")
    console.print()
    drawn = table("policy", "capacity", "hit rate", "cost", "", right=(1, 2, 3))
    for cell, cost in zip(cells, costs, strict=True):
        capacity = "unbounded" if cell.capacity_bytes is None else size(cell.capacity_bytes)
        bar = Text(solid * round(room * cell.hit_rate), "cyan")
        drawn.add_row(cell.policy, capacity, f"{100 * cell.hit_rate:.2f} %", "-" if cost is None else usd(cost), bar)
    console.print(drawn)


def show_tensor_sweep(cells: "Sequence[tuple[SweepCell, Replay]]", console: "Console") -> None:
    from simulator.cli.rendering import table

    scale = cells[0][1].scale
    console.print(f"on real tensors, 1 model token for {scale:.1f} real ones", style="bold")
    drawn = table("policy", "capacity", "hit rate", "reused", "computed", "prefill", right=(1, 2, 3, 4, 5))
    for cell, replay in cells:
        totals = replay.totals
        capacity = "unbounded" if replay.budget_bytes is None else size(replay.budget_bytes)
        rate = share(totals.reused_tokens, max(1, totals.reused_tokens + totals.computed_tokens))
        counts = f"{totals.reused_tokens:,}", f"{totals.computed_tokens:,}"
        drawn.add_row(cell.policy, capacity, rate, *counts, clock(totals.prefill_s))
    console.print(drawn)


def tensor_sweep_json(cells: "Sequence[tuple[SweepCell, Replay]]") -> list[dict[str, Any]]:
    """The same cells on the tensor engine, in model tokens."""
    return [
        {
            "policy": cell.policy,
            "capacity_bytes": cell.capacity_bytes,
            "reused_tokens": replay.totals.reused_tokens,
            "computed_tokens": replay.totals.computed_tokens,
            "prefill_s": replay.totals.prefill_s,
            "kv_bytes": replay.totals.kv_bytes,
        }
        for cell, replay in cells
    ]


def write_sweep_chart(cells: "Sequence[SweepCell]", path: Path) -> None:
    largest = max((cell.capacity_bytes or 0 for cell in cells), default=0)
    rows = [
        {
            "capacity": (cell.capacity_bytes if cell.capacity_bytes is not None else 2 * largest or 1) / 1024**2,
            "value": cell.hit_rate,
            "policy": cell.policy,
            "what": "hit rate",
        }
        for cell in cells
    ]
    _panels(rows, "what", ("hit rate",), "capacity", "policy", "capacity in MiB (rightmost: unbounded)", path, log=True)


def _panels(
    rows: Sequence[Mapping[str, Any]],
    by: str,
    names: Sequence[str],
    x: str,
    series: str,
    label: str,
    path: Path,
    log: bool = False,
) -> None:
    import altair

    scale = altair.Scale(type="log") if log else altair.Undefined
    panels: list[Any] = [
        altair.Chart(altair.Data(values=[row for row in rows if row[by] == name]))
        .mark_line(point=True)
        .encode(
            x=altair.X(f"{x}:Q", title=label, scale=scale),
            y=altair.Y("value:Q", title=name),
            color=altair.Color(f"{series}:N", title=series),
        )
        .properties(width=640, height=220)
        for name in names
    ]
    from simulator.cli.replay_chart import save

    save(altair.vconcat(*panels), path)

"""`ccache simulate break`, `subagents` and `sweep`: experiments on the cache, with dollars."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analyzer.cli import options

if TYPE_CHECKING:
    from simulator.cli.experiment_views import LogRow
    from simulator.experiments.breaking import Breaks
    from simulator.experiments.sweep import SweepCell
    from simulator.replay.results import Replay
    from simulator.trace import Request

PriceModelOption = Annotated[str, typer.Option("--price-model", help="Whose prices the dollars are at.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", help="Write the chart as .png or .svg.", show_default=False)
]
LocalModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Model folder or name (see `simulate model`).",
        envvar="CLAUDE_CCACHE_MODEL",
        show_default=False,
    ),
]


def break_(
    tokens: Annotated[int, typer.Option("--tokens", min=40, help="Model tokens of the prompt.")] = 1024,
    points: Annotated[int, typer.Option("--points", min=2, help="Positions tried for each change.")] = 9,
    change: Annotated[
        list[str] | None,
        typer.Option("--change", help="Only timestamp, tools or token; can be repeated.", show_default=False),
    ] = None,
    real_tokens: Annotated[
        int, typer.Option("--real-tokens", min=1, help="Prompt size the dollars are for.")
    ] = 100_000,
    price_model: PriceModelOption = "claude-sonnet-4-5",
    output: OutputOption = None,
    model: LocalModelOption = None,
    json: options.JsonOption = False,
) -> None:
    """Change one thing in a cached prompt: what is reused, computed and paid, by where the change is."""
    from analyzer.errors import UsageError
    from simulator.runtime import require_torch

    require_torch()
    from simulator.cli import experiment_views, rendering, replaying
    from simulator.cli.growth_chart import check_target
    from simulator.experiments.breaking import BREAK_KINDS, break_positions, break_prompts

    unknown = set(change or ()) - set(BREAK_KINDS)
    if unknown:
        raise UsageError(f"no change {unknown.pop()!r}", f"one of {', '.join(BREAK_KINDS)}")
    if output is not None:
        check_target(output)
    forward = replaying.load_forward(model)
    kinds = [kind for kind in BREAK_KINDS if change is None or kind in change]
    runs = 2 + sum(len(break_positions(kind, tokens, points)) for kind in kinds)
    with replaying.progress_bar("changing the prompt", runs) as progress:
        found = break_prompts(forward, tokens=tokens, points=points, kinds=kinds, progress=progress)
    costs = _break_costs(found, real_tokens, price_model)
    if output is not None:
        experiment_views.write_breaks_chart(found, output)
        rendering.note(f"chart written to {output}")
    if json:
        rendering.print_json(experiment_views.breaks_json(found, costs, real_tokens, price_model))
    else:
        experiment_views.show_breaks(found, costs, real_tokens, price_model, rendering.output())


def subagents(
    paths: options.Paths = None,
    children: Annotated[int, typer.Option("--children", min=1, max=64, help="Subagents of one parent.")] = 3,
    window: Annotated[int, typer.Option("--window", min=64, help="Model tokens for the longest prompt.")] = 2048,
    logs: Annotated[bool, typer.Option("--logs/--no-logs", help="Lay your own logs beside it.")] = True,
    model: LocalModelOption = None,
    db: options.DbOption = None,
    no_ingest: options.NoIngestOption = False,
    json: options.JsonOption = False,
) -> None:
    """A parent and its subagents on real tensors, four ways, beside what your own logs show."""
    from simulator.runtime import require_torch

    require_torch()
    from simulator.cli import experiment_views, rendering, replaying
    from simulator.experiments.spawning import SPAWN_KINDS, Family, spawn

    asked = options.Asked(paths=tuple(paths or ()), db=db, no_ingest=no_ingest)
    logged = _logged_spawns(asked) if logs else None
    forward = replaying.load_forward(model)
    with replaying.progress_bar("running families", len(SPAWN_KINDS)) as progress:
        outcomes = []
        for kind in SPAWN_KINDS:
            outcomes.append(spawn(kind, Family(children=children), forward, window=window))
            progress()
    if json:
        rendering.print_json(experiment_views.spawns_json(outcomes, logged))
    else:
        experiment_views.show_spawns(outcomes, logged, rendering.output())


def sweep(
    source: Annotated[
        str, typer.Argument(metavar="SESSION|TRACE", help="A session, `latest`, a trace file or a folder of traces.")
    ],
    paths: options.Paths = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", help="logged, 5m, 1h, none or auto; can be repeated.", show_default="all"),
    ] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option(
            "--capacity",
            help="K/V bytes that may be kept (512MiB) or `unbounded`; can be repeated.",
            show_default="shares of what the trace needs",
        ),
    ] = None,
    kv_bytes: Annotated[int, typer.Option("--kv-bytes-per-token", min=1, help="K/V bytes of one token.")] = 46_080,
    tensors: Annotated[bool, typer.Option("--tensors", help="Also run every cell on the tensor engine.")] = False,
    window: Annotated[
        int, typer.Option("--window", min=64, help="With --tensors: model tokens for the longest prompt.")
    ] = 2048,
    output: OutputOption = None,
    model: LocalModelOption = None,
    db: options.DbOption = None,
    no_ingest: options.NoIngestOption = False,
    json: options.JsonOption = False,
) -> None:
    """Hit rate and cost of a trace against capacity, lifetime and policy."""
    from analyzer.cli.simulate.replay import policy_named
    from analyzer.cli.simulate.source import read_requests
    from analyzer.errors import UsageError
    from simulator.cli import experiment_views, rendering, replaying
    from simulator.cli.growth_chart import check_target
    from simulator.experiments.sweep import sweep as run_sweep
    from simulator.experiments.sweep import unique_bytes
    from simulator.replay.plan import POLICY_NAMES

    if output is not None:
        check_target(output)
    policies = [policy_named(name) for name in policy or POLICY_NAMES]
    requests = read_requests(source, options.Asked(paths=tuple(paths or ()), db=db, no_ingest=no_ingest))
    if not requests:
        raise UsageError(f"{source} holds no requests", "name another session or trace")
    needed = unique_bytes(requests, kv_bytes)
    sizes: list[int | None] = [int(needed * part) for part in (0.05, 0.1, 0.25, 0.5)] + [None]
    if capacity:
        sizes = [None if name == "unbounded" else replaying.parse_bytes(name) for name in capacity]
    cells = run_sweep(requests, policies, sizes, [_group(r) for r in requests], bytes_per_token=kv_bytes)
    costs = [_cell_cost(cell) for cell in cells]
    ran = _on_tensors(cells, requests, kv_bytes, window, model) if tensors else []
    if output is not None:
        experiment_views.write_sweep_chart(cells, output)
        rendering.note(f"chart written to {output}")
    if json:
        found = experiment_views.sweep_json(cells, costs)
        if ran:
            found["tensors"] = experiment_views.tensor_sweep_json(ran)
        rendering.print_json(found)
        return
    console = rendering.output()
    experiment_views.show_sweep(cells, costs, console)
    if ran:
        console.print()
        experiment_views.show_tensor_sweep(ran, console)


def _on_tensors(
    cells: "Sequence[SweepCell]", requests: "list[Request]", kv_bytes: int, window: int, model: str | None
) -> "list[tuple[SweepCell, Replay]]":
    """Every cell replayed; a capacity for real tokens becomes one for model tokens."""
    from simulator.cli import replaying
    from simulator.replay.plan import prompt_tokens

    forward = replaying.load_forward(model)
    shown = min(window, forward.context)
    scale = max(1.0, max(map(prompt_tokens, requests)) / shown)
    per_token = forward.kv_shape.token_bytes / kv_bytes / scale
    ran = []
    for cell in cells:
        capacity = None if cell.capacity_bytes is None else int(cell.capacity_bytes * per_token)
        chosen = replaying.ReplayOptions(cell.policy, shown, capacity_bytes=capacity, samples=0)
        ran.append((cell, replaying.replay_trace(requests, chosen, forward)))
    return ran


def _break_costs(found: "Breaks", real_tokens: int, model: str) -> list[str | None]:
    from analyzer.cli.simulate.dollars import cost_usd, written
    from simulator.trace import Request, Usage

    now = datetime.now(UTC)
    request = Request("", "", None, model, "", "", 0.0, 0.0, (), 0)
    costs = []
    for each in found.breaks:
        read = round(real_tokens * each.reused_tokens / each.tokens)
        costs.append(written(cost_usd([(request, Usage(0, read, real_tokens - read))], now)))
    return costs


def _group(request: "Request") -> tuple[str, int, int]:
    """Requests that have one price: model, day, size of prompt."""
    from analyzer.prices import band_of

    tokens = sum(segment.tokens for segment in request.segments)
    return request.model, int(request.started_at_s // 86_400), band_of(tokens)


def _cell_cost(cell: "SweepCell") -> str | None:
    """Dollars of a cell; None for automatic caching, which has no price list, and for models without prices."""
    from decimal import Decimal

    from analyzer.cli.simulate.dollars import group_cost_usd, written

    if cell.policy == "auto":
        return None
    total = Decimal(0)
    for group, usage in cell.usage:
        assert isinstance(group, tuple)
        model, day, band = group
        cost = group_cost_usd(model, day * 86_400.0, band, usage, datetime.now(UTC))
        if cost is None:
            return None
        total += cost
    return written(total)


def _logged_spawns(asked: options.Asked) -> "list[LogRow]":
    """First requests of the subagents in the logs, by verdict."""
    from analyzer import queries

    with options.opened(asked) as (connection, scope, _):
        spawns = queries.subagents(connection, scope, asked.prices).spawns
    rows: dict[str, LogRow] = {}
    for spawn in spawns:
        verdict, count, read, prompt = rows.get(spawn.verdict, (spawn.verdict, 0, 0, 0))
        prompt += spawn.first_read_tokens + spawn.first_creation_tokens
        rows[verdict] = (verdict, count + 1, read + spawn.first_read_tokens, prompt)
    return sorted(rows.values(), key=lambda row: -row[1])

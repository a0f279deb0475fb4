"""`ccache simulate replay`: a session or a trace on a real model, beside what was billed and what the rules predict."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from analyzer.cli import options

if TYPE_CHECKING:
    from simulator.cli.replay_views import Dollars
    from simulator.replay.plan import PolicyName
    from simulator.replay.results import Replay
    from simulator.trace import Request

PolicyOption = Literal["logged", "5m", "1h", "none", "auto"]


def replay(
    source: Annotated[
        str, typer.Argument(metavar="SESSION|TRACE", help="A session id or its beginning, `latest`, or a trace file.")
    ],
    paths: options.Paths = None,
    policy: Annotated[
        PolicyOption, typer.Option("--policy", help="Whose rules decide: the trace's TTLs, one TTL, none, automatic.")
    ] = "logged",
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option("--compare", metavar="A B", help="Replay under two policies.", show_default=False),
    ] = None,
    capacity: Annotated[
        str | None, typer.Option("--capacity", help="K/V bytes that may be kept: 512MiB.", show_default=False)
    ] = None,
    window: Annotated[
        int | None,
        typer.Option("--window", min=1, help="Model tokens for the longest prompt. Default: all.", show_default=False),
    ] = None,
    scale: Annotated[
        float | None, typer.Option("--scale", help="Real tokens per model token, instead.", show_default=False)
    ] = None,
    block: Annotated[int, typer.Option("--block", min=1, help="Model tokens per block.")] = 64,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Only the first N requests.", show_default=False)
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=0, help="Requests also timed without the cache.")] = 3,
    verify: Annotated[bool, typer.Option("--verify", help="Check every request against a full prefill.")] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="Keep progress here; a killed replay goes on.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write the chart as .png or .svg.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="Model folder or name (see `simulate model`).", envvar="CLAUDE_CCACHE_MODEL",
            show_default=False,
        ),
    ] = None,
    db: options.DbOption = None,
    no_ingest: options.NoIngestOption = False,
    json: options.JsonOption = False,
) -> None:  # fmt: skip
    """Replay a session or trace through the cache rules and through a real model's K/V cache, side by side."""
    from analyzer.cli.simulate.source import read_requests
    from analyzer.errors import UsageError
    from simulator.cli import replaying
    from simulator.cli.growth_chart import check_target
    from simulator.runtime import require_torch

    if compare is not None and checkpoint is not None:
        raise UsageError("--checkpoint keeps one replay, --compare makes two", "run them one at a time")
    if window is not None and scale is not None:
        raise UsageError("--window and --scale both decide the scale", "give one of them")
    policies = tuple(policy_named(name) for name in compare or (policy,))
    capacity_bytes = None if capacity is None else replaying.parse_bytes(capacity)
    if output is not None:
        check_target(output)
    requests = read_requests(source, options.Asked(paths=tuple(paths or ()), db=db, no_ingest=no_ingest))[:limit]
    require_torch()
    forward = replaying.load_forward(model)
    replays = []
    for name in policies:
        chosen = replaying.ReplayOptions(name, window, scale, block, capacity_bytes, None, samples, verify, checkpoint)
        replays.append(replaying.replay_trace(requests, chosen, forward))
    costs = [_dollars(each, requests) for each in replays]
    _report(replays, costs, output, json)
    if any(each.totals.mismatched for each in replays):
        raise typer.Exit(1)


def policy_named(name: str) -> "PolicyName":
    """Raises UsageError for a name that is no policy."""
    from analyzer.errors import UsageError
    from simulator.replay.plan import POLICY_NAMES

    for known in POLICY_NAMES:
        if name == known:
            return known
    raise UsageError(f"no policy {name!r}", f"one of {', '.join(POLICY_NAMES)}")


def _dollars(replay: "Replay", requests: "list[Request]") -> "Dollars":
    """Four bills for one trace; the engine's is its own usage scaled back to real tokens."""
    from analyzer.cli.simulate.dollars import cost_usd, in_order, without_cache, written
    from simulator.replay.results import rescaled

    now = datetime.now(UTC)
    served = in_order(requests)
    rows = replay.requests
    bills = {
        "policy": [row.policy for row in rows],
        "engine": [rescaled(row, replay.scale) for row in rows],
        "without_cache": [without_cache(row.policy) for row in rows],
    }
    if all(row.logged is not None for row in rows):
        bills = {"logged": [row.logged for row in rows if row.logged is not None], **bills}
    return {name: written(cost_usd(zip(served, usages, strict=True), now)) for name, usages in bills.items()}


def _report(replays: "list[Replay]", costs: "list[Dollars]", output: Path | None, as_json: bool) -> None:
    from simulator.cli import rendering, replay_views

    if output is not None:
        from simulator.cli.replay_chart import write_chart

        write_chart(replays, output)
        rendering.note(f"chart written to {output}")
    if as_json:
        found = [replay_views.as_json(each, cost) for each, cost in zip(replays, costs, strict=True)]
        rendering.print_json(found[0] if len(found) == 1 else {"replays": found})
    elif len(replays) == 1:
        replay_views.show(replays[0], rendering.output(), costs[0])
    else:
        replay_views.show_comparison(replays, costs, rendering.output())

"""`ccache simulate kv-growth`: a K/V cache, token by token."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli.options import DEFAULT_PROMPT, JsonOption, ModelOption, PromptOption, load_model

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.exercises import GrowthStep


def kv_growth(
    prompt: PromptOption = DEFAULT_PROMPT,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Tokens to generate; end tokens are ignored.")] = 60,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write the chart as .png or .svg.", show_default=False)
    ] = None,
    model: ModelOption = None,
    json: JsonOption = False,
) -> None:
    """Length and bytes of the K/V cache at every step of an answer."""
    from simulator.cli.growth_chart import check_target, write_chart

    if output is not None:
        check_target(output)
    loaded = load_model(model)
    from dataclasses import asdict

    from simulator.cli import rendering
    from simulator.exercises import cache_growth

    grown = []
    with rendering.notes().status("generating") as status:
        for step in cache_growth(loaded, prompt, new_tokens=steps):
            grown.append(step)
            status.update(f"generating: {step.cache_length} tokens, {rendering.kib(step.cache_bytes)}")
    if output is not None:
        write_chart(grown, output)
        rendering.note(f"chart written to {output}")
    if json:
        print_growth = {"model": loaded.source.name, "prompt": prompt, "steps": [asdict(step) for step in grown]}
        rendering.print_json(print_growth)
        return
    _show(grown, rendering.output())


def _show(grown: "list[GrowthStep]", console: "Console") -> None:
    from rich.text import Text

    from simulator.cli.rendering import column_chart, kib, table

    first, last = grown[0], grown[-1]
    per_token = (last.cache_bytes - first.cache_bytes) // (last.cache_length - first.cache_length)
    console.print(f"{kib(per_token)} a token, in every step: {first.cache_length} to {last.cache_length} tokens")
    console.print()
    scale = kib(last.cache_bytes)
    margin = len(scale) + 1
    lines = column_chart(
        [step.cache_bytes for step in grown],
        width=max(10, console.width - margin - 1),
        height=8,
        ascii_only=console.options.ascii_only,
    )
    for at, line in enumerate(lines):
        mark = scale if at == 0 else "0" if at == len(lines) - 1 else ""
        console.print(Text.assemble((mark.rjust(margin - 1) + " ", "dim"), (line, "cyan")))
    width = max(len(line) for line in lines)
    right = f"step {last.step}"
    axis = "prompt".ljust(max(7, width - len(right))) + right
    console.print(Text(" " * margin + axis, "dim"))
    console.print()
    rows = table("step", "tokens in cache", "bytes", right=(0, 1, 2))
    stride = max(1, -(-last.step // 12))
    for step in grown:
        if step.step % stride == 0 or step is last:
            rows.add_row(str(step.step), str(step.cache_length), f"{step.cache_bytes:,}")
    console.print(rows)

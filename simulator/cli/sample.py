"""`ccache simulate sample`: how temperature spreads answers."""

from typing import Annotated

import typer

from simulator.cli.options import DEFAULT_PROMPT, JsonOption, ModelOption, PromptOption, check_numbers, load_model


def sample(
    prompt: PromptOption = DEFAULT_PROMPT,
    temperatures: Annotated[
        list[float] | None,
        typer.Option("--temperature", help="May be repeated. Default: 0.3 0.7 1.0 1.5.", show_default=False),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Answers per temperature.")] = 5,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Longest answer.")] = 20,
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Draw from the k best only; 0: from all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", min=0, max=1, help="Draw from this much probability only.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Run r draws with seed + r.")] = 0,
    model: ModelOption = None,
    json: JsonOption = False,
) -> None:
    """Distinct answers per temperature, beside the effective candidates of the first token."""
    from simulator.errors import UsageError

    asked = temperatures or [0.3, 0.7, 1.0, 1.5]
    for temperature in asked:
        check_numbers(temperature=temperature, top_p=top_p)
    if min(asked) <= 0:
        raise UsageError("--temperature must be above 0", "its limit at 0 is greedy: every run gives the same answer")
    loaded = load_model(model)
    from dataclasses import asdict

    from rich.progress import Progress
    from rich.text import Text

    from simulator.cli.rendering import inert, notes, output, print_json, table
    from simulator.exercises import sample_spread

    with Progress(console=notes(), transient=True) as bar:
        task = bar.add_task("answers", total=len(asked) * runs)
        spreads = list(
            sample_spread(
                loaded,
                prompt,
                temperatures=asked,
                runs=runs,
                max_new_tokens=max_new_tokens,
                seed=seed,
                top_k=top_k,
                top_p=top_p,
                progress=lambda: bar.advance(task),
            )
        )
    if json:
        rows = [{**asdict(spread), "distinct": spread.distinct} for spread in spreads]
        print_json({"model": loaded.source.name, "prompt": prompt, "runs": runs, "temperatures": rows})
        return
    console = output()
    summary = table("temperature", "top probability", "effective candidates", "distinct answers", right=(0, 1, 2, 3))
    for spread in spreads:
        summary.add_row(
            str(spread.temperature),
            f"{spread.top_probability:.4f}",
            f"{spread.effective_candidates:,.2f}",
            f"{spread.distinct} of {runs}",
        )
    console.print(summary)
    for spread in spreads:
        console.print()
        answers = table(f"T={spread.temperature}", "answer", right=(0,), fold=(1,))
        for answer in dict.fromkeys(spread.answers):
            answers.add_row(f"{spread.answers.count(answer)}x", Text(repr(inert(answer))))
        console.print(answers)

"""`ccache simulate walkthrough`: inference in eight stages, live."""

from typing import Annotated, Literal

import typer

from simulator.cli.options import DEFAULT_PROMPT, JsonOption, ModelOption, PromptOption, load_model


def walkthrough(
    stage: Annotated[
        list[int] | None,
        typer.Option("--stage", min=0, max=7, help="Only this stage; may be repeated.", show_default=False),
    ] = None,
    prompt: PromptOption = DEFAULT_PROMPT,
    model: ModelOption = None,
    max_n: Annotated[
        int, typer.Option("--max-n", min=1, help="Longest forced answer of stage 5; 200 without a cache takes minutes.")
    ] = 100,
    lang: Annotated[Literal["en", "zh"], typer.Option("--lang", help="Language of titles and sentences.")] = "en",
    json: JsonOption = False,
) -> None:
    """From one sentence to an API response, by hand: template, tokens, logits, sampling, K/V cache, prefix reuse."""
    loaded = load_model(model)
    from dataclasses import asdict

    from simulator.cli.rendering import notes, output, print_json
    from simulator.cli.texts import STAGE_TEXTS
    from simulator.walkthrough import STAGES, Walkthrough

    tour = Walkthrough(loaded, prompt, max_n=max_n)
    numbers = tuple(sorted(set(stage))) if stage else STAGES
    if json:
        stages = [{"stage": one.stage, **asdict(one)} for one in tour.stages(numbers)]
        print_json({"model": loaded.source.name, "prompt": prompt, "stages": stages})
        return
    from simulator.cli.stage_views import FLATTENED, show_stage

    console = output()
    note_due = loaded.source.kind == "packaged" and prompt == DEFAULT_PROMPT
    with notes().status("") as status:
        for one in tour.stages(numbers, lambda part: status.update(f"[{part}] {STAGE_TEXTS[lang][part][0]}")):
            status.stop()
            with_note = note_due and one.stage in FLATTENED
            show_stage(one, console, lang, with_note=with_note)
            note_due = note_due and not with_note
            status.start()

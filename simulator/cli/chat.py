"""`ccache simulate chat`: talk to the model and see what its cache saves, turn by turn."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli.options import JsonOption, ModelOption, check_numbers, load_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulator.chat import Conversation
    from simulator.generate import Pick


def chat(
    system: Annotated[str | None, typer.Option("--system", help="System message.", show_default=False)] = None,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Longest answer.")] = 200,
    temperature: Annotated[float, typer.Option("--temperature", min=0, help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Draw from the k best only; 0: from all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", min=0, max=1, help="Draw from this much probability only.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draws.")] = 0,
    model: ModelOption = None,
    json: JsonOption = False,
) -> None:
    """Chat, streaming. After each answer: prompt tokens from the cache, tokens computed, and the time of each.

    Reads lines from the terminal or from a pipe. /new starts over; Ctrl-D ends, Ctrl-C stops an answer.
    """
    check_numbers(temperature=temperature, top_p=top_p)
    loaded = load_model(model)
    from functools import partial

    import torch

    from simulator.chat import Conversation
    from simulator.cli.rendering import note, output
    from simulator.errors import UsageError
    from simulator.sampling import sample_next

    output()
    interactive = sys.stdin.isatty()
    if interactive:
        note(f"{loaded.source.name}: /new starts over, Ctrl-C stops an answer, Ctrl-D ends")
    conversation = Conversation(loaded, system=system)
    generator = torch.Generator().manual_seed(seed)
    pick = partial(sample_next, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
    failure: UsageError | None = None
    for line in _lines(interactive):
        if line == "/new":
            conversation.restart()
            note("a new conversation")
            continue
        try:
            _take_turn(conversation, line, max_new_tokens, pick, json=json)
        except UsageError as error:
            if not interactive:
                failure = error
                break
            note(f"error: {error.message}")
            note(f"hint: {error.hint}")
    if failure is not None:
        raise failure


def _lines(interactive: bool) -> "Iterator[str]":
    """What the user says, without blank lines, until the input ends."""
    if interactive:
        import contextlib

        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  line editing and history for input()
    while True:
        try:
            line = _ask() if interactive else sys.stdin.readline()
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return
        except UnicodeDecodeError:
            continue
        if not interactive and not line:
            return
        if line.strip():
            yield line.strip()


def _ask() -> str:
    """Where stdout is no terminal it is for answers only, and the prompt goes to stderr."""
    if sys.stdout.isatty():
        return input("you> ")
    print("you> ", end="", file=sys.stderr, flush=True)
    return input()


def _take_turn(conversation: "Conversation", text: str, max_new_tokens: int, pick: "Pick", *, json: bool) -> None:
    from dataclasses import asdict
    from json import dumps

    from simulator.cli.rendering import inert, note, seconds

    pieces = conversation.ask(text, max_new_tokens=max_new_tokens, pick=pick)
    stopped = False
    try:
        for piece in pieces:
            if not json:
                print(inert(piece), end="", flush=True)
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
        stopped = True
        pieces.close()
    report = conversation.last_turn
    if report is None:
        return
    if json:
        timings = {name: value for name, value in asdict(report).items() if name.endswith("_s")}
        print(dumps({**report.completion.as_openai(), "timings": timings}, ensure_ascii=False), flush=True)
        return
    print(flush=True)
    completion = report.completion
    note(
        f"  prompt {completion.prompt_tokens}: {completion.cached_tokens} from the cache in "
        f"{seconds(report.lookup_s)}, "
        f"{report.computed_tokens} computed in {seconds(report.prefill_s)}; "
        f"answer {completion.completion_tokens} in {seconds(report.decode_s)}{' (stopped)' if stopped else ''}"
    )

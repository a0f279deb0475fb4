"""Options that several commands share."""

from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.errors import UsageError

if TYPE_CHECKING:
    from simulator.model.loading import LoadedModel

DEFAULT_PROMPT = "What is the capital of France?"
"""The seed question of the walkthrough, answered by every command that needs some prompt."""

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="A model folder, a name in the Hugging Face cache, or `packaged`. Default: SmolLM2-135M-Instruct.",
        envvar="CLAUDE_CCACHE_MODEL",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PromptOption = Annotated[str, typer.Option("--prompt", help="What the user says.")]


def check_numbers(**options: float) -> None:
    """Refuses nan and infinity, which a range alone lets through. Raises UsageError."""
    for name, value in options.items():
        if not isfinite(value):
            raise UsageError(f"--{name.replace('_', '-')} must be a finite number", f"got {value}")


def load_model(name: str | None) -> "LoadedModel":
    """The model that a command runs; says on a terminal what takes the seconds."""
    from simulator.cli.rendering import notes
    from simulator.runtime import require_torch

    require_torch()
    with notes().status("loading the model"):
        from simulator.model import find_source
        from simulator.model.loading import load

        return load(find_source(name))

"""`ccache simulate` commands that need logs or prices. Torch is imported inside the commands, after the arguments."""

import typer

from analyzer.cli.simulate import experiments, replay


def mount(app: typer.Typer) -> None:
    """Adds these commands to those that the simulator has by itself."""
    app.command("replay")(replay.replay)
    app.command("break")(experiments.break_)
    app.command("subagents")(experiments.subagents)
    app.command("sweep")(experiments.sweep)

"""`ccache simulate ...`. Importing this package loads typer only: torch and rich are imported inside the commands."""

import typer

from simulator.cli import chat, kv_growth, model, sample, walkthrough

app = typer.Typer(
    name="simulate",
    help="A prefix cache you can watch: token accounting under a cache policy, and a real small model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Keeps `simulate` a group however many commands it has."""


app.command("model")(model.model)
app.command("walkthrough")(walkthrough.walkthrough)
app.command("sample")(sample.sample)
app.command("kv-growth")(kv_growth.kv_growth)
app.command("chat")(chat.chat)

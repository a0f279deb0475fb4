"""What a model folder holds, read from its files without loading the model."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.errors import ModelError
from simulator.model.fetch import GGUF_NAME, sha256_of
from simulator.model.location import MANIFEST, ModelSource


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """`sha256` is that of the file the weights come from; `kv_bytes_per_token` counts float32 keys and values."""

    source: ModelSource
    weights_file: Path
    sha256: str
    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    weights_dtype: str

    @property
    def kv_bytes_per_token(self) -> int:
        return self.layers * 2 * self.kv_heads * self.head_dim * 4


def describe(source: ModelSource) -> ModelDescription:
    """Raises ModelError where the files do not say what they must, or are not the ones that were fetched."""
    try:
        config = json.loads((source.folder / "config.json").read_text(encoding="utf-8"))
        files = sorted(source.folder.glob("*.safetensors"))
        tensors = [tensor for file in files for tensor in _tensors(file)]
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        weights_file = _checked(source) if source.kind == "packaged" else files[0]
        return ModelDescription(
            source=source,
            weights_file=weights_file,
            sha256=sha256_of(weights_file),
            parameters=sum(math.prod(tensor["shape"]) for tensor in tensors),
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            context=int(config["max_position_embeddings"]),
            weights_dtype="Q4_1" if source.kind == "packaged" else "+".join(sorted({t["dtype"] for t in tensors})),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{source.folder} is not a readable model folder: {error}") from error


def _checked(source: ModelSource) -> Path:
    manifest = json.loads((source.folder / MANIFEST).read_text(encoding="utf-8"))
    if sha256_of(source.folder / "model.safetensors") != manifest["safetensors_sha256"]:
        raise ModelError(
            f"{source.folder / 'model.safetensors'} is damaged", f"delete {source.folder} and fetch it again"
        )
    return source.folder / GGUF_NAME


def _tensors(file: Path) -> list[dict[str, Any]]:
    """Name, type and shape of every tensor. https://github.com/huggingface/safetensors#format"""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        if not 0 < size < 100_000_000:
            raise ValueError(f"{file.name} has no safetensors header")
        header = json.loads(opened.read(size))
    return [value for name, value in header.items() if name != "__metadata__"]

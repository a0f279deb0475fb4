"""A model folder becomes a model and its tokenizer: float32, on the CPU, ready to generate."""

import os
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedTokenizerFast
from transformers.cache_utils import DynamicLayer
from transformers.utils import logging as library_logging

from simulator.errors import ModelError
from simulator.generate import CausalLM
from simulator.model.location import ModelSource


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """`model` is in eval mode; `end_ids` are the tokens after which an answer is over."""

    source: ModelSource
    model: CausalLM
    tokenizer: Any
    end_ids: frozenset[int]

    @property
    def context(self) -> int:
        """The longest sequence the positions were made for."""
        return int(self.model.config.max_position_embeddings)

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.library_model.parameters())

    @property
    def library_model(self) -> Any:
        """The same model with everything transformers gives it, `generate` included."""
        return self.model


def load(source: ModelSource) -> LoadedModel:
    """Raises ModelError for a damaged folder and for a model whose cache is not one growing tensor per layer."""
    library_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    library_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    os.environ.setdefault("TRANSFORMERS_SDPA_FORCE_GQA", "1")  # same bits, without a copy of keys and values per head
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(source.folder, dtype=torch.float32, local_files_only=True)
        tokenizer = _load_tokenizer(source)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(
            f"{source.name} in {source.folder} cannot be loaded: {str(error).strip().splitlines()[0]}",
            "a causal language model of the Llama family is needed, complete and undamaged",
        ) from error
    cache = DynamicCache(config=model.config)
    if any(type(layer) is not DynamicLayer for layer in cache.layers):
        raise ModelError(f"{source.name} has layers without full attention", "give a model of the Llama family")
    end = model.generation_config.eos_token_id
    end = tokenizer.eos_token_id if end is None else end
    _store_by_input(model)
    return LoadedModel(source, model.eval(), tokenizer, frozenset([end] if isinstance(end, int) else end or ()))


def _store_by_input(model: Any) -> None:
    """Keeps each layer's matrices as (in, out) in memory; shapes and values stay what they are.

    A few rows against a matrix stored as (out, in) take up to 1.8 times as long in MKL, and a few rows are what a
    cached prompt leaves to compute. The embedding, which the output head often shares, is read by row and stays.
    """
    head = model.get_output_embeddings()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module is not head:
            module.weight.data = module.weight.data.t().contiguous().t()


def _load_tokenizer(source: ModelSource) -> Any:
    """The file as it is: a tokenizer rebuilt from its class's name loses the rule that splits off digits."""
    if (source.folder / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast.from_pretrained(source.folder, local_files_only=True)
    return AutoTokenizer.from_pretrained(source.folder, local_files_only=True)

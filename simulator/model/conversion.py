"""A Llama GGUF becomes a model folder in transformers' layout, with no more than gguf, numpy and tokenizers.

Names and layout of GGUF: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.errors import ModelError

_CONTROL_TOKEN = 3
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def convert_gguf(gguf_file: Path, folder: Path) -> None:
    """Writes config, weights (float32, each equal to its dequantised block) and tokenizer into an empty folder."""
    from gguf import GGUFReader

    reader = GGUFReader(str(gguf_file))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields["general.architecture"] != "llama":
        raise ModelError(f"{gguf_file} holds a {fields['general.architecture']} model, not a Llama")
    weights = dict(_weights(reader.tensors, fields))
    _write_config(fields, folder, tied="lm_head.weight" not in weights)
    _write_tokenizer(fields, folder)
    write_safetensors(weights, folder / "model.safetensors")


def write_safetensors(weights: dict[str, NDArray[np.float32]], path: Path) -> None:
    """The safetensors layout by plain writes: the library maps the file, and a full disk would then kill the process.

    Layout: https://github.com/huggingface/safetensors#format
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, values in weights.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in weights.values():
            file.write(np.ascontiguousarray(values, "<f4").data)


def _weights(tensors: Any, fields: dict[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    from gguf.quants import dequantize

    heads = {"attn_q": fields["llama.attention.head_count"], "attn_k": fields["llama.attention.head_count_kv"]}
    for tensor in tensors:
        *layer, part, kind = tensor.name.split(".")
        values: NDArray[np.float32] = dequantize(tensor.data, tensor.tensor_type)
        if part in heads:
            values = _halves_together(values, heads[part])
        if layer:
            yield f"model.layers.{layer[-1]}.{_LAYER_NAMES[part]}.{kind}", values
        elif part in _OUTER_NAMES:
            yield f"{_OUTER_NAMES[part]}.{kind}", values


def _halves_together(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """(heads * d, in): GGUF interleaves the two rotated halves of a head, transformers keeps each half together."""
    rows, width = values.shape
    return values.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def _write_config(fields: dict[str, Any], folder: Path, *, tied: bool) -> None:
    from transformers import GenerationConfig, LlamaConfig

    special = {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }
    config = LlamaConfig(
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=fields["llama.attention.head_count"],
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings=tied,
        architectures=["LlamaForCausalLM"],
        dtype="float32",
        **special,
    )
    config.save_pretrained(folder)
    GenerationConfig(**special).save_pretrained(folder)  # type: ignore[no-untyped-call]


def _write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    """SmolLM splits off every digit before the byte-level rules, which a plain GPT-2 tokenizer does not."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if (kind := fields["tokenizer.ggml.pre"]) != "smollm":
        raise ModelError(f"the tokenizer {kind} of this GGUF is not known", "convert another model with its own tools")
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    backend = Tokenizer(models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    control = [
        token for token, kind in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True) if kind == _CONTROL_TOKEN
    ]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        bos_token=tokens[fields["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"]],
        unk_token=tokens[fields["tokenizer.ggml.unknown_token_id"]],
        pad_token=tokens[fields["tokenizer.ggml.padding_token_id"]],
        chat_template=fields["tokenizer.chat_template"],
        model_max_length=fields["llama.context_length"],
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)

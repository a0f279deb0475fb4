"""A Llama forward pass by hand, over keys and values that lie in one buffer with room to grow.

Shapes: T new tokens, S positions so far (the new ones included), E embedding size, A attention heads, H key/value
heads, D head size, V vocabulary entries. Attention heads that share a key/value head are computed as more rows of one
query, so keys and values are never repeated in memory.

Weights lie as (in, out): one row times such a matrix reads memory in order, which makes decoding, a memory-bound
matter, about half as slow again as with the (out, in) layout of `torch.nn.Linear`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from simulator.errors import ModelError


@dataclass(frozen=True, slots=True)
class KvShape:
    """What one token's keys and values are made of."""

    layers: int
    heads: int
    head_size: int
    dtype: torch.dtype

    @property
    def token_bytes(self) -> int:
        """Keys and values of all layers: 46,080 bytes (45 KiB) for SmolLM2-135M in float32."""
        return 2 * self.layers * self.heads * self.head_size * self.dtype.itemsize

    def allocate(self, positions: int) -> Tensor:
        """Uninitialised (layers, 2, H, positions, D); index 0 of the second axis is keys, 1 is values."""
        return torch.empty(self.layers, 2, self.heads, positions, self.head_size, dtype=self.dtype)


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor  # (E,)
    qkv: Tensor  # (E, (A + 2 H) D)
    output: Tensor  # (A D, E)
    mlp_norm: Tensor  # (E,)
    gate_up: Tensor  # (E, 2 M)
    down: Tensor  # (M, E)


class LlamaForward:
    """The weights of a transformers Llama model, copied into the layout above; the model itself may be dropped.

    Raises ModelError for a model with parts that this pass does not compute (biases, another activation).
    """

    def __init__(self, model: Any, dtype: torch.dtype | None = None) -> None:
        config = model.config
        if getattr(config, "model_type", None) != "llama" or config.hidden_act != "silu":
            raise ModelError(f"a {getattr(config, 'model_type', 'model')!r} model", "the engine runs Llama models only")
        if config.attention_bias or config.mlp_bias:
            raise ModelError("a Llama model with biases", "the engine runs Llama models without biases only")
        self.vocabulary: int = config.vocab_size
        self.context: int = config.max_position_embeddings
        self._heads: int = config.num_attention_heads
        self._eps: float = config.rms_norm_eps
        with torch.no_grad():
            dtype = dtype or model.lm_head.weight.dtype
            head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
            self.kv_shape = KvShape(config.num_hidden_layers, config.num_key_value_heads, head_size, dtype)
            self._embedding = model.model.embed_tokens.weight.detach().to(dtype)
            self._norm = model.model.norm.weight.detach().to(dtype)
            self._head = _columns(dtype, model.lm_head.weight)
            self._layers = [_layer(dtype, layer) for layer in model.model.layers]
            cos, sin = model.model.rotary_emb(self._norm, torch.arange(self.context)[None])
        self._cos: Tensor = cos[0, :, None]  # (context, 1, D)
        self._sin: Tensor = sin[0, :, None]

    @torch.inference_mode()
    def __call__(self, token_ids: Sequence[int], kv: Tensor, start: int, last: bool = True) -> Tensor:
        """Runs T tokens at positions from `start` on; `kv` is (layers, 2, H, room, D) and holds those before.

        Writes the T tokens' keys and values into `kv` and returns the last position's logits, (1, V). If they are not
        the `last` of a prompt, what only logits need is left out and the result is empty.
        """
        count, stop = len(token_ids), start + len(token_ids)
        if not 0 < count <= kv.shape[3] - start:
            raise ValueError(f"{count} tokens from position {start} on do not fit a buffer of {kv.shape[3]}")
        groups = self._heads // self.kv_shape.heads
        hidden = F.embedding(torch.tensor(token_ids), self._embedding)
        mask = None
        if count > 1:  # added to scores: 0 where a query (row) may look at a key; one copy per head of a group
            mask = torch.full((count, stop), float("-inf"), dtype=hidden.dtype).triu(start + 1).repeat(groups, 1)
        for layer, held in zip(self._layers, kv, strict=True):
            normed = self._normed(hidden, layer.attention_norm)
            queries = self._project(layer, normed, held, start)
            if layer is self._layers[-1]:  # from here on only the last position matters, if any
                if not last:
                    return hidden.new_empty(0)
                queries = queries.view(self._heads, count, -1)[:, -1].reshape(queries.shape[0], groups, -1)
                hidden, mask = hidden[-1:], None
            hidden = hidden + self._attend(queries, held[:, :, :stop], mask) @ layer.output
            gate, up = (self._normed(hidden, layer.mlp_norm) @ layer.gate_up).chunk(2, -1)
            hidden = hidden + (F.silu(gate) * up) @ layer.down
        logits: Tensor = self._normed(hidden, self._norm) @ self._head
        return logits

    def _project(self, layer: _Layer, normed: Tensor, held: Tensor, start: int) -> Tensor:
        """Writes keys and values into this layer's `held`, (2, H, room, D). -> queries (H, A/H * T, D)"""
        count, stop = normed.shape[0], start + normed.shape[0]
        heads, kv_heads, size = self._heads, self.kv_shape.heads, self.kv_shape.head_size
        projected = (normed @ layer.qkv).view(count, heads + 2 * kv_heads, size)
        rotated = self._rotate(projected[:, : heads + kv_heads], start)
        held[0, :, start:stop] = rotated[:, heads:].transpose(0, 1)
        held[1, :, start:stop] = projected[:, heads + kv_heads :].transpose(0, 1)
        return rotated[:, :heads].transpose(0, 1).reshape(kv_heads, -1, size)

    def _attend(self, queries: Tensor, held: Tensor, mask: Tensor | None) -> Tensor:
        """Queries (H, A/H * T, D) over keys and values (2, H, S, D). -> (T, A D)"""
        keys, values = held
        size = self.kv_shape.head_size
        if mask is None:
            weights = torch.bmm(queries, keys.transpose(1, 2)).mul_(size**-0.5).softmax(-1)
            mixed = torch.bmm(weights, values)
        else:
            mixed = F.scaled_dot_product_attention(queries[None], keys[None], values[None], attn_mask=mask)[0]
        return mixed.view(self._heads, -1, size).transpose(0, 1).reshape(-1, self._heads * size)

    def _rotate(self, heads: Tensor, start: int) -> Tensor:
        """Rotary position embedding of (T, heads, D) at positions from `start` on."""
        stop, half = start + heads.shape[0], heads.shape[-1] // 2
        turned = torch.cat((-heads[..., half:], heads[..., :half]), -1)
        return heads * self._cos[start:stop] + turned * self._sin[start:stop]

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        normed: Tensor = F.rms_norm(hidden, (hidden.shape[-1],), weight, self._eps)
        return normed


def _columns(dtype: torch.dtype, *weights: Tensor) -> Tensor:
    """(out, in) matrices side by side, transposed: (in, sum of outs)."""
    return torch.cat([weight.detach().to(dtype) for weight in weights]).t().contiguous()


def _layer(dtype: torch.dtype, layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return _Layer(
        layer.input_layernorm.weight.detach().to(dtype),
        _columns(dtype, attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight),
        _columns(dtype, attention.o_proj.weight),
        layer.post_attention_layernorm.weight.detach().to(dtype),
        _columns(dtype, mlp.gate_proj.weight, mlp.up_proj.weight),
        _columns(dtype, mlp.down_proj.weight),
    )

"""A random Llama of SmolLM2's kind, small enough for unit tests: 9 attention heads over 3 key/value heads, RoPE."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def tiny_llama(
    *, hidden: int = 72, layers: int = 2, vocabulary: int = 512, context: int = 1024, dtype: torch.dtype = torch.float32
) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=vocabulary,
        max_position_embeddings=context,
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(hidden)
        return LlamaForCausalLM(config).eval().to(dtype)

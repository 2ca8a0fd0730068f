"""The lab's model: Qwen2's architecture, small enough for one CPU core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def build_model(tokenizer: Any, *, hidden_size: int, layers: int, seed: int) -> Any:
    """Make an untrained model.

    Args:
        tokenizer: The lab's tokenizer; gives vocabulary and special tokens.
        hidden_size: Width, a multiple of 32 (four heads of at least 8).
        layers: Number of layers.
        seed: Seed of the initial weights.
    """
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 16) * 16,  # full vector registers in the output layer
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32",
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model


def save_model(model: Any, folder: Path) -> None:
    """Save weights and configurations in Transformers' format."""
    model.save_pretrained(folder)

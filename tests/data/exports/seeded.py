"""Weights that depend on a parameter's name alone: every version of every library makes the same model."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY, POSITIONS = 256, 512


def llama() -> Any:  # noqa: ANN401  mypy knows nothing of transformers
    """Two layers, four heads over two heads of keys and values."""
    return _filled(
        LlamaForCausalLM(
            LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=POSITIONS,
                bos_token_id=0,
                eos_token_id=0,
                tie_word_embeddings=False,
            )
        )
    )


def gpt2() -> Any:  # noqa: ANN401  mypy knows nothing of transformers
    """Two layers, four heads, learned positions."""
    return _filled(
        GPT2LMHeadModel(
            GPT2Config(
                vocab_size=VOCABULARY,
                n_embd=64,
                n_layer=2,
                n_head=4,
                n_positions=POSITIONS,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    )


def save(model: Any, folder: Path) -> Path:  # noqa: ANN401  mypy knows nothing of transformers
    """The model and a tokenizer without use, as exporters want to find them."""
    words = Tokenizer(models.WordLevel({f"t{n}": n for n in range(VOCABULARY)}, unk_token="t0"))  # noqa: S106
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = dict.fromkeys(("unk_token", "pad_token", "bos_token", "eos_token"), "t0")
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
    return folder


def _filled(model: Any) -> Any:  # noqa: ANN401  mypy knows nothing of transformers
    """Norms stay as they are; everything else is drawn, wide enough that each token changes the answer."""
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if "norm" in name or ".ln_" in name:
                continue
            seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
            drawn = np.random.default_rng(seed).normal(0.0, 0.15, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(drawn.astype(np.float32)))
    model.eval()
    return model

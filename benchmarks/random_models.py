"""Llama models with random weights, made where they run: nothing is read or fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.llama import LlamaConfig
from transformers.models.mistral import MistralConfig

from outrider.models.causal_lm import CausalLM


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama model.

    Args:
        name: in tables and results.
        spread: standard deviation of the weights; wide ones make texts that do not repeat.
        window: positions that each layer sees, which makes it a Mistral; None for all.
    """

    name: str
    hidden: int
    middle: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool = False
    spread: float = 0.02
    window: int | None = None

    @property
    def parameters(self) -> int:
        """Weights, norms left out."""
        attention = self.hidden * self.hidden * 2 * (self.heads + self.kv_heads) // self.heads
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return self.layers * (attention + 3 * self.hidden * self.middle) + embeddings

    def kv_bytes(self, tokens: int, dtype: torch.dtype) -> int:
        """Bytes of the keys and values of that many tokens; on a GPU a pool takes them at once."""
        row = 2 * self.layers * self.kv_heads * (self.hidden // self.heads)
        return tokens * row * dtype.itemsize


LARGE = (
    Shape("1B", 2048, 8192, 16, 32, 8, 128256, tied=True),
    Shape("8B", 4096, 14336, 32, 32, 8, 128256),
)
TINY = (Shape("tiny", 128, 256, 2, 2, 1, 256), Shape("small", 128, 256, 3, 2, 2, 256, tied=True))
SPREAD = 0.06
CHECKED = (
    Shape("llama", 256, 512, 3, 4, 2, 128, spread=SPREAD),
    Shape("mistral", 256, 512, 3, 4, 2, 128, spread=SPREAD, window=24),
)
"""For the comparisons in float32: small, and far from repeating themselves."""


def transformers_model(shape: Shape, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The model as transformers has it; the same weights at every call."""
    common: dict[str, Any] = {
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.middle,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.hidden // shape.heads,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": shape.tied,
        "initializer_range": shape.spread,
        "bos_token_id": 0,
        "eos_token_id": None,  # nothing ends a text
        "pad_token_id": 0,
    }
    config = (
        LlamaConfig(**common)
        if shape.window is None
        else MistralConfig(**common, sliding_window=shape.window)
    )
    torch.manual_seed(0)
    with device:
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
    model.train(False)
    return model


def own_model(model: PreTrainedModel, shape: Shape, tokens: int) -> CausalLM:
    """The same behind our cache and attention, with room for that many tokens; takes it over."""
    return CausalLM.from_model(
        model,
        name=shape.name,
        tokenizer_fingerprint="none",
        decoder="auto",
        kv_bytes=shape.kv_bytes(
            tokens, torch.float32 if model.device.type == "cpu" else model.dtype
        ),
    )

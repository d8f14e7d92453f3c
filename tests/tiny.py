"""Tiny random-weight models of several families, built in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.gemma3 import Gemma3TextConfig
from transformers.models.gpt2 import GPT2Config
from transformers.models.llama import LlamaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3 import Qwen3Config

from outrider.models.causal_lm import CausalLM
from outrider.models.pool import KVPool, LayerShape

FINGERPRINT = "tiny"
FIRST = "w0"


def _common(vocab: int, layers: int, hidden: int) -> dict[str, Any]:
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "max_position_embeddings": 512,
        "bos_token_id": 0,
        "eos_token_id": vocab - 1,
        "pad_token_id": None,
        "initializer_range": 0.3,
    }


def llama(vocab: int, layers: int, hidden: int) -> PreTrainedConfig:
    return LlamaConfig(**_common(vocab, layers, hidden), tie_word_embeddings=True)


def mistral(vocab: int, layers: int, hidden: int) -> PreTrainedConfig:
    return MistralConfig(**_common(vocab, layers, hidden), sliding_window=7)


def qwen2(vocab: int, layers: int, hidden: int) -> PreTrainedConfig:
    return Qwen2Config(
        **_common(vocab, layers, hidden),
        use_sliding_window=True,
        sliding_window=9,
        max_window_layers=1,
    )


def qwen3(vocab: int, layers: int, hidden: int) -> PreTrainedConfig:
    return Qwen3Config(**_common(vocab, layers, hidden))


def gemma3(vocab: int, layers: int, hidden: int) -> PreTrainedConfig:
    return Gemma3TextConfig(
        **_common(vocab, layers, hidden),
        sliding_window=6,
        layer_types=["sliding_attention", "full_attention"] * (layers // 2)
        + ["sliding_attention"] * (layers % 2),
        query_pre_attn_scalar=hidden // 4,
        final_logit_softcapping=5.0,
    )


def gpt2(vocab: int, layers: int, hidden: int) -> PreTrainedConfig:
    return GPT2Config(
        vocab_size=vocab,
        n_embd=hidden,
        n_layer=layers,
        n_head=4,
        n_positions=512,
        bos_token_id=0,
        eos_token_id=vocab - 1,
        initializer_range=0.3,
    )


FAMILIES: dict[str, Callable[[int, int, int], PreTrainedConfig]] = {
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "gemma3": gemma3,
    "gpt2": gpt2,
}


def tiny_model(
    family: str = "llama", vocab: int = 64, layers: int = 2, hidden: int = 32, seed: int = 0
) -> PreTrainedModel:
    """A transformers model with random weights, float32, eager attention."""
    config = FAMILIES[family](vocab, layers, hidden)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    return model.eval()


def tiny(
    family: str = "llama",
    vocab: int = 64,
    layers: int = 2,
    hidden: int = 32,
    seed: int = 0,
    decoder: str = "auto",
) -> CausalLM:
    """The same model behind our own cache and attention; up to 32 wide its heads are too narrow for
    the lean decoder."""
    model = tiny_model(family, vocab, layers, hidden, seed)
    return CausalLM.from_model(
        model,
        name=f"tiny-{family}",
        tokenizer_fingerprint=FINGERPRINT,
        decoder=decoder,
        kv_bytes=32 << 20,
    )


def tiny_llama(vocab: int = 64, layers: int = 2, hidden: int = 32, seed: int = 0) -> CausalLM:
    """The tiny model that most tests want."""
    return tiny("llama", vocab, layers, hidden, seed)


def small_pool(blocks: int = 64) -> KVPool:
    """Memory for caches of one narrow layer."""
    shape = LayerShape(heads=1, key_dim=2, value_dim=2)
    dtype = torch.float32
    size = blocks * shape.elements(dtype) * dtype.itemsize
    return KVPool([shape], dtype, torch.device("cpu"), size)


def tiny_tokenizer(vocab: int = 64) -> PreTrainedTokenizerFast:
    """Words w0, w1, ... with the ids 0, 1, ...; the last is the end of text."""
    backend = Tokenizer(WordLevel({f"w{i}": i for i in range(vocab)}, unk_token="w0"))  # noqa: S106
    backend.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token=FIRST, eos_token=f"w{vocab - 1}"
    )


def save_tiny(
    folder: Path,
    family: str = "llama",
    vocab: int = 64,
    layers: int = 2,
    hidden: int = 32,
    seed: int = 0,
) -> PreTrainedModel:
    """Writes a tiny model and its tokenizer as a Hugging Face directory."""
    model = tiny_model(family, vocab, layers, hidden, seed)
    model.save_pretrained(folder)
    tiny_tokenizer(vocab).save_pretrained(folder)
    return model

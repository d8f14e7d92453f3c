"""Which decoder serves a model, and why."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from outrider.models.attention import UnsupportedModelError
from outrider.models.family import check_supported
from outrider.models.generic import GenericDecoder

if TYPE_CHECKING:
    from outrider.models.causal_lm import Decoder

LEAN_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
LANES = 16
"""A head's width must be a multiple of it for the lean decoder's attention."""


def why_not_lean(config: PreTrainedConfig, device: torch.device, dtype: torch.dtype) -> str | None:
    """What keeps the lean decoder from serving a model; None where nothing does.

    Args:
        config: of the language model.
        device: where it runs.
        dtype: of its weights as loaded.
    """
    if config.model_type not in LEAN_FAMILIES:
        return f"family {config.model_type} is not one of {', '.join(sorted(LEAN_FAMILIES))}"
    if device.type != "cpu":
        return f"it runs on {device.type}, and the kernels are for processors"
    if importlib.util.find_spec("numba") is None:
        return "Numba is not installed"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"its weights are {str(dtype).removeprefix('torch.')}, not float32 or bfloat16"
    if config.hidden_act != "silu":
        return f"its activation is {config.hidden_act}, not silu"
    heads = config.num_attention_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    if dim % LANES:
        return f"its heads are {dim} wide, not a multiple of {LANES}"
    if getattr(config, "mlp_bias", False):
        return "its gate and up projections have biases"
    if getattr(config, "attention_bias", False) and config.model_type != "qwen2":
        return "its output projection has a bias"
    rope = getattr(config, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    if kind not in ("default", "linear", "llama3", "yarn"):
        return f"its rotary frequencies ({kind}) change with the length of the text"
    return None


def make_decoder(model: PreTrainedModel, choice: str, quantization: str) -> Decoder:
    """The decoder for a model: `choice` is lean, generic or auto.

    Raises:
        UnsupportedModelError: lean was asked for and cannot serve the model, or nothing can.
        ValueError: naming the argument and its value.
    """
    if choice not in ("auto", "lean", "generic"):
        raise ValueError(f"decoder {choice!r}: expected auto, lean or generic")
    if quantization not in ("none", "int8"):
        raise ValueError(f"quantization {quantization!r}: expected none or int8")
    check_supported(model)
    if choice != "generic":
        config = model.config.get_text_config()
        reason = why_not_lean(config, model.device, model.dtype)
        if reason is None:
            from outrider.models.lean.decoder import LeanDecoder

            return LeanDecoder(model, torch.int8 if quantization == "int8" else model.dtype)
        if choice == "lean":
            raise UnsupportedModelError(f"{type(model).__name__}: no lean decoder: {reason}")
    return GenericDecoder(model, quantised=quantization == "int8")

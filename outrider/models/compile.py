"""Compiles all kernels and keeps their machine code: `python -m outrider.models.compile`.

For images: a service compiles what it lacks before it says that it is ready, and is spared the
wait.
"""

from __future__ import annotations

import logging
import sys

import torch
from transformers.models.llama import LlamaConfig, LlamaForCausalLM

from outrider.core.compiled import cache_folder
from outrider.core.sampling import prepare
from outrider.models.causal_lm import CausalLM
from outrider.models.decoders import why_not_lean

logger = logging.getLogger(__name__)


def main() -> int:
    """Compiles; 1 where the machine code cannot be kept."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    prepare()
    for dtype, quantization in (
        (torch.float32, "none"),
        (torch.bfloat16, "none"),
        (torch.float32, "int8"),
    ):
        _run_one_row(dtype, quantization)
    logger.info("kernels are kept in %s", cache_folder())
    return int(cache_folder() is None)


def _run_one_row(dtype: torch.dtype, quantization: str) -> None:
    """One row through a small model, which takes every kernel with the types of any other."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
    )
    reason = why_not_lean(config, torch.device("cpu"), dtype)
    if reason is not None:
        logger.info("%s is left out: %s", dtype, reason)
        return
    model = LlamaForCausalLM(config)
    torch.nn.Module.to(model, dtype)
    CausalLM.from_model(
        model,
        name="small",
        tokenizer_fingerprint="",
        quantization=quantization,
        kv_bytes=0,
    )


if __name__ == "__main__":
    sys.exit(main())

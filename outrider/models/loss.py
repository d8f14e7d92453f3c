"""What rounding costs a model: its mean loss on a text of our own, in several dtypes."""

from __future__ import annotations

from importlib import resources

import torch
from torch import Tensor

from outrider.models.causal_lm import CausalLM, Segment
from outrider.models.linear import packing_available
from outrider.models.loading import load_model, load_tokenizer
from outrider.models.progress import Progress, silent

TEXT = "loss_text.md"
CHUNK = 64
DTYPES = ("float32", "bfloat16", "int8")


def own_text() -> str:
    """About 600 words of prose and code."""
    return resources.files("outrider.models").joinpath(TEXT).read_text(encoding="utf-8")


@torch.inference_mode()
def mean_loss(lm: CausalLM, tokens: list[int]) -> float:
    """Mean of -log p(token | those before it) in nats, over all tokens but the first.

    Raises:
        ValueError: there are fewer than two tokens.
    """
    if len(tokens) < 2:
        raise ValueError(f"tokens: {len(tokens)}, limit at least 2")
    cache = lm.new_cache()
    total = torch.zeros((), dtype=torch.float64)
    try:
        for start in range(0, len(tokens) - 1, CHUNK):
            rows = tokens[start : min(start + CHUNK, len(tokens) - 1)]
            logits = lm.logits(lm.forward([Segment.chain(cache, rows)]).states)
            following = torch.tensor(tokens[start + 1 : start + 1 + len(rows)])
            total += _losses(logits.cpu(), following).sum()
    finally:
        cache.free()
    return float(total) / (len(tokens) - 1)


def _losses(logits: Tensor, following: Tensor) -> Tensor:
    """Logits [n, vocab] and ids [n] -> nats [n], float64."""
    return torch.nn.functional.cross_entropy(logits.double(), following, reduction="none")


def losses(spec: str, progress: Progress = silent) -> dict[str, float]:
    """Mean loss of a model on `own_text`, cut to its context, by dtype, on the CPU.

    bfloat16 and int8 are left out where this processor has no products for them.

    Raises:
        ModelSpecError: the model cannot be had or read.
        UnsupportedModelError: it cannot run packed.
    """
    cpu = torch.device("cpu")
    served = [
        dtype
        for dtype in DTYPES
        if dtype == "float32"
        or packing_available(torch.bfloat16 if dtype == "bfloat16" else torch.float32, cpu)
    ]
    found: dict[str, float] = {}
    for done, dtype in enumerate(served):
        progress("measuring losses", done, len(served))
        lm = load_model(spec, dtype=dtype)
        tokens: list[int] = load_tokenizer(spec)(own_text())["input_ids"]
        found[dtype] = mean_loss(lm, tokens[: lm.context_length])
    progress("measuring losses", len(served), len(served))
    return found

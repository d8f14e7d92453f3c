"""Timed forward passes in this process: ours, and transformers' with its own cache."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rich.progress import track
from transformers import DynamicCache, PreTrainedModel

from benchmarks.report import progress_console
from outrider.models.causal_lm import CausalLM, Segment

PREFILL = 64
Pass = Callable[[], float]
"""Does one pass and returns its seconds; every call starts from the same state."""


def own_pass(model: CausalLM, context: Sequence[int], rows: Sequence[int]) -> Pass:
    """Our forward and head over `rows`, a chain behind `context`."""
    cache = model.new_cache()
    for start in range(0, len(context), PREFILL):
        model.forward([Segment.chain(cache, context[start : start + PREFILL])])

    def run() -> float:
        started = time.perf_counter()
        model.logits(model.forward([Segment.chain(cache, rows)]).states)
        seconds = time.perf_counter() - started
        cache.keep(len(context))
        return seconds

    return run


def transformers_pass(
    model: PreTrainedModel, attention: str, context: Sequence[int], rows: Sequence[int]
) -> Pass:
    """transformers' forward and head over `rows` behind `context`, in its own cache."""
    filled = DynamicCache()
    with torch.inference_mode():
        model(torch.tensor([list(context)]), past_key_values=filled, use_cache=True)
    ids = torch.tensor([list(rows)])

    @torch.inference_mode()
    def run() -> float:
        cache: Any = copy.deepcopy(filled)
        model.set_attn_implementation(attention)
        started = time.perf_counter()
        model(ids, past_key_values=cache, use_cache=True)
        return time.perf_counter() - started

    return run


def interleaved_medians(passes: Mapping[str, Pass], repetitions: int) -> dict[str, float]:
    """Median seconds of each, all in turn, so that a drift of the machine meets all alike.

    Each turn is one pass that brings the caches back, and one that counts.
    """
    seconds: dict[str, list[float]] = {name: [] for name in passes}
    for _ in track(range(repetitions), console=progress_console(), transient=True):
        for name, run in passes.items():
            run()
            seconds[name].append(run())
    return {name: statistics.median(each) for name, each in seconds.items()}

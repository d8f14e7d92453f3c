"""The law of the next token as transformers has it: what everything else is measured against."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import GenerationConfig
from transformers.generation import LogitsProcessorList

from outrider.core.round import SamplingParams
from tests.tiny import tiny_model


@cache
def transformers_processors(params: SamplingParams) -> LogitsProcessorList:
    """The processors that transformers' own `generate` would build, in its order."""
    config = GenerationConfig(
        do_sample=True,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p or None,
        max_length=None,
    )
    model: Any = tiny_model(vocab=8, layers=1, hidden=16)
    processors: LogitsProcessorList = model._get_logits_processor(
        generation_config=config, input_ids_seq_length=1
    )
    return processors


def transformers_law(
    processors: LogitsProcessorList, logits: npt.NDArray[np.floating[Any]]
) -> npt.NDArray[np.float64]:
    """p [V] after the processors, in float64."""
    scores = torch.from_numpy(logits.astype(np.float64))[None]
    law: npt.NDArray[np.float64] = (
        processors(torch.zeros(1, 1, dtype=torch.long), scores)[0].softmax(-1).numpy()
    )
    return law

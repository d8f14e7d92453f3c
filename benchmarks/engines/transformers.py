"""transformers' own `generate`: plain, with prompt lookup, or assisted by a draft model.

Options: dtype (float32, bfloat16), attention (sdpa, eager), help (none, lookup, assistant).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.generation.streamers import BaseStreamer

from benchmarks.engines import Arrived, Engine, Job

LOOKUP_TOKENS = 10  # what its documentation uses


class _Streamer(BaseStreamer):
    """Passes tokens on; the first call brings the prompt."""

    def __init__(self, arrived: Arrived) -> None:
        self._arrived = arrived
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if self._prompt_seen:
            self._arrived(value.flatten().tolist())
        self._prompt_seen = True

    def end(self) -> None:
        pass


def _config(**options: Any) -> GenerationConfig:
    return GenerationConfig(**options)  # type: ignore[no-untyped-call]


class _Transformers:
    version = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def __init__(self, model: PreTrainedModel, weights: str, extra: dict[str, Any]) -> None:
        self.weights = weights
        self._model = model
        self._extra = extra

    @torch.inference_mode()
    def generate(self, prompt_ids: Sequence[int], tokens: int, arrived: Arrived) -> None:
        ids = torch.tensor([list(prompt_ids)])
        # Without an EOS id nothing ends the text early.
        config = _config(do_sample=False, max_new_tokens=tokens, pad_token_id=0)
        options = {"generation_config": config, "streamer": _Streamer(arrived), **self._extra}
        generate: Any = self._model.generate
        generate(ids, attention_mask=torch.ones_like(ids), **options)


@contextmanager
def load(job: Job) -> Iterator[Engine]:
    """The model in the job's directory."""
    torch.set_num_threads(job.threads)
    dtype, attention = job.options["dtype"], job.options.get("attention", "sdpa")

    def model(place: str) -> PreTrainedModel:
        made = AutoModelForCausalLM.from_pretrained(
            place, dtype=getattr(torch, dtype), attn_implementation=attention
        )
        made.generation_config = _config()  # nothing of what its directory says
        return made

    extra: dict[str, Any] = {}
    if job.options.get("help") == "lookup":
        extra["prompt_lookup_num_tokens"] = LOOKUP_TOKENS
    elif job.options.get("help") == "assistant":
        extra["assistant_model"] = model(job.draft)
    yield _Transformers(model(job.model), f"{dtype} throughout, {attention} attention", extra)

"""llama.cpp through llama-cpp-python, on the GGUF file itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import llama_cpp

from benchmarks.engines import Arrived, Engine, Job


class _LlamaCpp:
    version = f"llama-cpp-python {llama_cpp.__version__}"
    weights = (
        "4 bits (Q4_1; embedding and head 8, Q8_0), activations quantised to 8 bits by block, "
        "cache float16"
    )

    def __init__(self, model: llama_cpp.Llama) -> None:
        self._model = model

    def generate(self, prompt_ids: Sequence[int], tokens: int, arrived: Arrived) -> None:
        # `generate` has no end of its own: it goes on behind the EOS.
        stream = self._model.generate(list(prompt_ids), temp=0.0, repeat_penalty=1.0)
        for count, token in enumerate(stream, start=1):
            arrived([token])
            if count == tokens:
                stream.close()
                break


@contextmanager
def load(job: Job) -> Iterator[Engine]:
    """The model in the job's GGUF file."""
    model = llama_cpp.Llama(
        model_path=job.gguf,
        n_ctx=max(map(len, job.prompts)) + job.tokens + 1,
        n_threads=job.threads,
        n_threads_batch=job.threads,
        verbose=False,
    )
    try:
        yield _LlamaCpp(model)
    finally:
        model.close()

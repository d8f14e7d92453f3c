"""OpenVINO GenAI, which reads the GGUF file itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import openvino
import openvino_genai

from benchmarks.engines import Arrived, Engine, Job


class _Streamer(openvino_genai.StreamerBase):  # type: ignore[misc]  # its base is untyped
    """Passes token ids on; nothing is detokenised."""

    def __init__(self, arrived: Arrived) -> None:
        super().__init__()
        self._arrived = arrived

    def write(self, token: int | Sequence[int]) -> openvino_genai.StreamingStatus:
        self._arrived([token] if isinstance(token, int) else list(token))
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        pass


class _OpenVino:
    version = f"openvino-genai {openvino_genai.__version__}"
    weights = (
        "4 bits (Q4_1; embedding and head 8, Q8_0), activations and cache in 8 bits, the "
        "defaults of the CPU runtime"
    )

    def __init__(self, pipeline: openvino_genai.LLMPipeline) -> None:
        self._pipeline = pipeline

    def generate(self, prompt_ids: Sequence[int], tokens: int, arrived: Arrived) -> None:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = tokens
        config.ignore_eos = True
        config.do_sample = False
        ids = openvino.Tensor(np.array([list(prompt_ids)], dtype=np.int64))
        self._pipeline.generate(ids, config, _Streamer(arrived))


@contextmanager
def load(job: Job) -> Iterator[Engine]:
    """The model in the job's GGUF file."""
    options = {"INFERENCE_NUM_THREADS": job.threads, "enable_save_ov_model": False}
    yield _OpenVino(openvino_genai.LLMPipeline(job.gguf, "CPU", **options))

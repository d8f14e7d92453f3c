"""Engines behind one small interface, each an adapter of its own.

An adapter is a module with `load(job)`, a context manager that gives an `Engine`. It runs in a
process of its own (`benchmarks.worker`), where only what it imports itself need be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Arrived = Callable[[Sequence[int]], None]
EXTRAS = {"llama_cpp": "bench-llama", "openvino_genai": "bench-openvino"}
"""The project's optional extra that brings a peer."""


class EngineRefused(Exception):
    """The engine does not serve what was asked for; the message is for the table."""


class Engine(Protocol):
    """A loaded model that writes one greedy text at a time."""

    @property
    def version(self) -> str:
        """Name and version of what runs."""

    @property
    def weights(self) -> str:
        """In which numbers weights, activations and cache are kept and multiplied."""

    def generate(self, prompt_ids: Sequence[int], tokens: int, arrived: Arrived) -> None:
        """Hands every token to `arrived` as soon as it is there; `tokens` of them, EOS ignored."""


@dataclass(frozen=True)
class Job:
    """What a process measures.

    Args:
        engine: module of this package.
        options: what the adapter makes of its engine, such as the dtype.
        threads: that it may use.
        tokens: of each text.
        prompts: token ids of each prompt; the first one warms up and is not measured.
        model: Hugging Face directory of the target.
        draft: Hugging Face directory of a draft model cut from it.
        gguf: the file that the target was made of.
    """

    engine: str
    options: Mapping[str, str]
    threads: int
    tokens: int
    prompts: Sequence[Sequence[int]]
    model: str
    draft: str
    gguf: str

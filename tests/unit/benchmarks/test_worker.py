"""The process that measures one engine."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from benchmarks import worker
from benchmarks.engines import Arrived, Engine, EngineRefused, Job


class Echo:
    """Says the prompt's first token as often as asked."""

    version = "echo 1"
    weights = "none"

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def generate(self, prompt_ids: Sequence[int], tokens: int, arrived: Arrived) -> None:
        self.asked.append((prompt_ids[0], tokens))
        for _ in range(tokens):
            arrived([prompt_ids[0]])


def _job(engine: str = "echo") -> Job:
    return Job(engine, {}, 1, 3, [[7], [8], [9]], model="", draft="", gguf="")


def _adapter(monkeypatch: pytest.MonkeyPatch, engine: Engine | Exception) -> None:
    @contextmanager
    def load(job: Job) -> Iterator[Engine]:
        if isinstance(engine, Exception):
            raise engine
        yield engine

    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(load=load))


def test_the_first_prompt_warms_up_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Echo()
    _adapter(monkeypatch, engine)
    result = worker.run(_job())
    assert engine.asked == [(7, worker.WARM_UP_TOKENS), (8, 3), (9, 3)]
    assert [text["ids"] for text in result["texts"]] == [[8] * 3, [9] * 3]
    assert result["version"] == "echo 1"


def test_an_engine_that_refuses_is_skipped_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    _adapter(monkeypatch, EngineRefused("no such dtype"))
    assert worker.run(_job()) == {"skipped": "skipped: no such dtype"}


def test_a_peer_that_is_not_installed_is_skipped_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("no", name="llama_cpp")

    monkeypatch.setattr(importlib, "import_module", missing)
    reason = worker.run(_job("llama_cpp"))["skipped"]
    assert reason == ("skipped: llama_cpp is not installed (extra bench-llama, or --peer-python)")


def test_a_missing_module_of_our_own_is_no_reason_to_skip() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"benchmarks\.engines\.echo"):
        worker.run(_job())

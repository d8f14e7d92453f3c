"""Measures one engine: `python -m benchmarks.worker JOB.json RESULT.json`, for compare.py.

A process of its own, so that the memory and threads of one engine do not disturb the next. It may
run in an interpreter that has nothing but the engine: only the standard library is imported here.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.arrivals import Arrivals
from benchmarks.engines import EXTRAS, Engine, EngineRefused, Job

WARM_UP_TOKENS = 8
OURS = ("benchmarks", "outrider")


def measure(engine: Engine, job: Job) -> list[dict[str, Any]]:
    """Arrivals of every prompt but the first, which only warms the engine up.

    None comes twice, so that a cache of prefixes holds no more than the opening of the template.
    """
    engine.generate(job.prompts[0], WARM_UP_TOKENS, lambda ids: None)
    texts = []
    for prompt in job.prompts[1:]:
        arrivals = Arrivals.begin()
        engine.generate(prompt, job.tokens, arrivals.add)
        texts.append(asdict(arrivals))
    return texts


def run(job: Job) -> dict[str, Any]:
    """The result of a job; `skipped` says why there is none."""
    try:
        adapter = importlib.import_module(f"benchmarks.engines.{job.engine}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(OURS):
            raise
        return {"skipped": f"skipped: {error.name} is not installed{_how(job.engine)}"}
    started = time.perf_counter()
    try:
        with adapter.load(job) as engine:
            load_s = time.perf_counter() - started
            texts = measure(engine, job)
            return {
                "version": engine.version,
                "weights": engine.weights,
                "load_s": load_s,
                "texts": texts,
            }
    except EngineRefused as error:
        return {"skipped": f"skipped: {error}"}


def _how(engine: str) -> str:
    extra = EXTRAS.get(engine)
    return f" (extra {extra}, or --peer-python)" if extra else ""


def main() -> None:
    """Reads the job, writes the result."""
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(run(job)), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Outrider beside other engines: one run, one machine, the same prompts.

    python -m benchmarks.compare [--engines NAME ...] [--tokens 128] [--prompts 12] [--rounds 1]
        [--peer-python ENGINE=PYTHON ...] [--out FILE]

Every case runs in a fresh process, one after another, on the same cores, with one stream: greedy,
an equal number of tokens, EOS ignored. The prompts are our own in the model's chat format, handed
over as token ids. All run the default target: transformers and outrider the converted weights,
llama.cpp and OpenVINO the GGUF file that they were converted from.

The decode rate is tokens behind the first arrival over the time behind it; the time to the first
token stands beside it. Both also as ratios to transformers' best plain case of this run. With
--rounds, the whole sequence is repeated and the median round counts.

Numbers differ: each row says in which it computes. The file's layers are 4 bits (Q4_1), its
embedding and head 8 (Q8_0); llama.cpp and OpenVINO multiply them so, with activations of 8 bits.
transformers and outrider multiply the same values unpacked, in the dtype that the row names;
outrider's int8 rounds them once more, weights and activations to 8 bits.

A peer that is not installed is skipped. `pip install outrider[bench-llama,bench-openvino]` brings
them, or a virtual environment of their own with nothing else in it:

    python -m venv /tmp/peers && /tmp/peers/bin/pip install llama-cpp-python openvino-genai
    python -m benchmarks.compare --peer-python llama_cpp=/tmp/peers/bin/python \\
        --peer-python openvino_genai=/tmp/peers/bin/python
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import Progress
from rich.table import Table

from benchmarks import cases, report
from benchmarks.engines import EXTRAS, Job
from benchmarks.prompts import chat_ids
from outrider.drafting.specs import default_checkpoint
from outrider.models.default_gguf import default_gguf
from outrider.models.hub import DEFAULT, DEFAULT_NAME, default_draft, default_target
from outrider.models.tokenizer import load_tokenizer
from training.export import export
from training.target import TrainingTarget

ROOT = Path(__file__).parents[1]
LIMIT_S = 3600.0  # of one case


FAILED = "failed"


class WorkerFailed(Exception):
    """A case ended without a result; the message has its last lines."""


def run_job(job: Job, python: str) -> dict[str, Any]:
    """The worker's result.

    Raises:
        WorkerFailed: it has none.
    """
    with tempfile.TemporaryDirectory() as name:
        asked, result = Path(name) / "job.json", Path(name) / "result.json"
        asked.write_text(json.dumps(asdict(job)), encoding="utf-8")
        command = [python, "-m", "benchmarks.worker", str(asked), str(result)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(job.threads)}
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise WorkerFailed(f"{job.engine}: not done in {LIMIT_S:g} s") from error
        if not result.exists():
            raise WorkerFailed(f"{job.engine}: status {done.returncode}: {done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def run_all(
    names: Sequence[str], shared: Mapping[str, Any], pythons: Mapping[str, str], rounds: int
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Results of every case, one a round; and why cases have none.

    Every second round has the reverse order, so that a machine that slows down does so for all.
    """
    results: dict[str, list[dict[str, Any]]] = {}
    skipped: dict[str, str] = {}
    console = report.progress_console()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(names) * rounds)
        turns = (names[:: -1 if turn % 2 else 1] for turn in range(rounds))
        for name in [name for turn in turns for name in turn]:
            case = cases.CASES[name]
            progress.update(task, description=name)
            if name not in skipped:
                job = Job(engine=case.engine, options=case.options, **shared)
                try:
                    found = run_job(job, pythons.get(case.engine, sys.executable))
                except WorkerFailed as error:
                    console.print(error, markup=False)
                    found = {"skipped": FAILED}
                if "skipped" in found:
                    skipped[name] = found["skipped"]
                else:
                    results.setdefault(name, []).append(found)
            progress.advance(task)
    return results, skipped


def measured(results: Mapping[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Figures and ratios by case; texts are compared with transformers' in float32."""
    right = results.get(next(iter(cases.BASELINES)))
    plain = [text["ids"] for text in right[0]["texts"]] if right else []
    return cases.with_ratios({name: cases.figures(each, plain) for name, each in results.items()})


def table(rows: Mapping[str, Mapping[str, Any]], skipped: Mapping[str, str]) -> Table:
    """Figures for people."""
    made = Table(
        "engine", "tokens/s", "of best plain", "first token, ms", "of best plain", "texts as plain",
        "numbers",
    )  # fmt: skip
    made.columns[0].no_wrap = True
    for name, row in rows.items():
        made.add_row(
            name,
            f"{row['tokens_per_second']:.1f}",
            _ratio(row["rate_ratio"]),
            f"{row['first_token_s'] * 1000:.0f}",
            _ratio(row["first_token_ratio"]),
            f"{row['same_texts']} of {row['compared_texts']}",
            row["weights"],
        )
    for name, reason in skipped.items():
        made.add_row(name, *["-"] * 5, reason)
    return made


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def peer_pythons(given: Sequence[str]) -> dict[str, str]:
    """Interpreter by engine, of ENGINE=PYTHON.

    Raises:
        ValueError: the engine is unknown, or has no interpreter.
    """
    chosen = {}
    for entry in given:
        engine, _, python = entry.partition("=")
        if engine not in EXTRAS or not python:
            known = ", ".join(EXTRAS)
            raise ValueError(f"peer-python: {entry!r}, expected ENGINE=PYTHON, ENGINE of {known}")
        chosen[engine] = python
    return chosen


@contextmanager
def draft_model() -> Iterator[Path]:
    """The trained draft model as transformers reads it; the untrained cut where none is there."""
    trained = default_checkpoint("draft_model", DEFAULT)
    if trained is None:
        yield default_draft()
        return
    with tempfile.TemporaryDirectory() as folder:
        export(trained, TrainingTarget(DEFAULT), Path(folder))
        yield Path(folder)


def main() -> int:
    """Measures, prints, stores; 1 where a ratio is too low."""
    parser = report.parser(__doc__, "compare")
    parser.add_argument("--engines", nargs="*", default=[], help="engines or cases; default: all")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peer-python", action="append", default=[], metavar="ENGINE=PYTHON")
    given = parser.parse_args()
    for name, least in (("tokens", 2), ("prompts", 1), ("rounds", 1)):
        if getattr(given, name) < least:
            parser.error(f"{name}: {getattr(given, name)}, limit {least} or more")
    try:
        names, pythons = cases.choose(given.engines), peer_pythons(given.peer_python)
    except ValueError as error:
        parser.error(str(error))
    threads = report.keep_to(given.cores)
    model = default_target()
    with draft_model() as draft:
        shared = {
            "threads": threads,
            "tokens": given.tokens,
            "prompts": chat_ids(load_tokenizer(str(model)), given.prompts + 1),  # one warms up
            "model": str(model),
            "draft": str(draft),
            "gguf": str(default_gguf()),
        }
        results, skipped = run_all(names, shared, pythons, given.rounds)
    rows = measured(results)
    report.console().print(table(rows, skipped))
    run = {
        "model": DEFAULT_NAME,
        "tokens": given.tokens,
        "prompts": given.prompts,
        "rounds": given.rounds,
        "best_plain": cases.best_plain(rows),
    }
    figures = {"engines": rows, "skipped": skipped}
    status = report.finish(given.out, run, figures, cases.limits(rows))
    return 1 if FAILED in skipped.values() else status


if __name__ == "__main__":
    sys.exit(main())

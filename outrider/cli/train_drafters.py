"""`outrider train draft_model`, `eagle` and `medusa`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli import provenance
from outrider.cli.bars import staged
from outrider.cli.console import ending_well, out
from outrider.cli.train_options import (
    Data,
    Device,
    Features,
    Rows,
    Seed,
    Target,
    Threads,
    numbers,
    schedule_of,
    target_of,
)

if TYPE_CHECKING:
    from training.learner import Learner
    from training.target import TrainingTarget
    from training.vocabulary import DraftVocabulary

    Make = Callable[[TrainingTarget, DraftVocabulary], Learner]

Run = Annotated[Path, typer.Option("--out", help="Folder of the training.")]
Minutes = Annotated[float | None, typer.Option(min=0.01, help="Budget of training time.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Budget in steps instead of minutes.")]
Rate = Annotated[float, typer.Option("--lr", help="Peak of the learning rate.")]
BatchRows = Annotated[int, typer.Option("--rows", min=1, help="Tokens of a batch.")]
Longest = Annotated[int, typer.Option(min=8, help="Tokens of a text that are used.")]
PromptWeight = Annotated[float, typer.Option(min=0.0, help="Of prompt tokens in the loss.")]
Evaluations = Annotated[int, typer.Option(min=1, help="How often acceptance is measured.")]
Dropout = Annotated[float, typer.Option(min=0.0, max=0.9)]
Precision = Annotated[
    str, typer.Option(help="Of the products: float32, bfloat16, or auto: what is faster here.")
]
Start = Annotated[
    Path | None,
    typer.Option(help="A training or checkpoint to begin with the weights of."),
]


def draft_model(
    data: Data,
    run: Run,
    layers: Annotated[
        str | None, typer.Option(help="Of the target. Default: the first two and the last.")
    ] = None,
    minutes: Minutes = None,
    steps: Steps = None,
    lr: Rate = 1.5e-3,
    rows: BatchRows = 1000,
    longest: Longest = 768,
    prompt_weight: PromptWeight = 1.0,
    dropout: Dropout = 0.1,
    evaluations: Evaluations = 12,
    draft_vocab_size: Rows = 16384,
    precision: Precision = "auto",
    features: Features = None,
    start: Start = None,
    seed: Seed = 0,
    target: Target = "default",
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Trains a draft model: some of the target's layers."""

    def make(made: TrainingTarget, vocabulary: DraftVocabulary) -> Learner:
        from training.draft_model import DraftModelLearner, default_layers

        total = made.facts.layers
        chosen = default_layers(total) if layers is None else numbers("layers", layers)
        learner = DraftModelLearner(made.model, chosen, vocabulary, made.parts, dropout)
        return learner.to(made.where)

    shape = {"layers": layers, "dropout": dropout}
    schedule = schedule_of(lr, rows, longest, prompt_weight, minutes, steps, evaluations, seed)
    schedule |= {"precision": precision}
    _train(make, data, run, features, draft_vocab_size, schedule, shape, start,
           target, device, threads)  # fmt: skip


def eagle(
    data: Data,
    run: Run,
    taps: Annotated[
        str | None, typer.Option(help="Layers whose input it reads. Default: EAGLE-3's three.")
    ] = None,
    single_step: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the time with one step unrolled.")
    ] = 0.5,
    train_head: Annotated[
        bool, typer.Option("--train-head", help="Train the LM head, and store it.")
    ] = False,
    minutes: Minutes = None,
    steps: Steps = None,
    lr: Rate = 1.5e-3,
    rows: BatchRows = 1000,
    longest: Longest = 768,
    prompt_weight: PromptWeight = 1.0,
    dropout: Dropout = 0.1,
    evaluations: Evaluations = 12,
    draft_vocab_size: Rows = 16384,
    precision: Precision = "auto",
    features: Features = None,
    start: Start = None,
    seed: Seed = 0,
    target: Target = "default",
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Trains an EAGLE-3 head: one layer on the target's features."""

    def make(made: TrainingTarget, vocabulary: DraftVocabulary) -> Learner:
        from training.eagle import EagleLearner, EagleRecipe

        chosen = None if taps is None else numbers("taps", taps)
        recipe = EagleRecipe(chosen, dropout, not train_head, single_step)
        return EagleLearner(made.model, vocabulary, made.parts, recipe).to(made.where)

    shape = {"taps": taps, "single": single_step, "train_head": train_head, "dropout": dropout}
    schedule = schedule_of(lr, rows, longest, prompt_weight, minutes, steps, evaluations, seed)
    schedule |= {"precision": precision}
    _train(make, data, run, features, draft_vocab_size, schedule, shape, start,
           target, device, threads)  # fmt: skip


def medusa(
    data: Data,
    run: Run,
    heads: Annotated[int, typer.Option(min=1, max=10, help="Tokens ahead.")] = 4,
    layers: Annotated[int, typer.Option(min=1, max=8, help="Blocks of a head.")] = 1,
    root_embedding: Annotated[
        bool, typer.Option(help="Heads read the tree's root too; without: plain Medusa's form.")
    ] = True,
    minutes: Minutes = None,
    steps: Steps = None,
    lr: Rate = 2e-3,
    rows: BatchRows = 1000,
    longest: Longest = 768,
    prompt_weight: PromptWeight = 1.0,
    evaluations: Evaluations = 12,
    draft_vocab_size: Rows = 16384,
    precision: Precision = "auto",
    features: Features = None,
    start: Start = None,
    seed: Seed = 0,
    target: Target = "default",
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Trains Medusa heads on the target's final state and the root of their tree."""

    def make(made: TrainingTarget, vocabulary: DraftVocabulary) -> Learner:
        from training.medusa import MedusaLearner

        learner = MedusaLearner(made.model, vocabulary, made.parts, heads, layers, root_embedding)
        return learner.to(made.where)

    schedule = schedule_of(lr, rows, longest, prompt_weight, minutes, steps, evaluations, seed)
    schedule |= {"precision": precision}
    shape = {"heads": heads, "layers": layers, "root_embedding": root_embedding}
    _train(make, data, run, features, draft_vocab_size, schedule, shape, start,
           target, device, threads)  # fmt: skip


def add_drafters(app: typer.Typer) -> None:
    """Makes commands of them."""
    app.command("draft_model")(draft_model)
    app.command("eagle")(eagle)
    app.command("medusa")(medusa)


def _train(
    make: Make,
    data: Path,
    run: Path,
    features: Path | None,
    rows: int,
    schedule: dict[str, Any],
    shape: dict[str, Any],
    start: Path | None,
    target: str,
    device: str,
    threads: int | None,
) -> None:
    """Prepares, trains or goes on, reports."""
    with ending_well():
        import torch

        from outrider.models.loading import parse_device
        from training.learner import trained
        from training.precision import settled
        from training.prepare import Preparation, prepare, records_of, vocabulary_of
        from training.records import split
        from training.report import report, write_report
        from training.run_state import begun_with, load_trained
        from training.schedule import Options
        from training.trainer import Told, Trainer
        from training.vocabulary import coverage

        asked, where = schedule["precision"], parse_device(device)
        options = Options(**schedule | {"precision": settled(asked, where, begun_with(run))})
        records = records_of(data)
        preparation = Preparation(data, features, rows, options.longest)
        with staged() as stages:
            made = target_of(target, device, threads, stages)
            vocabulary = vocabulary_of(preparation, made, records)
            torch.manual_seed(options.seed)
            learner = make(made, vocabulary)
            if start is not None:
                load_trained(start, dict(trained(learner)))
            material = prepare(preparation, made, vocabulary, records, learner.taps, stages)
        about = {
            "target": vars(made.facts),
            "shape": shape,
            "draft_vocab_size": rows,
            "start": None if start is None else str(start),
            "sequences": len(material.train.records),
            "tokens": sum(len(record.ids) for record in material.train.records),
        }
        trainer = Trainer(learner, material, options, run, about)
        with staged() as show:
            shown = time.monotonic()

            def tell(told: Told) -> None:
                nonlocal shown
                if time.monotonic() - shown > 0.2 or told.share >= 1:
                    shown = time.monotonic()
                    note = f"step {told.step}, loss {told.loss:.3f}, length {told.score:.3f}"
                    show(learner.method, told.share, 1.0, note)

            best = trainer.run(tell)
        covered = coverage(split(records)[1], vocabulary)
        document = report(run, covered) | {"made_with": provenance.facts()}
        write_report(run, document)
        out().print(f"{best}: acceptance length {trainer.state.best_score:.3f} on held-out texts")

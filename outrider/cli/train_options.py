"""Options that the commands of `outrider train` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.models.progress import Progress, silent

if TYPE_CHECKING:
    from training.target import TrainingTarget

Data = Annotated[Path, typer.Option("--data", help="Folder of the target's texts.")]
Features = Annotated[
    Path | None, typer.Option("--features", help="Folder of the features. Default: in --data.")
]
Rows = Annotated[int, typer.Option("--draft-vocab-size", min=1, help="Rows of the draft head.")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.")]
Target = Annotated[
    str, typer.Option(help="default, a Hugging Face directory, a GGUF file or a hub id.")
]
Dtype = Annotated[
    str, typer.Option(help="Of the target: auto (as it is served), float32, bfloat16 or int8.")
]
Device = Annotated[str, typer.Option(help="cpu or cuda:N.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the processor.")]


def target_of(
    spec: str,
    device: str,
    threads: int | None,
    progress: Progress = silent,
    dtype: str = "auto",
) -> TrainingTarget:
    """The target; its device and files are looked for now."""
    from outrider.models.hub import resolve
    from outrider.models.loading import parse_device, parse_dtype
    from training.target import TrainingTarget

    parse_dtype(dtype, parse_device(device))
    resolve(spec, progress)
    return TrainingTarget(spec, device, threads, progress, dtype)


def numbers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas.

    Raises:
        ValueError: they are not.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{name}: {text!r}, limit whole numbers separated by commas") from None


def schedule_of(
    lr: float,
    rows: int,
    longest: int,
    prompt_weight: float,
    minutes: float | None,
    steps: int | None,
    evaluations: int,
    seed: int,
) -> dict[str, Any]:
    """The fields of `training.schedule.Options`.

    Raises:
        typer.BadParameter: there is not exactly one budget.
    """
    if (minutes is None) == (steps is None):
        raise typer.BadParameter("exactly one of --minutes and --steps is needed")
    return {
        "lr": lr,
        "rows": rows,
        "longest": longest,
        "prompt_weight": prompt_weight,
        "seconds": None if minutes is None else 60 * minutes,
        "steps": steps,
        "evaluations": evaluations,
        "seed": seed,
    }

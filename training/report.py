"""What a training found, as JSON and as curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.files import replace, replace_json
from training.files import TrainingError, read_json


def report(folder: Path, coverage: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Everything that a run's folder tells, in one document.

    Raises:
        TrainingError: the folder has no run.
    """
    run, history = read_json(folder / "run.json"), read_json(folder / "history.json")
    measured = history["history"]
    best = max(measured, key=lambda entry: _score(entry), default=None)
    document = {**run, "best": best, "history": measured, "loss_curve": history["curve"]}
    if coverage is not None:
        document["coverage"] = dict(coverage)
    return document


def write_report(folder: Path, document: Mapping[str, Any]) -> tuple[Path, Path | None]:
    """Writes report.json and, where matplotlib is installed, curves.png into the run's folder."""
    path = folder / "report.json"
    replace_json(path, document)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return path, None
    curves = folder / "curves.png"
    replace(curves, lambda temporary: _draw(temporary, document))
    return path, curves


def _score(entry: Mapping[str, Any]) -> float:
    chain = {int(k): value for k, value in entry["chain"].items()}
    return float(chain[min(4, max(chain))])


def _draw(path: Path, document: Mapping[str, Any]) -> None:
    """Loss, agreement by depth, and acceptance lengths over the minutes of training."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measured = document["history"]
    if not measured:
        raise TrainingError("report: nothing was measured yet")
    minutes = [entry["seconds"] / 60 for entry in measured]
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    loss, agreement, length = figure.subplots(1, 3)
    curve = document["loss_curve"]
    loss.plot([point[1] / 60 for point in curve], [point[2] for point in curve])
    loss.set(title="loss", xlabel="minutes")
    for depth in range(len(measured[0]["conditional"])):
        shares = [entry["conditional"][depth] for entry in measured]
        agreement.plot(minutes, shares, marker=".", label=f"depth {depth + 1}")
    agreement.set(title="agreement, given those before", xlabel="minutes", ylim=(0, 1))
    for kind, marker in (("chain", "."), ("tree", "x")):
        for size in measured[0][kind]:
            lengths = [entry[kind][size] for entry in measured]
            length.plot(minutes, lengths, marker=marker, label=f"{kind} {size}")
    length.set(title="acceptance length, held out", xlabel="minutes")
    for axes in (agreement, length):
        axes.legend(fontsize="x-small")
    figure.savefig(path, dpi=120, format="png")

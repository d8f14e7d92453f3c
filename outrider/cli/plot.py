"""Draws a plan: speed-up by K, a curve for each acceptance, a field for each batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.cli.plan import Plan


def draw(path: Path, plans: Sequence[Plan], rates: Sequence[float], most: int) -> None:
    """Writes the PNG.

    Raises:
        ValueError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("plot: needs matplotlib, pip install 'outrider[plot]'") from error
    figure = Figure(figsize=(4.2 * len(plans), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    fields = figure.subplots(1, len(plans), sharey=True, squeeze=False)[0]
    depths = range(most + 1)
    for field, plan in zip(fields, plans, strict=True):
        for rate in rates:
            field.plot(depths, [plan.speed_up(rate, k) for k in depths], label=f"{rate:g}")
            best = plan.best(rate, most)
            field.plot([best], [plan.speed_up(rate, best)], "k.", markersize=5)
        field.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
        field.set_title(f"{plan.batch} a step")
        field.set_xlabel("K")
    fields[0].set_ylabel("speed-up over plain decoding")
    fields[0].legend(title="acceptance", fontsize="small")
    figure.savefig(path, format="png", dpi=120)

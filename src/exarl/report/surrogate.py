"""The errors of a surrogate as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from exarl.run.surrogate import HorizonErrors

BLUE, GREY = "#2563a8", "#7a7f87"


def draw(errors: HorizonErrors, title: str, path: Path) -> None:
    """Write the errors by horizon as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=110, layout="constrained")
    axes = figure.subplots()
    lines: Sequence[tuple[np.ndarray, str, str]] = (
        (errors.model, BLUE, "surrogate"),
        (errors.persistence, GREY, "nothing changes"),
    )
    for values, colour, name in lines:
        axes.plot(errors.horizons, values, "o-", ms=3, color=colour, label=name)
    axes.set(xlabel="steps ahead", ylabel="error (standard deviations)", ylim=(0, None))
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png")

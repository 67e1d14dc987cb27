"""Residuals of identified dynamics as a picture. The one module of the CLI that needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt  # after the backend is chosen

from gateway.solver.identify.identify import Identified
from gateway.solver.identify.notes import Target
from gateway.solver.identify.windows import misses, starts, table

_MOST = 4_000  # points of one line


def drawn(found: Identified, path: Path) -> None:
    """One row a target: mean residual over time with the band, and how it is spread. Raises `OSError`."""
    rows = len(found.targets)
    figure, axes = plt.subplots(rows, 2, figsize=(11, 3 * rows), squeeze=False, width_ratios=(3, 1))
    for row, target in zip(axes, found.targets, strict=True):
        _row(found, target, row[0], row[1])
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _row(found: Identified, target: Target, left: plt.Axes, right: plt.Axes) -> None:
    band, model = target.band, target.model
    columns = table(found.grid, model.target, list(model.effects))
    here = starts(columns, band.window, 0, found.grid.steps)
    means = misses(found.grid, model, here, band.window) / model.gain(band.window)
    hours = here * found.grid.step_s / 3600
    thin = max(1, len(here) // _MOST)
    left.plot(hours[::thin], means[::thin], linewidth=0.5)
    for end in (band.low, band.high):
        left.axhline(end, color="tab:red", linewidth=1)
        right.axhline(end, color="tab:red", linewidth=1)
    left.axvline(found.train[1] * found.grid.step_s / 3600, color="grey", linestyle=":")
    left.set_title(
        f"{model.target}: mean residual over {band.window} steps, per step; right of dots: held out"
    )
    left.set_xlabel("h")
    right.hist(means, bins=np.linspace(band.low, band.high, 60).tolist(), orientation="horizontal")
    right.set_title("windows")

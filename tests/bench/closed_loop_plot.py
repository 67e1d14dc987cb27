"""The level over time with its limits: reckless without and with the check, and the reference model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt  # after the backend is chosen

from gateway.plantsim.judge import HIGHEST_LEVEL_M, LEAST_LEVEL_PUMP_M
from tests.bench.closed_loop import Ran

_LINES = (
    ("reckless", False, "reckless, no check", "#c1272d"),
    ("reckless", True, "reckless, behind the check", "#1f6f8b"),
    ("reference", True, "reference model, behind the check", "#4a7c39"),
)


def draw(ran: Sequence[Ran], path: Path) -> None:
    """A PNG of the seed whose unchecked reckless run goes highest."""
    unchecked = [r for r in ran if r.job.policy == "reckless" and not r.job.checked]
    seed = max(unchecked, key=lambda r: max(r.levels_m)).job.seed
    figure, axes = plt.subplots(figsize=(8.0, 4.2), dpi=100, layout="constrained")
    for name, checked, label, colour in _LINES:
        levels = next(
            r.levels_m for r in ran if (r.job.policy, r.job.checked, r.job.seed) == (name, checked, seed)
        )
        axes.plot(range(len(levels)), levels, label=label, color=colour, linewidth=1.8)
    axes.axhline(HIGHEST_LEVEL_M, color="#222222", linestyle="--", linewidth=1)
    axes.axhline(LEAST_LEVEL_PUMP_M, color="#222222", linestyle=":", linewidth=1)
    axes.text(2, HIGHEST_LEVEL_M + 0.05, "overflow limit 3.6 m", fontsize=9, va="bottom")
    axes.text(2, LEAST_LEVEL_PUMP_M + 0.05, "pump runs dry below 0.3 m", fontsize=9, va="bottom")
    axes.set(xlabel="time, s", ylabel="true level, m", ylim=(0.0, 5.2))
    axes.set_title(f"Demo tank, seed {seed}: one decision a second", fontsize=11)
    axes.margins(x=0)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=True, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)

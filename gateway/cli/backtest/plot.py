"""A back-test drawn as a PNG: what changes over time, and the margins of each constraint."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # no display

from matplotlib import pyplot as plt  # after the backend is chosen

from gateway.cli.backtest.report import BacktestReport, Row

_COLOURS = {"newly_refused": "#b2182b", "newly_permitted": "#f4a582", "not_shown": "#762a83"}
_MOST = 4  # constraints that are drawn
_NS = 1e9


def draw(report: BacktestReport, path: Path) -> None:
    """Write the file; raises `OSError`."""
    worth = [row for row in report.constraints if row.margins and ("." not in row.id or row.newly_refused)]
    rows = worth[:_MOST]
    figure, axes = plt.subplots(
        1 + len(rows), 1, figsize=(8.0, 2.6 + 2.0 * len(rows)), dpi=100, layout="constrained"
    )
    timeline = axes[0] if rows else axes
    width = report.slot_ns / _NS / 86_400
    starts = [datetime.fromtimestamp(at / _NS, UTC) for at, _ in report.timeline]
    below = [0] * len(starts)
    for kind, colour in _COLOURS.items():
        counts = [slot.get(kind, 0) for _, slot in report.timeline]
        timeline.bar(
            starts,
            counts,
            width=width,
            align="edge",
            bottom=below,
            color=colour,
            label=kind.replace("_", " "),
        )
        below = [a + b for a, b in zip(below, counts, strict=True)]
    timeline.set_ylabel("decisions")
    timeline.set_xlabel("UTC", fontsize=8)
    timeline.set_title(f"module {report.module} revision {report.revision}, {report.judged} decisions judged")
    timeline.legend(loc="upper right")
    for axis, row in zip(axes[1:] if rows else [], rows, strict=True):
        _margins(axis, row)
    figure.savefig(path)
    plt.close(figure)


def _margins(axis: plt.Axes, row: Row) -> None:
    labels = [_label(low, high) for low, high, _ in row.margins]
    colours = ["#b2182b" if high is not None and high <= 0 else "#4393c3" for _, high, _ in row.margins]
    axis.bar(labels, [count for _, _, count in row.margins], color=colours)
    in_unit = f" in {row.margin_unit}" if row.margin_unit else ""
    axis.set_title(f"margins of {row.id}{in_unit}", fontsize=9)
    axis.tick_params(axis="x", labelsize=7, rotation=20)


def _label(low: float | None, high: float | None) -> str:
    return f"{'' if low is None else f'{low:g}'} .. {'' if high is None else f'{high:g}'}"

"""Figures against bars."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

BUDGETS = Path(__file__).with_name("budgets.toml")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number of one benchmark."""

    benchmark: str
    name: str
    value: float


def verdict(figure: Figure, budgets: dict[str, Any]) -> tuple[str, str]:
    """The bar as text, and `met`, `missed` or `no bar`."""
    bar = budgets.get(figure.benchmark, {}).get(figure.name)
    if bar is None:
        return "-", "no bar"
    if "at_most" in bar:
        return f"<= {bar['at_most']:g} {bar['unit']}", "met" if figure.value <= bar["at_most"] else "missed"
    return f">= {bar['at_least']:g} {bar['unit']}", "met" if figure.value >= bar["at_least"] else "missed"


def show(figures: list[Figure], console: Console) -> None:
    """A table of figure, bar, verdict; a bar that nothing measured is shown as well.

    After a single benchmark only its own bars are listed, else all there are.
    """
    budgets = tomllib.loads(BUDGETS.read_text())
    table = Table("benchmark", Column("figure", overflow="fold"), "value", "bar", "verdict")
    for figure in figures:
        bar, judged = verdict(figure, budgets)
        table.add_row(figure.benchmark, figure.name, f"{figure.value:.3g}", bar, judged)
    measured = {(f.benchmark, f.name) for f in figures}
    ran = {f.benchmark for f in figures}
    for benchmark in ran if len(ran) == 1 else budgets:
        for name in budgets.get(benchmark, {}):
            if (benchmark, name) not in measured:
                table.add_row(benchmark, name, "-", "-", "not measured")
    console.print(table)


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the sorted values lie; nan of nothing."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

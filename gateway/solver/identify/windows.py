"""Sums over windows of steps.

A one-step model holds for every window, summed, and a window's ends carry the sensor's noise only once: the
longer it is, the less of it is left in the fit.

    y(i+N) - y(i) = sum over i..i+N-1 of ((A-1) y + b1 x1 + ... + c + w)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.solver.identify.series import Floats, Grid, Truths

CONSTANT = "1"
LADDER = (1, 2, 3, 5, 8, 12, 20, 30, 60)  # steps of a window
_BLOCKS = 20  # of the jackknife: their spread holds what neighbouring windows have in common

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One target's columns on the grid; `known` where all of them are."""

    target: str
    names: tuple[str, ...]  # of `columns`, the last one is the constant
    y: Floats  # [n]
    columns: Floats  # [n, k]
    known: Truths  # [n]


def table(grid: Grid, target: str, regressors: Sequence[str]) -> Table:
    """The target itself, `regressors` and a constant."""
    names = (target, *regressors, CONSTANT)
    taken = [grid.over.get(name, grid.at.get(name, np.ones(grid.steps))) for name in names]
    known = grid.known([target, *regressors])
    columns = np.where(known[:, None], np.column_stack(taken), 0.0)
    return Table(target=target, names=names, y=grid.at[target], columns=columns, known=known)


def starts(table: Table, steps: int, first: int, end: int) -> Indices:
    """Where a window of `steps` begins in `first..end` that ends there too and holds no gap."""
    unknown = np.concatenate(([0], np.cumsum(~table.known)))
    here = np.arange(first, max(first, end - steps))
    whole = unknown[here + steps] == unknown[here]
    found: Indices = here[whole & np.isfinite(table.y[here + steps])]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Normal equations of the windows, by consecutive block: `gram [b, k, k]`, `moment [b, k]`."""

    steps: int
    windows: int
    scale: Floats  # [k], a column's size; the equations are in columns over their scale
    gram: Floats
    moment: Floats

    def solved(self, kept: Sequence[int]) -> tuple[Floats, Floats] | None:
        """Coefficients of the kept columns and their jackknife errors; None where singular."""
        place = np.ix_(kept, kept)
        gram, moment = self.gram.sum(axis=0), self.moment.sum(axis=0)
        try:
            found = np.linalg.solve(gram[place], moment[list(kept)])
            without = np.array(
                [
                    np.linalg.solve((gram - g)[place], (moment - m)[list(kept)])
                    for g, m in zip(self.gram, self.moment, strict=True)
                ]
            )
        except np.linalg.LinAlgError:
            return None
        blocks = len(without)
        spread = np.sqrt((blocks - 1) / blocks * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
        size = self.scale[list(kept)]
        return found / size, spread / size

    def own_movement(self) -> Floats:
        """The mean square of each column's window sums around their mean, `[k]`."""
        gram = self.gram.sum(axis=0)
        centred = np.diag(gram) - gram[:, -1] ** 2 / gram[-1, -1]
        found: Floats = np.maximum(centred, 0.0) / self.windows * self.scale**2
        return found

    def likeness(self) -> Floats:
        """How alike two columns move, -1 to 1, `[k, k]`; the constant, the last, is taken out."""
        gram = self.gram.sum(axis=0)
        centred = gram - np.outer(gram[:, -1], gram[-1]) / gram[-1, -1]
        size = np.sqrt(np.maximum(np.diag(centred), 1e-12 * np.diag(gram)))
        found: Floats = centred / np.outer(size, size)
        return found


def normal(table: Table, steps: int, first: int, end: int) -> Normal | None:
    """The normal equations of all windows of `steps` in `first..end`; None with too few for the blocks."""
    here = starts(table, steps, first, end)
    width = table.columns.shape[1]
    if len(here) < _BLOCKS * (width + 1):
        return None
    sums = window_sums(table, steps, here)
    scale = np.sqrt((sums**2).mean(axis=0))
    scale[scale == 0.0] = 1.0
    sums /= scale
    change = table.y[here + steps] - table.y[here]
    gram, moment = [], []
    for block in np.array_split(np.arange(len(here)), _BLOCKS):
        gram.append(sums[block].T @ sums[block])
        moment.append(sums[block].T @ change[block])
    return Normal(steps=steps, windows=len(here), scale=scale, gram=np.array(gram), moment=np.array(moment))


def window_sums(table: Table, steps: int, here: Indices) -> Floats:
    """Each column summed over each window, `[windows, k]`."""
    total = np.concatenate((np.zeros((1, table.columns.shape[1])), np.cumsum(table.columns, axis=0)))
    found: Floats = total[here + steps] - total[here]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """`y(k+1) = keep*y(k) + sum of effects*x(k) + constant`, in floats of exact decimals."""

    target: str
    keep: float
    effects: Mapping[str, float]
    constant: float

    def gain(self, steps: int) -> float:
        """What a disturbance of 1 in every step adds up to."""
        return float(sum(self.keep**k for k in range(steps)))

    def reach(self, steps: int) -> float:
        """The most that a disturbance of at most 1 in every step can move it, either way."""
        return float(sum(abs(self.keep) ** k for k in range(steps)))


def misses(grid: Grid, model: Model, here: Indices, steps: int) -> Floats:
    """Reading less prediction `steps` after each start, the other tags as recorded meanwhile, `[starts]`."""
    predicted = grid.at[model.target][here].copy()
    drive = np.full(grid.steps, model.constant)
    for name, effect in model.effects.items():
        drive = drive + effect * grid.over.get(name, grid.at[name])
    for k in range(steps):
        predicted = model.keep * predicted + drive[here + k]
    found: Floats = grid.at[model.target][here + steps] - predicted
    return found

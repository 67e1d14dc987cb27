"""One tag's one-step model: which tags move it, how much, how surely, and what sensor noise does to that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gateway.solver.identify.series import Floats, Grid
from gateway.solver.identify.windows import (
    CONSTANT,
    LADDER,
    Model,
    Normal,
    Table,
    misses,
    normal,
    starts,
    table,
)

SURE = 4.0  # standard errors: an effect nearer to 0 is left out
ALIKE = 0.9999  # tags whose windows move together more than this cannot be told apart
SUSPECT = 0.98
_CHOOSE = 0.8  # of the training steps fit the candidates of a window length, the rest chooses among them
_LOOK = (10, 60)  # steps ahead at which they are compared
_MOST_STARTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One coefficient: on the value (`name` is the target), of another tag, or the constant."""

    name: str
    value: float
    error: float  # standard error by the jackknife
    bias: float  # what the sensors' noise took from it, by first order; already given back in `value`


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted target. `left_out` are regressors whose effect could not be told from 0, with their |t|."""

    target: str
    window: int
    windows: int
    effects: tuple[Effect, ...]
    left_out: Mapping[str, float]
    alike: tuple[tuple[str, str, float], ...]  # regressors that move nearly together
    noise: Mapping[str, float]  # standard deviation of each regressor's noise, as reckoned with

    def effect(self, name: str) -> float:
        """The coefficient, 0 where it was left out."""
        return next((e.value for e in self.effects if e.name == name), 0.0)

    def model(self) -> Model:
        """As it predicts."""
        others = {e.name: e.value for e in self.effects if e.name not in (self.target, CONSTANT)}
        keep = 1.0 + self.effect(self.target)
        return Model(target=self.target, keep=keep, effects=others, constant=self.effect(CONSTANT))


def fitted(
    grid: Grid, target: str, regressors: Sequence[str], noise: Mapping[str, float], train: tuple[int, int]
) -> Fit | str:
    """The fit whose window length predicts best within the training steps, or why there is none."""
    columns = table(grid, target, regressors)
    first, end = train
    middle = first + int(_CHOOSE * (end - first))
    scored: list[tuple[float, int]] = []
    for steps in LADDER:
        equations = normal(columns, steps, first, middle)
        if equations is None or _alike(columns, equations):
            continue
        found = _chosen(columns, equations, noise)
        if found is not None:
            scored.append((_score(grid, columns, found.model(), middle, end), steps))
    if not scored:
        return _nothing(columns, train)
    best = min(scored)[1]
    equations = normal(columns, best, first, end)
    said = "" if equations is None else _alike(columns, equations)
    if equations is None or said:
        return said or _nothing(columns, train)
    found = _chosen(columns, equations, noise)
    return found if found is not None else _nothing(columns, train)


def _nothing(columns: Table, train: tuple[int, int]) -> str:
    equations = normal(columns, 1, *train)
    if equations is None:
        usable = len(starts(columns, 1, *train))
        width = columns.columns.shape[1]
        return (
            f"`{columns.target}`: {usable} steps of the fitting part have every tag before and after; "
            f"{width} coefficients need at least {20 * (width + 1)}"
        )
    return _alike(columns, equations) or f"`{columns.target}`: the equations have no one solution"


def _alike(columns: Table, equations: Normal) -> str:
    pairs = _pairs(columns, equations, ALIKE)
    if pairs:
        one, other, much = pairs[0]
        return (
            f"`{one}` and `{other}` moved together all the time (correlation {much:.5f}): whose effect on "
            f"`{columns.target}` it was cannot be told; move one of them alone, or leave one out"
        )
    names = columns.names[:-1]
    likeness = equations.likeness()[: len(names), : len(names)]
    worst = int(np.argmax(_inflation(likeness)))
    if _inflation(likeness)[worst] > 1 / (1 - ALIKE**2):
        rest = ", ".join(f"`{n}`" for k, n in enumerate(names) if k != worst)
        return (
            f"`{names[worst]}` is nearly a sum of {rest} all the time: whose effect on `{columns.target}` "
            "it "
            "was cannot be told; move one of them alone, or leave one out"
        )
    return ""


def _inflation(likeness: Floats) -> Floats:
    """By how much each regressor's variance grows because the others move alike."""
    held = likeness + 1e-12 * np.eye(len(likeness))
    found: Floats = np.abs(np.diag(np.linalg.inv(held)))
    return found


def _pairs(columns: Table, equations: Normal, limit: float) -> list[tuple[str, str, float]]:
    likeness = equations.likeness()
    names = columns.names[:-1]
    found = [
        (names[a], names[b], float(likeness[a, b]))
        for a in range(len(names))
        for b in range(a)
        if abs(likeness[a, b]) > limit
    ]
    return sorted(found, key=lambda pair: -abs(pair[2]))


def _chosen(columns: Table, equations: Normal, noise: Mapping[str, float]) -> Fit | None:
    """Regressors are dropped one at a time, the least sure first, until every one left is `SURE`."""
    kept = list(range(len(columns.names)))
    left_out: dict[str, float] = {}
    while True:
        solved = equations.solved(kept)
        if solved is None:
            return None
        values, errors = solved
        bias = _bias(columns, equations, kept, values, noise)
        ratios = np.abs(values - bias) / np.maximum(errors, 1e-300)
        if not kept or ratios.min() >= SURE:
            break
        worst = int(np.argmin(ratios))
        left_out[columns.names[kept[worst]]] = float(ratios[worst])
        del kept[worst]
        if not kept:
            break
    rows = zip(kept, values, errors, bias, strict=True) if kept else ()
    return Fit(
        target=columns.target,
        window=equations.steps,
        windows=equations.windows,
        effects=tuple(
            Effect(name=columns.names[k], value=float(v - b), error=float(e), bias=float(b))
            for k, v, e, b in rows
        ),
        left_out=left_out,
        alike=tuple(_pairs(columns, equations, SUSPECT)),
        noise={name: noise.get(name, 0.0) for name in columns.names[:-1]},
    )


def _bias(
    columns: Table, equations: Normal, kept: Sequence[int], values: Floats, noise: Mapping[str, float]
) -> Floats:
    """What noise in the regressors does to the coefficients, to first order, `[kept]`.

    Over a window of N steps the noise of a regressor adds N variances to its square; the target's noise at
    the window's start stands on both sides, with opposite signs.
    """
    spread = np.array([noise.get(columns.names[k], 0.0) ** 2 for k in kept])
    pull = equations.steps * spread * values
    own = np.array([columns.names[k] == columns.target for k in kept])
    pull += np.where(own, spread, 0.0)
    size = equations.scale[list(kept)]
    gram = equations.gram.sum(axis=0)[np.ix_(kept, kept)]
    found: Floats = -np.linalg.solve(gram, equations.windows * pull / size) / size
    return found


def _score(grid: Grid, columns: Table, model: Model, first: int, end: int) -> float:
    """Mean square of what is missed ahead, each against "it stays as it is"."""
    total, looked = 0.0, 0
    still = Model(target=model.target, keep=1.0, effects={}, constant=0.0)
    for steps in _LOOK:
        here = starts(columns, steps, first, end)
        here = here[:: max(1, len(here) // _MOST_STARTS)]
        if not len(here):
            continue
        size = np.mean(misses(grid, still, here, steps) ** 2) or 1.0
        total += float(np.mean(misses(grid, model, here, steps) ** 2) / size)
        looked += 1
    return total / looked if looked and np.isfinite(total) else float("inf")

"""One tag's one-step model: which tags move it, how much, how surely, and what sensor noise does to that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
_MOST_BIAS = 0.25  # of an effect: beyond it the first order of what noise does is no order at all
_MOST_NOISE = 0.5  # of the square of a regressor's movement
_STILL = 1e-13  # of a column's mean square: no more than rounding
_LEAST_ALONE = 0.05  # of an action's movement: below it feedback decides what its effect comes out as


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One coefficient: on the value (`name` is the target), of another tag, or the constant."""

    name: str
    value: float
    error: float  # standard error by the jackknife
    bias: float  # what the sensors' noise took from it, by first order; already given back in `value`
    alone: float  # share of its movement, over windows, that no other regressor makes too; 1 for a constant


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
    grid: Grid,
    target: str,
    regressors: Sequence[str],
    actions: AbstractSet[str],
    noise: Mapping[str, float],
    train: tuple[int, int],
) -> Fit | str:
    """The fit whose window length predicts best within the training steps, or why there is none."""
    columns = table(grid, target, regressors)
    scored: list[tuple[float, int]] = []
    why = ""
    for fitting, judging in _parted(*train):
        for steps in LADDER:
            found = _of_window(columns, steps, actions, noise, fitting)
            if isinstance(found, str):
                why = why or found
            else:
                scored.append((_score(grid, columns, found.model(), *judging), steps))
        if scored:
            break
    for _, steps in sorted(scored):
        found = _of_window(columns, steps, actions, noise, train)
        if not isinstance(found, str):
            return found
        why = found
    return why


def _parted(first: int, end: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """What candidates are fitted to, and what chooses: the rest behind it, or that before it.

    A tag that a person moved in one hour alone may not have moved in the other.
    """
    chosen = int(_CHOOSE * (end - first))
    yield (first, first + chosen), (first + chosen, end)
    yield (end - chosen, end), (first, end - chosen)


def _of_window(
    columns: Table,
    steps: int,
    actions: AbstractSet[str],
    noise: Mapping[str, float],
    part: tuple[int, int],
) -> Fit | str:
    """The fit over windows of one length, or why it is not to be trusted."""
    target = columns.target
    equations = normal(columns, steps, *part)
    if equations is None:
        usable, width = len(starts(columns, steps, *part)), columns.columns.shape[1]
        return (
            f"`{target}`: {usable} steps of the fitting part begin a window of {steps} with every tag; "
            f"{width} coefficients need at least {20 * (width + 1)}"
        )
    still = _still(columns, equations)
    if said := still or _alike(columns, equations) or _led(columns, equations, actions):
        return said
    found = _chosen(columns, equations, noise)
    if found is None:
        return f"`{target}`: the equations have no one solution"
    if not any(e.name != CONSTANT for e in found.effects):
        return f"no effect of any tag on `{target}` could be told from 0"
    return _drowned(columns, equations, found) or found


def _drowned(columns: Table, equations: Normal, found: Fit) -> str:
    """A sentence where noise is so much of a regressor's movement that its effect means nothing."""
    own = equations.own_movement()
    for effect in found.effects:
        if effect.name == CONSTANT:
            continue
        noise = equations.steps * found.noise.get(effect.name, 0.0) ** 2
        share = noise / max(own[columns.names.index(effect.name)], 1e-300)
        if share > _MOST_NOISE or abs(effect.bias) > _MOST_BIAS * abs(effect.value):
            return (
                f"`{columns.target}`: sensor noise is {100 * min(share, 1.0):.0f} % of the movement of "
                f"`{effect.name}` over windows of {equations.steps} steps and {abs(effect.bias):.2g} of its "
                f"effect of {abs(effect.value):.2g}: that effect cannot be told"
            )
    return ""


def _still(columns: Table, equations: Normal) -> str:
    """A sentence where a tag was the same in every window."""
    own = equations.own_movement() <= _STILL * equations.scale**2
    return next(
        (
            f"`{name}` did not move in the part of the record that `{columns.target}` is fitted to first"
            for name, still in zip(columns.names[:-1], own[:-1], strict=True)
            if still
        ),
        "",
    )


def _led(columns: Table, equations: Normal, actions: AbstractSet[str]) -> str:
    """A sentence where an action went so much with other tags that what it does by itself cannot be told."""
    names = columns.names
    for name, share in zip(names, _alone(equations, range(len(names))), strict=True):
        if name in actions and share < _LEAST_ALONE:
            return (
                f"{100 * (1 - share):.1f} % of the movement of `{name}` came with that of the other tags, "
                f"as under a controller: what it does to `{columns.target}` cannot be told; move it by hand "
                "for a while"
            )
    return ""


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
            "it was cannot be told; move one of them alone, or leave one out"
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
        if ratios.min() >= SURE:
            break
        worst = int(np.argmin(ratios))
        left_out[columns.names[kept[worst]]] = float(ratios[worst])
        del kept[worst]
        if not kept:
            break
    alone = _alone(equations, kept)
    rows = zip(kept, values, errors, bias, alone, strict=True) if kept else ()
    return Fit(
        target=columns.target,
        window=equations.steps,
        windows=equations.windows,
        effects=tuple(
            Effect(name=columns.names[k], value=float(v - b), error=float(e), bias=float(b), alone=a)
            for k, v, e, b, a in rows
        ),
        left_out=left_out,
        alike=tuple(_pairs(columns, equations, SUSPECT)),
        noise={name: noise.get(name, 0.0) for name in columns.names[:-1]},
    )


def _alone(equations: Normal, kept: Sequence[int]) -> list[float]:
    """What share of each kept regressor's movement is its own."""
    last = equations.scale.size - 1
    moving = [k for k in kept if k != last]
    shares: dict[int, float] = {}
    if moving:
        likeness = equations.likeness()[np.ix_(moving, moving)]
        shares = {k: 1 / max(float(f), 1.0) for k, f in zip(moving, _inflation(likeness), strict=True)}
    return [shares.get(k, 1.0) for k in kept]


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

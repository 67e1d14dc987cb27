"""What a bundle says of its own answers: confidence by temperature, and what is unlike training.

Fitted on runs whose seeds neither training nor any figure has; the figures are of further runs. Only answers
that would have a confidence count: those to inputs unlike training have 0, and no temperature changes that.
There are many runs, since answers of one run are alike: one disturbed spell is a tenth of the surest of 24.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.inference.bundle.described import Calibration
from gateway.inference.bundle.familiar import Distance, Familiarity
from gateway.inference.bundle.manifest import Manifest
from gateway.inference.decoding.confidence import like_training, log_odds, scaled
from gateway.inference.serving.engine import Engine
from gateway.inference.training.clone import Clone
from gateway.inference.training.dataset import Runs, record
from gateway.inference.training.plant import PlantKind

FITTED, HELD_OUT = range(3000, 3096), range(3100, 3196)
CYCLES = 200
_GROUPS = 10
_NEWTON_STEPS = 50
_LEAST_STEP = 1e-9
_TRACE = 1e-2  # of a prior: temperature 1, no offset
_FAR = 30.0  # log odds
_RIDGE = 1e-6
_ROOM = 1.1  # limits above what the fitted runs reach
_KEPT = 0.9999  # of the fitted cycles' motions are inside before that room; the rest are rare chances

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answers:
    """Concentration of answers to inputs like those of training, and whether they agreed with the expert."""

    concentration: Vector
    agreed: NDArray[np.bool_]


def answers(
    kind: PlantKind,
    engine: Engine,
    manifest: Manifest,
    expert: str,
    seeds: range,
    advance: Callable[[], None] = lambda: None,
) -> Answers:
    """The clone acts, is disturbed in every other run, and the expert says what it would want.

    The `manifest` says which inputs are like those of training. `advance` is called after each run.
    """
    sure: list[float] = []
    agreed: list[bool] = []
    for seed in seeds:
        clone = Clone(engine, kind)

        def acting(clone: Clone = clone) -> Clone:
            return clone

        runs = record(kind, expert, range(seed, seed + 1), CYCLES, acting, noise=bool(seed % 2))
        for answer, wanted, asked in zip(clone.answers, runs.wanted[0, 1:], _asked(runs), strict=True):
            if not like_training(manifest, *asked):
                continue
            sure.append(answer.concentration)
            said = [float(limits.value(raw)) for limits, raw in zip(kind.ranges, answer.raws, strict=True)]
            near = zip(said, wanted, kind.agreement, strict=True)
            agreed.append(all(abs(ours - theirs) <= limit + 1e-9 for ours, theirs, limit in near))
        advance()
    return Answers(np.array(sure), np.array(agreed))


def calibration(fitted: Answers, held_out: Answers) -> Calibration:
    """Temperature and offset that make the fitted answers likeliest; errors of the held-out ones."""
    slope, offset = _logistic(_odds(fitted), fitted.agreed)
    return measured(held_out, 1.0 / max(slope, 1e-3), offset)  # a surer answer is never trusted less


def measured(held_out: Answers, temperature: float, offset: float) -> Calibration:
    """A temperature and an offset, and how far confidence by them is from the share that agreed."""
    confidence = np.array([scaled(odds, temperature, offset) for odds in _odds(held_out)])
    groups = tuple(_groups(confidence, held_out.agreed))
    return Calibration(
        temperature=round(temperature, 6),
        offset=round(offset, 6),
        error_before=round(_error(_groups(held_out.concentration, held_out.agreed)), 5),
        error_after=round(_error(groups), 5),
        reliability=groups,
    )


def familiarity(runs: Runs, kind: PlantKind) -> Familiarity:
    """Fitted on the runs' measured cycles; the limits are a little above what these reach."""
    inputs, acting = runs.measured[:, 1:], runs.in_force[:, :-1]
    both = np.concatenate([inputs, acting], axis=2)
    width = both.shape[2]
    flat = both.reshape(-1, width)
    state = _distance(flat, 1.0)
    predicted = tuple(at for at, row in enumerate(kind.inputs) if not row.told)
    known = np.concatenate([np.ones((*both.shape[:2], 1))[:, 1:], inputs[:, :-1], acting[:, 1:]], axis=2)
    known, found = known.reshape(-1, width + 1), inputs[:, 1:, list(predicted)].reshape(-1, len(predicted))
    rows = np.linalg.solve(known.T @ known + _RIDGE * np.eye(width + 1), known.T @ found).T
    motion = _distance(found - known @ rows.T, _KEPT)
    return Familiarity(
        state=state,
        predicted=predicted,
        prediction=tuple(tuple(float(f"{value:.9g}") for value in row) for row in rows),
        motion=motion,
    )


def alarms(found: Familiarity, runs: Runs, kind: PlantKind) -> dict[str, float]:
    """The share of held-out cycles it takes for strange, and of those in which one reading jumps.

    A jump is a tenth of the reading's span in one cycle.
    """
    dice = random.Random(0)  # noqa: S311 - a reproducible figure, not a secret
    quiet: list[bool] = []
    jumped: dict[int, list[bool]] = {at: [] for at in found.predicted}
    for before, inputs, acting in _triples(runs):
        quiet.append(not found.knows(inputs, acting, before))
        for at, hits in jumped.items():
            ends = runs.measured[:, 1:, at].min(), runs.measured[:, 1:, at].max()
            off = dice.choice((-1, 1)) * 0.1 * float(ends[1] - ends[0])
            moved = (*inputs[:at], inputs[at] + off, *inputs[at + 1 :])
            hits.append(not found.knows(moved, acting, before))
    figures = {"false_alarms": float(np.mean(quiet))}
    for at, hits in jumped.items():
        figures[f"finds_jump_{kind.inputs[at].tag}"] = float(np.mean(hits))
    return figures


def _triples(runs: Runs) -> Iterator[tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]]:
    for measured, acting in zip(runs.measured, runs.in_force, strict=True):
        for at in range(2, len(measured)):
            yield tuple(measured[at - 1]), tuple(measured[at]), tuple(acting[at - 1])


def _asked(runs: Runs) -> Iterator[tuple[list[float], list[float], list[float] | None]]:
    """What was measured, what was in force, and what had been measured before, for each answer of one run."""
    measured, acting = runs.measured[0].tolist(), runs.in_force[0].tolist()
    for at in range(1, len(measured)):
        yield measured[at], acting[at - 1], measured[at - 1] if at > 1 else None


def _distance(vectors: Vector, kept: float) -> Distance:
    center = vectors.mean(axis=0)
    spread = np.cov(vectors.T).reshape(len(center), len(center))
    spread += _RIDGE * np.trace(spread) / len(center) * np.eye(len(center))
    whitening = np.linalg.inv(np.linalg.cholesky(spread))
    off = (vectors - center) @ whitening.T
    reached = float(np.quantile(np.sqrt((off * off).sum(axis=1)), kept))
    return Distance(
        center=tuple(float(f"{value:.9g}") for value in center),
        whitening=tuple(tuple(float(f"{value:.9g}") for value in row) for row in whitening),
        limit=round(_ROOM * reached, 6),
    )


def _odds(found: Answers) -> Vector:
    return np.array([log_odds(float(sure)) for sure in found.concentration])


def _logistic(odds: Vector, agreed: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and offset of the likeliest logistic curve, by Newton's method with a trace of a prior.

    A step is halved until it makes the answers likelier: where nearly all agree a whole one leads far off.
    """
    design = np.stack([odds, np.ones_like(odds)], axis=1)
    weights, prior = np.array([1.0, 0.0]), np.array([1.0, 0.0])

    def unlikely(weights: Vector) -> float:
        off = weights - prior
        said = design @ weights
        return float((np.logaddexp(0.0, said) - agreed * said).sum() + 0.5 * _TRACE * off @ off)

    for _ in range(_NEWTON_STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -_FAR, _FAR)))
        slope = design.T @ (agreed - chance) - _TRACE * (weights - prior)
        curve = (design * (chance * (1 - chance))[:, None]).T @ design + _TRACE * np.eye(2)
        step = np.linalg.solve(curve, slope)
        before = unlikely(weights)
        while unlikely(weights + step) > before and np.abs(step).max() > _LEAST_STEP:
            step /= 2
        weights = weights + step
        if np.abs(step).max() <= _LEAST_STEP:
            break
    return float(weights[0]), float(weights[1])


def _groups(confidence: Vector, agreed: NDArray[np.bool_]) -> list[tuple[float, float, int]]:
    """Mean confidence, share that agreed, count; of groups of equal size."""
    return [
        (round(float(confidence[part].mean()), 4), round(float(agreed[part].mean()), 4), len(part))
        for part in np.array_split(np.argsort(confidence, kind="stable"), _GROUPS)
    ]


def _error(groups: list[tuple[float, float, int]] | tuple[tuple[float, float, int], ...]) -> float:
    whole = sum(count for _, _, count in groups)
    return sum(abs(sure - hit) * count for sure, hit, count in groups) / whole

"""How near to the best possible the two-heater expert is: `python -m tests.bench.two_heater_optimum`.

A linear programme knows what no controller can: the plate's parameters, the ambient to come and true
temperatures without noise. Under the same limits of heat, ramp, supply and 60 degC it finds the least sum of
absolute errors; once with all aims to come, once with an aim known only when it is set, as for a controller.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from gateway.inference.training.evaluate import HELD_OUT, mean_errors
from gateway.inference.training.two_heater import POWER, RAMP, TWO_HEATER, PlateRun

_HOTTEST = 60.0
_WIDTH = 8
_INFINITE = highspy.kHighsInf

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Course:
    """What happens to one plate whatever is done: `x+ = a x + b (q1, q2, ambient)`."""

    a: Floats
    b: Floats
    start: Floats
    ambient: Floats  # [cycles]
    aims: Floats  # [cycles, 2]


def course(seed: int, cycles: int) -> Course:
    """The held-out run of a seed."""
    run = PlateRun(seed, random.Random(seed), "plain")  # noqa: S311  # as in training
    a, b, start = run._a, run._b, run._state.copy()
    ambient, aims = [], []
    for _ in range(cycles):
        aims.append(run.measure()[2:])
        run.advance((0.0, 0.0))
        ambient.append(run._ambient)
    return Course(a, b, start, np.array(ambient), np.array(aims))


def least_error(known: Course, *, foresees: bool) -> float:
    """The least mean `|T1 - aim| + |T2 - aim|` after settling, in K."""
    cycles, total, at = len(known.ambient), 0.0, 0
    state, heat = known.start, np.zeros(2)
    changes = [c for c in range(1, cycles) if (known.aims[c] != known.aims[c - 1]).any()]
    for end in [cycles] if foresees else [*changes, cycles]:
        found = _solved(known, at, end, state, heat)
        errors = np.abs(found[:-1, 2:4] - known.aims[at:end]).sum(axis=1)
        total += float(errors[max(0, TWO_HEATER.settling - at) :].sum())
        at, state, heat = end, found[-1, :4], found[-2, 4:6]
    return total / (cycles - TWO_HEATER.settling)


def _solved(known: Course, first: int, end: int, start: Floats, heat: Floats) -> Floats:
    """`[cycles + 1, 8]`: state 0-3 when it is read, heat 4-5 that is decided then, errors 6-7."""
    solver, cycles = highspy.Highs(), end - first  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)  # noqa: FBT003  its own signature
    for cycle in range(cycles + 1):
        for at in range(4):
            free = (-_INFINITE, _INFINITE if at < 2 else _HOTTEST)
            solver.addVar(*((start[at], start[at]) if cycle == 0 else free))
        for at in range(4):
            solver.addVar(0.0, 100.0 if at < 2 else _INFINITE)
        for at in range(2):
            solver.changeColCost(cycle * _WIDTH + 6 + at, float(cycle < cycles))
    for cycle in range(cycles):
        here = cycle * _WIDTH
        _row(solver, -_INFINITE, POWER, {here + 4: 200.0, here + 5: 100.0})
        for at in range(2):
            aim = known.aims[first + cycle, at]
            _row(solver, -aim, _INFINITE, {here + 6 + at: 1.0, here + 2 + at: -1.0})
            _row(solver, aim, _INFINITE, {here + 6 + at: 1.0, here + 2 + at: 1.0})
            before = 0.0 if cycle else float(heat[at])
            moved = {here + 4 + at: 1.0} | ({here - _WIDTH + 4 + at: -1.0} if cycle else {})
            _row(solver, before - RAMP, before + RAMP, moved)
        for at in range(4):
            fixed = known.b[at, 2] * known.ambient[first + cycle]
            factors = {here + other: -known.a[at, other] for other in range(4)}
            factors |= {here + 4 + heater: -known.b[at, heater] for heater in range(2)}
            _row(solver, fixed, fixed, factors | {here + _WIDTH + at: 1.0})
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return np.array(solver.getSolution().col_value).reshape(cycles + 1, _WIDTH)


def _row(solver: highspy.Highs, low: float, high: float, factors: dict[int, float]) -> None:
    indices = np.array(list(factors), dtype=np.int32)
    solver.addRow(low, high, len(factors), indices, np.array(list(factors.values())))


def main() -> int:
    """Print both means over the held-out seeds, and how far above them the expert is."""
    courses = [course(seed, TWO_HEATER.cycles) for seed in HELD_OUT]
    expert = sum(mean_errors(TWO_HEATER, lambda _: TWO_HEATER.controllers["constraint-aware"]()))
    sys.stdout.write(f"expert {expert:.4f} K\n")
    for foresees in (True, False):
        least = float(np.mean([least_error(known, foresees=foresees) for known in courses]))
        words = "all aims to come" if foresees else "aims as they are set"
        sys.stdout.write(
            f"least with {words} {least:.4f} K: the expert {expert / least:.3f} times that\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

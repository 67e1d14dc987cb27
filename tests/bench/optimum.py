"""How near to the best possible the experts of the reference models are: `python -m tests.bench.optimum`.

A linear programme knows what no controller can: the plant's parameters, the disturbance to come and true
measurements without noise. Under the same limits it finds the least sum of absolute errors; once with all
aims to come, once with an aim known only when it is set, as for a controller. The plate is linear: its figure
is a lower bound. The four tanks are not: there programmes are solved along the course before, in a trust
region, and the figure is what the found pumps really reach on the true plant; a better course may exist.
The demo tank, whose heater is on or off, is searched another way: see `optimum_tank`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from gateway.inference.training.evaluate import HELD_OUT, mean_errors
from gateway.inference.training.four_tank import FOUR_TANK, FULL_V, HIGHEST_CM, RAMP_V, TanksRun
from gateway.inference.training.plant import PlantKind
from gateway.inference.training.tank import TANK
from gateway.inference.training.two_heater import POWER, RAMP, TWO_HEATER, PlateRun
from tests.bench import optimum_tank

_INFINITE = highspy.kHighsInf
_STATES, _OUTPUTS = 4, 2  # of both plants
_WIDTH = _STATES + 2 * _OUTPUTS
_NUDGE = 1e-4

Floats = NDArray[np.float64]
Step = Callable[[Floats, Floats, int], Floats]  # state, outputs, cycle: the state a cycle later


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What happens on one run whatever is done."""

    step: Step
    start: Floats
    outputs: Floats  # in force before
    aims: Floats  # [cycles, 2]
    led: tuple[int, int]  # states that are to follow the aims
    highest: tuple[float, ...]  # of each state
    full: float  # of an output
    ramp: float
    supply: tuple[tuple[float, float], float] | None = None
    trust: tuple[float, ...] = (_INFINITE,)  # how far outputs may be from the course before, round by round


def plate(seed: int) -> Course:
    """The held-out run of a plate."""
    run = PlateRun(seed, random.Random(seed), "plain")  # noqa: S311  # as in training
    a, b, start = run._a, run._b, run._state.copy()
    aims, ambient = [], []
    for _ in range(TWO_HEATER.cycles):
        aims.append(run.measure()[2:])
        run.advance((0.0, 0.0))
        ambient.append(run._ambient)

    def step(state: Floats, heat: Floats, cycle: int) -> Floats:
        return np.asarray(a @ state + b @ np.array([*heat, ambient[cycle]]))

    return Course(
        step=step,
        start=start,
        outputs=np.zeros(2),
        aims=np.array(aims),
        led=(2, 3),
        highest=(_INFINITE, _INFINITE, 60.0, 60.0),
        full=100.0,
        ramp=RAMP,
        supply=((200.0, 100.0), POWER),
    )


def tanks(seed: int) -> Course:
    """The held-out run of four tanks."""
    run = TanksRun(seed, random.Random(seed), "plain")  # noqa: S311  # as in training
    start, plant, aims, added = np.array(run._levels), run._tanks, [], []
    for _ in range(FOUR_TANK.cycles):
        aims.append(run.measure()[4:])
        run.advance((3.0, 3.0))
        added.append(run._added)

    def step(state: Floats, volts: Floats, cycle: int) -> Floats:
        return np.array(plant.step(tuple(state), tuple(volts), added[cycle]))

    return Course(
        step=step,
        start=start,
        outputs=np.full(2, 3.0),
        aims=np.array(aims),
        led=(0, 1),
        highest=(HIGHEST_CM,) * 4,
        full=FULL_V,
        ramp=RAMP_V,
        trust=(2.0, 2.0, 1.0, 0.5, 0.25, 0.1, 0.05),
    )


def least_error(course: Course, settling: int, *, foresees: bool) -> float:
    """The least mean error a cycle after settling that was found."""
    cycles, total, at = len(course.aims), 0.0, 0
    state, outputs = course.start, course.outputs
    changes = [c for c in range(1, cycles) if (course.aims[c] != course.aims[c - 1]).any()]
    for end in [cycles] if foresees else [*changes, cycles]:
        states, acted = _best(course, at, end, state, outputs)
        errors = _errors(course, states, at)
        total += float(errors[max(0, settling - at) :].sum())
        at, state, outputs = end, states[-1], acted[-1]
    return total / (cycles - settling)


def _best(course: Course, first: int, end: int, start: Floats, before: Floats) -> tuple[Floats, Floats]:
    """The best course found from `first` to `end`: true states `[cycles + 1, 4]`, outputs `[cycles, 2]`."""
    acted = np.tile(before, (end - first, 1))
    states = _simulated(course, first, start, acted)
    for number, trust in enumerate(course.trust):
        wanted = _solved(course, first, states, acted, before, trust)
        reached = _simulated(course, first, start, wanted)
        better = _errors(course, reached, first).sum() < _errors(course, states, first).sum()
        if number == 0 or better:
            states, acted = reached, wanted
    return states, acted


def _simulated(course: Course, first: int, start: Floats, acted: Floats) -> Floats:
    states = [start]
    for at, outputs in enumerate(acted):
        states.append(course.step(states[-1], outputs, first + at))
    return np.array(states)


def _errors(course: Course, states: Floats, first: int) -> Floats:
    """`[cycles]`; the state after the last cycle is another stretch's."""
    read = states[:-1, list(course.led)]
    return np.asarray(np.abs(read - course.aims[first : first + len(read)]).sum(axis=1))


def _solved(
    course: Course, first: int, states: Floats, acted: Floats, before: Floats, trust: float
) -> Floats:
    """Outputs of the programme along a course. Its variables of a cycle: states, outputs, errors."""
    solver, cycles = highspy.Highs(), len(acted)  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)  # noqa: FBT003  its own signature
    for cycle in range(cycles + 1):
        for at in range(_STATES):
            ends = (-_INFINITE, course.highest[at]) if cycle else (states[0, at], states[0, at])
            solver.addVar(*ends)
        for at in range(_OUTPUTS):
            near = acted[min(cycle, cycles - 1), at]
            solver.addVar(max(0.0, near - trust), min(course.full, near + trust))
        for at in range(_OUTPUTS):
            solver.addVar(0.0, _INFINITE)
            solver.changeColCost(cycle * _WIDTH + _STATES + _OUTPUTS + at, float(cycle < cycles))
    for cycle in range(cycles):
        _limits(solver, course, cycle, before)
        _follow(solver, course, cycle, course.aims[first + cycle])
        _motion(solver, course, first, cycle, states[cycle], acted[cycle])
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    found = np.array(solver.getSolution().col_value).reshape(cycles + 1, _WIDTH)
    return np.asarray(found[:-1, _STATES : _STATES + _OUTPUTS])


def _limits(solver: highspy.Highs, course: Course, cycle: int, before: Floats) -> None:
    here = cycle * _WIDTH + _STATES
    if course.supply is not None:
        factors, most = course.supply
        _row(solver, -_INFINITE, most, {here + at: factor for at, factor in enumerate(factors)})
    for at in range(_OUTPUTS):
        held = 0.0 if cycle else float(before[at])
        moved = {here + at: 1.0} | ({here - _WIDTH + at: -1.0} if cycle else {})
        _row(solver, held - course.ramp, held + course.ramp, moved)


def _follow(solver: highspy.Highs, course: Course, cycle: int, aims: Floats) -> None:
    here = cycle * _WIDTH
    for at, state in enumerate(course.led):
        error = {here + _STATES + _OUTPUTS + at: 1.0}
        _row(solver, -aims[at], _INFINITE, error | {here + state: -1.0})
        _row(solver, aims[at], _INFINITE, error | {here + state: 1.0})


def _motion(
    solver: highspy.Highs, course: Course, first: int, cycle: int, state: Floats, outputs: Floats
) -> None:
    """The step, linear near one state and outputs."""
    here, middle = cycle * _WIDTH, course.step(state, outputs, first + cycle)
    point = np.concatenate([state, outputs])
    slopes = np.empty((_STATES, _STATES + _OUTPUTS))
    for at in range(_STATES + _OUTPUTS):
        nudged = point.copy()
        nudged[at] += _NUDGE
        moved = course.step(nudged[:_STATES], nudged[_STATES:], first + cycle)
        slopes[:, at] = (moved - middle) / _NUDGE
    rest = middle - slopes @ point
    for at in range(_STATES):
        factors = {here + other: -slopes[at, other] for other in range(_STATES + _OUTPUTS)}
        _row(solver, rest[at], rest[at], factors | {here + _WIDTH + at: 1.0})


def _row(solver: highspy.Highs, low: float, high: float, factors: dict[int, float]) -> None:
    indices = np.array(list(factors), dtype=np.int32)
    solver.addRow(low, high, len(factors), indices, np.array(list(factors.values())))


def main(seeds: range = HELD_OUT) -> int:
    """Print, for each plant, expert and least error over the held-out seeds."""
    _told("two-heater", TWO_HEATER, plate, seeds)
    _told("four-tank", FOUR_TANK, tanks, seeds)
    expert = _expert("buffer-tank", TANK, seeds)
    _told_least("all that acts to come", [optimum_tank.least_error(seed) for seed in seeds], expert)
    return 0


def _told(name: str, kind: PlantKind, made: Callable[[int], Course], seeds: range) -> None:
    expert = _expert(name, kind, seeds)
    for foresees in (True, False):
        found = [least_error(made(seed), kind.settling, foresees=foresees) for seed in seeds]
        _told_least("all aims to come" if foresees else "aims as they are set", found, expert)


def _expert(name: str, kind: PlantKind, seeds: range) -> float:
    expert = sum(mean_errors(kind, lambda _: kind.controllers["constraint-aware"](), seeds))
    sys.stdout.write(f"{name}: expert {expert:.4f}\n")
    return expert


def _told_least(knowing: str, found: list[float], expert: float) -> None:
    least = float(np.mean(found))
    sys.stdout.write(f"  least with {knowing} {least:.4f}: the expert {expert / least:.3f} times\n")


if __name__ == "__main__":
    sys.exit(main())

"""How `constraints/tclab-twin.json` comes by its numbers: `python -m tests.bench.tclab_dynamics` prints them.

The twin of the `tclab` package is exactly linear: heaters H1, H2 that nobody measures, temperatures T1, T2
that follow them, in Euler steps of 0.2 s. Here the package's own `update` runs on exact fractions instead of
floats; fifty of its steps make one of the module's, and its answers to unit inputs are the coefficients.

Between two whole steps a temperature may be higher than at both: a heater hotter than T at the start may be
colder at the end. How much higher, whatever happened before, is a linear programme for each of the 49
instants in between; the module's limits lie that much below 60 degC.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import highspy
import numpy as np
from tclab.tclab import TCLabModel

STATE = ("h1", "h2", "t1", "t2")
INPUTS = ("q1", "q2", "ta")
STEP_S, EULER_S = Fraction(10), Fraction(1, 5)
SUBSTEPS = int(STEP_S / EULER_S)
AMBIENT = (18, 24)  # degC
LIMIT = 60  # degC
PLACES = 15
_SCALE = 10**PLACES

Point = dict[str, Fraction]


def twin() -> Any:  # noqa: ANN401  the package has no types
    """The package's twin with a clock of its own that only `update` moves."""
    with contextlib.redirect_stdout(io.StringIO()):  # it greets
        model = TCLabModel(synced=False)
    model.tlast = 0
    return model


def after(seconds: Fraction, given: Mapping[str, Fraction]) -> Point:
    """The package's own steps on exact numbers; names that are left out are 0."""
    model = twin()
    model.maxstep, model.tlast = EULER_S, Fraction(0)
    model._P1, model._P2 = Fraction(200), Fraction(100)
    for name in STATE:
        setattr(model, f"_{name.upper()}", given.get(name, Fraction(0)))
    model._Q1, model._Q2 = given.get("q1", Fraction(0)), given.get("q2", Fraction(0))
    model.Ta = given.get("ta", Fraction(0))
    model.update(seconds)
    return {name: Fraction(getattr(model, f"_{name.upper()}")) for name in STATE}


def coefficients(seconds: Fraction = STEP_S) -> dict[str, Point]:
    """By state: what one of each variable adds to it that much later."""
    columns = {name: after(seconds, {name: Fraction(1)}) for name in (*STATE, *INPUTS)}
    return {state: {name: column[state] for name, column in columns.items()} for state in STATE}


def texts() -> dict[str, str]:
    """The module's `dynamics`, as differences to the present value; the factors of a state sum up to 1."""
    found: dict[str, str] = {}
    for state, row in coefficients().items():
        others = [n for n in (*STATE, "ta") if n != state and row[n]]
        terms = [f"{_decimal(row[n])}*({n} - {state})" for n in others]
        terms += [f"{_decimal(row[n])}*{n}" for n in ("q1", "q2")]
        found[state] = " + ".join([state, *terms])
    return found


def hottest_between(limits: Mapping[str, float]) -> dict[str, float]:
    """The highest temperatures between two whole steps that both keep `limits`, from anywhere at all."""
    end = coefficients()
    found = dict.fromkeys(("t1", "t2"), 0.0)
    for k in range(1, SUBSTEPS):
        row = coefficients(k * EULER_S)
        for name in found:
            found[name] = max(found[name], _most(row[name], end, limits))
    return found


def heater_range() -> dict[str, tuple[Fraction, Fraction]]:
    """Where the heaters stay for ever: full power and the warmest ambient add up to these."""
    hottest: Point = {"h1": Fraction(AMBIENT[1]), "h2": Fraction(AMBIENT[1])}
    # H1 + H2 and H1 - H2 of the steady state: (200*q1 + 100*q2)/5720 heats, 1/20 and 1/100 cool
    total, apart = (
        Fraction(300 * 100, 5720) * 20,
        Fraction(100 * 100, 5720) / (Fraction(1, 20) + Fraction(1, 50)),
    )
    hottest["h1"] += (total + apart) / 2
    hottest["h2"] += (total - apart) / 2
    return {name: (Fraction(AMBIENT[0]), value) for name, value in hottest.items()}


def _most(row: Point, end: Mapping[str, Point], limits: Mapping[str, float]) -> float:
    """The largest value of `row` over starts and inputs with both temperatures within limits at both ends."""
    names = (*STATE, *INPUTS)
    heaters = {name: (float(low), float(high)) for name, (low, high) in heater_range().items()}
    spans = {**heaters, **{n: (float(AMBIENT[0]), limits[n]) for n in ("t1", "t2")}}
    spans |= {"q1": (0.0, 100.0), "q2": (0.0, 100.0), "ta": (float(AMBIENT[0]), float(AMBIENT[1]))}
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)  # noqa: FBT003  its own signature
    for index, name in enumerate(names):
        solver.addVar(*spans[name])
        solver.changeColCost(index, -float(row[name]))
    everything = np.arange(len(names), dtype=np.int32)
    for name, limit in limits.items():
        factors = np.array([float(end[name][n]) for n in names])
        solver.addRow(-highspy.kHighsInf, limit, len(names), everything, factors)
    solver.run()
    return -float(solver.getInfo().objective_function_value)


def _decimal(value: Fraction) -> str:
    return f"0.{round(value * _SCALE):0{PLACES}d}".rstrip("0")


def main(limits: Sequence[float] = (59.77, 59.92)) -> None:
    """Print dynamics, heaters' range and what the limits leave for the time between steps."""
    for name, text in texts().items():
        print(f'"{name}": "{text}"')  # noqa: T201  a script
    for name, (low, high) in heater_range().items():
        print(f"{name} stays in {float(low):g} to {float(high):.6f} degC")  # noqa: T201
    told = dict(zip(("t1", "t2"), limits, strict=True))
    for name, value in hottest_between(told).items():
        print(f"{name} <= {told[name]} at whole steps: at most {value:.6f} degC in between")  # noqa: T201


if __name__ == "__main__":
    main()

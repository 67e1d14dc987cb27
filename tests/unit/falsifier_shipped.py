"""The shipped modules with a set to be kept for ever, as plants: the demo's tank, and the two-heater twin."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from tests.unit.falsifier_draft import number, ticks
from tests.unit.falsifier_plant import Output, Plant, Seen
from tests.unit.falsifier_words import Entry, Form, Is, Law, Move, Upto, within
from tests.unit.solver_modules import FOLDER

ONE = Fraction(1)


def demo_tank(start: str = "middle") -> Plant:
    """`buffer-tank`: what each of its rules means is said here once more."""
    level = {"middle": ("1.8", "2.2"), "full": ("3.3", "3.5"), "empty": ("0.6", "0.8")}[start]
    ramp = Fraction(10)
    return Plant(
        step=1,
        seen=(
            _measured("level", ("-0.1", "5"), level, "0.01", "0.001"),
            _measured("inflow", ("-1", "40"), ("5", "30"), "0.3", "0.01", max_rate=Fraction(2)),
            _measured("temp", ("0", "100"), ("60", "73"), "0.1", "0.01"),
        ),
        outputs=(
            Output(name="pump", range=(Fraction(0), Fraction(100))),
            Output(name="heater", range=(Fraction(0), ONE), sort="bool", min_on=30, min_off=60),
            Output(name="mixer", range=(Fraction(0), Fraction(3)), sort="int"),
        ),
        steps={
            "level": Form(
                {"level": ONE, "inflow": number("0.000138889"), "pump": -number("0.0000625"), "w_level": ONE}
            ),
            "temp": Form(
                {"temp": ONE - number("0.0002"), "heater": number("0.2"), "w_temp": ONE}, number("0.004")
            ),
        },
        bands={
            "w_level": (-number("0.00051"), number("0.00051")),
            "w_temp": (-number("1.1"), number("0.001")),
        },
        laws=(
            Law(id="no-overflow", require=Upto(Form({"level": ONE}, -number("3.6"))), always=True),
            Law(
                id="no-dry-run",
                when=Upto(Form({"pump": -ONE}), strict=True),
                require=Upto(Form({"level": -ONE}, number("0.3"))),
                always=True,
            ),
            Law(
                id="no-dry-fire",
                when=Is("heater"),
                require=Upto(Form({"level": -ONE}, number("0.5"))),
                always=True,
            ),
            Law(
                id="heater-needs-mixing",
                when=Is("heater"),
                require=Upto(Form({"mixer": -ONE}, ONE)),
                always=True,
            ),
            Law(id="max-temperature", require=Upto(Form({"temp": ONE}, Fraction(-75))), always=True),
            Law(
                id="pump-ramp",
                require=within(Form({"rate(pump)": ONE}), ramp),
                rate_of="pump",
                most=ramp,
            ),
        ),
        backup=(
            Entry(
                when=Upto(Form({"level": -ONE}, Fraction(2))),
                moves={"pump": Move(target=Fraction(100), rate=ramp)},
            ),
            Entry(moves={"pump": Move(target=Fraction(0), rate=ramp)}),
            Entry(moves={"heater": Move(target=Fraction(0)), "mixer": Move()}),
        ),
        safe_set=("as it is shipped",),
        hold=ticks(number("1.15")),
        delay=ticks(number("0.17")),
        period=ONE,
        about=f"demo tank, {start}",
        given=_shipped("buffer-tank", {"leak": "w_level", "drift": "w_temp"}),
    )


def _measured(
    name: str,
    span: tuple[str, str],
    start: tuple[str, str],
    error: str,
    scale: str,
    *,
    max_rate: Fraction | None = None,
) -> Seen:
    return Seen(
        name=name,
        range=(number(span[0]), number(span[1])),
        start=(number(start[0]), number(start[1])),
        error=number(error),
        scale=number(scale),
        max_rate=max_rate,
        physical=(Fraction(0), Fraction(36)) if max_rate is not None else None,
    )


def _shipped(name: str, renamed: dict[str, str]) -> dict[str, Any]:
    """The file, with the tags and the disturbances that plants here have."""
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    found["id"] = "first"
    for variable, declared in found["variables"].items():
        declared["tag"] = variable.upper()
    for key, form in found["dynamics"].items():
        if key != "disturbance":
            for old, new in renamed.items():
                form = form.replace(old, new)  # noqa: PLW2901  one after the other
            found["dynamics"][key] = form
    bands = found["dynamics"]["disturbance"]
    found["dynamics"]["disturbance"] = {renamed[old]: ends for old, ends in bands.items()}
    return found

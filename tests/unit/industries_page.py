"""docs/industries.md from the shipped modules and their checks: `python -m tests.unit.industries_page`."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from gateway.core.decision import Permitted, Refused
from gateway.core.tag import decimal_text
from gateway.solver.modules.module import Case, Module, Variable
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import PATIENT
from tests.unit.solver_modules import request, shipped

PAGE = Path(__file__).parents[2] / "docs" / "industries.md"
_HEAD = """\
# Ten plants

Each of these modules lies in `constraints/` with its tags in `constraints/tags/`, and brings a case for
each rule that violates it. Here each is shown with one point that is permitted and one that is refused, in
the words people see in `o3ctl explain`, on the page and in OPC UA. *Permitted* means: no reading inside the
sensor errors breaks a rule. All ten judge the snapshot only; what looks ahead needs `dynamics` and a safe
set ([the demo's tank](language.md), [proofs](proofs.md)).

`o3ctl schema validate --file constraints/NAME.json --tags constraints/tags/NAME.csv` judges all cases of a
module; this page is made by `python -m tests.unit.industries_page` and compared by a test.
"""


@dataclass(frozen=True, slots=True)
class Plant:
    """One section: the module, its heading, what it protects, the rule whose refusal is shown."""

    module: str
    heading: str
    protects: str
    refused: str


PLANTS = (
    Plant(
        "three-unit-dispatch",
        "Power station: dispatch of three units",
        "Coal unit, gas turbine and peaker share a load. Generation covers load and losses, each unit"
        " that runs stays in its window and one that stands gives nothing, 60 MW of spinning reserve "
        "remain, and the tie line is not overloaded.",
        "reserve",
    ),
    Plant(
        "ramp-and-min-up-time",
        "Power station: ramps and minimum times of a boiler",
        "Thick-walled drums crack when load moves too fast, and starts cost life. The module limits "
        "the ramp to 4 MW a minute, asks for 240 min of running and 180 min of standstill, and raises"
        " no load on a cold drum.",
        "drum",
    ),
    Plant(
        "junction-interlocking",
        "Railway: signals of a junction",
        "No two conflicting routes may proceed at once, none over points that are not set and locked,"
        " none into an occupied junction. Points that move under a train are no matter of a signal "
        "command: that rule is a `monitor`, which reports.",
        "conflict",
    ),
    Plant(
        "level-crossing",
        "Railway: a level crossing",
        "Lights before barriers, barriers before trains, and no proceed aspect over a crossing that "
        "is open or blocked. The barrier goes through its states in order, in the times its "
        "`sequence` gives.",
        "sig_down",
    ),
    Plant(
        "rie-etch-recipe",
        "Semiconductors: recipe of a reactive ion etcher",
        "A recipe is checked before a wafer sees it: power in its window and cooled, gases that must "
        "not meet kept apart, self-bias, critical dimension and energy (a product of two setpoints) "
        "within limits.",
        "budget",
    ),
    Plant(
        "furnace-diffusion",
        "Semiconductors: a diffusion furnace",
        "Hydrogen only where it burns and never with the door open, the door only on a cold furnace, "
        "zones level in soak, a recipe that goes through its steps in order.",
        "h2",
    ),
    Plant(
        "pump-station",
        "Water: a pump station",
        "No pump against a closed valve, none dry, never three at once, none into a full tank, 300 s "
        "between starts, and no more power than the connection gives.",
        "max2",
    ),
    Plant(
        "chlorination",
        "Water: chlorination",
        "Enough free chlorine, long enough in contact (longer in cold or alkaline water), and not too"
        " much; on a gas leak dosing stops and the fan runs.",
        "leak",
    ),
    Plant(
        "exothermic-batch-reactor",
        "Chemicals: an exothermic batch reactor",
        "Feed that does not react at once is heat to come. The module keeps the temperature that "
        "unreacted feed could reach below 130 degC, the heat of reaction below what the jacket takes "
        "away, and trips feed and cooling.",
        "mtsr",
    ),
    Plant(
        "distillation-column",
        "Chemicals: a distillation column",
        "Balances over the whole column, its light component and its top, no flooding and no weeping,"
        " a reflux ratio that separates. Product quality is a `monitor`: no setpoint changes it at "
        "once.",
        "flood",
    ),
)


def page() -> str:
    """The whole page."""
    return "\n".join((_HEAD, *(_section(plant) for plant in PLANTS)))


def _section(plant: Plant) -> str:
    module = shipped(plant.module)
    checks = Checks(RuleSet.of((module,), 1), PATIENT)
    good = next(c for c in module.cases if not c.violated and _is(checks, module, c, Permitted))
    bad = min((c for c in module.cases if plant.refused in c.violated), key=lambda c: len(c.violated))
    lines = [
        f"## {plant.heading}",
        "",
        plant.protects,
        "",
        f"[`{module.id}.json`](../constraints/{module.id}.json)",
        "",
    ]
    found, _ = checks.check(request(module, good))
    assert isinstance(found.verdict, Permitted)
    lines += [
        "Permitted:",
        "",
        "```",
        _point(module, good),
        "",
        "permitted by rule set 1 under its assumptions",
        "```",
        "",
    ]
    found, _ = checks.check(request(module, bad))
    assert isinstance(found.verdict, Refused)
    lines += [
        "Refused:",
        "",
        "```",
        _point(module, bad),
        "",
        f"refused by rule set 1: {found.verdict.counterexample.text}",
    ]
    return "\n".join((*lines, "```", ""))


def _is(checks: Checks, module: Module, case: Case, verdict: type) -> bool:
    return isinstance(checks.check(request(module, case))[0].verdict, verdict)


def _point(module: Module, case: Case) -> str:
    """Readings, then setpoints with what was in force before them."""
    read = [_said(v, case.given[v.name]) for v in module.variables.values() if not v.action]
    wanted = []
    for v in module.variables.values():
        if v.action:
            before = case.previous.get(v.name, case.given[v.name])
            was = "" if before == case.given[v.name] else f" (was {_value(v, before)})"
            wanted.append(f"{_said(v, case.given[v.name])}{was}")
    return f"readings:  {', '.join(read)}\nsetpoints: {', '.join(wanted)}"


def _said(variable: Variable, value: Fraction) -> str:
    return f"{variable.name} {_value(variable, value)}"


def _value(variable: Variable, value: Fraction) -> str:
    if variable.sort == "bool":
        return "true" if value else "false"
    labels = {number: label for label, number in (variable.labels or {}).items()}
    if label := labels.get(int(value)) if labels else None:
        return label
    return f"{decimal_text(value)} {variable.unit}".rstrip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

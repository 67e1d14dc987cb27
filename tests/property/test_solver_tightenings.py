"""What is called a tightening permits nothing that was not permitted, also among other modules (S3, S24)."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.core.decision import CheckResult, Permitted, Undetermined
from gateway.core.quality import StatusCode
from gateway.solver.analysis import difference
from gateway.solver.analysis.asking import Allowance
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.in_force.weakening import weakens
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_small import TAGS, Plant, checks, document, rule

RULES = (
    "l + 0.1*q <= 6", "l <= 4", "p + 1*q <= 70", "q <= 35", "rate(p) <= 10", "abs(p - 40) <= 30",
    "h implies l >= 1", "l > 3 implies p >= 20", "good(t) or p <= 50", "p - prev(p) <= 20",
    "t <= 80 and p <= 90", "not (l > 3 for 10 s) or p >= 30", "n <= 9", "m == auto or p <= 60",
    "max(p, 2*l) <= 80", "p*l <= 250", "s in (idle, run)", "age(q) <= 1.5",
)  # fmt: skip
PHYSICAL = {"l": ["-1", "4"], "q": ["10", "36"], "t": ["0", "80"]}
RATES = {"l": "m/s", "q": "m3/h/s", "t": "K/s"}
BANDS = (["-0.05", "0.05"], ["-0.1", "0.1"], ["-0.01", "0.02"])
_DYNAMICS = "l + 0.01*q - 0.005*p + w"


class Author:
    """Writes modules, and changes them as people do."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311  # reproducible, not a secret

    def module(self, name: str) -> dict[str, Any]:
        dice = self.dice
        rules = [
            rule(dice.choice(RULES), f"r{k}", always=dice.random() < 0.4) for k in range(dice.randint(1, 3))
        ]
        made = copy.deepcopy(document(*rules, id=name))
        if dice.random() < 0.5:
            made["dynamics"] = {"l": _DYNAMICS, "disturbance": {"w": BANDS[0]}}
        for _ in range(dice.randint(0, 2)):
            self.change(made)
        if dice.random() < 0.3:
            lacking = copy.deepcopy(made)
            lacking["variables"].pop(dice.choice("lqt"))
            made = lacking if compiled(lacking) is not None else made
        return made

    def change(self, made: dict[str, Any]) -> None:
        dice = self.dice
        name = dice.choice([n for n in "lqt" if n in made["variables"]])
        variable, one = made["variables"][name], dice.choice(made["constraints"])
        match dice.randrange(10):
            case 0:
                variable["error"] = dice.choice(["0.01", "0.05", "0.3", "0.1"])
            case 1:
                variable.pop("physical", None)
                variable |= {"physical": PHYSICAL[name]} if dice.random() < 0.5 else {}
            case 2:
                variable.pop("max_rate", None)
                rate = f"{dice.choice(['0.1', '1', '5'])} {RATES[name]}"
                variable |= {"max_rate": rate} if dice.random() < 0.5 else {}
            case 3:
                variable["max_age"] = dice.choice(["1 s", "2 s", "4 s"])
            case 4:
                low, high = map(float, variable["range"])
                variable["range"] = [str(low - dice.choice([0, 1])), str(high * dice.choice([1, 0.9]))]
            case 5:
                one["require"] = dice.choice(RULES)
            case 6:
                one["always"] = not one.get("always", False)
            case 7:
                made["constraints"].append(rule(dice.choice(RULES), f"x{dice.randrange(1_000)}"))
            case 8:
                made["dynamics"] = {"l": _DYNAMICS, "disturbance": {"w": dice.choice(BANDS)}}
            case _:
                variable["accept_quality"] = ["GoodLocalOverride"]

    def setpoints(self) -> dict[str, str]:
        pump, heater = str(self.dice.randint(0, 100)), str(self.dice.randint(0, 1))
        return {"P": pump, "H": heater, "S": self.dice.choice(["0", "5", "9"])}

    def plants(self, count: int) -> Iterator[Plant]:
        dice = self.dice
        for _ in range(count):
            old, new = self.setpoints(), self.setpoints()
            yield Plant(
                l=round(dice.uniform(-0.5, 4.9), 2),
                q=round(dice.uniform(22, 36), 1),
                t=round(dice.uniform(1, 89), 1),
                n=dice.randint(0, 19),
                m=dice.randint(0, 2),
                old=old,
                new=new,
                ages={dice.choice("LQT"): dice.choice([0.0, 0.9, 1.7])},
                status={dice.choice("LQT"): dice.choice([StatusCode.Good, StatusCode.GoodLocalOverride])},
            )


def compiled(made: dict[str, Any]) -> Module | None:
    try:
        return compile_module(json.dumps(made).encode(), f"{made['id']}.json", TAGS)
    except ModuleRefusedError:
        return None


def pairs(author: Author) -> Iterator[tuple[Module, Module, Module]]:
    """A module, its next revision and another one, that fit together."""
    while True:
        first = author.module("mod")
        second = copy.deepcopy(first) | {"revision": 2}
        for _ in range(author.dice.randint(1, 3)):
            author.change(second)
        old, new, other = map(compiled, (first, second, author.module("other")))
        if old is None or new is None or other is None:
            continue
        try:
            RuleSet.of([old, other], 1), RuleSet.of([new, other], 1)
        except ModuleRefusedError:
            continue
        yield old, new, other


def why(old: Module, new: Module, other: Module) -> str:
    return weakens(
        RuleSet.of([old, other], 1),
        old,
        new,
        lambda a, b, around: difference.unkept(a, b, Allowance(seconds=2.0), around),
    )


def refused_by(result: CheckResult) -> bool:
    """A reading beyond physical limits is judged once they are dropped, which counts as no weakening."""
    verdict = result.verdict
    if isinstance(verdict, Undetermined) and "physical bounds" in verdict.reason:
        return False
    return not isinstance(verdict, Permitted)


@pytest.mark.parametrize("seed", [4, 8, 10])  # each finds out where `max_rate` may be dropped unseen
def test_s24_what_comes_into_force_at_once_permits_nothing_new_among_other_modules(seed: int) -> None:
    author = Author(seed)
    tightenings = permitted = 0
    for old, new, other in pairs(author):
        if why(old, new, other):
            continue
        tightenings += 1
        before, after = checks(old, other), checks(new, other)
        for plant in author.plants(25):
            if isinstance(after.check(plant.request())[0].verdict, Permitted):
                permitted += 1
                told = (old.text, new.text, other.text, plant)
                assert not refused_by(before.check(plant.request())[0]), told
        if tightenings == 25:
            break
    assert permitted > 10  # there was something to be wrong about

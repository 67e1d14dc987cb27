"""S2, S4: whatever a plant did within its assumptions, its true state lies in the set that a check stands on.

The level integrates the pump, the inflow and a leak, so no step of the dynamics has to begin at a certain
time. Outputs change at any moment, readings are of any age, and what one check left is carried into the next.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest

from gateway.core.decision import InForce
from gateway.core.ports import StateSet
from gateway.core.tag import TagId
from gateway.solver.checking.predict import UnusableError, observe
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_small import Plant, rule, small

MS = Fraction(1, 1000)
WIDE: dict[str, Any] = {
    "l": {"range": ["-1000", "1000"], "max_age": "3 s"},
    "q": {"range": ["-10", "60"], "max_age": "3 s"},
}
RULES = RuleSet.of(
    [
        small(
            rule("l <= 900", "high", always=True),
            dynamics={"l": "l + 0.02*p - 0.05*q + leak", "disturbance": {"leak": ["-0.1", "0.2"]}},
            variables=WIDE,
        )
    ],
    1,
)


@dataclass
class Tank:
    """A course of the plant in milliseconds, and what is known of it at a moment."""

    chance: random.Random
    at: int = 0
    level: Fraction = Fraction(0)
    inflow: Fraction = Fraction(20)
    pump: Fraction = Fraction(0)
    told: list[tuple[Fraction, Fraction]] = field(default_factory=list)  # level, inflow at each millisecond
    changes: list[tuple[Fraction, int]] = field(default_factory=list)  # value, when it ceased

    def run(self, millis: int) -> None:
        for _ in range(millis):
            if self.at % 50 == 0:
                self._way = self.chance.choice((-2, 0, 2))
                self._leak = Fraction(self.chance.choice(("-0.1", "0", "0.2")))
            self.told.append((self.level, self.inflow))
            self.inflow = min(max(self.inflow + self._way * MS, Fraction(10)), Fraction(40))
            moved = self.pump * Fraction("0.02") - self.inflow * Fraction("0.05") + self._leak
            self.level += moved * MS
            self.at += 1

    def set(self, pump: int) -> None:
        if pump != self.pump:
            self.changes.insert(0, (self.pump, self.at))
            self.pump = Fraction(pump)

    def request(self, carried: StateSet | None, ages: tuple[int, int]) -> Any:  # noqa: ANN401  a request
        now = self.at / 1000
        then = [min(age, self.at) for age in ages]
        noise = [Fraction(self.chance.choice((-1, 0, 1)) * error, 1000) for error in (10, 300)]
        read = [
            float(self.told[self.at - age][k] + noise[k])
            if age
            else float((self.level, self.inflow)[k] + noise[k])
            for k, age in enumerate(then)
        ]
        plant = Plant(
            l=read[0],
            q=read[1],
            at=now,
            ages={"L": then[0] / 1000, "Q": then[1] / 1000},
            old={"P": str(self.pump)},
            carried=carried,
        )
        request = plant.request()
        past = [InForce(value, (self.at - ceased) / 1000) for value, ceased in self.changes]
        history = {**request.history, TagId("P"): (InForce(self.pump, 0.0), *past)}
        return replace(request, history=history)


@pytest.mark.parametrize("seed", range(12))
def test_s2_the_true_state_lies_in_the_set_of_every_check(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  repeatable on purpose
    tank = Tank(chance)
    carried: StateSet | None = None
    tank.run(100)
    used = 0
    for _ in range(25):
        for _ in range(chance.randint(0, 3)):
            tank.set(chance.choice((0, 20, 100)))
            tank.run(chance.randint(1, 700))
        request = tank.request(carried, (chance.randint(0, 2500), chance.randint(0, 2500)))
        try:
            facts = observe(RULES, request)
        except UnusableError as exc:
            pytest.fail(str(exc))  # nothing was assumed wrongly, so nothing contradicts itself
        for tag, true in (("L", tank.level), ("Q", tank.inflow)):
            low, high = facts.now[tag]
            assert low <= true <= high, (tag, tank.at)
        carried = facts.carry
        used += facts.carried_used
    assert used > 15

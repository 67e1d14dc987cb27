"""Every shipped module judged by the thousand, in floats, is judged as the exact judge judges it one by one.

The ten plants have products, counts, enums, states nobody measures, clauses of what was before and terminal
sets. Points lie on the limits of the cases as often as beside them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from gateway.core.decision import (
    CheckRequest,
    DecisionId,
    InForce,
    PointId,
    Proposal,
    RegisterValue,
    StateInterval,
    StateSet,
)
from gateway.core.quality import StatusCode
from gateway.core.tag import Scalar, TagDefinition, TagId, TagValue
from gateway.solver.backtest.sweep import HOLDS, VIOLATED, Sweeper
from gateway.solver.modules.assumed_tags import assumed_tags
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module, Variable
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.backtest_log import asked, assert_as_one_by_one, evidence

NOW = 1_000.0
SHIPPED = sorted(
    p for p in (Path(__file__).parents[2] / "constraints").glob("*.json") if p.name != "proofs.json"
)
_FAR = (
    Fraction(0),
    Fraction(1, 1000),
    Fraction(-1, 1000),
    Fraction(1, 100),
    Fraction(-1, 20),
    Fraction(1, 20),
)


def beside(variable: Variable, value: Fraction, dice: random.Random) -> Fraction:
    """The value itself, or another near it or of its kind."""
    low, high = variable.range
    if variable.sort != "real":
        others = [*(variable.labels or {}).values()] or range(int(low), int(high) + 1)
        return Fraction(dice.choice(list(others))) if dice.random() < 0.3 else value
    moved = value + dice.choice(_FAR) * (high - low) * dice.choice((Fraction(1), Fraction(37, 100)))
    return Fraction(round(min(max(moved, low), high) * 1000), 1000)


def register(definition: TagDefinition, value: Fraction) -> RegisterValue:
    raw = definition.counts(value)
    return RegisterValue(definition.id, raw, definition.engineering(raw))


def reading(variable: Variable, value: Fraction, dice: random.Random) -> TagValue:
    read: Scalar = float(value) if variable.sort == "real" else int(value)
    return TagValue(
        value=bool(value) if variable.sort == "bool" else read,
        status=dice.choice([StatusCode.Good] * 20 + [StatusCode.Bad]),
        source_ts_ns=None,
        server_ts_ns=0,
        confirmed_at=NOW - dice.choice((0.0, 0.1, dice.uniform(0, 1))),
    )


def carried(module: Module, given: Mapping[str, Fraction], dice: random.Random) -> StateSet:
    """A state set around what is read now."""
    found: dict[str, StateInterval] = {}
    for name, v in module.variables.items():
        if not v.action:
            middle, half = given.get(name, sum(v.range, Fraction(0)) / 2), (v.range[1] - v.range[0]) / 50
            low, high = math.floor((middle - half) * 10**6), math.ceil((middle + half) * 10**6)
            found[v.tag] = StateInterval(Fraction(low, 10**6), Fraction(high, 10**6))
    return StateSet(at=NOW - dice.choice((0.5, 1.0, float(module.step))), intervals=found)


def random_request(module: Module, tags: Mapping[TagId, TagDefinition], dice: random.Random) -> CheckRequest:
    case = dice.choice(module.cases)
    given = {n: beside(v, case.given[n], dice) for n, v in module.variables.items() if n in case.given}
    inputs: dict[TagId, TagValue] = {}
    history: dict[TagId, tuple[InForce, ...]] = {}
    wanted: list[RegisterValue] = []
    for name, v in module.variables.items():
        if v.action:
            old = beside(v, case.previous.get(name, case.given[name]), dice)
            entries = [InForce(register(tags[v.tag], old).value, 0.0)]
            entries += [
                InForce(register(tags[v.tag], beside(v, old, dice)).value, ago)
                for ago in (0.0, dice.uniform(0.05, 3))
                if dice.random() < 0.2
            ]
            history[v.tag] = tuple(sorted(entries, key=lambda e: e.ceased_s_ago))
            wanted.append(register(tags[v.tag], given[name]))
        elif not v.hidden:
            inputs[v.tag] = reading(v, given[name], dice)
    return CheckRequest(
        decision=DecisionId("d"),
        point=PointId("p"),
        generation=1,
        inputs=inputs,
        taken_at=NOW,
        history=history,
        held_s={tag: dice.choice((0.0, 5.0, 30.0, 1e4)) for tag in history},
        proposal=Proposal(values=tuple(wanted), by="model"),
        carried=carried(module, given, dice) if dice.random() < 0.5 else None,
        hold_s=1.2,
        effect_delay_s=0.3,
    )


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_a_shipped_module_is_judged_by_the_thousand_as_one_by_one(path: Path) -> None:
    data = path.read_bytes()
    tags = assumed_tags(data)
    module = compile_module(data, path.name, tags)
    rules = RuleSet.of([module], 1)
    dice = random.Random(path.stem)  # noqa: S311  # repeatable
    requests = [random_request(module, tags, dice) for _ in range(100)]
    sweeper = Sweeper(rules, module.id)
    columns = evidence(
        requests,
        [v.tag for v in rules.reported],
        [v.tag for v in rules.actions],
        [v.tag for v in rules.measured],
    )
    found = sweeper.sweep(columns, lambda row: asked(requests[row]))
    counted = assert_as_one_by_one(sweeper, found, requests)
    assert counted[HOLDS] > 100
    assert counted[VIOLATED] > 20
    if not sweeper.one_by_one:
        assert found.asked.mean() < 0.1  # floats tell nearly all of it

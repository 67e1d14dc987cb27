"""Every safe and unsafe point of the shipped modules, by every judge, with the exact violated ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction

import pytest
import z3

from gateway.core.decision import Permitted, Refused, Undetermined, Violated
from gateway.recheck.check import misjudged_cases
from gateway.recheck.language import LanguageError
from gateway.solver.checking.terms import Budget, Terms, solver
from gateway.solver.modules.cases import case_point, violations
from gateway.solver.modules.module import Case, Constraint, Module
from gateway.solver.rules.interval import outward, scaled
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_modules import NAMES, request, shipped, text

PATIENT = Budget(timeout_ms=10_000)
MODULES = {name: shipped(name) for name in NAMES}
POINTS = [
    pytest.param(module, case, id=f"{name}-{index}")
    for name, module in MODULES.items()
    for index, case in enumerate(module.cases)
]


def binding(module: Module) -> list[Constraint]:
    return [rule for rule in module.rules if rule.kind != "informational"]


def by_z3(rules: list[Constraint], point: Mapping[str, Fraction]) -> frozenset[str]:
    context = z3.Context()
    terms = Terms(context)
    asked = solver(context, PATIENT, products=True)
    for name, value in point.items():
        asked.add(terms.name(name) == terms.number(value))
    found: set[str] = set()
    for rule in rules:
        answer = str(asked.check(z3.Not(terms.formula(rule.formula))))
        assert answer in {"sat", "unsat"}
        if answer == "sat":
            found.add(rule.id)
    return frozenset(found)


@pytest.mark.parametrize(("module", "case"), POINTS)
def test_the_exact_judge_the_interval_pass_and_z3_find_exactly_what_a_point_violates(
    module: Module, case: Case
) -> None:
    point = case_point(module, case)
    box = {name: outward(value, value) for name, value in point.items()}
    rules = binding(module)

    assert violations(module, case) == case.violated
    assert by_z3(rules, point) == case.violated
    assert {r.id for r in rules if not scaled(r.formula).slack(box).holds} == case.violated


AT_ONCE = [
    pytest.param(module, case, id=f"{name}-{index}")
    for name, module in MODULES.items()
    for index, case in enumerate(module.cases)
]
CHECKS = {name: Checks(RuleSet.of((module,), 1), PATIENT) for name, module in MODULES.items()}


# The whole check with the sensor errors the module states: what a point violates is violated at least.
@pytest.mark.parametrize(("module", "case"), AT_ONCE)
def test_the_whole_check_finds_what_a_point_violates_with_sensor_errors_on_top(
    module: Module, case: Case
) -> None:
    found, _ = CHECKS[module.id].check(request(module, case))
    missed = {f.constraint for f in found.findings if isinstance(f, Violated) and f.kind != "informational"}
    binding_ids = {rule.id for rule in binding(module) if not rule.monitor}

    assert not isinstance(found.verdict, Undetermined)
    assert missed >= case.violated
    assert isinstance(found.verdict, Refused) is bool(missed & binding_ids)


def test_most_permitted_points_stay_permitted_with_sensor_errors() -> None:
    points = [(m, c) for m in MODULES.values() if not m.terminal for c in m.cases if not c.violated]
    refused = [
        (m.id, found.verdict)
        for m, c in points
        if not isinstance((found := CHECKS[m.id].check(request(m, c))[0]).verdict, Permitted)
    ]

    # these stand within the sensor error of a limit: a level of 0.8 m, zones 1.2 K apart, a balance of 0.5 MW
    assert sorted(name for name, _ in refused) == ["furnace-diffusion", "pump-station", "three-unit-dispatch"]


@pytest.mark.parametrize("name", NAMES)
def test_s7_the_independent_checker_judges_every_point_alike(name: str) -> None:
    try:
        wrong = misjudged_cases(text(name))
    except LanguageError as exc:
        pytest.skip(f"the independent checker does not read all of it: {exc}")
    assert wrong == []


@pytest.mark.parametrize("module", MODULES.values(), ids=NAMES)
def test_s26_every_rule_of_a_shipped_module_is_violated_by_a_point_and_some_points_are_permitted(
    module: Module,
) -> None:
    shown = frozenset().union(*(case.violated for case in module.cases))
    written = {c["id"] for c in json.loads(module.text)["constraints"] if c["kind"] != "informational"}

    assert written <= shown
    assert {rule.id for rule in binding(module) if rule.id.endswith((".order", ".min", ".max"))} - shown <= {
        "recipe.min",
        "recipe.max",
    }
    assert sum(not case.violated for case in module.cases) >= 2
    assert any(rule.kind == "informational" for rule in module.rules)


def test_all_shipped_modules_of_one_step_can_be_in_force_together() -> None:
    together = [m for m in MODULES.values() if m.step == 1]

    rules = RuleSet.of(together, 1)

    assert len(together) >= 4
    assert len(rules.rules) == sum(len(m.rules) for m in together)
    assert rules.horizon == 0
    assert "snapshot only" in rules.armable(rules.variables, ())

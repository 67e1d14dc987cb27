"""Each question about a module, with faults planted for it to find."""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest

from gateway.core.decision import Refused
from gateway.solver.analysis import cases, conflicts, satisfiable
from gateway.solver.analysis.asking import Allowance, Asking
from gateway.solver.analysis.findings import Finding, Level
from gateway.solver.analysis.world import at_least, at_most
from gateway.solver.checking.terms import Answer
from gateway.solver.language.affine import Formula, symbol
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL, module
from tests.unit.solver_modules import NAMES, shipped
from tests.unit.solver_small import Plant, judged, rule, small

GIVEN: dict[str, object] = {
    "l": "2",
    "q": "20",
    "t": "40",
    "g": "2",
    "b": False,
    "n": "3",
    "m": "auto",
    "p": "40",
    "h": False,
    "s": "idle",
}


def alone(*modules: Module) -> RuleSet:
    return RuleSet.of(modules, 0)


def told(findings: Iterable[Finding], level: Level) -> list[str]:
    return [f.said for f in findings if f.level == level]


def case(*violated: str, **given: object) -> dict[str, Any]:
    expect: object = {"violated": list(violated)} if violated else "permitted"
    return {"given": {**GIVEN, **given}, "expect": expect}


# --- cases (S26) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("require", "violating", "near", "far"),
    [
        ("l <= 3", {"l": "3.5"}, {"l": "2.95"}, {"l": "2"}),
        ("p <= 80", {"p": "90"}, {"p": "80"}, {"p": "70"}),
        ("n <= 9", {"n": "10"}, {"n": "9"}, {"n": "7"}),
        ("h implies l >= 1", {"h": True, "l": "0.5"}, {"h": True, "l": "1"}, {"h": True, "l": "2"}),
        ("s != run or t <= 60", {"s": "run", "t": "70"}, {"s": "run", "t": "59"}, {"s": "run", "t": "20"}),
    ],
)
def test_s26_a_case_is_just_permitted_within_the_error_or_a_fiftieth_of_the_range_of_the_limit(
    require: str, violating: dict[str, object], near: dict[str, object], far: dict[str, object]
) -> None:
    rules = [rule(require, "r", "critical")]
    violated = case("r", **violating)

    good = small(*rules, cases=[violated, case(**near)])
    poor = small(*rules, cases=[violated, case(**far)])

    assert told(cases.examine(alone(good), Allowance()), "refused") == []
    (said,) = told(cases.examine(alone(poor), Allowance()), "refused")
    assert "no permitted case lies just inside critical constraint `r`" in said


def test_s26_over_budget_nobody_knows_whether_a_case_is_just_permitted() -> None:
    good = small(rule("l <= 3", "r", "critical"), cases=[case("r", l="3.5"), case(l="2.95")])

    found = list(cases.examine(alone(good), Allowance(seconds=0.0)))

    assert [f.level for f in found] == ["unknown"]


def test_s26_a_missing_case_is_offered_as_json_and_is_one() -> None:
    rules = [rule("h implies l >= 1", "r", "critical"), rule("abs(rate(p)) <= 5", "ramp")]
    violated = case("r", h=True, l="0.5")
    poor = small(*rules, cases=[violated, case(h=True)])

    (found,) = cases.examine(alone(poor), Allowance())

    (offered,) = found.lines
    assert found.todo.endswith("such as:")
    mended = small(
        *rules, cases=[violated, json.loads(offered)]
    )  # it is judged as it says, or this is refused
    assert told(cases.examine(alone(mended), Allowance()), "refused") == []


@pytest.mark.parametrize("name", NAMES)
def test_s26_every_shipped_module_has_its_cases_and_contradicts_nothing(name: str) -> None:
    rules = alone(shipped(name))

    found = [*cases.examine(rules, Allowance()), *satisfiable.examine(rules, Allowance())]

    assert [f.said for f in found if f.level in {"refused", "unknown", "warning"}] == []


# --- satisfiable -----------------------------------------------------------------------------------------


def examined(
    *rules: dict[str, object] | str, variables: dict[str, dict[str, object]] | None = None
) -> list[Finding]:
    return list(satisfiable.examine(alone(small(*rules, variables=variables or {})), Allowance()))


def test_rules_that_can_hold_are_fine_and_progress_is_told_for_each() -> None:
    asked: list[None] = []
    rules = alone(small("l <= 3", rule("p <= 80", "more")))

    found = list(satisfiable.examine(rules, Allowance(), lambda: asked.append(None)))

    assert [f.level for f in found] == ["fine"]
    assert len(asked) == len(rules.rules)


@pytest.mark.parametrize(
    ("rules", "level", "said"),
    [
        (["l <= -2"], "refused", "`r` is violated in every state"),
        (["q <= 50"], "warning", "`r` forbids nothing: it holds everywhere in the ranges"),
        ([rule("p <= 3", when="q > 41")], "warning", "`r` never applies: its `when` holds nowhere"),
        ([rule("p <= 3", when="t > 80 and t < 70")], "warning", "`r` never applies"),
        (
            ["p <= 20", rule("p >= 30", "up")],
            "refused",
            "`r` (small.json:1) and `up` (small.json:1) can never hold together",
        ),
        (
            ["p <= 20 + 2*n", rule("n <= 4", "few"), rule("p >= 30", "up"), rule("l <= 4", "apart")],
            "refused",
            "`r` (small.json:1) and `few` (small.json:1) and `up` (small.json:1) can never hold together",
        ),
        (["p <= 50", rule("p <= 60", "wide")], "note", "`wide` is implied by `r` (small.json:1)"),
        (
            ["abs(rate(p)) <= 5", rule("p <= prev(p) + 6", "step")],
            "note",
            "`step` is implied by `r` (small.json:1)",
        ),
    ],
)
def test_a_planted_contradiction_vacuity_or_redundancy_is_told(
    rules: list[dict[str, object] | str], level: Level, said: str
) -> None:
    assert any(said in text for text in told(examined(*rules), level))


# Predicted states are not clipped to a range: what only speaks beyond it refuses proposals all the same.
def test_a_rule_for_every_moment_is_asked_beyond_the_ranges_too() -> None:
    ranged = small(
        rule("l <= 5", "top", always=True),
        rule("l + 0.05*q <= 7", "sum", always=True),
        rule("p <= 30", "late", when="l > 5", always=True),
        rule("l + 0.05*q <= 7", "now"),
        dynamics={"l": "l + 0.001*q"},
    )
    verdict = judged(ranged, Plant(l=4.9, q=39.5)).verdict
    assert isinstance(verdict, Refused)
    assert verdict.counterexample.constraint == "sum"
    said = satisfiable.examine(RuleSet.of([ranged], 0), Allowance())
    found = {f.subject: f.said for f in said if f.subject}
    assert found.keys() == {"now", "late"}
    assert "`late` is implied by `top`" in found["late"]
    assert "forbids nothing: it holds everywhere in the ranges" in found["now"]
    bounded = small(rule("q <= 50", always=True), variables={"q": {"physical": ["0", "45"]}})
    (only,) = (f.said for f in satisfiable.examine(RuleSet.of([bounded], 0), Allowance()) if f.subject)
    assert only == "`r` forbids nothing: it holds everywhere in the physical limits"


def test_a_rule_is_not_implied_by_one_that_weighs_less_or_is_asked_less_often() -> None:
    weak = examined(rule("l <= 3", "r", always=True), rule("l <= 2", "snap"))
    light = examined(rule("p <= 50", "r"), rule("p <= 40", "report", "informational"))

    assert told(weak, "note") == []
    assert told(light, "note") == []


def test_physical_limits_count_as_where_a_reading_can_be() -> None:
    vacuous = examined(rule("p <= 3", when="q > 35"), variables={"q": {"physical": ["10", "34"]}})

    assert any("`r` never applies" in said for said in told(vacuous, "warning"))


def test_what_is_not_answered_in_the_budget_is_not_fine() -> None:
    rules = alone(small("l <= 3", rule("p <= 80", "more")))

    found = list(satisfiable.examine(rules, Allowance(seconds=0.0)))

    assert {f.level for f in found} == {"unknown"}
    assert all("not known in the budget" in f.said for f in found)


def test_an_unsatisfiable_core_names_nothing_that_can_be_left_out() -> None:
    x = symbol("x")
    formulas: dict[str, Formula] = {
        "low": at_least(x, Fraction(3)),
        "apart": at_most(symbol("y"), Fraction(9)),
        "lower": at_least(x, Fraction(2)),
        "high": at_most(x, Fraction(1)),
    }
    asking = Asking(Allowance())
    for name, formula in formulas.items():
        asking.name(name, formula)

    assert asking.ask(formulas) is Answer.UNSAT
    core = asking.core(list(formulas))
    assert len(core) == 2
    assert "high" in core


# --- conflicts -------------------------------------------------------------------------------------------


def test_modules_that_fit_are_fine() -> None:
    found = list(conflicts.examine(module(LOWER_LEVEL), [module()], Allowance()))

    assert [f.level for f in found] == ["fine"]


def test_a_conflict_names_both_constraints_their_modules_files_and_lines() -> None:
    one = small("p >= 60", id="one")
    two = small(rule("p <= 20", "low"), id="two")

    (found,) = conflicts.examine(one, [two], Allowance())

    assert found.level == "refused"
    assert found.said == (
        "`r` of module `one` (one.json:1: `p >= 60`) and `low` of module `two` (two.json:1: `p <= 20`) can "
        "never hold together: nothing would be permitted"
    )


def test_a_conflict_that_was_there_before_is_not_blamed_on_the_new_module() -> None:
    first, second = small("p >= 60", id="one"), small("p <= 20", id="two")

    (found,) = conflicts.examine(small("l <= 3", id="three"), [first, second], Allowance())

    assert found.level == "warning"
    assert "already without this module nothing is permitted" in found.said


def test_a_revision_is_not_compared_with_the_one_it_replaces() -> None:
    assert list(conflicts.examine(small("p >= 60"), [small("p <= 20")], Allowance())) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            [("0.0000625*pump", "0.00007*pump")],
            "the factor of `pump` is -7e-05 here and -6.25e-05 there",
        ),
        ([("0.2*heater", "0.3*heater + 1")], "the factor of `heater` is 0.3 here and 0.2 there"),
        (
            [("ramp(100, 10)", "ramp(100, 20)")],
            "its backup for `TK1.P101.SP` is `ramp(100, 20)` where its `when` holds, else `ramp(0, 10)`, and",
        ),
        (
            [('"when": "level >= 2"', '"when": "level >= 2.5"')],
            "a shared action has one backup",
        ),
    ],
)
def test_s1_s3_differing_dynamics_backup_and_steps_are_told_in_words(
    changes: list[tuple[str, str]], said: str
) -> None:
    other = module(BUFFER_TANK, ('"id": "buffer-tank"', '"id": "second"'), *changes)

    assert any(said in text for text in told(conflicts.examine(other, [module()], Allowance()), "refused"))


def test_a_differing_step_is_told_with_both() -> None:
    slow = module(LOWER_LEVEL, ('"step": "1 s"', '"step": "2 s"'))

    (said,) = told(conflicts.examine(slow, [module()], Allowance()), "refused")

    assert said.startswith("its step is 2 s and that of `buffer-tank` (buffer-tank.json) is 1 s")


def test_whether_modules_conflict_is_not_known_over_budget() -> None:
    (found,) = conflicts.examine(small("p >= 60", id="a"), [small("p <= 20", id="b")], Allowance(seconds=0.0))

    assert found.level == "unknown"

"""Questions about what becomes of the plant: influence, errors, safe sets, dead ends, suggestions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.solver.analysis import coefficients, dead_ends, effective, influence, invariance, suggest
from gateway.solver.analysis.asking import Allowance
from gateway.solver.analysis.courses import Course, clause, clauses, lines
from gateway.solver.analysis.findings import Finding, Level
from gateway.solver.language.affine import Affine
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_demo import BUFFER_TANK, TAGS, module, rule_set
from tests.unit.solver_heaters import TERMINAL, heaters
from tests.unit.solver_small import rule, small


def alone(*modules: Module) -> RuleSet:
    return RuleSet.of(modules, 0)


def long() -> Allowance:
    """For what can be found: no machine is too slow for it."""
    return Allowance(seconds=900.0, each_ms=60_000)


def told(findings: Iterable[Finding], level: Level) -> list[str]:
    return [f.said for f in findings if f.level == level]


# --- influence (S5) --------------------------------------------------------------------------------------


def reached(**forms: Affine) -> influence.Reach:
    """What `p` reaches under forms over `P` and the others."""
    rules = alone(small(rule("l <= 3", always=True), dynamics={"l": "l + 0.001*p"}))
    return influence.reach(replace(rules, forms=forms))


def form(**terms: int) -> Affine:
    return Affine(Fraction(0), {name: Fraction(factor) for name, factor in terms.items()})


def test_s5_the_smallest_step_at_which_an_action_can_influence_a_variable() -> None:
    found = reached(A=form(A=1, P=2), B=form(B=1, A=3), C=form(C=1, B=1), D=form(D=1, Q=1))

    assert found == {"A": (1, ("p",)), "B": (2, ("p",)), "C": (3, ("p",))}


def test_s5_ways_that_cancel_are_no_influence() -> None:
    assert "C" not in reached(A=form(A=1, P=2), B=form(B=1, P=-2), C=form(C=1, A=1, B=1))


def test_s5_a_rule_that_no_action_can_influence_is_to_be_marked_monitor() -> None:
    dynamics = {"l": "l + 0.001*p"}
    stuck = [rule("l <= 3", always=True), rule("q <= 30", "inflow")]
    watched = [rule("l <= 3", always=True), rule("q <= 30", "inflow", monitor=True)]

    (armed,) = told(influence.examine(alone(small(*stuck, dynamics=dynamics))), "refused")
    (snapshot,) = told(influence.examine(alone(small("q <= 30"))), "warning")
    fine = told(influence.examine(alone(small(*watched, dynamics=dynamics))), "fine")

    assert armed == "no action can influence `inflow`; a point cannot be armed under it"
    assert snapshot == "no action can influence `r`"
    assert fine == ["no action can influence `inflow`, which only watches"]
    (todo,) = [f.todo for f in influence.examine(alone(small("q <= 30")))]
    assert todo.startswith("mark it `monitor`")


def test_s5_a_critical_rule_that_an_action_can_influence_is_no_monitor() -> None:
    dynamics = {"l": "l + 0.001*p"}
    by_level = rule("l <= 3", always=True, monitor=True)
    standard = rule("l <= 3", "wanted", always=True, monitor=True)
    of_inflow = rule("q <= 30", "inflow", monitor=True)
    found = alone(small(by_level, standard, of_inflow, dynamics=dynamics))
    critical = (
        replace(r, constraint=replace(r.constraint, kind="critical")) if r.constraint.id != "wanted" else r
        for r in found.rules
    )
    rules = replace(found, rules=tuple(critical))

    (said,) = told(influence.examine(rules), "warning")

    assert said == "`p` can influence critical `r`, but it is marked `monitor` and refuses nothing"


def test_s5_influence_is_told_in_steps_and_seconds_with_the_actions() -> None:
    said = told(influence.examine(alone(heaters())), "note")

    assert said == [f"`q1` or `q2` can influence `hot{k}` after 1 step (10 s)" for k in (1, 2)]


# --- effective errors and units (S4) ---------------------------------------------------------------------


def test_s4_the_error_of_a_reading_is_the_sum_of_its_parts_and_grows_with_age_and_skew() -> None:
    rows = {row.name: row for row in effective.errors(rule_set(), effective.Times((), 0.2))}

    level, inflow = rows["level"], rows["inflow"]
    assert (level.error, level.half_count, level.deadband, level.reading) == ("0.01", "0.0005", "0", "0.0105")
    assert (level.drift, level.after) == ("", "moves by its dynamics")
    assert (inflow.drift, inflow.worst) == ("4.4", "4.705")  # 2 m3/h/s for 2 s and a skew of 0.2 s
    assert inflow.after == "at most 2 m3/h/s, within 0 to 36 m3/h"


def test_s4_shown_errors_are_rounded_up() -> None:
    odd = small("l <= 3", variables={"l": {"error": "0.0123456789"}})

    row = next(r for r in effective.errors(alone(odd), effective.Times()) if r.name == "l")

    assert row.error == "0.012346"


def test_a_bare_number_is_shown_with_the_unit_it_took() -> None:
    rows = [(u.subject, u.number, u.unit) for u in coefficients.units(module())]

    assert ("dynamics of level", "0.000138889", "m/(m3/h)") in rows
    assert ("dynamics of level", "0.0000625", "m/%") in rows
    assert ("dynamics of temp", "0.2", "K") in rows
    assert ("dynamics of temp", "20", "degC") in rows
    assert ("no-overflow", "3.6", "m") in rows
    assert ("pump-ramp", "10", "%/s") in rows


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("t + 5 <= 60", {("5", "K"), ("60", "degC")}),
        ("t - 5 <= 60", {("5", "K"), ("60", "degC")}),
        ("0.1*(t - 20) <= l", {("0.1", "m/K"), ("20", "degC")}),
        ("l <= 3 + 0.01*p", {("3", "m"), ("0.01", "m/%")}),
        ("l - 0.05*q <= 2", {("0.05", "m/(m3/h)"), ("2", "m")}),
        ("max(l, 2) <= 3", {("2", "m"), ("3", "m")}),
        ("h implies g >= 1.5", {("1.5", "bar(g)")}),
        ("if l > 1 then p <= 50 else p <= 20", {("1", "m"), ("50", "%"), ("20", "%")}),
        ("n <= 3", set()),
    ],
)
def test_units_of_bare_numbers_by_construct(text: str, units: set[tuple[str, str]]) -> None:
    assert {(u.number, u.unit) for u in coefficients.units(small(text))} == units


# --- safe set and dead ends (S1) -------------------------------------------------------------------------


def test_s1_a_proved_set_is_fine_and_leaves_no_dead_end() -> None:
    finding, proved = invariance.examine(rule_set(), long())
    dead_end = dead_ends.examine(rule_set(), long(), proved=proved)

    assert proved
    assert finding.level == "fine"
    assert dead_end is not None
    assert dead_end.said.startswith("proved none in the safe set")


def test_s1_an_escape_is_refused_with_its_story_and_what_to_do() -> None:
    finding, proved = invariance.examine(alone(heaters(safe_set=["t1 <= 60", "t2 <= 60"])), long())

    assert not proved
    assert finding.level == "refused"
    assert "`hot1` " in finding.said
    assert len(finding.story) >= 2
    assert "--suggest-safe-set" in finding.todo


def test_s1_a_proof_that_was_shown_before_is_not_made_again() -> None:
    finding, proved = invariance.examine(rule_set(), Allowance(seconds=0.0), proved={rule_set().proof_digest})

    assert proved
    assert "shown before" in finding.said
    assert invariance.examine(rule_set(), Allowance(seconds=0.0))[0].level == "unknown"


@pytest.mark.parametrize(
    ("made", "level", "said"),
    [
        (small("l <= 3"), "note", "it claims the snapshot only"),
        (heaters(), "warning", "it has dynamics and no `safe_set`, and no `terminal` set"),
        (heaters(backup=[]), "warning", "it has dynamics and no `backup`"),
    ],
)
def test_s1_s5_what_cannot_be_armed_says_why(made: Module, level: Level, said: str) -> None:
    finding, proved = invariance.examine(alone(made), Allowance())

    assert not proved
    assert finding.level == level
    assert said in finding.said


def test_s11_the_horizon_of_a_terminal_set_must_outlast_the_longest_hold() -> None:
    rules = alone(heaters(terminal=list(TERMINAL), horizon=8))

    short = invariance.horizon(rules, 81.0)
    assert short is not None
    assert (short.level, short.todo) == ("refused", "raise `horizon` to 9")
    enough = invariance.horizon(rules, 80.0)
    assert enough is not None
    assert enough.level == "fine"
    assert invariance.horizon(alone(heaters()), 81.0) is None


def test_s1_a_state_from_which_nothing_is_permitted_is_found_and_is_one() -> None:
    rules = alone(heaters())

    found = dead_ends.examine(rules, Allowance(), proved=False)

    assert found is not None
    assert found.level == "warning"
    assert found.said.startswith("from t1 ")
    t1, t2 = (float(found.example[name].removesuffix(" degC")) for name in ("t1", "t2"))
    q1, q2 = (float(found.example[f"prev({name})"].removesuffix(" %")) for name in ("q1", "q2"))
    # with everything the old powers may do in the step, and the errors, no new value keeps both limits
    assert max(t1, t2) + 0.305 <= 60.001
    hottest = max(t1 + 0.06 * (22 - t1) + 0.004 * (t2 - t1) + 0.05 * q1 + 0.004 * q2, 0) + 0.305 * 0.94 + 0.2
    other = t2 + 0.06 * (22 - t2) + 0.004 * (t1 - t2) + 0.004 * q1 + 0.03 * q2 + 0.305 * 0.94 + 0.2
    assert max(hottest, other) > 59.99


def test_s1_where_some_action_always_keeps_the_rules_that_is_proved() -> None:
    cool = heaters(
        dynamics={
            "t1": "t1 + 0.06*(22 - t1) + 0.01*q1 + w1",
            "t2": "t2 + 0.06*(22 - t2) + 0.01*q2 + w1",
            "disturbance": {"w1": ["-0.2", "0.2"]},
        }
    )

    found = dead_ends.examine(alone(cool), Allowance(), proved=False)

    assert found is not None
    assert (found.level, found.said) == (
        "fine",
        "proved none: from every state inside the rules some action keeps them for one step",
    )


def test_s1_dead_ends_are_not_known_over_budget_nor_asked_without_dynamics() -> None:
    found = dead_ends.examine(alone(heaters()), Allowance(seconds=0.0), proved=False)

    assert found is not None
    assert found.level == "unknown"
    assert dead_ends.examine(alone(small("l <= 3")), Allowance(), proved=False) is None


# --- suggestions -----------------------------------------------------------------------------------------


def test_a_set_is_suggested_for_a_file_with_a_mark_of_its_byte_order() -> None:
    text = BUFFER_TANK.read_text(encoding="utf-8")
    marked = compile_module(("\ufeff" + text).encode(), "tank.json", TAGS)
    assert [part.text for part in suggest._with(marked, ["level <= 3"]).safe_set] == ["level <= 3"]


def test_chords_lie_above_a_convex_function_and_touch_it_at_the_knots() -> None:
    def square(at: Fraction) -> Fraction:
        return at * at

    found = list(lines(square, [Fraction(k) for k in (0, 2, 5)]))

    for at in (Fraction(k, 4) for k in range(21)):
        assert max(s * at + c for s, c in found) >= square(at)
    assert max(s * 2 + c for s, c in found) == 4


def test_the_course_of_a_rule_is_no_less_than_any_course_of_the_plant() -> None:
    rules = alone(heaters())
    rule_1 = rules.rules[0]
    (atoms,) = clauses(rule_1.formula) or ()
    part = clause(atoms, rules)
    assert part is not None
    course = Course(
        rules,
        part.form,
        {str(v.tag): [rules.backup[i].entry.moves[str(v.tag)]] for i, v in enumerate(rules.actions)},
    )
    q1, q2 = Fraction(90), Fraction(40)
    t1, t2 = Fraction(50), Fraction(30)
    state = {"HT.T1": t1, "HT.T2": t2}
    a1, a2 = q1, q2
    for steps in range(12):
        bound = course.bound(steps)
        most = bound.constant + sum(f * state[tag] for tag, f in bound.row.items())
        most += sum(f({"HT.Q1.SP": q1, "HT.Q2.SP": q2}[tag]) for tag, f in bound.actions.items())
        assert most >= t1 - 60
        point = {"HT.T1": t1, "HT.T2": t2, "HT.Q1.SP": a1, "HT.Q2.SP": a2}
        t1, t2 = (
            rules.forms[tag].at({**point, **{n: high for n, (_, high) in rules.disturbances.items()}})
            for tag in ("HT.T1", "HT.T2")
        )
        if steps:  # the backup acts, slowly, from the second step on
            a1, a2 = max(Fraction(0), a1 - 18), max(Fraction(0), a2 - 18)


def test_s1_a_safe_set_is_found_for_the_heaters_and_it_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest, "_KNOTS", (2,))  # finer ones are looked for as long as there is time
    plant = heaters()

    found = suggest.examine(alone(plant), plant, long(), lambda _done, _of: None)

    assert found.level == "note", found.said
    assert found.lines[0] == '"safe_set": ['
    assert any(line.startswith('  "t1 <= 59.99') for line in found.lines)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (heaters(backup=[]), "a safe set needs a `backup`"),
        (small("l <= 3"), "a safe set needs `dynamics`"),
    ],
)
def test_where_there_is_no_safe_set_to_offer_it_says_why(plant: Module, said: str) -> None:
    found = suggest.examine(alone(plant), plant, Allowance(seconds=12.0), lambda _done, _of: None)

    assert found.level == "warning"
    assert said in found.said
    assert found.lines == ()


# A condition on several outputs, or on a square, has no line of its own: the rule is taken as it is written.
@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("q1 + q2 > 10", "not known in the budget"),
        ("q1*q1 > 100", "a product of two variables is not allowed"),
    ],
)
def test_a_rule_under_a_condition_that_is_no_limit_of_one_output_stands_as_written(
    when: str, said: str
) -> None:
    rule = {"id": "hot", "kind": "standard", "when": when, "require": "t1 <= 60", "always": True}
    plant = heaters(constraints=[rule], cases=[])
    rules = alone(plant)
    (atoms,) = clauses(rules.rules[0].formula) or ()

    assert clause(atoms, rules) is None
    found = suggest.examine(rules, plant, Allowance(seconds=0.0), lambda _done, _of: None)
    assert said in found.said


def test_a_safe_set_that_is_not_found_in_the_budget_is_not_known() -> None:
    idle = heaters(backup=[{"q1": "hold"}, {"q2": "hold"}])

    found = suggest.examine(alone(idle), idle, Allowance(seconds=0.0), lambda _done, _of: None)

    assert found.level == "unknown"
    assert "not known in the budget" in found.said

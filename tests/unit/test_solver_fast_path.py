"""The fast ways of a check say what the slow and plain ones say, and a fault in one of them is noticed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction

import pytest

from gateway.core.decision import Holds, Permitted, Refused, Undetermined, Violated
from gateway.core.tag import exact
from gateway.solver.checking import outline
from gateway.solver.checking.boxes import Boxes
from gateway.solver.checking.condense import condense
from gateway.solver.checking.corners import corners
from gateway.solver.checking.predict import decimal, observe
from gateway.solver.checking.query import Query
from gateway.solver.checking.shelf import Part, Shelf
from gateway.solver.checking.table import Nearest, Table
from gateway.solver.checking.terms import Answer
from gateway.solver.language.affine import Affine, Atom, Every, Formula, Some, symbols
from gateway.solver.rules.interval import SCALE, Box, outward, scaled
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import FINE, fine
from gateway.solver.workers.check import Checks, millis_up
from tests.bench.synthetic import DELAY_S, HOLD_S, Family, requests, rule_set
from tests.unit.solver_demo import PATIENT
from tests.unit.solver_modules import shipped

FAMILIES = (Family(rules=10), Family(rules=50), Family(rules=10, horizon=5), Family(rules=50, products=True))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_finding_and_verdict_is_that_of_the_exact_rows_asked_one_by_one(family: Family) -> None:
    rules = rule_set(family)
    checks, plan = Checks(rules, PATIENT), condense(rules, millis_up(DELAY_S), millis_up(HOLD_S))
    exact, boxes = Query(Shelf(), plan, PATIENT), Boxes(rules, plan)
    seen: set[type] = set()
    for request in requests(family, 12, seed=5, may_repair=False):
        assert request.proposal is not None
        result, _ = checks.check(request)
        within = boxes.box(observe(rules, request), request.proposal.engineering())
        said = {f.constraint: f for f in result.findings}
        exact.open(within, {})
        missed = {rule for rule in {d.rule for d in plan.duties} if exact.one(rule) is Answer.SAT}
        exact.close()
        seen.add(type(result.verdict))
        assert isinstance(result.verdict, Refused if missed else Permitted)
        for index, rule in enumerate(plan.rules):
            finding = said[rule.constraint.id]
            assert isinstance(finding, Violated if index in missed else Holds)
            formulas = [scaled(d.formula) for d in plan.duties if d.rule == index]
            if isinstance(finding, Holds) and finding.margin is not None:
                margins = (f.margin(f.slack(within)) for f in formulas)
                assert finding.margin == min(m for m in margins if m is not None)
    assert seen == {Permitted, Refused}


def test_a_table_says_of_each_group_what_its_formulas_say_alone() -> None:
    rules = rule_set(Family(rules=50, horizon=1, products=True))
    plan = condense(rules, millis_up(DELAY_S), millis_up(HOLD_S))
    groups = [[scaled(d.formula) for d in plan.duties if d.rule == index] for index in range(len(plan.rules))]
    fixed = Boxes(rules, plan).fixed()
    table, chance = Table(groups), random.Random(8)  # noqa: S311  a repeatable sample
    shorter = Table(groups, fixed)
    assert {name.partition(":")[2] for name in fixed} == rules.disturbances.keys()
    for _ in range(30):
        ends = {n: sorted(chance.randrange(-9 * SCALE, 99 * SCALE) for _ in range(2)) for n in plan.symbols}
        within = {name: (low, high) for name, (low, high) in ends.items()} | fixed
        assert shorter.nearest(within) == table.nearest(within)
        for group, least in zip(groups, table.least(within), strict=True):
            alone = [formula.slack(within) for formula in group]
            assert least is not None
            assert least[1] == alone[least[0]]
            nearest = min(Fraction(s.value, f.unit) for s, f in zip(alone, group, strict=True))
            assert Fraction(least[1].value, group[least[0]].unit) == nearest


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 1.5, -0.125, 3.6, 0.1 + 0.2, 1e16, 1e22, 1.7976931348623157e308, 1e-5, 5e-324, 7, -3, True],
)
def test_a_reading_is_its_shortest_decimal_however_it_is_written(value: float) -> None:
    assert decimal(value) == fine((exact(value), exact(value)))


# S7: what the exact judge finds violated at a point Z3 must find violated there, too.
def test_s7_a_witness_that_z3_finds_no_fault_with_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family(rules=10)
    asked = list(requests(family, 20, seed=5, may_repair=False))
    checks = Checks(rule_set(family), PATIENT)
    sound = [type(checks.check(request)[0].verdict) for request in asked]
    at = Query.at
    said: list[Answer] = []

    def blind(self: Query, rule: int, duty: int, point: Box) -> Answer:
        said.append(at(self, rule, duty, point))
        return Answer.UNSAT

    monkeypatch.setattr(Query, "at", blind)
    found = [type(checks.check(request)[0].verdict) for request in asked]

    assert Refused in sound
    assert set(said) == {Answer.SAT}
    assert found == [Undetermined if verdict is Refused else verdict for verdict in sound]


def test_a_point_that_keeps_a_duty_is_told_from_one_that_misses_it() -> None:
    rules = rule_set(Family(rules=10))
    plan = condense(rules, millis_up(DELAY_S), millis_up(HOLD_S))
    query, chance = Query(Shelf(), plan, PATIENT), random.Random(9)  # noqa: S311  a repeatable sample
    seen: set[tuple[bool, bool]] = set()
    for _ in range(60):
        here = {name: chance.randrange(-SCALE, 40 * SCALE) for name in plan.symbols}
        within = {name: (end, end) for name, end in here.items()}
        rule = chance.randrange(len(plan.rules))
        mine = [d for d in plan.duties if d.rule == rule]
        kept = [scaled(duty.formula).slack(within).holds for duty in mine]
        for number, (duty, holds) in enumerate(zip(mine, kept, strict=True)):
            there = {name: within[name] for name in symbols(duty.formula)}
            assert query.at(rule, number, there) is (Answer.UNSAT if holds else Answer.SAT)
            seen.add((holds, all(kept)))
    assert (True, False) in seen  # a duty that is kept beside one that is not
    assert (False, False) in seen


def test_steps_in_whole_numbers_hold_the_exact_ones_and_hardly_more() -> None:
    rules = rule_set(Family(rules=10))
    start = {str(v.tag): (Fraction(4, 3), Fraction(5, 3)) for v in rules.measured}
    acting = {str(v.tag): (Fraction(100, 7), Fraction(30)) for v in rules.actions}

    found = rules.steps.forward(
        {tag: fine(ends) for tag, ends in start.items()},
        {tag: fine(ends) for tag, ends in acting.items()},
        Fraction(27, 10),
    )

    for tag, ends in _exactly(rules, start, acting, (Fraction(1), Fraction(1), Fraction(7, 10))).items():
        low, high = (Fraction(end, FINE) for end in found[tag])
        assert low <= ends[0]
        assert ends[0] - low < Fraction(1, 10**20)
        assert high >= ends[1]
        assert high - ends[1] < Fraction(1, 10**20)


Ends = tuple[Fraction, Fraction]


def _exactly(
    rules: RuleSet, start: Mapping[str, Ends], acting: Mapping[str, Ends], parts: tuple[Fraction, ...]
) -> dict[str, Ends]:
    """The same in fractions: a share of each step, inflows as far as their rate and physics go."""
    state = dict(start)
    for part in parts:
        during = {**rules.disturbances, **acting, **state}
        for v in rules.measured:
            if v.max_rate is not None:
                assert v.physical is not None
                low, high = state[v.tag][0] - v.max_rate * part, state[v.tag][1] + v.max_rate * part
                during[v.tag] = max(low, v.physical[0]), min(high, v.physical[1])
        after = {tag: ends for tag, ends in during.items() if tag in state}
        for tag, form in rules.forms.items():
            factors = {n: c * part for n, c in form.terms.items()}
            factors[tag] += 1 - part
            ends = [
                form.constant * part + sum(c * during[n][(c > 0) == top] for n, c in factors.items())
                for top in (False, True)
            ]
            after[tag] = Fraction(ends[0]), Fraction(ends[1])
        state = after
    return state


# S7: the interval pass and Z3 are two judges; a pass that finds everything kept is contradicted.
@pytest.mark.parametrize("family", [Family(rules=10), Family(rules=10, horizon=1)], ids=lambda f: f.name)
def test_s7_an_interval_pass_that_sees_no_violation_is_contradicted_by_z3(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = Checks(rule_set(family), PATIENT)
    asked = list(requests(family, 20, seed=5, may_repair=False))
    sound = [type(checks.check(request)[0].verdict) for request in asked]
    nearest = Table.nearest

    def careless(self: Table, box: Box) -> list[Nearest | None]:
        return [near and (near[0], abs(near[1]), near[2]) for near in nearest(self, box)]

    monkeypatch.setattr(Table, "nearest", careless)
    faulty = Checks(rule_set(family), PATIENT)
    found = [type(faulty.check(request)[0].verdict) for request in asked]

    assert Refused in sound
    assert found == [Undetermined if verdict is Refused else verdict for verdict in sound]


# S3: premises that contradict each other would show everything; such an answer is no answer.
def test_s3_what_z3_concludes_from_premises_that_contradict_each_other_settles_nothing() -> None:
    family = Family(rules=10)
    rules = rule_set(family)
    plan = condense(rules, millis_up(DELAY_S), millis_up(HOLD_S))
    shelf = Shelf()
    asked = outline.Outline(rules, plan, shelf, Query(shelf, plan, PATIENT), PATIENT)
    request = next(requests(family, 1, seed=5, may_repair=False))
    assert request.proposal is not None
    within = Boxes(rules, plan).box(observe(rules, request), request.proposal.engineering())
    every = {duty.rule for duty in plan.duties}

    asked.stage({})
    asked.open(within)
    assert asked.unsettled(every, within) == []
    asked.open({name: (high + SCALE, high + SCALE) for name, (_, high) in within.items()})
    asked.open(within)
    assert set(asked.unsettled(every, within)) == every


# One rule near its limit is left to a closer question, and the others are not.
def test_only_what_may_miss_its_outline_is_left_to_a_closer_question() -> None:
    family = Family(rules=10)
    rules = rule_set(family)
    plan = condense(rules, millis_up(DELAY_S), millis_up(HOLD_S))
    shelf = Shelf()
    query = Query(shelf, plan, PATIENT)
    asked = outline.Outline(rules, plan, shelf, query, PATIENT)
    boxes, every = Boxes(rules, plan), {duty.rule for duty in plan.duties}
    left: list[int] = []
    for request in requests(family, 30, seed=5, may_repair=False):
        assert request.proposal is not None
        within = boxes.box(observe(rules, request), request.proposal.engineering())
        asked.stage({})
        asked.open(within)
        unsettled = set(asked.unsettled(every, within))
        query.open(within, {})
        assert {rule for rule in every if query.one(rule) is Answer.SAT} <= unsettled
        query.close()
        left.append(len(unsettled))
    assert set(left) >= {0, 1}
    assert max(left) < len(every) / 2


# S7: what a plan's preparation says is not trusted either: Z3 takes only outlines that keep their rules.
def test_s7_an_outline_that_keeps_too_little_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family(rules=10)
    sound = Checks(rule_set(family), PATIENT)
    true_outlined = outline.outlined
    emptied = 0

    def empty(part: Part, within: Box) -> Formula | None:
        nonlocal emptied
        emptied += true_outlined(part, within) is not None
        return Every(())

    monkeypatch.setattr(outline, "outlined", empty)
    faulty = Checks(rule_set(family), PATIENT)

    for request in requests(family, 20, seed=5, may_repair=False):
        assert faulty.check(request)[0].verdict == sound.check(request)[0].verdict
    assert emptied


# Z3 takes fifty times as long over rows of long factors, and settles nothing more.
def test_rules_whose_factors_are_long_are_left_to_the_hull() -> None:
    rules = RuleSet.of([shipped("tclab-twin")], 1)
    plan = condense(rules, Fraction(0), Fraction(10))
    within = {name: outward(*interval) for name, interval in outline.limits(rules, plan).items()}

    made = {index for index, part in enumerate(Shelf().parts(plan)) if outline.outlined(part, within)}

    named = {plan.rules[index].constraint.id for index in made}
    assert "power" in named
    assert not {"hot1", "hot2"} & named


# `a > 20 implies 100 t + a >= limit`: worst for its row is a = 0, where nothing is demanded.
@pytest.mark.parametrize(("limit", "least"), [(600, Fraction(30)), (530, 30 - Fraction(1, SCALE))])
def test_a_point_that_misses_a_rule_has_no_excuse_and_is_no_farther_than_it_must(
    limit: int, least: Fraction
) -> None:
    excuse = Atom(Affine(Fraction(-20), {"b3:a": Fraction(1)}), strict=False)
    demand = Atom(Affine(Fraction(limit), {"x:t": Fraction(-100), "b3:a": Fraction(-1)}), strict=False)
    rule = scaled(Some((excuse, demand)))
    within = {"b3:a": (0, 30 * SCALE), "x:t": (5 * SCALE, 10 * SCALE)}
    first, second = rule.rows

    for row, a in ((first, least), (second, 20 + Fraction(1, SCALE))):
        _, missed = corners(within, rule, row)
        assert not rule.slack({name: (int(value * SCALE),) * 2 for name, value in missed.items()}).holds
        assert missed == {"b3:a": a, "x:t": 5}

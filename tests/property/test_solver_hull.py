"""The hull hides no violation: whatever it settles, the exact rows say too."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from fractions import Fraction

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.solver.checking.condense import Plan, condense
from gateway.solver.checking.hull import Asked, Hull, reach, whole
from gateway.solver.checking.judge import Judge
from gateway.solver.checking.predict import observe
from gateway.solver.checking.query import Query
from gateway.solver.checking.shelf import Shelf
from gateway.solver.checking.terms import Answer, Bounds, Terms, solver
from gateway.solver.language.affine import Affine, Atom, Every, Formula
from gateway.solver.rules.interval import SCALE, Box
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import millis_up
from tests.unit.solver_demo import PATIENT, Situation, proposal, rule_set

NAMES = ("a", "b", "c", "d")
factors = st.fractions(min_value=-1000, max_value=1000, max_denominator=10**14).filter(bool)
terms = st.dictionaries(st.sampled_from(NAMES), factors, min_size=1)
ends = st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(-(10**15), 10**15)))


@settings(max_examples=100, deadline=None)
@given(terms, ends, st.sampled_from((0, 1, 1_000, 10**9)))
def test_a_whole_row_is_never_less_than_its_form_and_hardly_greater(
    factors: dict[str, Fraction], point: dict[str, int], excess: int
) -> None:
    room = dict.fromkeys(NAMES, 10**15)
    there = {n: Fraction(x, SCALE) for n, x in point.items()}
    excess_there = Fraction(excess, SCALE)
    form = Affine(
        excess_there - Affine(Fraction(0), factors).at(there), factors
    )  # at the limit, or just over

    constant, row = whole(form, room)
    value = constant + sum(f * point[n] for n, f in row.items())

    longest = max(factors, key=lambda n: abs(factors[n]))
    size = row[longest] / factors[longest] * SCALE
    assert all(abs(f) <= 2**31 for f in row.values())
    assert value > 0 if excess else value >= 0
    hair = sum(2 * room[n] for n in row) + size * abs(form.constant) / 10**8
    assert value <= size * excess_there + hair + 1


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return rule_set()


@pytest.fixture(scope="module")
def plan(rules: RuleSet) -> Plan:
    return condense(rules, Fraction(3, 10), Fraction(6, 5))


def test_the_hull_and_the_exact_rows_agree_in_boxes_of_every_kind(rules: RuleSet, plan: Plan) -> None:
    shelf = Shelf()
    asked, exact = Asked(rules, plan, shelf, PATIENT), Query(shelf, plan, PATIENT)
    rng = random.Random(11)  # noqa: S311  # a repeatable sample
    every = sorted({duty.rule for duty in plan.duties})
    judge = Judge(rules, PATIENT)
    prepared = judge.prepare(millis_up(0.3), millis_up(1.2))
    seen: set[Answer] = set()
    by_ends: Counter[bool] = Counter()
    for _ in range(60):
        here = Situation(
            level=rng.choice((0.32, 0.5, 2.0, 3.4, 3.58, rng.uniform(0.3, 3.6))),
            inflow=rng.uniform(0, 36),
            temp=rng.uniform(20, 74),
            pump=str(rng.randint(0, 1000) / 10),
            heater=rng.randint(0, 1),
        )
        wanted = proposal(str(rng.randint(0, 1000) / 10), rng.randint(0, 1), rng.randint(0, 3))
        box = prepared.box(observe(rules, here.request(wanted)), wanted.engineering())
        asked.stage({n: box[n] for n in box if n not in prepared.changing})
        assert asked.open({n: box[n] for n in prepared.changing}, {})
        exact.open(box, {})
        for index in every:
            said = exact.one(index)
            assert asked.any_of({index}) is said
            seen.add(said)
            broken = [broken_in(box, duty.formula) for duty in plan.duties if duty.rule == index]
            if None not in broken:  # no alternatives: the ends of the box decide, and nobody need ask Z3
                assert said is (Answer.SAT if any(broken) else Answer.UNSAT), plan.rules[index].constraint.id
                by_ends[any(broken)] += 1
        assert asked.any_of(every) is exact.any_of(every)
        exact.close()
        asked.close()
    assert seen == {Answer.SAT, Answer.UNSAT}
    assert by_ends[True] > 50
    assert by_ends[False] > 200


def broken_in(box: Box, formula: Formula) -> bool | None:
    """Whether a point of the box breaks limits that must all hold; None where there are alternatives."""
    match formula:
        case Atom(Affine(constant, terms), strict):
            ends = {n: (Fraction(low, SCALE), Fraction(high, SCALE)) for n, (low, high) in box.items()}
            most = constant + sum(f * ends[n][f > 0] for n, f in terms.items())
            return most >= 0 if strict else most > 0
        case Every(parts):
            found = [broken_in(box, part) for part in parts]
            return None if None in found else any(found)
        case _:
            return None


# S7: Z3 knows the whole box: a violation at one corner of it alone, whichever it is, is found.
@pytest.mark.parametrize("corner", list(itertools.product((0, 1), repeat=2)), ids=str)
def test_s7_a_violation_at_one_corner_of_the_premises_is_found_by_z3(corner: tuple[int, int]) -> None:
    context = z3.Context()
    terms_, solver_ = Terms(context), solver(context, PATIENT)
    names = [terms_.name(name) for name in ("a", "b")]
    for whole_units in (False, True):
        solver_.push()
        bounds = Bounds(context, solver_, whole=whole_units)
        for name in names:
            bounds.state(name, -SCALE, 3 * SCALE)
        unit = SCALE if whole_units else 1
        signs = [1 if end else -1 for end in corner]
        most = sum(sign * (3 if end else -1) for sign, end in zip(signs, corner, strict=True)) * unit
        sum_ = terms_.total(Fraction(0), zip(signs, names, strict=True))
        assert str(solver_.check(sum_ >= most)) == "sat"
        assert str(solver_.check(sum_ > most)) == "unsat"
        solver_.pop()


# S2: rounding a factor is covered only as far as the hull's room goes; beyond it the exact rows are asked.
def test_beyond_its_room_the_hull_does_not_speak(rules: RuleSet, plan: Plan) -> None:
    asked = Asked(rules, plan, Shelf(), PATIENT)
    room = reach(rules, plan)
    far = {name: (-10 * room[name], 10 * room[name]) for name in plan.symbols}

    asked.stage(far)
    assert asked.open({}, {})
    assert asked.any_of({duty.rule for duty in plan.duties}) is Answer.SAT


def test_in_plant_states_the_hull_settles_every_rule_by_itself(rules: RuleSet, plan: Plan) -> None:
    hull = Hull(Shelf(), plan, reach(rules, plan), PATIENT)
    prepared = Judge(rules, PATIENT).prepare(millis_up(0.3), millis_up(1.2))
    wanted = proposal()
    box = prepared.box(observe(rules, Situation().request(wanted)), wanted.engineering())

    hull.push()
    hull.state(box, {})

    assert hull.reaches(box)
    assert hull.keeps({duty.rule for duty in plan.duties})

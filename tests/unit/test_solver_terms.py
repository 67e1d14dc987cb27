"""What is kept of terms between rule sets, and what is not; bounds to the last digit, and Z3's answers."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
import z3
from z3 import z3core

from gateway.solver.checking.terms import Answer, Bounds, Budget, Terms, asked, leaned_on, solver, state
from gateway.solver.rules.interval import SCALE
from tests.unit.solver_demo import PATIENT


def test_names_and_numbers_are_forgotten_once_there_are_more_than_may_be_kept() -> None:
    terms = Terms(z3.Context())
    names = [terms.name("a"), terms.name("b")]
    numbers = [terms.number(1), terms.number(2)]

    terms.forget(2)
    assert [terms.name("a"), terms.name("b")] == names
    assert terms.name("a") is names[0]
    assert terms.number(2) is numbers[1]

    terms.forget(1)
    assert terms.name("a") is not names[0]
    assert terms.number(2) is not numbers[1]
    assert z3.eq(terms.name("a"), names[0])  # terms made before go on meaning the same


# What Z3's C interface takes as a short number would be cut off there without a word.
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("end", [0, -1, 10**12 + 7, 2**63 - 1, 2**63, -(2**63), 2**64 + 5, 10**21])
def test_s7_a_bound_of_any_length_is_stated_to_the_last_digit(end: int, *, whole: bool) -> None:
    context = z3.Context()
    terms = Terms(context)
    solver_ = solver(context, PATIENT)
    symbol, unit = terms.name("a"), 1 if whole else SCALE
    bounds = Bounds(context, solver_, whole=whole)

    bounds.state(symbol, end - 1, end)

    most, least = terms.number(Fraction(end, unit)), terms.number(Fraction(end - 1, unit))
    assert asked(solver_, [symbol == most]) is Answer.SAT
    assert asked(solver_, [symbol == least]) is Answer.SAT
    assert asked(solver_, [symbol > most]) is Answer.UNSAT
    assert asked(solver_, [symbol < least]) is Answer.UNSAT


def test_what_was_asked_is_told_from_what_is_stated_when_z3_says_that_both_cannot_be() -> None:
    context = z3.Context()
    one, other = z3.Bools("one other", context)
    solver_ = solver(context, PATIENT)
    state(solver_, z3.Not(one))

    assert asked(solver_, [other]) is Answer.SAT
    assert asked(solver_, [one, other]) is Answer.UNSAT
    assert leaned_on(solver_, one)
    assert not leaned_on(solver_, other)

    state(solver_, one)  # now nothing that is asked matters
    assert asked(solver_, [one, other]) is Answer.UNSAT
    assert not leaned_on(solver_, one)


def test_without_a_time_out_work_units_alone_end_a_query() -> None:
    context = z3.Context()
    holes = [[z3.Bool(f"{pigeon} in {hole}", context) for hole in range(9)] for pigeon in range(10)]
    for budget, said in ((Budget(1_000, None), Answer.UNKNOWN), (Budget(10_000_000, None), Answer.UNSAT)):
        solver_ = solver(context, budget)
        for mine in holes[: 10 if said is Answer.UNKNOWN else 2]:
            state(solver_, z3.Or(mine[: 9 if said is Answer.UNKNOWN else 1]))
        for one, other in itertools.combinations(holes, 2):
            for mine, theirs in zip(one, other, strict=True):
                state(solver_, z3.Not(z3.And(mine, theirs)))
        assert asked(solver_, []) is said


# A worker makes terms for weeks: what nobody holds any more, Z3 does not hold either.
def test_terms_that_are_gone_leave_nothing_behind() -> None:
    terms = Terms(z3.Context())

    def allocated(begin: int) -> int:
        for k in range(begin, begin + 2_000):
            products = [(Fraction(7 * k + n, 9), terms.name(name)) for n, name in enumerate("xy", 1)]
            terms.negative(terms.total(Fraction(k, 11), products), strict=True)
        terms.forget(0)
        return int(z3core.Z3_get_estimated_alloc_size())

    allocated(0)  # tables of Z3's own grow at first
    before = allocated(2_000)
    assert allocated(4_000) - before < 50_000  # a term is some 100 bytes

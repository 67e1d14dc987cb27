"""What is kept of terms between rule sets, and what is not."""

from __future__ import annotations

import z3

from gateway.solver.terms import Terms


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

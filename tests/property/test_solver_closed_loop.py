"""The demo module in a closed loop with the demo tank: nothing is violated, little that is safe refused."""

from __future__ import annotations

import pytest

from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import PATIENT, rule_set
from tests.unit.solver_loop import SCENES, Proposer, run


@pytest.fixture(scope="module")
def checks() -> Checks:
    return Checks(rule_set(), PATIENT)


@pytest.mark.parametrize(("propose", "start"), SCENES, ids=[p.__name__ for p, _ in SCENES])
def test_no_proposer_violates_anything_and_there_is_always_something_to_write(
    checks: Checks, propose: Proposer, start: float
) -> None:
    tally = run(checks, propose, start, seed=5, steps=90)

    assert (tally.broken, tally.silent, tally.undetermined) == (0, 0, 0)


# Refusing everything would be safe too, and useless.
@pytest.mark.nightly
def test_ninety_nine_in_a_hundred_safe_proposals_are_permitted_unchanged(checks: Checks) -> None:
    tallies = [run(checks, p, start, seed, 300) for p, start in SCENES for seed in (1, 2, 3)]
    safe, permitted = sum(t.safe for t in tallies), sum(t.permitted for t in tallies)

    assert sum(t.broken for t in tallies) == 0
    assert sum(t.silent for t in tallies) == 0
    assert safe > 800
    assert permitted >= 0.99 * safe, [m for t in tallies for m in t.missed]

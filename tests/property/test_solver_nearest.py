"""Seeded rule sets of every kind of rule: repairs that may lie anywhere, against every block judged."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from gateway.core.decision import Permitted, Refused, Repaired
from gateway.core.restraint import UNRESTRAINED, Restraint
from tests.property.test_solver_permitted_next import RESTING, SAFE, TERMINAL, any_rule
from tests.unit.solver_nearest import VALUES, H, Judged, P, R, S, block_of, nearness, one_step
from tests.unit.solver_next import anywhere, rules

SEEDS, PROPOSALS = 40, 25  # a thousand cases
GROUPS = 10


# S12: a repair is found whenever one exists, no farther than a register step beyond the nearest there is.
@pytest.mark.parametrize("group", range(GROUPS))
def test_s12_a_repair_is_found_whenever_one_exists_within_a_register_step_of_the_nearest(group: int) -> None:
    repaired = refused = 0
    for seed in range(group, SEEDS, GROUPS):
        chance = random.Random(seed)  # noqa: S311  repeatable on purpose
        plant = _plant(chance)
        for _ in range(PROPOSALS):
            wanted = {
                P: chance.randrange(8),
                R: chance.randrange(-1, 7),
                H: chance.randrange(2),
                S: chance.choice(VALUES[S]),
            }
            restraint = chance.choice(
                [UNRESTRAINED, UNRESTRAINED, Restraint(least_change={P: Fraction(13), R: Fraction(7)})]
            )
            verdict = plant.checked(wanted, restraint).verdict
            best = plant.best(wanted, restraint)
            match verdict:
                case Permitted(setpoints):
                    assert block_of(setpoints) in plant.permitted
                case Refused():
                    assert best is None, (seed, wanted, restraint, best)
                    refused += 1
                case Repaired(setpoints):
                    found = block_of(setpoints)
                    assert found in plant.permitted, (seed, wanted)
                    assert best is not None
                    here = nearness(wanted, found)
                    assert here[0] == best[0], (seed, wanted, found, best)
                    assert here[1] <= best[1] + one_step(), (seed, wanted, found, best)
                    assert here == best, (seed, wanted, found, best)
                    repaired += 1
                case other:
                    pytest.fail(f"{seed} {wanted}: {other}")
    assert repaired > refused / 4


def _plant(chance: random.Random) -> Judged:
    more = chance.choice([{}, {}, SAFE, TERMINAL, RESTING])
    here = anywhere(chance, ["nothing", "nothing", "older", "both"])
    named = chance.choice([(), (H,), (H, S)])
    repair = {"h": H in named, "s": S in named}
    some = [any_rule(chance) for _ in range(chance.randrange(1, 4))]
    return Judged(rules(*some, repair=repair, **more), here, named)

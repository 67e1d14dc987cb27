"""The twin of the `tclab` package behind its module: nothing is violated, and the harness can tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gateway.core.decision import CheckResult, Counterexample, Refused
from gateway.core.ports import CheckRequest, StateSet
from gateway.solver.workers.check import Checks
from tests.bench.tclab import Driven, drive, figures
from tests.bench.tclab_proposers import PROPOSERS
from tests.bench.tclab_twin import AMBIENT, Loop, checks, hot_in_silence, unsafe_because

STEPS = 60
COLD = np.array([20.0, 20.0, 20.0, 20.0])
HOT = np.array([70.0, 50.0, 59.8, 50.0])
STATED = 16  # figures


@pytest.fixture(scope="module")
def known() -> Checks:
    return checks()


@pytest.mark.parametrize("name", PROPOSERS)
def test_no_proposer_breaks_a_limit_behind_the_check_and_something_can_always_be_written(
    known: Checks, name: str
) -> None:
    found = Driven()

    drive(known, found, name, seed=3, steps=STEPS)

    tally = found.checked
    assert (tally.hot, tally.ramp, tally.power) == (0, 0, 0)
    assert (tally.idle, tally.undetermined.total(), tally.unsafe_permitted) == (0, 0, 0)
    assert (tally.outside, tally.hidden_outside) == (0, 0)
    assert tally.readings > STEPS
    assert tally.steps == STEPS


def test_without_the_check_the_twin_gets_too_hot_and_moves_too_far() -> None:
    full = Loop(PROPOSERS["full"](3), 3, None).run(STEPS)
    anything = Loop(PROPOSERS["anything"](3), 3, None).run(STEPS)

    assert full.hot > 0
    assert anything.ramp > 0
    assert anything.power > 0


def test_a_good_controller_is_left_alone(known: Checks) -> None:
    tally = Loop(PROPOSERS["controller"](3), 3, known).run(STEPS)

    assert tally.permitted == tally.safe == STEPS


def test_vertex_sampling_knows_ramp_supply_and_heat() -> None:
    assert unsafe_because(COLD, (30.0, 30.0), (40.0, 20.0)) == ""
    assert unsafe_because(COLD, (30.0, 30.0), (50.1, 30.0)) == "ramp"
    assert unsafe_because(COLD, (70.0, 60.0), (70.0, 60.1)) == "power"
    assert unsafe_because(HOT, (80.0, 0.0), (90.0, 0.0)) == "hot"
    assert not hot_in_silence(COLD, (40.0, 20.0))
    assert hot_in_silence(HOT, (90.0, 0.0))
    assert hot_in_silence(COLD, (40.0, 20.0), limit=float(COLD.max()) - 1)
    assert AMBIENT == (18, 24)


class RefusesEverything(Checks):
    """A checker that is never wrong and never of use."""

    def check(
        self, request: CheckRequest, late: Callable[[], bool] = lambda: False
    ) -> tuple[CheckResult, StateSet | None]:
        result, state = super().check(request, late)
        told = Counterexample(module="none", constraint="everything", margin=None, assignment={}, text="no")
        return replace(result, verdict=Refused(told), recovery=False), state


def test_a_check_that_refuses_everything_shows_in_the_figures(known: Checks) -> None:
    found = {name: Driven() for name in PROPOSERS}
    drive(RefusesEverything(known.rules), found["controller"], "controller", seed=3, steps=20)
    for name in PROPOSERS:
        if name != "controller":
            drive(known, found[name], name, seed=3, steps=1)

    values = {figure.name: figure.value for figure in figures(found)}

    assert values["nothing_to_write"] == 20
    assert values["safe_permitted_percent"] < 20
    assert values["controller_cost_percent"] > 10
    assert len(values) == STATED

"""The expert and the PI keep the limits, and the expert is the better of the two."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest

from gateway.plantsim.controllers import Controller, ExpertController, PiController
from gateway.plantsim.objective import Moment, score, simulate
from gateway.plantsim.tank import TankState

CONTROLLERS = [ExpertController(), PiController()]


@pytest.mark.parametrize("seed", [201, 202, 203])
def test_the_expert_beats_the_pi_in_error_and_in_the_whole_objective(seed: int) -> None:
    expert = score(simulate(ExpertController(), seed=seed, seconds=2_400))
    baseline = score(simulate(PiController(), seed=seed, seconds=2_400))
    assert expert.iae < baseline.iae
    assert expert.objective < baseline.objective


@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize(
    "start", [TankState(), TankState(0.35, 20.0), TankState(3.4, 70.0), TankState(1.0, 45.0)]
)
def test_ramp_minimum_times_and_mixing_are_kept_from_any_start(
    controller: Controller, start: TankState
) -> None:
    run = simulate(controller, seed=11, seconds=1_500, start=start)
    for before, after in pairwise(run):
        assert abs(after.outputs.pump_pct - before.outputs.pump_pct) <= 10.0 + 1e-9
    assert all(moment.outputs.mixer >= 1 for moment in run if moment.outputs.heater)
    held = [(heater, len(list(moments))) for heater, moments in groupby(run, key=heating)]
    for heater, seconds in held[:-1]:  # the last one is cut by the end of the run
        assert seconds >= (30 if heater else 60)
    assert any(heater for heater, _ in held)


def test_the_expert_waits_a_second_longer_than_the_minimum_times_and_no_more() -> None:
    run = simulate(ExpertController(), seed=11, seconds=3_000)
    held = [(heater, len(list(moments))) for heater, moments in groupby(run, key=heating)][:-1]
    assert min(seconds for heater, seconds in held if not heater) == 61
    assert all(seconds >= 31 for heater, seconds in held if heater)


@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize("seed", range(4))
def test_no_limit_of_the_tank_is_reached_in_a_normal_run(controller: Controller, seed: int) -> None:
    for moment in simulate(controller, seed=seed, seconds=1_800):
        assert 0.6 < moment.state.level_m < 3.5
        assert moment.state.temperature_c < 60.0


def heating(moment: Moment) -> bool:
    return moment.outputs.heater

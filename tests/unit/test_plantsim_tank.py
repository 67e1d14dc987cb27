"""The physics stays inside the envelope the buffer-tank module states."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.plantsim.tank import Disturbance, Disturbances, Sensors, TankState, step

SUBSTEPS = 50


def one_second(
    state: TankState, outputs: tuple[float, bool, int], begin: Disturbance, end: Disturbance
) -> list[TankState]:
    states = [state]
    for index in range(1, SUBSTEPS + 1):
        share = index / SUBSTEPS
        disturbance = Disturbance(
            begin.inflow_m3h + share * (end.inflow_m3h - begin.inflow_m3h), begin.leak_m_s, begin.ambient_c
        )
        states.append(step(states[-1], *outputs, 1 / SUBSTEPS, disturbance))
    return states


@given(
    level=st.floats(0.05, 4.9),
    temperature=st.floats(18.0, 75.0),
    pump=st.floats(0.0, 100.0),
    heater=st.booleans(),
    mixer=st.integers(0, 3),
    inflow=st.floats(0.0, 36.0),
    change=st.floats(-2.0, 2.0),
    leak=st.floats(-0.00035, 0.00035),
    ambient=st.floats(18.0, 22.0),
)
def test_one_second_stays_in_the_modules_envelope(
    *,
    level: float,
    temperature: float,
    pump: float,
    heater: bool,
    mixer: int,
    inflow: float,
    change: float,
    leak: float,
    ambient: float,
) -> None:
    later = min(max(inflow + change, 0.0), 36.0)
    begin = Disturbance(inflow, leak, ambient)
    states = one_second(
        TankState(level, temperature), (pump, heater, mixer), begin, Disturbance(later, leak, ambient)
    )
    # The module's envelope of temperature holds where `no-dry-fire` and `heater-needs-mixing` hold.
    assume(not heater or (mixer >= 1 and all(state.level_m >= 0.5 for state in states)))
    leaked = states[-1].level_m - (level + 0.000138889 * inflow - 0.0000625 * pump)
    assert -0.0005 <= leaked <= 0.0005
    drift = states[-1].temperature_c - (temperature + 0.2 * heater - 0.0002 * (temperature - 20))
    assert -1.1 <= drift <= 0.001


@given(
    level=st.floats(0.0, 5.0),
    temperature=st.floats(18.0, 100.0),
    pump=st.floats(0.0, 100.0),
    heater=st.booleans(),
    dt_s=st.floats(0.0, 1.0),
    inflow=st.floats(0.0, 36.0),
)
def test_level_stays_in_the_tank_and_temperature_above_the_coldest_source(
    *, level: float, temperature: float, pump: float, heater: bool, dt_s: float, inflow: float
) -> None:
    after = step(TankState(level, temperature), pump, heater, 1, dt_s, Disturbance(inflow, -0.0005, 18.0))
    assert 0.0 <= after.level_m <= 5.0
    assert after.temperature_c >= 18.0


def test_the_heater_heats_only_with_the_mixer_running() -> None:
    still = step(TankState(), 0.0, heater=True, mixer=0, dt_s=1.0, disturbance=Disturbance(0.0))
    mixed = step(TankState(), 0.0, heater=True, mixer=1, dt_s=1.0, disturbance=Disturbance(0.0))
    assert still.temperature_c < 40.0
    assert mixed.temperature_c - still.temperature_c == pytest.approx(0.05)


@pytest.mark.parametrize("seed", range(5))
def test_disturbances_keep_their_bounds_and_rate(seed: int) -> None:
    disturbances = Disturbances(seed)
    walk = [disturbances.advance(0.1) for _ in range(30_000)]
    assert all(0.0 <= now.inflow_m3h <= 36.0 and 18.0 <= now.ambient_c <= 22.0 for now in walk)
    assert all(abs(now.leak_m_s) <= 0.0005 for now in walk)
    assert max(abs(after.inflow_m3h - before.inflow_m3h) for before, after in pairwise(walk)) <= 0.2 + 1e-9
    assert 7.0 < sum(now.inflow_m3h for now in walk) / len(walk) < 17.0


def test_a_seed_gives_the_same_disturbance_whatever_the_scan_time() -> None:
    slow, fast = Disturbances(7), Disturbances(7)
    for _ in range(200):
        slow.advance(1.0)
        for _ in range(50):
            fast.advance(0.02)
        assert fast.now.inflow_m3h == pytest.approx(slow.now.inflow_m3h, abs=1e-6)


def test_sensor_noise_is_bounded_seeded_and_not_nothing() -> None:
    state = TankState(2.0, 40.0)
    first, again = Sensors(3), Sensors(3)
    readings = [first.measure(state, 12.0) for _ in range(2_000)]
    assert readings == [again.measure(state, 12.0) for _ in range(2_000)]
    assert 0.009 < max(abs(reading.level_m - 2.0) for reading in readings) <= 0.01
    assert 0.27 < max(abs(reading.inflow_m3h - 12.0) for reading in readings) <= 0.3
    assert 0.09 < max(abs(reading.temperature_c - 40.0) for reading in readings) <= 0.1

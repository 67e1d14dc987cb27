from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from gateway.core.tag import TagDefinition, TagKind
from gateway.solver.identify import draft
from gateway.solver.identify.identify import Identified, Wish, identified
from gateway.solver.identify.notes import Target
from gateway.solver.identify.series import Recording
from gateway.solver.identify.windows import Model
from gateway.solver.modules.compile import compile_module
from tests.bench.tclab_dynamics import coefficients
from tests.unit.identify_plants import Plant, recording, tank, twin, twin_channels

_AREA = 1 / 7200  # m/s a m3/h
_PUMP = 0.0000625  # m/s a %


def _found(plant: Plant, step_s: float, *targets: str) -> dict[str, Target]:
    got = identified(plant.recording, Wish(step_s=step_s, targets=targets or None))
    assert isinstance(got, Identified), got
    return {t.fit.target: t for t in got.targets}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_tank_s_coefficients_are_found_within_three_percent_under_noise_ten_steps_deep(seed: int) -> None:
    level = _found(tank(seed=seed), 1.0)["level"]

    assert set(level.model.effects) == {"inflow", "pump"}
    assert level.model.keep == 1.0
    assert level.model.constant == 0.0
    assert level.model.effects["inflow"] == pytest.approx(_AREA, rel=0.03)
    assert level.model.effects["pump"] == pytest.approx(-_PUMP, rel=0.03)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_tank_s_true_disturbance_lies_inside_a_band_that_is_not_three_times_as_wide(seed: int) -> None:
    plant = tank(seed=seed)
    level = _found(plant, 1.0)["level"]
    true = plant.unexplained(level.model)

    assert level.band.low <= true.min()
    assert true.max() <= level.band.high
    assert level.band.high - level.band.low < 3 * (true.max() - true.min())


def test_the_heater_s_effect_is_the_mean_of_what_it_is_at_the_levels_that_were_seen() -> None:
    plant = tank(seed=2)
    temp = _found(plant, 1.0)["temp"]

    expected = float(np.mean(0.1 / plant.true["level"]))
    assert temp.model.effects["heater"] == pytest.approx(expected, rel=0.05)
    true = plant.unexplained(temp.model)
    assert temp.band.low <= true.min()
    assert true.max() <= temp.band.high


def test_what_no_action_moves_gets_a_greatest_rate_and_no_dynamics() -> None:
    got = identified(tank().recording, Wish(step_s=1.0))

    assert isinstance(got, Identified)
    assert {t.fit.target for t in got.targets} == {"level", "temp"}
    assert set(got.without) == {"inflow"}
    true = np.abs(np.diff(tank().true["inflow"])).max()
    assert 0.5 * true < got.rates["inflow"] <= true + 1e-9


@pytest.mark.parametrize("seed", [1, 2])
def test_the_twin_s_coefficients_are_the_package_s_own_within_the_noise_of_its_converter(seed: int) -> None:
    plant, physics = twin(seed=seed), coefficients()
    found = _found(plant, 10.0, "t1", "t2", "h1", "h2")

    assert set(found) == {"t1", "t2", "h1", "h2"}
    for name, target in found.items():
        told = {name: target.model.keep, **target.model.effects}
        for other in ("t1", "t2", "h1", "h2", "ta", "q1", "q2"):
            true = float(physics[name].get(other, 0))
            assert told.get(other, 0.0) == pytest.approx(true, rel=0.01, abs=0.0012), (name, other)


def test_the_twin_s_true_disturbance_lies_inside_when_its_heaters_and_the_room_are_not_logged() -> None:
    plant = twin(names=("t1", "t2", "q1", "q2"))
    got = identified(plant.recording, Wish(step_s=10.0))

    assert isinstance(got, Identified)
    for target in got.targets:
        true = plant.unexplained(target.model)
        assert target.band.low <= true.min()
        assert true.max() <= target.band.high
        assert target.band.spread is not None  # it is told from the noise, and not taken for it
        assert all(c.share > 0.999 for c in target.band.coverage)


def test_a_room_that_warms_everything_and_is_not_logged_is_told_and_one_that_is_logged_is_not() -> None:
    said = "what is missed of `h2` and of `h1` goes together"
    wish = Wish(step_s=10.0, targets=("t1", "t2", "h1", "h2"))

    unseen = identified(twin(names=("t1", "t2", "h1", "h2", "q1", "q2")).recording, wish)
    logged = identified(twin().recording, wish)

    assert isinstance(unseen, Identified)
    assert isinstance(logged, Identified)
    assert said in " ".join(unseen.notes)
    assert said not in " ".join(logged.notes)


def test_what_an_error_of_another_tag_explains_is_not_called_certain() -> None:
    plant = twin(names=("t1", "t2", "q1", "q2"))
    loose = tuple(replace(c, error=Fraction(50)) if c.name == "t2" else c for c in plant.recording.channels)
    wish = Wish(step_s=10.0, targets=("t1",))

    tight = identified(plant.recording, wish)
    got = identified(Recording(channels=loose, samples=plant.recording.samples), wish)

    assert isinstance(tight, Identified)
    assert isinstance(got, Identified)
    assert "t2" in got.targets[0].model.effects
    assert tight.targets[0].band.certain is not None
    assert got.targets[0].band.certain is None


def test_a_disturbance_fades_as_the_variable_forgets() -> None:
    forgetful = Model(target="t", keep=0.5, effects={}, constant=0.0)
    turning = replace(forgetful, keep=-0.5)

    assert (forgetful.gain(3), forgetful.reach(3)) == (1.75, 1.75)
    assert (turning.gain(3), turning.reach(3)) == (0.75, 1.75)


# The control: the same residuals in a band that is too narrow are not "inside".
def test_a_plant_that_changes_in_the_held_out_part_is_told_and_widens_the_band() -> None:
    plant = tank(seed=1)
    values = {name: s.value.copy() for name, s in plant.recording.samples.items()}
    burst = 0.003 * np.clip(np.arange(len(values["level"])) - 7_000, 0, 200)  # 3 mm a second for 200 s
    shifted = recording(plant.recording.channels, values | {"level": values["level"] + burst}, 1.0)

    quiet = identified(plant.recording, Wish(step_s=1.0, targets=("level",)))
    got = identified(shifted, Wish(step_s=1.0, targets=("level",)))

    assert isinstance(got, Identified)
    assert isinstance(quiet, Identified)
    before, after = quiet.targets[0].band, got.targets[0].band
    sixty = {c.steps: c for c in after.coverage}[60]
    assert sixty.inside < sixty.starts
    assert after.trained == pytest.approx(before.trained)
    assert after.high > 0.0025
    assert any("lay outside the band of the fitting part 60 steps ahead" in note for note in got.notes)


def test_samples_at_uneven_times_give_the_same_coefficients() -> None:
    plant, dice = tank(seed=3), np.random.default_rng(7)
    uneven = {}
    for channel in plant.recording.channels:
        even = plant.recording.samples[channel.name]
        if channel.action:
            uneven[channel.name] = even
            continue
        moved = even.at + dice.uniform(-0.2, 0.2, len(even.at))
        truth = np.interp(moved, even.at, plant.true[channel.name])
        noise = even.value - plant.true[channel.name]
        uneven[channel.name] = replace(even, at=moved, value=truth + noise)

    got = identified(
        Recording(channels=plant.recording.channels, samples=uneven), Wish(step_s=1.0, targets=("level",))
    )

    assert isinstance(got, Identified)
    effects = got.targets[0].model.effects
    assert effects["inflow"] == pytest.approx(_AREA, rel=0.04)
    assert effects["pump"] == pytest.approx(-_PUMP, rel=0.04)
    # Readings drawn from two samples share noise with their neighbours: that is no disturbance.
    assert got.targets[0].band.spread is None
    assert got.targets[0].band.high < 0.0011


def test_a_noisy_input_s_effect_is_given_back_what_the_noise_took() -> None:
    dice = np.random.default_rng(3)
    drive = np.cumsum(dice.normal(0, 0.05, 20_000)) * 0.2 + np.repeat(dice.normal(0, 1, 4_000), 5)
    level = np.concatenate(([0.0], np.cumsum(0.5 * drive)))[:-1] - 0.0
    channels = twin_channels("q1", "t1", "ta")
    heat = np.repeat(dice.uniform(0, 60, 2_000), 10)
    level = level + np.concatenate(([0.0], np.cumsum(0.01 * (heat - heat.mean()))))[:-1]
    noisy = drive + dice.uniform(-1.0, 1.0, len(drive))
    exact = {"q1": heat, "t1": level, "ta": noisy}
    channels = tuple(
        replace(
            c,
            rounding=Fraction(0),
            error=None if c.action else Fraction(1) if c.name == "ta" else Fraction(1, 100),
        )
        for c in channels
    )

    got = identified(recording(channels, exact, 10.0), Wish(step_s=10.0, targets=("t1",)))

    assert isinstance(got, Identified)
    effect = next(e for e in got.targets[0].fit.effects if e.name == "ta")
    assert effect.bias < 0 < effect.value  # noise pulls towards 0
    assert abs(effect.value - 0.5) < 0.5 * abs(effect.bias)  # what was fitted was off by about the bias
    assert got.targets[0].model.effects["q1"] == pytest.approx(0.01, rel=0.05)


# A rate in a unit that the module language does not take would have the whole draft refused.
@pytest.mark.parametrize("unit", ["m3/h", "degF", "degC", "bar(g)", ""])
def test_a_draft_over_tags_of_any_unit_compiles_once_its_rule_is_filled_in(unit: str) -> None:
    plant = tank()
    channels = [replace(c, unit=unit) if c.name == "inflow" else c for c in plant.recording.channels]
    found = identified(replace(plant.recording, channels=tuple(channels)), Wish(step_s=1.0))
    assert isinstance(found, Identified)
    made = draft.draft(found, "tank")
    made["constraints"] = [{"id": "full", "kind": "standard", "require": "level <= 4"}]
    kinds = {"real": TagKind.REAL, "bool": TagKind.BOOLEAN, "int": TagKind.INTEGER}
    tags = {
        c.tag: TagDefinition(
            id=c.tag, kind=kinds[c.sort], unit=c.unit, scale=Fraction(1, 1000), writable=c.action
        )
        for c in channels
    }
    module = compile_module(draft.text(made).encode(), "tank.json", tags)
    assert module.variables["inflow"].max_rate

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from gateway.solver.identify.identify import Identified, Wish, identified
from gateway.solver.identify.series import Floats, Recording, Samples, resampled
from tests.unit.identify_plants import TANK, lag, led_tank, recording, tank


def _values(steps: int = 3_000) -> dict[str, Floats]:
    return {name: s.value[:steps].copy() for name, s in tank().recording.samples.items()}


def _why(found: Identified | tuple[str, ...]) -> str:
    assert isinstance(found, tuple), "it was identified"
    return " ".join(found)


def _asked(values: Mapping[str, Floats], *targets: str, step_s: float = 1.0) -> Identified | tuple[str, ...]:
    return identified(recording(TANK, values, 1.0), Wish(step_s=step_s, targets=targets or None))


def test_an_action_that_never_moved_is_refused_by_name_and_says_what_to_do() -> None:
    values = _values()
    values["heater"][:] = 0.0

    said = _why(_asked(values))

    assert "action `heater` (H) never moved: it was 0 all the time" in said
    assert "--leave-out H" in said


def test_an_action_that_moved_twice_is_refused_with_the_number_needed() -> None:
    values = _values()
    values["heater"][:] = 0.0
    values["heater"][500:700] = 1.0

    assert "action `heater` (H) moved 2 times, and 5 are needed" in _why(_asked(values))


def test_moves_in_the_held_out_part_alone_do_not_count() -> None:
    values = _values()
    values["heater"][:] = 0.0
    values["heater"][2_500:3_000:2] = 1.0

    assert "action `heater` (H) never moved" in _why(_asked(values))


# An hour in which a person moves an output is worth a month, whenever it is.
@pytest.mark.parametrize("at", [0.0, 1.0])
def test_an_action_that_moved_in_the_last_fifth_of_the_fitting_part_alone_is_fitted(at: float) -> None:
    found = identified(lag(still_until=2_400, at=at), Wish(step_s=1.0))

    assert isinstance(found, Identified), found
    (one,) = found.targets
    assert one.fit.effect("v") == pytest.approx(0.3, rel=0.05)
    assert one.fit.effect("u") == pytest.approx(0.01, rel=0.05)


def test_an_action_that_no_window_shows_moving_is_named() -> None:
    parts = lag()
    twitched = parts.samples["v"].value
    twitched[:] = 0.0
    twitched[1_200:1_206:2] = 1.0  # in the middle, between two samples the tag beside it was Bad at
    level = parts.samples["y"].good
    level[1_190:1_212] = False

    said = _why(identified(parts, Wish(step_s=1.0)))

    assert "`v` did not move in the part of the record that `y` is fitted to first" in said


def test_a_tag_never_known_long_enough_to_see_its_noise_asks_for_its_error() -> None:
    parts = lag()
    level = replace(parts.channel("y"), error=None)
    two_of_three = replace(parts.samples["y"], good=np.arange(4_000) % 3 != 2)
    parts = Recording(channels=(level, *parts.channels[1:]), samples={**parts.samples, "y": two_of_three})

    said = _why(identified(parts, Wish(step_s=1.0)))

    assert "`y` (Y) is hardly ever known for three steps" in said
    assert "--error Y=VALUE" in said


# A model nobody could try on time it had not seen is none, unless it is asked for by name: then it is said.
def test_a_model_that_the_held_out_part_says_nothing_of_is_no_dynamics() -> None:
    parts = lag()
    seldom = replace(parts.samples["y"], good=(np.arange(4_000) < 2_500) | (np.arange(4_000) % 6 != 5))
    parts = Recording(channels=parts.channels, samples={**parts.samples, "y": seldom})

    said = _why(identified(parts, Wish(step_s=1.0)))
    found = identified(parts, Wish(step_s=1.0, targets=("y",)))

    assert "nothing in the held-out part says what a model of `y` is worth" in said
    assert isinstance(found, Identified)
    assert "`y`: nothing in the held-out part says what its model is worth" in found.notes


# What a model is worth is a matter of the tags in it: one that is often Bad and moves nothing is no reason.
def test_a_tag_beside_the_model_does_not_keep_it_from_being_judged() -> None:
    parts = recording(TANK, _values(6_000), 1.0)
    seldom = replace(parts.samples["level"], good=np.arange(6_000) % 3 != 2)
    parts = Recording(channels=parts.channels, samples={**parts.samples, "level": seldom})

    found = identified(parts, Wish(step_s=1.0))

    assert isinstance(found, Identified), found
    temp = next(t for t in found.targets if t.fit.target == "temp")
    assert temp.worth < 0.9


def test_two_tags_that_moved_together_are_named_and_nothing_is_fitted() -> None:
    values = _values()
    values["inflow"] = 0.4 * values["pump"] + 1.0

    said = _why(_asked(values, "level"))

    assert "`pump` and `inflow` moved together all the time (correlation 1.00000)" in said
    assert "whose effect on `level` it was cannot be told" in said


def test_a_tag_that_is_a_sum_of_others_is_named() -> None:
    values = _values()
    values["inflow"] = 0.4 * values["pump"] + 3.0 * values["heater"]

    said = _why(_asked(values, "level"))

    assert "is nearly a sum of" in said
    assert "cannot be told" in said


# Feedback decides what comes out: without this refusal the pump's effect came out with the wrong sign.
def test_an_action_that_only_followed_a_controller_is_refused() -> None:
    said = _why(identified(led_tank().recording, Wish(step_s=1.0, targets=("level",))))

    assert "of the movement of `pump` came with that of the other tags, as under a controller" in said
    assert "what it does to `level` cannot be told; move it by hand for a while" in said


def test_a_tag_whose_movement_is_all_sensor_noise_is_refused() -> None:
    values = _values(6_000)
    values["temp"] = 40.0 + np.random.default_rng(5).uniform(-0.1, 0.1, 6_000)

    found = identified(recording(TANK, values, 1.0), Wish(step_s=1.0, targets=("temp",)))

    said = _why(found)
    assert "`temp`: sensor noise is " in said
    assert "that effect cannot be told" in said


def test_too_little_data_is_refused_with_the_figures() -> None:
    said = _why(_asked(_values(400)))

    assert said == "too little data: 399 of 400 steps have every tag known; 600 are needed"


def test_a_tag_that_is_mostly_bad_is_named_as_the_reason() -> None:
    full = recording(TANK, _values(2_000), 1.0)
    flow = full.samples["inflow"]
    spoilt = replace(flow, good=np.arange(len(flow.at)) % 4 == 0)
    found = identified(Recording(channels=TANK, samples={**full.samples, "inflow": spoilt}), Wish(step_s=1.0))

    said = _why(found)

    assert "too little data" in said
    assert "`inflow` is known at 25.0 % of them (1500 samples not Good, 0 no numbers, 499 gaps)" in said


def test_bad_samples_numbers_that_are_none_and_gaps_are_left_out_and_counted() -> None:
    full = recording(TANK, _values(8_000), 1.0)
    flow, level = full.samples["inflow"], full.samples["level"]
    good = flow.good.copy()
    good[1_000:1_010] = False
    wrong = flow.value.copy()
    wrong[1_000:1_010] = 1e6  # would be seen at once if it were used
    nans = level.value.copy()
    nans[2_000:2_005] = np.nan
    kept = np.ones(len(level.at), dtype=np.bool_)
    kept[3_000:3_100] = False
    samples = {
        **full.samples,
        "inflow": Samples(at=flow.at, value=wrong, good=good),
        "level": Samples(at=level.at[kept], value=nans[kept], good=level.good[kept]),
    }

    got = identified(Recording(channels=TANK, samples=samples), Wish(step_s=1.0, targets=("level",)))

    assert isinstance(got, Identified)
    assert got.usable == 8_000 - 1 - 10 - 5 - 100
    assert "`inflow`: 10 samples not Good, 0 no numbers and 1 gaps were left out" in " ".join(got.notes)
    assert "`level`: 0 samples not Good, 5 no numbers and 2 gaps were left out" in " ".join(got.notes)
    assert got.targets[0].model.effects["inflow"] == pytest.approx(1 / 7200, rel=0.04)


def test_samples_too_far_apart_for_the_step_are_refused_with_a_step_that_would_do() -> None:
    found = _asked(_values(), step_s=0.5)

    assert (
        "`L` was recorded every 1 s: a step of 0.5 s cannot be seen in it; ask for a step of at least"
        in _why(found)
    )


def test_a_tag_without_a_usable_value_is_refused() -> None:
    full = recording(TANK, _values(), 1.0)
    flow = full.samples["inflow"]
    none = replace(flow, good=np.zeros(len(flow.at), dtype=np.bool_))
    found = identified(Recording(channels=TANK, samples={**full.samples, "inflow": none}), Wish(step_s=1.0))

    assert "`F` has 0 usable values among 3000 samples: nothing can be fitted without it" in _why(found)


def test_tags_that_were_never_recorded_at_one_time_are_refused() -> None:
    full = recording(TANK, _values(), 1.0)
    flow = full.samples["inflow"]
    found = identified(
        Recording(channels=TANK, samples={**full.samples, "inflow": replace(flow, at=flow.at + 10_000.0)}),
        Wish(step_s=1.0),
    )

    assert "the tags were never recorded at the same time" in _why(found)


def test_a_measured_tag_that_never_moved_has_no_dynamics() -> None:
    values = _values()
    values["level"][:] = 2.0

    assert "`level` never moved: it was 2 all the time" in _why(_asked(values, "level"))


def test_a_tag_that_only_wanders_is_no_dynamics_even_where_it_is_asked_for() -> None:
    dice = np.random.default_rng(1)
    values = _values(8_000)
    values["temp"] = np.cumsum(dice.normal(0, 0.05, 8_000))

    got = _asked(values)
    asked = _asked(values, "temp")

    assert isinstance(got, Identified)
    assert "temp" in got.without
    assert got.without["temp"] == "no effect of any tag on `temp` could be told from 0"
    assert _why(asked) == got.without["temp"]


def test_an_action_that_changes_within_a_step_counts_by_its_mean() -> None:
    at = np.arange(0.0, 40.0, 0.25)
    pump = np.where(at % 10.0 >= 5.25, 40.0, 0.0)
    good = np.ones(len(at), dtype=np.bool_)
    level = Samples(at=at, value=np.zeros(len(at)), good=good)
    channels = tuple(c for c in TANK if c.name in {"level", "pump"})
    samples = {"level": level, "pump": Samples(at=at, value=pump, good=good)}

    grid = resampled(Recording(channels=channels, samples=samples), 1.0)

    assert not isinstance(grid, str)
    assert grid.over["pump"][:11].tolist() == [0, 0, 0, 0, 0, 30.0, 40, 40, 40, 40, 0]
    assert grid.at["pump"][:11].tolist() == [0, 0, 0, 0, 0, 0, 40, 40, 40, 40, 0]


def test_a_bad_sample_between_two_good_ones_that_are_near_breaks_what_is_known() -> None:
    at = np.arange(0.0, 20.0, 0.5)
    good = np.ones(len(at), dtype=np.bool_)
    good[13] = False  # at 6.5 s, between steps
    offset = at - 0.25  # no sample falls on a step
    channels = tuple(c for c in TANK if c.name in {"level", "pump"})
    samples = {
        "level": Samples(at=offset, value=np.ones(len(at)), good=good),
        "pump": Samples(at=at, value=np.where(at < 10.0, 10.0, 20.0), good=good),
    }

    grid = resampled(Recording(channels=channels, samples=samples), 1.0)

    assert not isinstance(grid, str)
    unknown_level = np.flatnonzero(~np.isfinite(grid.at["level"])).tolist()
    unknown_pump = np.flatnonzero(~np.isfinite(grid.over["pump"]))[:-1].tolist()
    assert unknown_level == [6]  # 6.25 s is the bad one
    assert unknown_pump == [6]


def test_of_two_samples_at_one_instant_the_later_one_counts() -> None:
    at, value = np.array([2.0, 1.0, 2.0]), np.array([5.0, 1.0, 6.0])
    found = Samples.of(at, value, np.ones(3, dtype=np.bool_))

    assert found.at.tolist() == [1.0, 2.0]
    assert found.value.tolist() == [1.0, 6.0]

"""S16, worked out by hand: where a small plant's readings must lie a second later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from gateway.core.decision import InForce, StateSet
from gateway.core.residual import Residual
from gateway.core.tag import TagId
from gateway.solver.monitor.residuals import Monitor
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_small import NOW, Plant, rule, small

L, N, P, Q = TagId("L"), TagId("N"), TagId("P"), TagId("Q")
HIGH = rule("l <= 4", always=True)
FILLED: Mapping[str, Any] = {"dynamics": {"l": "l + 0.01*q"}}


def second(changes: Mapping[str, Any], *plants: Plant, kept: StateSet | None = None) -> dict[TagId, Residual]:
    """What the last of some decisions a second apart says in the window of one step."""
    rules, monitor = RuleSet.of([small(HIGH, **changes)], 1), Monitor()
    found: tuple[Residual, ...] = ()
    for number, plant in enumerate(plants):
        found = monitor.take(rules, replace(plant, at=NOW + number).request(), kept)
    return {r.tag: r for r in found if r.window == 1}


def share(miss: float, width: float, error: float = 0.0105) -> float:
    """Twice a miss as a share of the widths of band and reading."""
    return 2 * miss / (width + 2 * error)


def test_s16_an_input_that_is_added_up_counts_by_its_mean() -> None:
    """The inflow, read at 20.305 at most, rose to 20.805 in the mean at most: 0.0371 m between the ends."""
    found = second(FILLED, Plant(l=2.0), Plant(l=2.21))[L]

    assert found.residual == pytest.approx(0.01)
    assert found.used_share == pytest.approx(share(0.01, 0.0371))
    assert found.outside == 0


def test_s16_an_input_to_what_forgets_counts_by_each_of_its_values() -> None:
    """Between 18.695 and 21.305 at some moment, which need not weigh as much as another."""
    found = second({"dynamics": {"l": "0.9*l + 0.01*q"}}, Plant(l=2.0), Plant(l=2.01))[L]

    assert found.residual == pytest.approx(0.01)
    assert found.used_share == pytest.approx(share(0.01, 0.045))


def test_s16_an_input_that_two_variables_add_up_counts_by_its_mean_only_where_neither_forgets() -> None:
    both = {"l": "l + 0.01*q", "g": "0.5*g + 0.01*q"}

    found = second({"dynamics": both}, Plant(l=2.0), Plant(l=2.21))[L]
    assert found.used_share == pytest.approx(share(0.01, 0.0471))


# S3: what is physically impossible was not between two readings either.
@pytest.mark.parametrize(
    ("physical", "low", "high"),
    [
        (["0", "36"], 19.195, 20.805),
        (["0", "20.5"], 19.195, 20.5),
        (["19.5", "36"], 19.5, 20.805),
        (["19.5", "20.5"], 19.5, 20.5),
        (["30", "36"], 19.195, 20.805),  # nothing of it is possible: said of the inflow, and of nothing else
        (["20.805", "36"], 20.805, 20.805),
        (["0", "19.195"], 19.195, 19.195),
    ],
)
def test_s3_an_input_was_between_its_readings_only_where_it_physically_can_be(
    physical: list[str], low: float, high: float
) -> None:
    found = second({**FILLED, "variables": {"q": {"physical": physical}}}, Plant(l=2.0), Plant(l=2.21))[L]

    middle, width = 2 + (low + high) / 200, 0.021 + (high - low) / 100
    assert found.residual == pytest.approx(2.21 - middle)
    assert found.used_share == pytest.approx(share(2.21 - middle, width))


# A count may go up at any moment, and is a whole number at every one.
@pytest.mark.parametrize(("read", "outside"), [(2, 0), (3, 0), (4, 0), (5, 1), (1, 1)])
def test_s16_a_count_moves_in_whole_numbers(read: int, outside: int) -> None:
    """At most half a count a second: 2.5 to 3.5, so 2 to 4."""
    slow = {"variables": {"n": {"max_rate": "0.5 1/s"}}}
    found = second({**FILLED, **slow}, Plant(n=3), Plant(n=read))[N]

    assert found.outside == outside
    assert found.used_share == pytest.approx(abs(read - 3))


@pytest.mark.parametrize(("read", "outside"), [(22.61, 0), (22.62, 0.01), (17.38, 0.01), (20.0, 0)])
def test_s16_an_input_moves_by_its_rate_and_no_farther(read: float, outside: float) -> None:
    """From 19.695 to 20.305, and by 2 m3/h: 17.695 to 22.305; each reading 0.305 about itself."""
    found = second(FILLED, Plant(q=20.0), Plant(q=read))[Q]

    assert found.outside == pytest.approx(outside, abs=1e-12)
    assert found.residual == pytest.approx(read - 20)


def test_s16_what_acted_between_decisions_closer_than_a_step_acted_for_as_long_as_it_was_in_force() -> None:
    """40 % for half a second and 100 % for another: 0.7 m in all, seen by decisions in between."""
    rules = RuleSet.of([small(HIGH, dynamics={"l": "l + 0.01*p"})], 1)
    monitor = Monitor()
    for seconds in (0.0, 0.25, 0.5):
        assert monitor.take(rules, replace(Plant(l=2.0), at=NOW + seconds).request(), None) == ()
    last = replace(Plant(l=2.7, old={"P": "100"}), at=NOW + 1).request()
    ceased = (*last.history[P], InForce(Fraction(40), 0.5))
    found = monitor.take(rules, replace(last, history={**last.history, P: ceased}), None)

    assert {r.tag: r.residual for r in found}[L] == pytest.approx(0, abs=1e-9)


def test_s16_a_decision_of_the_same_instant_takes_nothing_from_the_windows() -> None:
    rules, monitor = RuleSet.of([small(HIGH, **FILLED)], 1), Monitor()
    before, after = Plant(l=2.0), replace(Plant(l=2.21), at=NOW + 1)

    assert monitor.take(rules, before.request(), None) == ()
    assert monitor.take(rules, before.request(), None) == ()
    found = monitor.take(rules, after.request(), None)
    assert {r.tag: r.residual for r in found}[L] == pytest.approx(0.01)
    assert monitor.begun == 0


def test_s16_values_in_force_known_again_since_the_last_decision_are_known_all_along() -> None:
    rules = RuleSet.of([small(HIGH, **FILLED)], 1)
    after = replace(Plant(l=2.21), at=NOW + 1).request()
    for since, judged in ((NOW, True), (NOW + 0.001, False)):
        monitor = Monitor()
        monitor.take(rules, Plant(l=2.0).request(), None)
        assert bool(monitor.take(rules, after, None, unbroken_since=since)) is judged
        assert monitor.begun == int(not judged)


@pytest.mark.parametrize(("seconds", "judged"), [(0.75, True), (0.74, False)])
def test_s16_a_decision_a_quarter_of_a_step_early_is_judged_as_one_a_step_later(
    seconds: float, *, judged: bool
) -> None:
    rules, monitor = RuleSet.of([small(HIGH, **FILLED)], 1), Monitor()
    monitor.take(rules, Plant(l=2.0).request(), None)
    early = replace(Plant(l=2.15), at=NOW + seconds).request()

    assert (L in {r.tag for r in monitor.take(rules, early, None) if r.window == 1}) is judged


@pytest.mark.parametrize("ago", [0.001, 0.5, 1.0])
def test_s16_where_nobody_knows_what_is_in_force_nothing_is_judged_and_all_begins_anew(ago: float) -> None:
    rules, monitor = RuleSet.of([small(HIGH, dynamics={"l": "l + 0.01*p"})], 1), Monitor()
    monitor.take(rules, Plant(l=2.0).request(), None)
    later = replace(Plant(l=2.4), at=NOW + 1).request()
    unknown = {**later.history, P: (InForce(Fraction(40), ago),)}

    assert monitor.take(rules, replace(later, history=unknown), None) == ()
    assert monitor.begun == 1


def test_s16_a_clock_that_went_back_begins_the_windows_anew() -> None:
    rules, monitor = RuleSet.of([small(HIGH, **FILLED)], 1), Monitor()
    monitor.take(rules, Plant().request(), None)

    assert monitor.take(rules, replace(Plant(), at=NOW - 1).request(), None) == ()
    assert monitor.begun == 1


# S3: a prediction starts where the reading lets the plant physically be, or at the reading where it cannot.
@pytest.mark.parametrize(
    ("physical", "low", "high", "read"),
    [
        (["1.995", "4"], 1.995, 2.0105, 2.2),
        (["1", "2.005"], 1.9895, 2.005, 2.01),
        (["1", "4"], 1.9895, 2.0105, 2.2),
        (["2.0105", "4"], 2.0105, 2.0105, 2.2),
        (["3", "4"], 1.9895, 2.0105, 3.2),
    ],
)
def test_s3_a_prediction_starts_where_the_plant_physically_can_be(
    physical: list[str], low: float, high: float, read: float
) -> None:
    bound = {"variables": {"l": {"physical": physical}}}
    found = second({**FILLED, **bound}, Plant(l=2.0), Plant(l=read))[L]

    assert found.residual == pytest.approx(read - (low + high) / 2 - 0.2)


@pytest.mark.parametrize(("most", "outside"), [("19.695", 0.0), ("19.69", 0.005)])
def test_s3_a_reading_is_impossible_only_where_nothing_of_it_is_possible(most: str, outside: float) -> None:
    bound = {"variables": {"q": {"physical": ["0", most]}}}
    found = second({**FILLED, **bound}, Plant(q=20.0), Plant(q=20.0))[Q]

    assert found.outside == pytest.approx(outside, abs=1e-12)
    assert (found.residual > 5) is (outside > 0)  # held against where it can be, not against the last one


# One for each step of the longest window, and one that is as old as it: no more, however long it runs.
@pytest.mark.parametrize("step", [1, 10])
def test_s16_of_older_predictions_only_as_many_are_kept_as_windows_ask_for(step: int) -> None:
    rules, monitor = RuleSet.of([small(HIGH, **FILLED, step=f"{step} s")], 1), Monitor()
    seen: set[int] = set()
    for number in range(75):
        plant = replace(Plant(l=2 + 0.2 * number / 100), at=NOW + step * number, ages={})
        seen |= {r.window for r in monitor.take(rules, plant.request(), None)}

    assert len(monitor._predictions) == 61
    assert seen == {1, 10, 60}


@pytest.mark.parametrize(("read", "share"), [(3, 0.0), (4, 1e9)])
def test_s16_of_what_may_not_move_at_all_any_miss_is_wholly_outside(read: int, share: float) -> None:
    still = {"variables": {"n": {"max_rate": "0 1/s"}}}

    assert second({**FILLED, **still}, Plant(n=3), Plant(n=read))[N].used_share == share

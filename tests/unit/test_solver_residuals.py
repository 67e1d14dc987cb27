"""S16: measurements against what was predicted 1, 10 and 60 steps before."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest

from gateway.core.decision import StateInterval
from gateway.core.ports import CheckRequest, InForce, StateSet
from gateway.core.quality import StatusCode
from gateway.core.residual import WINDOWS, Residual, broken
from gateway.core.tag import TagId
from gateway.solver.monitor.envelope import Between
from gateway.solver.monitor.residuals import Monitor
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import (
    BUFFER_TANK,
    INFLOW,
    LEVEL,
    LOWER_LEVEL,
    PATIENT,
    PUMP,
    TEMP,
    Situation,
    good,
    module,
    proposal,
    rule_set,
)
from tests.unit.solver_modules import shipped

NOISE = {LEVEL: 0.01, INFLOW: 0.3, TEMP: 0.1}  # the module's errors
LEAK = 0.00051  # the bound of its disturbance


@dataclass
class Tank:
    """The module's own dynamics with disturbances and noise inside their bands, one decision a step."""

    rules: RuleSet = field(default_factory=rule_set)
    seed: int = 1
    leak: float = 0.0  # beside what the band allows, m/s
    bias: float = 0.0  # of the level's transmitter, m
    level: float = 2.0
    inflow: float = 12.0
    temp: float = 40.0
    pump: float = 40.0
    now: float = 1000.0
    extreme: bool = False  # disturbances and noise at the ends of their bands, not inside

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)  # noqa: S311  # reproducible, not a secret
        self.monitor = Monitor()
        self.before = self.pump

    def advance(self, seconds: float = 1.0) -> None:
        """The plant goes on; the pump was changed at the beginning of that time."""
        self.now += seconds
        after = min(max(self.inflow + self.dice.uniform(-2, 2) * seconds, 0.0), 36.0)
        leak = self.leak + self._of(-LEAK, LEAK)
        fed = 0.000138889 * (self.inflow + after) / 2
        self.level += seconds * (fed - 0.0000625 * self.pump + leak)
        self.temp += seconds * (-0.0002 * (self.temp - 20) + self._of(-0.02, 0.001))
        self.inflow = after

    def request(self) -> CheckRequest:
        """Readings of now, and what was in force since the one before."""
        read = {
            LEVEL: round(self.level + self.bias + self._of(-NOISE[LEVEL], NOISE[LEVEL]), 3),
            INFLOW: round(self.inflow + self._of(-NOISE[INFLOW], NOISE[INFLOW]), 2),
            TEMP: round(self.temp + self._of(-NOISE[TEMP], NOISE[TEMP]), 2),
        }
        older = {PUMP: (InForce(Fraction(str(self.before)), 1.0),)}
        here = Situation(pump=str(self.pump), older=older).request(None)
        inputs = {tag: replace(good(value), confirmed_at=self.now) for tag, value in read.items()}
        return replace(here, inputs=inputs, taken_at=self.now)

    def act(self) -> None:
        """The pump is changed, so that the level stays about 2 m."""
        wanted = self.pump + self.dice.uniform(-10, 10) + (2.0 if self.level > 2 else -2.0)
        self.before, self.pump = self.pump, round(min(max(wanted, 0.0), 100.0), 1)

    def step(self, kept: StateSet | None = None) -> tuple[Residual, ...]:
        self.advance()
        found = self.monitor.take(self.rules, self.request(), kept)
        self.act()
        return found

    def _of(self, low: float, high: float) -> float:
        return self.dice.choice((low, high)) if self.extreme else self.dice.uniform(low, high)


def cut(request: CheckRequest, tag: TagId, **changes: object) -> CheckRequest:
    """The same with another sample of one tag."""
    return replace(request, inputs={**request.inputs, tag: replace(request.inputs[tag], **changes)})  # type: ignore[arg-type]  # of any field


def trips(tank: Tank, steps: int) -> Iterator[tuple[int, str]]:
    for number in range(1, steps + 1):
        if why := broken(tank.step()):
            yield number, why


def healthy(tank: Tank, steps: int = 70) -> Tank:
    assert list(trips(tank, steps)) == []
    return tank


def test_s16_noise_and_disturbances_inside_their_bands_never_trip_in_10_000_steps() -> None:
    tank = Tank(seed=3)
    shares: dict[int, float] = {}
    for _ in range(10_000):
        for found in tank.step():
            assert found.outside == 0, found
            shares[found.window] = max(shares.get(found.window, 0.0), found.used_share)
    assert shares.keys() == set(WINDOWS)
    assert all(0.3 < share <= 1 for share in shares.values()), shares


def test_s16_disturbances_at_the_ends_of_their_bands_do_not_trip() -> None:
    assert list(trips(Tank(seed=5, extreme=True), 400)) == []


def test_s16_a_leak_at_the_end_of_its_band_for_ever_does_not_trip() -> None:
    tank = Tank(seed=6)
    tank._of = lambda low, high: high if high == LEAK else tank.dice.uniform(low, high)  # type: ignore[method-assign]
    assert list(trips(tank, 300)) == []


@pytest.mark.parametrize(("leak", "within"), [(-0.003, 20), (-0.001, 100), (0.002, 40)])
def test_s16_a_leak_outside_its_band_trips_though_no_single_step_shows_it(leak: float, within: int) -> None:
    tank = healthy(Tank(seed=2))
    tank.leak = leak
    number, why = next(trips(tank, within))
    assert number > 3
    assert why.startswith("broken assumption: `TK1.LT101` lies ")
    assert "steps before, as 3 of its last 5 measurements did" in why


def test_s16_a_transmitter_that_drifts_trips() -> None:
    tank = healthy(Tank(seed=4))
    for number in range(1, 60):
        tank.bias = 0.0015 * number
        if why := broken(tank.step()):
            assert "`TK1.LT101`" in why
            return
    pytest.fail("a drift of 1.5 mm/s was not seen")


def test_s16_a_bias_that_comes_at_once_trips_within_ten_steps_and_is_then_the_new_truth() -> None:
    tank = healthy(Tank(seed=4))
    tank.bias = 0.08
    number, _ = next(trips(tank, 10))
    assert number == 3  # the third of its measurements outside what was predicted before
    assert len(list(trips(tank, 80))) < 80
    assert list(trips(tank, 80)) == []  # predictions of before have run out


def test_s16_one_reading_outside_does_not_trip_and_three_of_five_do() -> None:
    tank = healthy(Tank(seed=7), 5)  # nothing but windows of one step yet
    counts: list[list[int]] = []
    for number in range(4):
        tank.bias = 0.1 * (number % 2)  # each step the other way: outside what was predicted a step before
        found = tank.step()
        level = [r for r in found if r.tag == LEVEL and r.window == 1]
        counts.append([level[0].missed, bool(broken(level))])
    assert counts == [[0, False], [1, False], [2, False], [3, True]]


def test_s16_one_wild_reading_trips_in_no_window_not_even_as_the_start_of_predictions() -> None:
    tank = healthy(Tank(seed=11))
    tank.bias = 0.5
    assert {r.missed for r in tank.step() if r.tag == LEVEL} == {1}
    tank.bias = 0.0
    assert list(trips(tank, 70)) == []


def test_s16_what_was_outside_longer_ago_than_five_measurements_does_not_count() -> None:
    tank = healthy(Tank(seed=7), 4)
    tank.bias = 0.1
    assert [r.missed for r in tank.step() if r.tag == LEVEL] == [1]
    for _ in range(4):
        assert [r.missed for r in tank.step() if (r.tag, r.window) == (LEVEL, 1)] == [1]
    assert [r.missed for r in tank.step() if (r.tag, r.window) == (LEVEL, 1)] == [0]


def test_s16_the_windows_fill_one_after_the_other() -> None:
    tank = Tank()
    seen = [{r.window for r in tank.step() if r.tag == LEVEL} for _ in range(61)]
    assert seen[0] == set()
    assert (seen[1], seen[9], seen[10]) == ({1}, {1}, {1, 10})
    assert (seen[59], seen[60]) == ({1, 10}, {1, 10, 60})


def test_s16_a_gap_of_more_than_ten_steps_begins_the_windows_anew_and_a_jump_in_it_is_no_trip() -> None:
    tank = healthy(Tank())
    tank.now += 12
    tank.level += 0.5
    assert tank.step() == ()
    assert tank.monitor.begun == 1
    assert list(trips(tank, 80)) == []


@pytest.mark.parametrize(("pause_s", "begun"), [(9.0, 0), (9.5, 1)])
def test_s16_a_gap_of_ten_steps_is_bridged_and_none_that_is_longer(pause_s: float, begun: int) -> None:
    tank = healthy(Tank())
    tank.advance(pause_s)
    assert bool(tank.step()) is not bool(begun)
    assert tank.monitor.begun == begun


def test_s16_a_short_pause_is_bridged_by_what_was_in_force_and_a_jump_in_it_trips() -> None:
    tank = healthy(Tank())
    tank.advance(4.0)
    assert {r.window for r in tank.step()} == {1, 10, 60}
    tank.now += 4
    tank.level += 0.5
    assert next(trips(tank, 10))
    assert tank.monitor.begun == 0


def test_s16_values_in_force_out_of_sight_meanwhile_begin_the_windows_anew() -> None:
    tank = healthy(Tank())
    tank.advance()
    tank.level += 0.5  # whoever moved the outputs meanwhile
    assert tank.monitor.take(tank.rules, tank.request(), None, unbroken_since=tank.now - 0.2) == ()
    assert list(trips(tank, 80)) == []
    assert tank.monitor.begun == 1


def test_s16_other_premises_begin_the_windows_anew_and_other_rules_do_not() -> None:
    tank = healthy(Tank())
    tank.rules = rule_set(module(), module(LOWER_LEVEL), generation=2)
    assert {r.window for r in tank.step()} == {1, 10, 60}
    tank.rules = rule_set(module(BUFFER_TANK, ('"error": "0.01"', '"error": "0.02"')), generation=3)
    assert tank.step() == ()


def test_s16_an_unusable_reading_is_no_measurement_and_its_tag_is_judged_when_it_is_back() -> None:
    tank = healthy(Tank())
    for _ in range(5):
        tank.advance()
        forced = cut(tank.request(), LEVEL, status=StatusCode.GoodLocalOverride, value=9.0)
        assert {r.tag for r in tank.monitor.take(tank.rules, forced, None)} == {INFLOW, TEMP}
    assert {r.window for r in tank.step() if r.tag == LEVEL} == {1, 10, 60}


def test_s16_a_sample_that_is_no_newer_is_not_counted_again() -> None:
    tank = healthy(Tank())
    tank.advance()
    request = tank.request()
    stale = cut(request, LEVEL, confirmed_at=tank.now - 1.0)
    assert {r.tag for r in tank.monitor.take(tank.rules, stale, None)} == {INFLOW, TEMP}


def test_s16_more_decisions_than_steps_say_nothing_more() -> None:
    tank = healthy(Tank())
    answers = []
    for _ in range(40):
        tank.advance(0.25)
        answers.append(tank.monitor.take(tank.rules, tank.request(), None))
    assert sum(1 for found in answers if found) == 10 + 3  # a quarter early still counts as a step later


def test_s16_readings_disjoint_with_physical_are_undetermined_and_trip() -> None:
    rules = rule_set(module(BUFFER_TANK, ('"physical": ["0", "36"]', '"physical": ["0", "9"]')))
    tank = Tank(rules=rules, inflow=30.0)
    tank.advance()
    result, state = Checks(rules, PATIENT).check(replace(tank.request(), proposal=proposal()))
    assert state is None
    assert "broken assumption: `TK1.FT101` reads outside its physical bounds" in str(result.verdict)
    missed = [[r.missed for r in tank.step() if r.tag == INFLOW and r.window == 1] for _ in range(3)]
    assert missed == [[1], [2], [3]]
    found = tank.step()
    assert "`TK1.FT101` lies" in broken(found)


def test_s16_a_rate_beyond_max_rate_trips() -> None:
    tank = healthy(Tank(seed=8))
    tank.inflow = 5.0
    for number in range(1, 6):
        tank.inflow += 5.0
        if "`TK1.FT101`" in broken(tank.step()):
            assert number == 3
            return
    pytest.fail("5 m3/h a second was not seen where 2 are allowed")


def test_s16_a_narrower_state_of_the_check_is_where_a_prediction_starts() -> None:
    rules, checks = rule_set(), Checks(rule_set(), PATIENT)
    tank, carried = Tank(rules=rules, seed=9), None
    for _ in range(25):
        tank.advance()
        request = tank.request()
        result, carried = checks.check(replace(request, proposal=proposal(str(tank.pump)), carried=carried))
        assert carried is not None, result.verdict
        assert broken(tank.monitor.take(rules, request, carried)) == ""
        tank.act()
    tank.advance()
    assert carried is not None
    level = carried.intervals[LEVEL]
    off = StateSet(
        at=carried.at,
        intervals={**carried.intervals, LEVEL: StateInterval(level.low + 1, level.high + 1)},
    )
    assert tank.monitor.take(rules, tank.request(), off)
    tank.advance()
    one = [r for r in tank.monitor.take(rules, tank.request(), None) if (r.tag, r.window) == (LEVEL, 1)]
    assert one[0].outside > 0.9


@pytest.mark.parametrize("seed", range(20))
def test_what_is_known_at_both_ends_bounds_mean_and_hull_of_every_course_between(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  # reproducible, not a secret
    rate, course = Fraction(2), [Fraction(dice.randint(0, 360), 10)]
    for _ in range(40):  # tenths of a second
        course.append(course[-1] + Fraction(dice.randint(-20, 20), 100))
    error = Fraction(3, 10)
    between = Between(
        (course[0] - error, course[0] + error), (course[-1] - error, course[-1] + error), rate, Fraction(4)
    )
    for first, last in ((0, 40), (5, 12), (39, 40), (0, 1)):
        part = course[first : last + 1]
        mean = sum((a + b) / 2 for a, b in itertools.pairwise(part)) / (len(part) - 1)
        low, high = between.mean(Fraction(first, 10), Fraction(last, 10))
        least, most = between.hull(Fraction(first, 10), Fraction(last, 10))
        assert low <= mean <= high
        assert least <= min(part) <= max(part) <= most
        assert least <= low <= high <= most


def heaters(seed: int, steps: int, ambient: tuple[float, float]) -> list[tuple[Residual, ...]]:
    """A plant with two states that nobody measures, by its module's own dynamics."""
    rules, dice, monitor = rule_set(shipped("tclab-twin")), random.Random(seed), Monitor()  # noqa: S311  # reproducible
    state = {str(v.tag): Fraction(30) for v in rules.measured}
    drive = {str(v.tag): Fraction(dice.randint(0, 60)) for v in rules.actions}
    low, high = ambient
    found: list[tuple[Residual, ...]] = []
    for number in range(steps):
        at = 1000.0 + 10 * number
        inputs = {}
        for v in rules.reported:
            off = Fraction(dice.randint(-1000, 1000), 1000) * v.error
            value = v.definition.engineering(v.definition.counts(state[v.tag] + off))
            inputs[v.tag] = replace(good(float(value)), confirmed_at=at)
        request = replace(
            Situation().request(None),
            inputs=inputs,
            taken_at=at,
            history={v.tag: (InForce(drive[v.tag], 0.0),) for v in rules.actions},
        )
        found.append(monitor.take(rules, request, None))
        if number % 7 == 0:
            drive = {tag: Fraction(dice.randint(0, 60)) for tag in drive}
        point = {**state, **drive, **{n: Fraction(dice.uniform(low, high)) for n in rules.disturbances}}
        state = {tag: form.at(point).limit_denominator(10**9) for tag, form in rules.forms.items()}
    return found


def test_s16_a_plant_with_states_that_nobody_measures_trips_only_when_it_is_another() -> None:
    healthy_ones = heaters(1, 150, (18, 24))
    assert {r.window for r in healthy_ones[-1]} == set(WINDOWS)
    assert all(not r.outside for found in healthy_ones for r in found)
    assert any(broken(found) for found in heaters(1, 150, (40, 60)))

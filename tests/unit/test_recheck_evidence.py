"""S7: the second judge is told all that a decision stands on: readings, quality, ages, the checks before.

Each time the true verdict raises no objection, and one that rests on something else is objected to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest

from gateway.core.decision import CheckRequest, InForce, Permitted, StateSet
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.recheck.check import Report, recheck
from gateway.recheck.evidence import recorded_of
from gateway.recheck.language import row_named
from gateway.recheck.recorded import EVER, Premises, premises, question
from gateway.recheck.source import read_source
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_small import NOW, PATIENT, Plant, rule, small

FILLING: Mapping[str, Any] = {"dynamics": {"l": "l + 0.001*p", "disturbance": {}}}


@dataclass(frozen=True)
class Opinion:
    """What the solver says, and what the second judge would say had it been permitted."""

    permitted: bool
    found: Premises
    report: Report

    @property
    def against(self) -> set[str]:
        named = {name.partition("/")[2] for name in self.report.violated}
        return named | set(self.found.unusable) | set(self.report.undetermined) | set(self.found.left_out)


def opinion(module: Module, request: CheckRequest, *more: Module) -> Opinion:
    result, state = Checks(RuleSet.of([module, *more], 1), PATIENT).check(request)
    assert request.proposal is not None
    texts = [m.text for m in (module, *more)]
    kept = None if state is None else {t: (i.low, i.high) for t, i in state.intervals.items()}
    written = {str(v.tag): v.value for v in request.proposal.values}
    told = recorded_of(request, written, as_backup=False, kept=kept)
    found = premises(texts, told)
    report = recheck(texts, question(told, found), samples=24)
    return Opinion(isinstance(result.verdict, Permitted), found, report)


def after(module: Module, *plants: Plant) -> StateSet:
    """What checks of these plants, one after another, carry on."""
    checks, carried = Checks(RuleSet.of([module], 1), PATIENT), None
    for plant in plants:
        _, carried = checks.check(replace(plant, carried=carried).request())
    assert carried is not None
    return carried


def agreed(module: Module, plant: Plant, against: set[str]) -> None:
    """The second judge has nothing against a verdict exactly where the solver permits."""
    said = opinion(module, plant.request())
    assert (said.permitted, said.against) == (not against, against)


@pytest.mark.parametrize(("level", "against"), [(2.03, set()), (2.3, {"r"})])
def test_a_value_one_step_ago_is_known_from_the_checks_before(level: float, against: set[str]) -> None:
    for text in ("l - prev(l) <= 0.1", "rate(l) <= 0.1"):
        module = small(text)
        carried = after(module, Plant(l=2.0, at=NOW - 1))
        agreed(module, Plant(l=level, carried=carried), against)


def test_without_a_check_one_step_ago_nobody_knows() -> None:
    module = small("l - prev(l) <= 0.1")

    said = opinion(module, Plant(l=2.0, carried=after(module, Plant(l=2.0, at=NOW - 3))).request())

    assert not said.permitted
    assert said.report.undetermined == ("nothing is known of `L` one step ago",)


@pytest.mark.parametrize("words", ["l > 1", "(l > 1)", "(l > 1 and q < 30)"])
@pytest.mark.parametrize(("steps", "against"), [(9, {"r"}), (10, set()), (12, set())])
def test_how_long_a_condition_has_held_is_known_from_the_checks_before(
    words: str, steps: int, against: set[str]
) -> None:
    module = small(f"{words} for 10 s")
    low = Plant(l=0.5, at=NOW - steps - 1)
    rows = after(module, low, *(Plant(l=2.0, at=NOW - back) for back in range(steps, 0, -1)))

    agreed(module, Plant(l=2.0, carried=rows), against)


def test_what_need_not_have_held_for_any_time_only_has_to_hold() -> None:
    module = small("l > 1 for 0 s")

    for plant in (Plant(l=2.0), Plant(l=2.0, carried=after(module, Plant(l=0.5, at=NOW - 1)))):
        agreed(module, plant, set())
    agreed(module, Plant(l=0.5), {"r"})


def test_after_a_start_and_after_a_gap_anything_may_have_held_and_nothing_surely_has() -> None:
    module = small("l > 1 for 10 s")
    contrary = small("not l > 1 for 10 s")
    long_ago = after(module, Plant(l=2.0, at=NOW - 40), Plant(l=2.0, at=NOW - 11))

    for plant in (Plant(l=2.0), Plant(l=2.0, carried=long_ago)):
        agreed(module, plant, {"r"})
        agreed(contrary, plant, {"r"})


@pytest.mark.parametrize(("age", "against"), [(1.0, set()), (1.9, {"r"})])
def test_the_age_of_a_reading_is_known(age: float, against: set[str]) -> None:
    agreed(small("age(q) <= 1.5"), Plant(ages={"Q": age}), against)


def test_what_has_no_usable_reading_may_be_anywhere_where_rules_ask_for_that() -> None:
    module = small("good(q) or p <= 50", rule("q < 39 or not good(q)", "high"))
    bad = {"Q": StatusCode.BadNotConnected}

    agreed(module, Plant(), set())
    agreed(module, Plant(status=bad), set())
    agreed(module, Plant(status=bad, new={"P": "60"}), {"r"})
    agreed(small("good(q) implies q < 39"), Plant(), set())


# The state carried in still counts beside a tag without a value: all others are known as well as before.
@pytest.mark.parametrize("value", [None, 20.0])
def test_a_reading_that_is_missing_does_not_make_the_others_forget(value: float | None) -> None:
    module = small(rule("good(q) or p <= 60", "q"), rule("l <= 2.02", "l", always=True), **FILLING)
    carried = after(module, Plant(l=2.0, at=NOW - 1, old={"P": "0"}))
    assert carried.intervals["L"].high < Fraction("2.012")
    request = Plant(l=2.01, carried=carried, old={"P": "0"}).request()
    missing = TagValue(
        value=value, status=StatusCode.Bad, source_ts_ns=None, server_ts_ns=0, confirmed_at=-math.inf
    )

    said = opinion(module, replace(request, inputs={**request.inputs, TagId("Q"): missing}))

    assert said.permitted
    assert said.against == set()


def test_an_input_that_no_module_knows_does_not_make_the_state_forgotten() -> None:
    module = small(rule("l <= 2.02", always=True), **FILLING)
    carried = after(module, Plant(l=2.0, at=NOW - 1, old={"P": "0"}))
    request = Plant(l=2.015, carried=carried, old={"P": "0"}).request()
    other = replace(request.inputs[TagId("Q")], value=7.0)

    said = opinion(module, replace(request, inputs={**request.inputs, TagId("PLC.CLOCK"): other}))

    assert said.permitted
    assert said.against == set()


UNUSABLE: Mapping[str, tuple[Plant, str]] = {
    "bad": (Plant(status={"L": StatusCode.BadSensorFailure}), "`L` is BadSensorFailure"),
    "uncertain": (Plant(status={"L": StatusCode.Uncertain}), "`L` is Uncertain"),
    "overridden by hand": (Plant(status={"L": StatusCode.GoodLocalOverride}), "`L` is GoodLocalOverride"),
    "old": (Plant(ages={"L": 2.5}), "`L` is older than the 2 s allowed"),
    "above its range": (Plant(l=4.995), "`L` reads 4.995, which is beyond what it can be"),
    "below its range": (Plant(q=10.1), "`Q` reads 10.1, which is beyond what it can be"),
    "no label": (Plant(m=7), "`M` reads 7, which is beyond what it can be"),
    "no whole number": (Plant(n=3.5), "`N` reads 3.5, which is beyond what it can be"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_s3_s15_on_readings_that_may_not_be_used_nothing_is_permitted(name: str) -> None:
    plant, why = UNUSABLE[name]

    said = opinion(small("l < 9 or q < 90"), plant.request())

    assert not said.permitted
    assert why in said.found.unusable


def test_a_quality_that_every_module_accepts_is_as_good_as_good() -> None:
    accepting: Mapping[str, Any] = {"variables": {"l": {"accept_quality": ["GoodLocalOverride"]}}}
    by_hand = Plant(status={"L": StatusCode.GoodLocalOverride}).request()

    assert opinion(small("l < 9", **accepting), by_hand).permitted
    assert opinion(small("l < 9", **accepting), by_hand).against == set()
    strict = opinion(small("l < 9", **accepting), by_hand, small("l < 8", id="other"))
    assert (strict.permitted, strict.against) == (False, {"`L` is GoodLocalOverride"})


# What one module vouches for is no premise of another's rules (S3).
@pytest.mark.parametrize(
    ("mine", "others"),
    [({"max_rate": "0.1 m/s"}, {}), ({"physical": ["0", "2.1"]}, {"physical": ["0", "4"]})],
)
def test_s3_the_weakest_assumption_of_all_modules_counts(
    mine: Mapping[str, object], others: Mapping[str, object]
) -> None:
    one = small(rule("l <= 2.2", always=True), horizon=1, variables={"l": mine})
    other = small("l < 9", id="other", variables={"l": others})

    alone, together = opinion(one, Plant().request()), opinion(one, Plant().request(), other)

    assert (alone.permitted, alone.against) == (True, set())
    assert (together.permitted, together.against) == (False, {"r"})


def test_rows_are_called_alike_whatever_parentheses_stand_around_them() -> None:
    called = ("m/l > 1", "m/( l > 1 )", "m/( ( l > 1 ) )", "m/( l ) > 1", "m/( l > 1 ) and ( b )")

    assert [row_named(name) for name in called] == [
        "m/l > 1",
        "m/l > 1",
        "m/l > 1",
        "m/( l ) > 1",
        "m/( l > 1 ) and ( b )",
    ]


def test_a_reading_that_never_came_is_as_old_as_can_be() -> None:
    request = Plant().request()
    never = replace(request.inputs[TagId("Q")], confirmed_at=-math.inf)
    told = recorded_of(
        replace(request, inputs={**request.inputs, TagId("Q"): never}), {}, as_backup=False, kept=None
    )

    assert told.age_s["Q"] == EVER
    assert read_source(small("l < 9").text).quantities["L"].max_age == 2


COOLING: Mapping[str, Any] = {"dynamics": {"l": "l - 0.4*(l - 1) + 0.01*p"}}


@pytest.mark.parametrize("gap_s", [0.4, 1.0, 1.6, 2.3])
@pytest.mark.parametrize("ceased_s", [0.05, 0.3, 0.9])
def test_a_level_that_slows_down_by_itself_is_where_the_solver_says_whenever_the_pump_changed(
    gap_s: float, ceased_s: float
) -> None:
    module = small("l <= 4", **COOLING)
    carried = after(module, Plant(l=2.0, at=NOW - gap_s))
    for age in (0.0, 0.7):
        request = Plant(l=1.7, old={"P": "40"}, carried=carried, ages={"L": age}).request()
        history = (InForce(Fraction(40), 0.0), InForce(Fraction(70), ceased_s))
        for level in (1.6, 1.7, 1.8, 1.9, 2.0, 2.1, 2.2):
            asked = replace(request, history={**request.history, TagId("P"): history})
            asked = replace(asked, inputs={**asked.inputs, TagId("L"): _reads(asked, level)})
            said = opinion(module, asked)
            assert not said.found.left_out
            if said.found.contradict:
                assert not said.permitted


def _reads(request: CheckRequest, level: float) -> TagValue:
    return replace(request.inputs[TagId("L")], value=level)


def test_a_level_that_moves_fast_is_where_the_solver_says_to_the_microsecond() -> None:
    module = small("l <= 4", dynamics={"l": "l + 10*p"}, variables={"l": {"range": ["-1", "2000"]}})
    carried = after(module, Plant(l=2.0, at=NOW - 1.0000004, old={"P": "100"}))
    for plant in (
        Plant(l=1002.0, carried=carried, old={"P": "100"}),
        Plant(l=2.0, ages={"L": 1.0000004}, old={"P": "100"}),
    ):
        assert not opinion(module, plant.request()).found.left_out

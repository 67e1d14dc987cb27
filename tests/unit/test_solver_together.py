"""Readings of two moments put at the older one: worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from gateway.core.decision import CheckRequest, InForce
from gateway.core.tag import TagId
from gateway.solver.checking.together import together
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import FINE
from tests.unit.solver_small import Plant, rule, small

Span = tuple[Fraction, Fraction]
HIGH = rule("l <= 3", "high", always=True)


def pair(low: Fraction | int, high: Fraction | int) -> Span:
    return Fraction(low), Fraction(high)


def moved(
    changes: Mapping[str, Any],
    read: Mapping[str, Span],
    ages: Mapping[str, str],
    p: tuple[InForce, ...] = (InForce(Fraction(40), 0.0),),
) -> dict[str, Span] | None:
    """Where `T` and `L` were when `L` was read."""
    rules = RuleSet.of([small(HIGH, **changes)], 1)
    plain = Plant().request()
    request: CheckRequest = replace(plain, history={**plain.history, TagId("P"): p})
    given = {"L": (Fraction(1), Fraction(1)), "Q": (Fraction(20), Fraction(20)), **read}
    measured = {str(v.tag): (0, 0) for v in rules.measured}
    measured |= {tag: (int(low * FINE), int(high * FINE)) for tag, (low, high) in given.items()}
    found = together(rules, request, "L", measured, {tag: Fraction(age) for tag, age in ages.items()})
    if found is None:
        return None
    return {tag: (Fraction(found[tag][0], FINE), Fraction(found[tag][1], FINE)) for tag in ("L", "T")}


def by_pump(**more: object) -> dict[str, Any]:
    return {"dynamics": {"l": "l + 0.1*(t - 0)", "t": "t + 0.5*p"}, **more}


@pytest.mark.parametrize(
    ("ceased_s", "step", "reach"),
    [(0.4, "1 s", 24), (0.4, "2 s", 12), (0.8, "1 s", 16), (0.79, "1 s", 24)],
)
def test_a_variable_is_widened_by_its_fastest_move_between_the_readings(
    ceased_s: float, step: str, reach: int
) -> None:
    """40 % in force and 60 % until a moment ago: half of it a step, for 0.8 s, if it acted in that time."""
    acted = InForce(Fraction(40), 0.0), InForce(Fraction(60), ceased_s)
    found = moved(by_pump(step=step), {"T": (Fraction(19), Fraction(21))}, {"L": "0.8", "T": "0"}, acted)
    assert found is not None
    assert found["T"] == pair(19 - reach, 21 + reach)
    assert found["L"] == pair(1, 1)


@pytest.mark.parametrize(("age", "reach"), [("0.8", 0), ("0.9", 2), ("0.7", 2), ("1", 4)])
def test_s4_what_was_read_with_the_other_is_left_as_it_is_and_what_was_read_before_or_after_is_not(
    age: str, reach: int
) -> None:
    """By 20 a second: half of the 40 % in force."""
    found = moved(by_pump(), {"T": (Fraction(19), Fraction(21))}, {"L": "0.8", "T": age})
    assert found is not None
    assert found["T"] == pair(19 - reach, 21 + reach)
    assert found["L"] == pair(1, 1)


def test_it_is_not_widened_beyond_where_it_physically_can_be() -> None:
    within = by_pump(variables={"t": {"physical": ["10", "25"]}})
    found = moved(within, {"T": (Fraction(19), Fraction(21))}, {"L": "0.8", "T": "0"})
    assert found is not None
    assert found["T"] == pair(10, 25)


@pytest.mark.parametrize(("changed", "reach"), [({}, "0.16"), ({"max_rate": None}, "0.32")])
def test_what_moves_it_is_where_it_was_read_or_anywhere(changed: dict[str, None], reach: str) -> None:
    """The inflow, 20 as read: without a rate it may have been 40."""
    by_inflow = {
        "dynamics": {"l": "l + 0.1*(t - 0)", "t": "t - 0.01*q"},
        "variables": {"q": changed},
    }
    found = moved(by_inflow, {"T": (Fraction(19), Fraction(21))}, {"L": "0.8", "T": "0"})
    assert found is not None
    assert found["T"] == pair(19 - Fraction(reach), 21 + Fraction(reach))


@pytest.mark.parametrize(("older", "newer"), [("0.9", "0.1"), ("0.5", "0")])
def test_a_move_that_depends_on_where_it_was_is_bounded_by_where_that_bound_lets_it_be(
    older: str, newer: str
) -> None:
    """`t` moves by 20 - t/5 a second: at most 16.2 as read, and 0.2 more for each kelvin that it was off."""
    decaying = {"dynamics": {"l": "l + 0.1*(t - 0)", "t": "t + 0.5*p - 0.2*(t - 0)"}}
    found = moved(decaying, {"T": (Fraction(19), Fraction(21))}, {"L": older, "T": newer})
    apart = Fraction(older) - Fraction(newer)
    least = Fraction("16.2") / (1 - apart / 5) * apart
    assert found is not None
    assert 19 - least * Fraction("1.01") < found["T"][0] <= 19 - least
    assert 21 + least <= found["T"][1] < 21 + least * Fraction("1.01")


def test_where_no_bound_holds_itself_up_there_is_none() -> None:
    fast = {"dynamics": {"l": "l + 9*(t - 0)", "t": "t + 9*l"}}
    assert moved(fast, {"T": (Fraction(19), Fraction(21))}, {"L": "2", "T": "0"}) is None
    assert moved(fast, {"T": (Fraction(19), Fraction(21))}, {"L": "0.05", "T": "0"}) is not None


def test_two_variables_that_move_each_other_are_bounded_together() -> None:
    """Each by a tenth of the other: the level too may have been farther off while the temperature moved."""
    both = {"dynamics": {"l": "l + 0.1*(t - 0)", "t": "t + 0.1*l"}}
    found = moved(both, {"T": (Fraction(19), Fraction(21))}, {"L": "1", "T": "0"})
    assert found is not None
    level = 1 + Fraction("2.1")  # at least so far after a second at 21
    assert found["T"][1] - 21 >= level / 10
    assert found["T"][1] - 21 < Fraction("0.35")


def test_the_least_that_moves_it_counts_as_the_greatest_does() -> None:
    """An inflow that nobody bounds in time: at 10, where it is least, the temperature falls fastest."""
    falling = {
        "dynamics": {"l": "l + 0.1*(t - 0)", "t": "t + 0.01*q - 0.4"},
        "variables": {"q": {"max_rate": None}},
    }
    found = moved(falling, {"T": (Fraction(19), Fraction(21))}, {"L": "0.8", "T": "0"})
    assert found is not None
    assert found["T"] == pair(19 - Fraction("0.24"), 21 + Fraction("0.24"))


def test_what_never_moves_is_where_it_was_read() -> None:
    still = {"dynamics": {"l": "l + 0.1*(t - 0)", "t": "t + 0*p"}}
    found = moved(still, {"T": (Fraction(19), Fraction(21))}, {"L": "0.8", "T": "0"})
    assert found is not None
    assert found["T"] == pair(19, 21)

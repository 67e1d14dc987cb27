"""S1, S11: wherever the backup takes over within the PLC's patience, the course that is checked holds it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil

import pytest

from gateway.core.tag import TagId
from gateway.plantsim.plc import fallback
from gateway.plantsim.tank import Outputs
from gateway.solver.checking.condense import LEASE_S, Plan, condense
from gateway.solver.checking.course import Course
from gateway.solver.rules.interval import SCALE, outward
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_small import Plant, rule, small, verdict

SCAN_S = 0.02
NEW = 85.0  # %
HORIZON = 8
Pump = Callable[[float], float]  # by seconds since the end of the hold
HELD = [{"when": "l >= 2", "p": "ramp(100, 10)"}, {"p": "ramp(0, 10)"}]


def plan(
    step_s: int, backup: list[dict[str, str]], rate: str = "10", delay: str = "0", hold: str = ""
) -> tuple[RuleSet, Plan]:
    module = small(
        "l <= 100",
        step=f"{step_s} s",
        horizon=HORIZON,
        dynamics={"l": "l + 0*p"},
        backup=[
            *({k: v.replace("10)", f"{rate})") for k, v in entry.items()} for entry in backup),
            {"h": False, "s": "hold"},
        ],
        terminal=["l <= 100"],
    )
    rules = RuleSet.of((module,), 1)
    return rules, condense(rules, Fraction(delay), Fraction(hold or step_s))


def courses(step_s: int, backup: list[dict[str, str]], rate: str = "10") -> list[tuple[float, float]]:
    """What is said of the pump in each step of the backup."""
    rules, made = plan(step_s, backup, rate)
    start = {str(v.tag): outward(Fraction(1), Fraction(1)) for v in rules.measured}
    new = {TagId("P"): Fraction(NEW), TagId("H"): Fraction(0), TagId("S"): Fraction(0)}
    found = Course(rules, made).ends(start, {tag: (value,) for tag, value in new.items()}, new)
    first = next(k for k, segment in enumerate(made.segments) if segment.backup)
    told = (found[f"b{k}:P"] for k in range(first, len(made.segments)))
    return [(low / SCALE, high / SCALE) for low, high in told]


def by_scan(began_s: float, rate: float) -> Pump:
    """The simulated PLC's fallback, told by its own code; it works with 10 % a second."""

    def at(seconds: float) -> float:
        working = Outputs(pump_pct=NEW, heater=False, mixer=1)
        for _ in range(ceil((seconds - began_s) / SCAN_S - 1e-6)):
            working = fallback(working, 1.0, SCAN_S * rate / 10)
        return working.pump_pct

    return at


def by_decision(began_s: float, each_s: float, rate: float) -> Pump:
    """The gateway's own moves: one at once, and one a step later."""
    return lambda s: max(
        0.0, NEW - rate * each_s * (int((s - began_s) / each_s + 1e-9) + 1 if s >= began_s else 0)
    )


@pytest.mark.parametrize(("step_s", "rate"), [(1, "10"), (3, "5"), (5, "3"), (10, "2")])
@pytest.mark.parametrize("began", [0.0, 0.7, 2.0, 3.3, 4.0])
def test_s1_s11_the_course_holds_every_fallback_that_begins_within_the_patience(
    step_s: int, rate: str, began: float
) -> None:
    told = courses(step_s, [{"p": "ramp(0, 10)"}], rate)

    assert began <= LEASE_S
    for pump in (by_scan(began, float(rate)), by_decision(began, step_s, float(rate))):
        for k, (low, high) in enumerate(told):
            for part in range(11):
                seconds = (k + part / 10) * step_s - 0.001 * (part == 10)  # its end begins the next
                assert low - 1e-6 <= pump(seconds) <= high + 1e-6, (k, seconds)


def test_s1_a_backup_that_began_within_a_long_step_has_come_some_way_by_its_end() -> None:
    first, second, *_ = courses(10, [{"p": "ramp(0, 10)"}], "2")

    assert first == (NEW - 40, NEW)  # from the hold's start on, or not yet
    assert second[1] == pytest.approx(
        NEW - 20 * 0.9 * 0.6
    )  # 6 s of the first step at nine tenths of the ramp


def test_s11_where_the_patience_outlasts_a_step_nothing_may_have_moved_in_it() -> None:
    highest = [high for _, high in courses(1, [{"p": "ramp(0, 10)"}])]

    assert highest[:6] == [NEW, NEW, NEW, NEW, NEW, pytest.approx(NEW - 9)]


@pytest.mark.parametrize(
    ("step_s", "rate", "delay", "hold"),
    [
        (1, "10", "0", "1"),
        (1, "10", "0.3", "1.4"),
        (3, "5", "0.5", "8"),
        (10, "2", "0.3", "10.7"),
        (10, "2", "12", "13"),
    ],
)
@pytest.mark.parametrize("part", [0.0, 0.01, 0.37, 0.8, 1.0])
def test_s1_s11_the_course_holds_every_fallback_that_begins_within_the_proposals_time(
    step_s: int, rate: str, delay: str, hold: str, part: float
) -> None:
    rules, made = plan(step_s, [{"p": "ramp(0, 10)"}], rate, delay, hold)
    start = {str(v.tag): outward(Fraction(1), Fraction(1)) for v in rules.measured}
    new = {TagId("P"): Fraction(NEW), TagId("H"): Fraction(0), TagId("S"): Fraction(0)}
    found = Course(rules, made).ends(start, {tag: (value,) for tag, value in new.items()}, new)
    began = part * float(made.hold)

    for pump in (by_scan(began, float(rate)), by_decision(began, step_s, float(rate))):
        for k, segment in enumerate(made.segments):
            low, high = (end / SCALE for end in found[f"b{k}:P"])
            for at in range(11):
                seconds = float(segment.start + (segment.end - segment.start) * at / 10) - 0.001 * (at == 10)
                assert low - 1e-6 <= pump(seconds) <= high + 1e-6, (k, seconds)


def test_s1_until_the_backup_takes_over_and_the_proposal_has_its_effect_the_old_value_counts_too() -> None:
    rules, made = plan(10, [{"p": "ramp(0, 10)"}], "2", "0.3", "10")
    start = {str(v.tag): outward(Fraction(1), Fraction(1)) for v in rules.measured}
    new = {TagId("P"): Fraction(NEW), TagId("H"): Fraction(0), TagId("S"): Fraction(0)}
    old = {"P": (Fraction(99),), "H": (Fraction(0),), "S": (Fraction(0),)}
    found = Course(rules, made).ends(start, old, new)

    assert [s.mixed for s in made.segments[:3]] == [True, False, False]
    assert [tuple(end / SCALE for end in found[name]) for name in ("c0:P", "b0:P", "b1:P", "b2:P")] == [
        (NEW - 20, 99.0), (NEW - 20, NEW), (NEW - 20, NEW), (NEW - 40, NEW),
    ]  # fmt: skip
    assert "c1:P" not in found


# The level may reach the guard at any moment of a step in which the backup begins.
def test_s1_a_guard_that_a_step_reaches_counts_both_ways_in_it() -> None:
    module = small(
        "l <= 100",
        step="10 s",
        horizon=2,
        dynamics={"l": "l + 0.01*p"},
        backup=[{"when": "l >= 2", "p": "ramp(100, 1)"}, {"p": "ramp(0, 1)"}, {"h": False, "s": "hold"}],
        terminal=["l <= 100"],
    )
    rules = RuleSet.of((module,), 1)
    course = Course(rules, condense(rules, Fraction(0), Fraction(10)))
    new = {TagId("P"): Fraction(50), TagId("H"): Fraction(0), TagId("S"): Fraction(0)}

    def pump(level: str) -> tuple[float, ...]:
        start = {str(v.tag): outward(Fraction(level), Fraction(level)) for v in rules.measured}
        ends = course.ends(start, {tag: (value,) for tag, value in new.items()}, new)
        return tuple(end / SCALE for end in ends["b0:P"])

    assert pump("1.2") == (40, 50)  # below 2 all through the step
    assert pump("1.8") == (40, 60)  # 2.3 at its end
    assert pump("2.5") == (50, 60)


# The guard may be read at the end of the patience, when the level is another than at the step's start.
def test_s1_what_depends_on_a_guard_may_not_have_moved_when_the_step_ends() -> None:
    _, second, *_ = courses(10, HELD, "2")

    assert second[1] == NEW


# S1: in place of a safe set, a set that the backup reaches within the horizon.
@pytest.mark.parametrize(
    ("level", "pump", "expected"),
    [(2.0, "40", "Permitted"), (2.9, "40", "Permitted"), (3.9, "100", "Refused"), (3.2, "60", "Refused")],
)
def test_s1_a_terminal_set_is_reached_by_the_backup_from_wherever_a_proposal_leads(
    level: float, pump: str, expected: str
) -> None:
    filling = small(
        rule("l <= 4", "top", always=True),
        dynamics={"l": "l + 0.002*p - 0.04"},  # 20 % stands still
        backup=[{"p": "ramp(0, 10)"}, {"h": False}, {"s": "hold"}],
        horizon=14,
        terminal=["l <= 3.4", "p <= 20"],
    )

    assert verdict(filling, Plant(l=level, old={"P": pump})) == expected

"""S1, S11: no course of an unguarded backup, played out in exact rationals, leaves what `Way` says of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.checking.afterwards import Line, reaches
from gateway.solver.checking.condense import LEASE_S, condense
from gateway.solver.checking.course import Course
from gateway.solver.checking.way import SLOWEST_RAMP, Times, Way
from gateway.solver.modules.module import Hold, Move, Ramp, Variable
from gateway.solver.rules.interval import SCALE, outward
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_small import rule, small

F = Fraction
Played = list[tuple[Fraction, Fraction, Fraction, Fraction]]  # from, to, value at both; straight in between

MOVES: tuple[Move, ...] = (
    Ramp(F(0), F(2)),
    Ramp(F(100), F(1)),
    Ramp(F(30), F(5)),
    Ramp(F(0), F(7, 3)),
    F(0),
    F(60),
    Hold(),
)


def near(value: Fraction, target: Fraction, way: Fraction) -> Fraction:
    return max(value - way, target) if value > target else min(value + way, target)


def stepped(
    value: Fraction, move: Move, begins: Fraction, until: Fraction, times: Times, dice: random.Random
) -> Played:
    """The gateway's own decisions: one at once and one every step, each at nine tenths or faster."""
    found: Played = [(F(0), begins, value, value)]
    at = begins
    while at < until:
        if isinstance(move, Ramp):
            pace = dice.choice((SLOWEST_RAMP, F(1), F(19, 20)))
            value = near(value, move.target, move.rate * times.step * pace)
        elif isinstance(move, Fraction):
            value = move
        found.append((at, at + times.step, value, value))
        at += times.step
    return found


def ramped(
    value: Fraction, move: Move, begins: Fraction, until: Fraction, times: Times, dice: random.Random
) -> Played:
    """The PLC's scans, too short to be told apart: pieces of straight ramps, each slower or faster."""
    found: Played = [(F(0), begins, value, value)]
    at = begins
    while at < until:
        seconds = times.step / dice.randint(1, 4)
        after = value
        if isinstance(move, Ramp):
            pace = move.rate * dice.choice((SLOWEST_RAMP, F(1)))
            after = near(value, move.target, pace * seconds)
            reached = abs(after - value) / pace if pace else seconds
            if 0 < reached < seconds:
                found.append((at, at + reached, value, after))
                at, seconds, value = at + reached, seconds - reached, after
        elif isinstance(move, Fraction):
            value = after = move
        found.append((at, at + seconds, value, after))
        at, value = at + seconds, after
    return found


def within(course: Played, start: Fraction, end: Fraction) -> tuple[Fraction, Fraction, Fraction]:
    """Least, greatest and mean of a course in a segment."""
    ends: list[Fraction] = []
    total = F(0)
    for begin, until, first, last in course:
        a, b = max(begin, start), min(until, end)
        if a < b:
            slope = (last - first) / (until - begin)
            ends += first + slope * (a - begin), first + slope * (b - begin)
            total += (ends[-1] + ends[-2]) / 2 * (b - a)
    return min(ends), max(ends), total / (end - start)


def segments(dice: random.Random) -> Iterator[Times]:
    """Of one plan: behind a proposal's time that need be no whole number of steps."""
    step = F(dice.choice((1, 2, 5, 10)))
    hold = max(step, F(dice.choice((300, 1000, 2600, 10_700)), 1000))
    inside = [k * step for k in range(int(hold / step) + 1) if k * step < hold]
    cuts = [*inside, *(hold + k * step for k in range(8))]
    for start, end in itertools.pairwise(cuts):
        yield Times(start, end, hold + LEASE_S, step)


@pytest.mark.parametrize("move", MOVES, ids=str)
@pytest.mark.parametrize("drive", [stepped, ramped])
def test_s1_s11_no_course_leaves_its_way_at_any_moment_nor_on_average(
    move: Move, drive: Callable[..., Played]
) -> None:
    dice = random.Random(f"{move} {drive.__name__}")  # noqa: S311  # repeatable
    for _ in range(30):
        told = list(segments(dice))
        new = F(dice.randint(0, 1000), 10)
        value = outward(new, new)
        latest = told[0].latest
        begins = dice.choice((F(0), latest, F(dice.randint(0, int(latest * 100)), 100)))
        course = drive(new, move, begins, told[-1].end, told[0], dice)
        for times in told:
            way = Way.of(move, times)
            least, greatest, mean = (found * SCALE for found in within(course, times.start, times.end))
            low, high = way.during(value)
            assert low <= least <= greatest <= high, (times, begins)
            low, high = way.mean(value)
            assert low <= mean <= high, (times, begins)


# Without this, a way as wide as the range would pass.
@pytest.mark.parametrize("move", MOVES[:2], ids=str)
def test_s1_the_slowest_ramp_reaches_the_end_that_is_told_of_the_mean(move: Ramp) -> None:
    told = list(segments(random.Random(3)))  # noqa: S311  # repeatable
    new = F(80 if not move.target else 20)
    latest = told[0].latest
    slow = Ramp(move.target, move.rate * SLOWEST_RAMP)
    off: list[float] = []
    for times in told:
        end = times.end
        way = abs(move.target - new)
        mark = [latest, latest + way / slow.rate]
        course = [
            (F(0), mark[0], new, new),
            (mark[0], mark[1], new, move.target),
            (mark[1], end + 99, move.target, move.target),
        ]
        *_, mean = within([piece for piece in course if piece[0] < piece[1]], times.start, end)
        ends = Way.of(move, times).mean(outward(new, new))
        off.append(float(min(abs(e / SCALE - mean) for e in ends)))
    assert sorted(off)[len(off) // 2] < 1e-4  # only where the target is reached within a segment is it more


@pytest.mark.parametrize("move", [*MOVES, Ramp(F(-5), F(3)), Ramp(F(110), F(3))], ids=str)
def test_what_is_decoded_next_reckons_with_the_very_ends_that_are_checked(move: Move) -> None:
    definition = TagDefinition(id=TagId("P"), kind=TagKind.REAL, unit="%", scale=F(1, 10))
    variable = Variable(
        name="p",
        tag=TagId("P"),
        sort="real",
        unit="%",
        action=True,
        range=(F(0), F(100)),
        definition=definition,
    )
    dice = random.Random(str(move))  # noqa: S311  # repeatable
    known = 0
    for _ in range(10):
        told = list(segments(dice))
        ways = [Way.of(move, times) for times in told]
        for (name, reach), way in zip(
            reaches("P", ways, variable), itertools.chain.from_iterable((w, w) for w in ways), strict=True
        ):
            for _ in range(6):
                value = dice.randint(0, 1000) * SCALE // 10
                low, high = (way.during if name[0] == "b" else way.mean)((value, value))
                if reach.high:
                    known += 1
                    assert max(-(-at(line, value) // 1) for line in reach.high) == high, name
                if reach.low:
                    known += 1
                    assert min(at(line, value) // 1 for line in reach.low) == low, name
    assert known or (isinstance(move, Ramp) and 0 < move.target < 100)


def at(line: Line, value: int) -> Fraction:
    return F(line.slope * value + line.start, line.over)


def test_s1_a_mean_is_told_apart_only_once_the_backup_must_have_begun_and_where_it_asks_for_nothing() -> None:
    module = small(
        rule("l <= 3", "high", always=True),
        step="2 s",
        horizon=5,
        dynamics={"l": "l + 0.001*p"},
        backup=[{"p": "ramp(0, 2)"}, {"when": "l >= 2", "h": True}, {"h": False}, {"s": "hold"}],
        terminal=["l <= 3"],
    )
    rules = RuleSet.of((module,), 1)
    plan = condense(rules, F(0), F(2))

    assert [sorted(segment.means) for segment in plan.segments] == [[], [], [], *[["P", "S"]] * 3]
    new = {TagId("P"): F(80), TagId("H"): F(0), TagId("S"): F(0)}
    start = {str(v.tag): outward(F(1), F(1)) for v in rules.measured}
    ends = Course(rules, plan).ends(start, {str(tag): (v,) for tag, v in new.items()}, new)
    assert ends["u3:P"][1] == 80 * SCALE - int(F("1.8") * SCALE)  # on average a second's ramp behind
    assert ends["b3:P"][1] == 80 * SCALE
    assert "u2:P" not in ends
    assert "u3:H" not in ends


# What is kept of a rule for the next set is kept for the same backup only: else it would be told of symbols
# that the next set's check does not bound.
def test_a_rule_is_not_taken_over_from_a_set_whose_backup_asks_for_something_else() -> None:
    def rules(when: str) -> RuleSet:
        entry = {"when": when, "p": "ramp(0, 2)"} if when else {"p": "ramp(0, 2)"}
        module = small(
            rule("l <= 3", "high", always=True),
            step="2 s",
            horizon=5,
            dynamics={"l": "l + 0.001*p"},
            backup=[entry, {"p": "ramp(0, 1)"}, {"h": False}, {"s": "hold"}],
            terminal=["l <= 3"],
        )
        return RuleSet.of((module,), 1)

    keys = [condense(rules(when), F(0), F(2)).keys for when in ("l >= 2", "")]
    again = condense(rules("l >= 1"), F(0), F(2)).keys

    assert not set(keys[0]) & set(keys[1])
    assert again == keys[0]  # which guard it is nobody's duties depend on

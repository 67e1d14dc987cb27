"""The exact worst case (S7): hand-made answers, the sampling judge, linear programs by all corners."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.recheck.check import Question, recheck, widened
from gateway.recheck.exactly import HOLDS, OPEN, VIOLATED, recheck_exactly
from gateway.recheck.forms import NotLinearError
from gateway.recheck.simplex import greatest
from tests.unit.recheck_examples import module
from tests.unit.test_recheck_courses import DRAIN, FILL, H, P, X, Y, asked, rule, small, violated

F = Fraction
ROOT = Path(__file__).resolve().parents[2]
TANK = (ROOT / "tests" / "data" / "recheck_tank.json").read_text()
DEMO = (ROOT / "constraints" / "buffer-tank.json").read_text()


def says(text: str, question: Question) -> dict[str, str]:
    return {name.partition("/")[2]: worst.says for name, worst in recheck_exactly([text], question).items()}


def two(x: tuple[str, str], y: tuple[str, str]) -> Question:
    return asked(inputs={"X": (F(x[0]), F(x[1])), "Y": (F(y[0]), F(y[1]))})


# ---- one rule over a box ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + y <= 4", HOLDS),
        ("x + y < 4", VIOLATED),  # at one corner only
        ("x - y <= 1", HOLDS),
        ("x - y <= 0.999", VIOLATED),
        ("x <= 1.5 or x >= 1.5", HOLDS),  # no corner shows it, no alternative holds throughout
        ("x <= 1.4 or x >= 1.6", VIOLATED),  # every corner holds, the middle does not
        ("x < 1.5 or x > 1.5", VIOLATED),
        ("x + y <= 3 or x - y <= 0 or y <= 1.5", VIOLATED),
        ("x + y <= 3 or x + 2*y >= 4", HOLDS),
        ("x > 1.5 implies x + y > 2.5", HOLDS),
        ("x > 1.5 implies x + y > 2.51", VIOLATED),
        ("abs(x - y) <= 1", HOLDS),
        ("abs(x - y) < 1", VIOLATED),
        ("max(x, y) <= 2 and min(x, y) >= 1", HOLDS),
        ("max(x, y) - min(x, y) <= 1", HOLDS),
        ("max(x, y) - min(x, y) <= 0.99", VIOLATED),
        ("vote(median, x, y, 1.5) <= 2", HOLDS),
        ("vote(median, x, y, 1.2) <= 1.99", VIOLATED),
        ("min(x, y) <= 1.6 or x + y >= 3.2", HOLDS),
        ("(if x > 1.5 then y else x) <= 2", HOLDS),
        ("(if x > 1.5 then y else x) <= 1.9", VIOLATED),
        ("count(x > 1.5, y > 1.5, x + y > 3) != 2 or x != y", HOLDS),  # where they are equal none or all hold
        ("count(x > 1.5, y > 1.5, x + y > 3) != 2", VIOLATED),
        ("at_most(1, x < 1.5, x > 1.5)", HOLDS),
        ("exactly(1, x < 1.5, x > 1.5)", VIOLATED),  # at 1.5 none of them
        ("x < 1.5 iff not (x >= 1.5)", HOLDS),
        ("x != 1.7", VIOLATED),
        ("x in (1, 2)", VIOLATED),
        ("1 <= x <= 2 and 1 <= y <= 2", HOLDS),
        ("x*2/4 + y/2 <= 2", HOLDS),
        ("p == 1 implies x >= 1", HOLDS),
        ("p*x <= 2", HOLDS),  # the proposal is known
        ("x*y <= 9", OPEN),
        ("x / y <= 9", OPEN),
        ("vote(median, x, y, 1, 1, 1) <= 9", OPEN),
    ],
)
def test_a_rule_is_judged_over_the_whole_box(text: str, expected: str) -> None:
    told = small({"x": X, "y": Y, "p": P}, rule(text))
    question = two(("1", "2"), ("1", "2"))
    assert says(told, question) == {"r": expected}
    if expected == HOLDS:
        assert not recheck([told], question).violated


def test_a_witness_lies_in_the_box_and_fails_the_rule() -> None:
    told = small({"x": X, "y": Y, "p": P}, rule("x <= 1.4 or x >= 1.6 or y <= 1.9"))
    witness = recheck_exactly([told], two(("1", "2"), ("1", "2")))["m/r"].witness
    assert F("1.4") < witness["now X"] < F("1.6")
    assert F("1.9") < witness["now Y"] <= 2


# ---- along courses ----


@pytest.mark.parametrize(
    ("hold", "delay", "old", "new", "limit", "fails"),
    [
        ("1", "0", "0", "2", "3", False), ("1", "0", "0", "2", "2.999", True),
        ("2.5", "0", "0", "1", "3.5", False), ("2.5", "0", "0", "1", "3.499", True),
        ("1", "0.25", "2", "0", "1.5", False), ("1", "0.25", "2", "0", "1.499", True),
        ("1", "1.5", "2", "1", "5", False), ("1", "1.5", "2", "1", "4.999", True),
    ],
)  # fmt: skip
def test_courses_are_carried_through_exactly(
    *, hold: str, delay: str, old: str, new: str, limit: str, fails: bool
) -> None:
    text = small({"x": X, "p": P}, rule(f"x <= {limit}", always=True), dynamics=FILL)
    question = asked(p=(old, new), hold=hold, delay=delay)
    assert says(text, question) == {"r": VIOLATED if fails else HOLDS}


@pytest.mark.parametrize(("delay", "expected"), [("0", HOLDS), ("0.1", VIOLATED)])
def test_values_in_force_are_judged_only_where_they_may_still_act(delay: str, expected: str) -> None:
    text = small({"x": X, "p": P}, rule("p <= 1", always=True), dynamics=FILL)
    question = asked(p=("2", "1"), delay=delay)
    assert says(text, question) == {"r": expected}
    assert violated(text, question) == ({"r"} if expected == VIOLATED else set())


def test_disturbances_that_change_and_physical_bounds_are_reckoned_with() -> None:
    text = small(
        {"x": X, "y": {**Y, "max_rate": "1", "physical": ["0", "1.2"]}, "p": P},
        rule("x <= LIMIT", always=True),
        dynamics={"x": "0 - 0.5*x + y + d", "disturbance": {"d": ["-1", "1"]}},
    )  # fmt: skip
    question = asked(inputs={"X": (F(0), F(1)), "Y": (F(1), F(1))}, hold="2")
    # x is 1, then -0.5 + 1.1 - 1, y meanwhile 1.2; at the end 0.2 + 1.2 + 1. If y bent within a step by a
    # quarter of what it can move, it might be 0.7 in between, on average 0.6 before and 1.2 after:
    # 0.45 + 1.2 + 1.
    assert says(text.replace("LIMIT", "2.399"), question)["r"] == VIOLATED
    assert says(text.replace("LIMIT", "2.4"), question)["r"] == OPEN
    assert says(text.replace("LIMIT", "2.65"), question)["r"] == HOLDS


def test_s6_ramps_count_every_value_that_ceased() -> None:
    text = small({"x": X, "p": P}, rule("abs(rate(p)) <= 1"))
    history = {"P": [(F(1), F(0)), (F(0), F("0.9"))]}
    assert says(text, asked(p=("1", "2"))) == {"r": HOLDS}
    assert says(text, asked(p=("1", "2"), history=history)) == {"r": VIOLATED}


def test_declared_rules_rows_and_labels_are_settled_one_by_one() -> None:
    text = small({"x": X, "p": P, "h": H}, rule("x < 2 for 10 s or p <= 1"), rule("prev(h) or p <= 1", "b"))
    question = asked(previous={"P": [F(1)], "H": [F(0), F(1)]}, held_s={"H": F(0)})
    assert says(text, question) == {"r": HOLDS, "b": HOLDS}
    more = replace(question, proposal={"P": F(2), "H": F(1)})
    assert says(text, more) == {"r": VIOLATED, "b": VIOLATED, "h.min_off": VIOLATED}
    assert says(text, replace(more, for_held={"m/x < 2": (True, True)}))["r"] == HOLDS


def test_s1_the_backup_is_followed_where_what_it_reads_settles_it_and_said_to_be_sampled_elsewhere() -> None:
    text = small({"x": {**X, "error": "0.1"}, "p": P}, rule("x <= 5.2", always=True), **DRAIN)
    one_step = text.replace('"horizon": 3', '"horizon": 1').replace("x <= 2.2", "x <= 3.2")
    there = asked(x=("4", "4.2"), p=("1", "1"), patience_s=F(0))
    assert says(one_step, there) == {"r": HOLDS, "terminal[1]": HOLDS}
    higher = replace(there, inputs={"X": (F(4), F("4.21"))})
    assert says(one_step, higher) == {"r": HOLDS, "terminal[1]": VIOLATED}
    nearer = replace(there, inputs={"X": (F(2), F("2.2"))})
    assert says(one_step, nearer) == {"r": OPEN, "terminal[1]": OPEN}


def test_an_undetermined_question_is_not_answered() -> None:
    with pytest.raises(NotLinearError, match="not usable"):
        recheck_exactly([module()], asked(good={"X": False}))
    with pytest.raises(NotLinearError, match="contradicts itself"):
        recheck_exactly([module()], asked(x=("2", "1")))


# ---- against the sampling judge ----


def test_the_demo_module_is_shown_exactly_in_less_than_half_a_second_of_work() -> None:
    tags = ("TK1.LT101", "TK1.FT101", "TK1.TT101")
    inputs = widened([DEMO], dict(zip(tags, map(F, (2, 12, 40)), strict=True)), dict.fromkeys(tags, F("0.2")))
    actions = {"TK1.P101.SP": F(40), "TK1.H101.CMD": F(0), "TK1.M101.STAGE": F(0)}
    question = Question(
        inputs=inputs, previous={tag: [value] for tag, value in actions.items()},
        proposal={**actions, "TK1.P101.SP": F(45)}, hold_s=F("0.98"), effect_delay_s=F("0.612345"),
    )  # fmt: skip
    started = time.process_time()
    assert set(says(DEMO, question).values()) == {HOLDS}
    assert time.process_time() - started < 0.5
    started = time.process_time()
    assert recheck([DEMO], question, samples=32).violated == frozenset()
    assert time.process_time() - started < 0.2


_CENTS = st.integers(0, 100).map(lambda n: F(n, 100))


@settings(max_examples=40, deadline=None)
@given(
    level=st.integers(25, 370), width=st.integers(0, 4), inflow=st.integers(0, 36),
    pumps=st.tuples(_CENTS, _CENTS), heater=st.tuples(st.booleans(), st.booleans()), delay=st.integers(0, 12),
)  # fmt: skip
def test_what_sampling_finds_violated_is_never_shown_to_hold_and_the_other_way_round(
    level: int, width: int, inflow: int, pumps: tuple[F, F], heater: tuple[bool, bool], delay: int
) -> None:
    question = Question(
        inputs={
            "LT": (F(level - width, 100), F(level + width, 100)),
            "FT": (F(inflow), F(inflow) + F("0.3")),
        },
        previous={"P": [pumps[0] * 100], "H": [F(heater[0])]},
        proposal={"P": pumps[1] * 100, "H": F(heater[1])},
        hold_s=F(1),
        effect_delay_s=F(delay, 10),
    )
    assume(inflow < 36)
    exact = recheck_exactly([TANK], question)
    sampled = recheck([TANK], question, samples=8).violated
    shown = {name for name, worst in exact.items() if worst.says == VIOLATED}
    holds = {name for name, worst in exact.items() if worst.says == HOLDS}
    # The tank's rules bind at corners: what is violated anywhere is so at one that sampling visits.
    assert shown <= sampled
    assert not sampled & holds


# ---- linear programs ----


Program = tuple[Mapping[str, F], Mapping[str, tuple[F, F]], list[tuple[Mapping[str, F], F]]]


@st.composite
def programs(
    draw: st.DrawFn,
) -> tuple[Mapping[str, F], Mapping[str, tuple[F, F]], list[tuple[Mapping[str, F], F]]]:
    names = ["a", "b"]
    digits = st.integers(-4, 4).map(F)
    box = {name: tuple(sorted((draw(digits), draw(digits)))) for name in names}
    limits: list[tuple[Mapping[str, F], F]] = [
        ({name: draw(digits) for name in names}, draw(digits)) for _ in range(draw(st.integers(0, 3)))
    ]
    goal: Mapping[str, F] = {name: draw(digits) for name in names}
    return goal, {name: (low, high) for name, (low, high) in box.items()}, limits


@settings(max_examples=300, deadline=None)
@given(programs())
def test_a_linear_program_takes_its_greatest_value_at_a_corner(
    program: Program,
) -> None:
    goal, box, limits = program
    lines = [(r.get("a", F(0)), r.get("b", F(0)), bound) for r, bound in limits]
    for place, name in enumerate(("a", "b")):
        unit = (F(place == 0), F(place == 1))
        lines += [(*unit, box[name][1]), (-unit[0], -unit[1], -box[name][0])]
    corners = [c for c in _crossings(lines) if all(p * c[0] + q * c[1] <= bound for p, q, bound in lines)]
    best = greatest(goal, box, limits)
    if not corners:
        assert best is None
        return
    assert best is not None
    assert best.value == max(goal["a"] * a + goal["b"] * b for a, b in corners)
    assert all(p * best.at["a"] + q * best.at["b"] <= bound for p, q, bound in lines)


def _crossings(lines: Sequence[tuple[F, F, F]]) -> list[tuple[F, F]]:
    found = []
    for (a, b, c), (d, e, f) in itertools.combinations(lines, 2):
        if det := a * e - b * d:
            found.append(((c * e - b * f) / det, (a * f - c * d) / det))
    return found

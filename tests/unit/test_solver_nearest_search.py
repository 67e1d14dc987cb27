"""Parts of a repair that may lie anywhere: distances, domains, and the search, against brute force."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import InForce, RegisterValue
from gateway.core.restraint import UNRESTRAINED, Restraint
from gateway.core.spans import Span, Spans
from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.checking.judge import Judge
from gateway.solver.checking.predict import Facts, observe
from gateway.solver.decoding.counts import Condition, all_of, line, one_of
from gateway.solver.modules.compile import compile_module
from gateway.solver.repairing.aim import Aim, Counts
from gateway.solver.repairing.domains import domains, turned, within
from gateway.solver.repairing.linear import Least, LinearProgram
from gateway.solver.repairing.search import Allowance, fulfilled, in_order, nearest
from gateway.solver.repairing.slopes import Slopes
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import millis_up
from tests.unit.solver_demo import PATIENT
from tests.unit.solver_nearest import H, P, R, S, asked
from tests.unit.solver_next import TAGS, VARIABLES, Here, rules

PROGRAM = LinearProgram()
PLAIN = rules("p <= 30")
STILL = Here(old={"P": 4, "R": 4, "H": 0, "S": 0})


def facts(here: Here = STILL, rule_set: RuleSet = PLAIN) -> Facts:
    return observe(rule_set, here.request())


def wanted(**counts: int) -> dict[TagId, RegisterValue]:
    block = {"P": 4, "R": 4, "H": 0, "S": 0} | counts
    return {
        TagId(t): RegisterValue(TagId(t), raw, TAGS[TagId(t)].engineering(raw)) for t, raw in block.items()
    }


def never() -> bool:
    return False


def any_condition(chance: random.Random, places: int) -> Condition:
    def some() -> Condition:
        chosen = chance.sample(range(places), chance.randrange(1, places + 1))
        factors = {k: chance.choice([-3, -2, -1, 1, 2, 3, 7]) for k in chosen}
        return line(factors, chance.randrange(-12, 25))

    match chance.randrange(4):
        case 0:
            return one_of([some(), some()])
        case 1:
            return one_of([all_of([some(), some()]), some()])
        case _:
            return some()


def brute(aim: Aim, box: Sequence[Span], conditions: Iterable[Condition]) -> list[Counts]:
    """All counts that fulfil conditions, the nearest first."""
    every = itertools.product(*(range(low, high + 1) for low, high in box))
    told = list(conditions)
    return sorted((c for c in every if all(fulfilled(one, c) for one in told)), key=aim.key)


# The search against every block of small boxes: the same block, down to the last tie.
@pytest.mark.parametrize("seed", range(6))
def test_the_nearest_counts_are_the_nearest_of_all(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  repeatable on purpose
    none = 0
    for _ in range(50):
        places = chance.choice([1, 2, 3])
        box = [(low := chance.randrange(-4, 3), low + chance.randrange(7)) for _ in range(places)]
        aim = Aim(
            wanted=tuple(chance.randrange(-6, 9) for _ in range(places)),
            present=tuple(chance.randrange(-4, 7) for _ in range(places)),
            weights=tuple(chance.choice([1, 1, 2, 5, 12]) for _ in range(places)),
            ties=tuple(chance.sample(range(places), places)),
        )
        conditions = [any_condition(chance, places) for _ in range(chance.randrange(4))]
        allowance = Allowance(5_000, never)

        found = nearest(aim, box, conditions, PROGRAM, allowance)
        best = brute(aim, box, conditions)

        assert not allowance.spent
        if not best:
            assert found is None
            none += 1
        else:
            assert found is not None
            assert aim.key(found)[:2] == aim.key(best[0])[:2], (aim, box, conditions)
        in_turn = list(in_order(aim, box, conditions, PROGRAM, Allowance(50_000, never)))
        assert sorted(in_turn) == sorted(best)
        assert [aim.distance(c) for c in in_turn] == [aim.distance(c) for c in best]
    assert none < 30


def test_nothing_farther_than_the_most_is_found() -> None:
    aim = Aim(wanted=(0,), present=(0,), weights=(3,), ties=(0,))
    above = [line({0: -1}, -4)]

    assert nearest(aim, [(0, 9)], above, PROGRAM, Allowance(50, never), most=12) == (4,)
    assert nearest(aim, [(0, 9)], above, PROGRAM, Allowance(50, never), most=11) is None


@pytest.mark.parametrize("parts", [0, 1])
def test_a_search_that_was_cut_short_says_so(parts: int) -> None:
    aim = Aim(wanted=(0, 0), present=(0, 0), weights=(1, 1), ties=(0, 1))
    thin = [line({0: 2, 1: -2}, 1), line({0: -2, 1: 2}, -1)]  # between all whole counts
    allowance = Allowance(parts, never)

    found = nearest(aim, [(0, 9), (0, 9)], [one_of([*thin, line({0: -1}, -5)])], PROGRAM, allowance)

    assert allowance.spent == (parts == 0) or found is not None


def test_an_allowance_ends_once_it_is_late() -> None:
    assert Allowance(2, never).takes()
    assert not Allowance(2, lambda: True).takes()
    assert not Allowance(0, never).takes()
    some = Allowance(1, never)
    assert some.takes()
    assert not some.spent
    assert not some.takes()
    assert some.spent


# What HiGHS says is a bound: never above the least that whole counts come to, and the same each time.
def test_what_highs_says_is_never_more_than_the_least_there_is() -> None:
    chance = random.Random(11)  # noqa: S311  repeatable on purpose
    for _ in range(40):
        box = [(0, chance.randrange(1, 9)) for _ in range(2)]
        lines = [c for c in (any_condition(chance, 2) for _ in range(3)) if isinstance(c, tuple)]
        aim = Aim(
            wanted=(chance.randrange(9), chance.randrange(9)), present=(0, 0), weights=(3, 7), ties=(0, 1)
        )
        bound = PROGRAM.least(Least(aim.wanted, aim.weights), box, lines)
        best = brute(aim, box, lines)
        assert bound == PROGRAM.least(Least(aim.wanted, aim.weights), box, lines)
        if best:
            assert bound is not None
            assert bound.value <= aim.distance(best[0]) + bound.slack


def test_the_program_holds_changes_within_their_limits() -> None:
    goal = Least((0, 0), (0, 1), (((1, 0), 3),))
    bound = PROGRAM.least(goal, [(0, 9), (0, 9)], [line({0: -1, 1: -1}, -5)])  # type: ignore[list-item]

    assert bound is not None
    assert bound.value == pytest.approx(2.0)
    assert bound.at == pytest.approx((3.0, 2.0))


def test_an_aim_counts_shares_of_ranges_and_turned_switches_once() -> None:
    aim = Aim.of(PLAIN, facts(), wanted(S=0))
    places = {v.tag: k for k, v in enumerate(PLAIN.actions)}

    weights = {tag: aim.weights[k] for tag, k in places.items()}
    assert Fraction(weights[P], weights[R]) == Fraction(6, 50) / Fraction(5, 40)
    assert weights[H] == weights[S] == 0
    moved = tuple({P: 3, R: 6, H: 1, S: 3}[v.tag] for v in PLAIN.actions)
    assert aim.distance(moved) == weights[P] + 2 * weights[R]
    assert [aim.change(places[tag], moved) for tag in (P, R, H, S)] == [1, 2, 1, 1]
    assert [PLAIN.actions[k].tag for k in aim.ties] == sorted([P, R, H, S])
    assert aim.present == tuple({P: 4, R: 4, H: 0, S: 0}[v.tag] for v in PLAIN.actions)


def test_an_output_whose_range_is_one_value_stays_and_costs_a_whole_range() -> None:
    fixed = rules(
        "p <= 30",
        variables={
            **VARIABLES,
            "r": {**VARIABLES["r"], "range": ["20", "20"]},
            "p": {**VARIABLES["p"], "range": ["6", "42"]},
        },
    )

    aim = Aim.of(fixed, facts(STILL, fixed), wanted())

    weights = {v.tag: aim.weights[k] for k, v in enumerate(fixed.actions)}
    assert Fraction(weights[P], weights[R]) == Fraction(6, 36)
    assert spans_of(fixed)[P] == ((1, 7),)
    assert spans_of(fixed)[R] == ((4, 4),)


def spans_of(
    rule_set: RuleSet, restraint: Restraint = UNRESTRAINED, here: Here = STILL, **counts: int
) -> Mapping[TagId, Spans]:
    found = domains(rule_set, facts(here, rule_set), wanted(**counts), restraint)
    return {v.tag: spans for v, spans in zip(rule_set.actions, found, strict=True)}


# P has registers 0 to 7 of 6 %, and a range of 0 to 50 %; R has -1 to 6 of 5 %, and 0 to 40 %.
def test_an_output_may_go_anywhere_in_its_range_that_its_register_can_hold() -> None:
    found = spans_of(PLAIN)

    assert found[P] == ((0, 7),)
    assert found[R] == ((0, 6),)
    assert found[H] == ((0, 0),)
    assert found[S] == ((0, 0),)


def test_named_switches_have_their_values_and_what_is_proposed() -> None:
    named = rules("p <= 30", repair={"h": True, "s": True})

    assert spans_of(named)[H] == ((0, 1),)
    assert spans_of(named, S=1)[S] == ((0, 3),)  # 0, 2 and 3, and 1 because it is proposed
    assert spans_of(named)[S] == ((0, 0), (2, 3))


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        ("6", ((0, 7),)),
        ("6.1", ((0, 2), (4, 4), (6, 7))),
        ("12", ((0, 2), (4, 4), (6, 7))),
        ("12.1", ((0, 1), (4, 4), (7, 7))),
        ("30", ((4, 4),)),
    ],
)
def test_what_is_not_worth_writing_is_left_out_and_the_value_in_force_is_not(
    least: str, expected: Spans
) -> None:
    coarse = Restraint(least_change={P: Fraction(least)})

    assert spans_of(PLAIN, coarse)[P] == expected
    unsure = replace(STILL, older={"P": ((2, 0.0),)})  # two values may be in force: none is too near
    assert spans_of(PLAIN, coarse, unsure)[P] == ((0, 7),)


def test_switches_are_turned_one_after_another_the_fewest_first() -> None:
    named = rules("p <= 30", repair={"h": True, "s": True})
    allowed = domains(named, facts(STILL, named), wanted(), UNRESTRAINED)
    places = {v.tag: k for k, v in enumerate(named.actions)}

    found = [
        (many, here[places[H]][0][0], here[places[S]][0][0])
        for many, here in turned(named, allowed, wanted())
    ]

    assert found == [(0, 0, 0), (1, 1, 0), (1, 0, 2), (1, 0, 3), (2, 1, 2), (2, 1, 3)]


def test_gaps_of_a_domain_are_conditions() -> None:
    box, gaps = within((((0, 2), (4, 4), (6, 7)), ((-1, 6),)))

    assert box == [(0, 7), (-1, 6)]
    assert [k for k in range(8) if all(fulfilled(gap, (k, 0)) for gap in gaps)] == [0, 1, 2, 4, 6, 7]


# Where a rule has no alternatives, what its slope says is true of every block.
def test_what_slopes_say_of_a_plain_rule_leaves_no_permitted_block_out() -> None:
    level = rules({"require": "l >= 1.97", "always": True}, "2*p + r <= 60")
    request = asked(STILL, {P: 7, R: 6, H: 0, S: 0})
    prepared = Judge(level, PATIENT).prepare(millis_up(request.effect_delay_s), millis_up(request.hold_s))
    slopes = Slopes(level, prepared, observe(level, request))
    ends = {P: (0, 7), R: (0, 6), H: (0, 0), S: (0, 0)}
    allowed = [(ends[v.tag],) for v in level.actions]
    refused = tuple({P: 7, R: 6, H: 0, S: 0}[v.tag] for v in level.actions)

    cuts = list(slopes.cuts(refused, allowed))

    assert len(cuts) == 2
    assert not slopes.holds(refused)
    assert not all(fulfilled(cut, refused) for cut in cuts)
    for block in itertools.product(*(range(low, high + 1) for ((low, high),) in allowed)):
        assert not slopes.holds(block) or all(fulfilled(cut, block) for cut in cuts)


def test_what_slopes_say_of_a_product_with_a_reading_leaves_no_permitted_block_out() -> None:
    level = rules("l*p <= 60")
    request = asked(STILL, {P: 7, R: 6, H: 0, S: 0})
    prepared = Judge(level, PATIENT).prepare(millis_up(request.effect_delay_s), millis_up(request.hold_s))
    slopes = Slopes(level, prepared, observe(level, request))
    places = {v.tag: k for k, v in enumerate(level.actions)}
    allowed = [((0, 7),) if v.tag == P else ((0, 0),) for v in level.actions]
    refused = tuple(7 if v.tag == P else 0 for v in level.actions)

    (cut,) = slopes.cuts(refused, allowed)

    assert [p for p in range(8) if fulfilled(cut, tuple(p * (k == places[P]) for k in range(4)))] == [
        0,
        1,
        2,
        3,
        4,
    ]


# HiGHS's threads belong to the process: who asks first says how many there are.
def test_the_program_is_solved_where_another_one_of_the_process_began_with_more_threads() -> None:
    said = """
import highspy
other = highspy.Highs()
other.setOptionValue("threads", 2)
other.addVar(0.0, 1.0)
other.run()
from gateway.solver.decoding.counts import Line
from gateway.solver.repairing.linear import Least, LinearProgram
bound = LinearProgram().least(Least((5, 5), (1, 1)), [(0, 10), (0, 10)], [Line(((0, 1), (1, 1)), 7)])
assert bound is not None and round(bound.value, 6) == 3.0, bound
print("solved")
"""
    ran = subprocess.run(  # noqa: S603  our own words
        [sys.executable, "-c", said], capture_output=True, text=True, check=True, timeout=360
    )
    assert ran.stdout.endswith("solved\n")


def test_the_program_says_nothing_on_the_console() -> None:
    least = "LinearProgram().least(Least((5,), (1,)), [(0, 3)], [])"
    said = f"from gateway.solver.repairing.linear import *; {least}"
    ran = subprocess.run(  # noqa: S603  our own words
        [sys.executable, "-c", said], capture_output=True, text=True, check=True, timeout=360
    )
    assert (ran.stdout, ran.stderr) == ("", "")


# Its register counts down: 0 is 50 %, each count 2 % less, and 5 to 25 are in its range.
def test_a_register_with_an_offset_that_counts_down_has_its_domain_and_its_place() -> None:
    tag = TagDefinition(
        id=P,
        kind=TagKind.REAL,
        unit="%",
        scale=Fraction(-2),
        offset=Fraction(50),
        raw_range=(0, 30),
        writable=True,
    )
    variable = {"tag": "P", "type": "real", "unit": "%", "range": ["1", "40"], "role": "action"}
    document = {
        "id": "down",
        "revision": 1,
        "language": 1,
        "step": "1 s",
        "variables": {"p": variable},
        "constraints": [{"id": "r", "kind": "standard", "require": "p <= 39"}],
    }
    down = RuleSet.of([compile_module(json.dumps(document).encode(), "down.json", {P: tag})], 1)
    request = replace(STILL.request(), inputs={}, history={P: (InForce(Fraction(30), 0.0),)}, held_s={P: 9.0})
    there = {P: RegisterValue(P, 12, Fraction(26))}

    aim = Aim.of(down, observe(down, request), there)
    free, coarse = (
        domains(down, observe(down, request), there, Restraint(least_change=least))
        for least in ({}, {P: Fraction(5)})
    )

    assert (aim.wanted, aim.present) == ((12,), (10,))
    assert free == (((5, 24),),)
    assert coarse == (((5, 7), (10, 10), (13, 24)),)

"""S3, S24: a module judged among others, by no bound that the others do not vouch for as well."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gateway.core.tag import TagId
from gateway.solver.modules.module import Module
from gateway.solver.rules.around import Around
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_small import rule, small

INFLOW = TagId("Q")


def vouching(low: str, high: str, name: str = "small", **more: object) -> Module:
    return small(rule("p <= 90"), id=name, variables={"q": {"physical": [low, high]}}, **more)


@pytest.mark.parametrize(
    ("others", "seen"),
    [
        (("5", "50"), ("0", "50")),
        (("-5", "30"), ("-5", "36")),
        (("10", "20"), ("0", "36")),
        (("-5", "50"), ("-5", "50")),
    ],
)
def test_s3_what_it_vouches_for_counts_as_far_as_the_others_vouch_for_it(
    others: tuple[str, str], seen: tuple[str, str]
) -> None:
    mine = vouching("0", "36")
    around = Around.of(RuleSet.of([vouching(*others, name="other")], 1), mine)

    assert around.seen(mine).variables[INFLOW].physical == tuple(map(Fraction, seen))


def test_s3_what_only_it_or_only_the_others_vouch_for_is_no_premise() -> None:
    mine, silent = vouching("0", "36"), small(rule("p <= 80"), id="silent")

    assert Around.of(RuleSet.of([silent], 1), mine).seen(mine).variables[INFLOW].physical is None
    assert Around.of(RuleSet.of([mine], 1), silent).seen(silent).variables[INFLOW].physical is None


def test_where_nothing_is_in_force_it_is_judged_by_its_own_premises() -> None:
    mine = vouching("0", "36")

    assert Around.of(None, mine) == Around()
    assert Around.of(None, mine).seen(mine).variables[INFLOW].physical == (Fraction(0), Fraction(36))


def test_s24_only_the_tags_of_the_module_are_asked_of_the_others() -> None:
    mine = vouching("0", "36")
    moving = vouching("0", "36", "moves", dynamics={"q": "q + 0.1*p"})
    around = Around.of(RuleSet.of([moving], 1), mine)

    assert around.moving == {INFLOW}
    assert around.physical.keys() == set(mine.tags.values())
    seen = around.seen(mine)
    assert seen.forms.keys() == {INFLOW}  # it moves, and nobody says how far
    assert seen.forms[INFLOW].terms == {INFLOW: 1}
    assert Around.of(RuleSet.of([small(rule("p <= 90"))], 1), mine).moving == frozenset()


def test_s24_its_own_dynamics_are_its_own_also_where_others_predict_the_tag() -> None:
    mine = vouching("0", "36", dynamics={"q": "q - 0.1*p"})
    moving = vouching("0", "36", "moves", dynamics={"q": "q + 0.1*p"})

    seen = Around.of(RuleSet.of([moving], 1), mine).seen(mine)
    assert seen.forms == RuleSet.of([mine], 0).forms


def test_s24_a_tag_that_others_predict_and_the_module_does_not_have_plays_no_part() -> None:
    mine = small(rule("p <= 90"))
    without = Around(moving=frozenset({TagId("ELSEWHERE")}))

    assert without.seen(mine).forms == {}

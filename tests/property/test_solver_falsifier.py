"""S1, S2, S4, S6, S9, S11: on random plants played as badly as their modules allow, no promise is broken.

Every plant is drawn from a seed, told to the real check as a module, and lived in exact rationals by a player
who chooses sensors' errors, disturbances, delays and what goes wrong. A judge that has not seen the solver
looks at every moment, and the second checker judges a share of what is permitted. A seed that shows something
can be played again.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.unit.falsifier_gateway import Rules
from tests.unit.falsifier_judge import Judge
from tests.unit.falsifier_lasting import fitted, lasting, tank
from tests.unit.falsifier_loop import CALM, ROUGH, Loop, Tally, Trouble
from tests.unit.falsifier_plant import Plant
from tests.unit.falsifier_random import open_plant, variants
from tests.unit.falsifier_shipped import demo_tank
from tests.unit.falsifier_truth import Player, Truth
from tests.unit.falsifier_words import Form

OPINIONS = 0.03  # of what is permitted, judged by the second checker too
SAMPLED = 0.05
STARTS = ("middle", "full", "empty")


def played(plant: Plant, seed: int, cycles: int, trouble: Trouble | None = None, *more: Plant) -> Tally:
    """`more`: the same plant under rule sets that are swapped in."""
    rules = [Rules.of(one) for one in (plant, *more)]
    loop = Loop(rules, seed, trouble or (ROUGH if seed % 2 else CALM), opinions=OPINIONS)
    tally = loop.run(cycles)
    assert not tally.found, "\n".join([f"{plant.about} {seed}", *map(str, tally.found), *loop.trace])
    return tally


def played_open(seed: int, cycles: int) -> Tally:
    plant = open_plant(seed)
    return played(plant, seed, cycles, None, *(variants(plant) if seed % 2 else ()))


def test_s2_s4_s6_no_single_decision_breaks_what_it_promises_whatever_the_plant_does() -> None:
    by, looks = Counter[str](), 0
    for seed in range(10):
        tally = played_open(seed, 25)
        by, looks = by + tally.by, looks + tally.looks

    assert by["permitted"] > 30, by
    assert by["repaired"] > 30, by
    assert looks > 800


def test_s1_s9_s11_whenever_the_plc_falls_back_what_was_permitted_lasts() -> None:
    by, cornered = Counter[str](), Counter[str]()
    for plant in lasting((3, 4, 7, 11), suggested=False):
        tally = played(plant, 1 + plant.step, 12)
        by, cornered = by + tally.by, cornered + tally.cornered
    tally = played(demo_tank("full"), 2, 20)

    assert (by + tally.by)["repaired"] > 20, by
    assert not cornered + tally.cornered


# The judge can tell: where the plant does what no module said, a rule is seen to break.
def test_a_disturbance_beyond_its_band_is_seen_to_break_a_rule() -> None:
    plant = demo_tank("full")
    told = Rules.of(plant)
    wild = replace(plant, bands={**plant.bands, "w_level": (Fraction(-1, 100), Fraction(1, 100))})
    loop = Loop([replace(told, plant=wild)], 2, CALM, opinions=0)

    assert loop.run(60).found


def test_the_judge_sees_a_rule_that_breaks_only_within_a_step() -> None:
    plant = demo_tank("full")
    truth = Truth(plant, Player(plant, random.Random(1)))  # noqa: S311  repeatable
    judge = Judge(truth)
    judge.promise.until = truth.now + 10
    truth.state["level"] = Fraction("3.5999")
    truth.player.aim(Form({"level": Fraction(1)}))
    for _ in truth.advance(Fraction(1)):
        judge.look()

    assert {one.what for one in judge.found} == {"`no-overflow` is broken"}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_s2_s4_s6_no_single_decision_of_five_hundred_plants_breaks_what_it_promises() -> None:
    by = Counter[str]()
    for seed in range(1_000, 1_500):
        by += played_open(seed, 60).by

    assert by["permitted"] > 3_000, by


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_s1_s9_s11_what_was_permitted_on_sixty_plants_with_a_terminal_set_lasts() -> None:
    by, cornered = Counter[str](), Counter[str]()
    for plant in lasting(range(60), suggested=False):
        tally = played(plant, plant.step + len(by), 60)
        by, cornered = by + tally.by, cornered + tally.cornered

    assert by["repaired"] > 500, by
    assert not cornered


# Refusing everything would keep every promise.
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_s1_s9_s11_what_was_permitted_lasts_in_suggested_sets_and_most_that_is_safe_is_permitted() -> None:
    safe = unchanged = 0
    cornered = Counter[str]()
    for seed in range(24):
        plant = fitted(tank(seed))
        if plant is not None:
            tally = played(plant, seed, 80, replace(ROUGH if seed % 2 else CALM, sampled=SAMPLED))
            safe, unchanged = safe + tally.safe, unchanged + tally.unchanged
            cornered += tally.cornered

    assert safe > 10
    assert unchanged >= 0.8 * safe
    assert not cornered


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_s1_s9_s11_nothing_breaks_the_shipped_tank_and_it_always_has_something_to_write() -> None:
    cornered = Counter[str]()
    for start in STARTS:
        for seed in range(10):
            cornered += played(demo_tank(start), seed, 100).cornered

    assert not cornered

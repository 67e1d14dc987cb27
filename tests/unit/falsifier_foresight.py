"""What becomes of a plant if a decision is the last one: the PLC falls back at some moment, and that goes on.

Lived in the true plant from where it is, or from corners of what a check knows: that is vertex sampling. It
finds something against a proposal or nothing, and shares nothing with the solver.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.ports import StateSet
from tests.unit.falsifier_judge import EVER, Judge
from tests.unit.falsifier_plant import Plant
from tests.unit.falsifier_plc import PACES, Plc
from tests.unit.falsifier_truth import Player, Truth
from tests.unit.falsifier_words import Form, Values

PATIENCE = 4  # seconds that a PLC holds the last values beyond a proposal's time
LONG = 14  # steps of a fallback that are looked at


@dataclass(frozen=True, kw_only=True)
class Silence:
    """When a proposal takes effect and the PLC falls back, seconds after acquisition; how fast it ramps."""

    effect: Fraction
    falls: Fraction
    pace: Fraction


def silences(plant: Plant) -> Iterator[Silence]:
    """The extremes: at once or late, with short ramps or full ones."""
    for effect in (Fraction(1, 1024), plant.delay):
        for falls in (effect, plant.hold, plant.hold + PATIENCE):
            yield Silence(effect=effect, falls=max(effect, falls), pace=PACES[0])
    yield Silence(effect=plant.delay, falls=plant.hold + PATIENCE, pace=PACES[1])


def lived(
    plant: Plant,
    start: tuple[Values, Values],
    written: Values,
    silence: Silence,
    target: Form | None,
    seed: int,
) -> Judge:
    """The judge of a course from a state and values in force that a player turns against a form."""
    dice = random.Random(seed)  # noqa: S311  repeatable
    player = Player(plant, dice)
    truth = Truth(plant, player)
    truth.state, truth.acting = dict(start[0]), dict(start[1])
    judge = Judge(truth)
    judge.promise.until = EVER
    plc = Plc(truth, judge, dice, lambda: None)
    plc.pace = silence.pace
    player.aim(target)
    began = truth.now
    plc.until(began + silence.effect)
    plc.take(written)
    plc.until(began + silence.falls)
    plc.fall()
    for _ in range(LONG):
        plc.until(truth.now + plant.step)
    return judge


def safe(plant: Plant, known: StateSet, acting: Values, wanted: Values, seed: int) -> bool:
    """Whether nothing is found against a proposal from the corners that are worst for each rule."""
    for law in plant.every_law:
        if not law.always:
            continue
        for form in law.whole().atoms():
            player = Player(plant, random.Random(seed))  # noqa: S311  repeatable
            player.aim(form)
            state = dict(_corner(plant, known, player, form))
            for silence in silences(plant):
                if lived(plant, (state, acting), wanted, silence, form, seed).found:
                    return False
    return True


def _corner(plant: Plant, known: StateSet, player: Player, form: Form) -> Iterator[tuple[str, Fraction]]:
    for seen in plant.seen:
        tag = next(t for t in known.intervals if t.lower() in {seen.name, f"first.{seen.name}"})
        interval = known.intervals[tag]
        push = player.pull(seen.name) + form.terms.get(seen.name, Fraction(0))
        yield seen.name, interval.high if push >= 0 else interval.low

"""What a recipe needs of a plant: what is measured, who runs it, how it is disturbed.

A cycle is `inputs` measured, then `outputs` put in force; both as tuples in the order of the bundle's tags.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from gateway.inference.bundle.described import Decoding
from gateway.inference.decoding.decode import OutputRange

Values = tuple[float, ...]
Draw = Literal[
    "disturbed", "plain", "beyond"
]  # beyond: a plant unlike all that training had, where there are more


class Plant(Protocol):
    """One seeded run of a plant."""

    in_force: Values

    def measure(self) -> Values:
        """What is read now, as registers hold it; once a cycle."""
        ...

    def advance(self, acted: Values) -> None:
        """One cycle with these outputs in force."""
        ...

    def errors(self) -> Values:
        """True absolute errors now, weighted; their sum is what a run is judged by."""
        ...


class Controller(Protocol):
    """Runs a plant, one object a run. `free`: the last choice followed from that cycle alone."""

    free: bool

    def decide(self, measured: Values, before: Values) -> Values:
        """Outputs for this cycle; `before` is what really was in force until now."""
        ...


class Spell(Protocol):
    """Whiles in which something else than the proposal is in force: held, repaired, a person, the backup."""

    def over(self, acted: Values, before: Values) -> Values:
        """What is really in force this cycle."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A tag: its bins as exact decimals, and the places its register has."""

    tag: str
    unit: str
    knots: str
    places: int
    decoding: Decoding = "expectation"
    told: bool = False  # somebody sets it: nothing predicts it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantKind:
    """A plant as recipes name it."""

    cycle_s: str
    inputs: tuple[Row, ...]
    outputs: tuple[Row, ...]
    ranges: tuple[OutputRange, ...]
    error_names: tuple[str, ...]
    start: Callable[[int, random.Random, Draw], Plant]
    spell: Callable[[random.Random], Spell]
    controllers: Mapping[str, Callable[[], Controller]]
    cycles: int  # of a run that is judged
    settling: int  # of these, not counted
    agreement: Values  # an answer this near to the expert's agrees with it, by output
    modules: tuple[str, ...]  # that decide what it does, from the package's root
    beyond: bool = False  # whether plants differ


class ContinuousSpell:
    """Outputs held, ramped to an end, or shaken; `ramps` are the most a cycle moves."""

    def __init__(self, dice: random.Random, spans: Values, ramps: Values, places: int) -> None:
        self._dice, self._spans, self._ramps, self._places = dice, spans, ramps, places
        self._kind, self._left, self._target = "", 0, spans

    def over(self, acted: Values, before: Values) -> Values:
        """See `Spell`."""
        dice = self._dice
        self._left -= 1
        if self._left <= 0 and dice.random() < 0.04:  # noqa: PLR2004 - one every 25 cycles or so
            self._kind, self._left = dice.choice(("held", "ramped", "shaken", "shaken")), dice.randint(2, 10)
            self._target = tuple(dice.choice((0.0, span, dice.uniform(0, span))) for span in self._spans)
        if self._left <= 0:
            return acted
        if self._kind == "held":
            return before
        if self._kind == "ramped":
            wanted: Values = tuple(
                min(max(target, old - ramp), old + ramp)
                for target, old, ramp in zip(self._target, before, self._ramps, strict=True)
            )
        else:
            wanted = tuple(
                value + dice.gauss(0, 0.05 * span) for value, span in zip(acted, self._spans, strict=True)
            )
        return tuple(
            round(min(max(value, 0.0), span), self._places)
            for value, span in zip(wanted, self._spans, strict=True)
        )

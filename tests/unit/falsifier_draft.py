"""A plant in the making: what was drawn of it so far, and bands that its own motion needs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from tests.unit.falsifier_plant import Output, Seen, Span
from tests.unit.falsifier_truth import TICK
from tests.unit.falsifier_words import (
    Form,
    Law,
)

PLACES = 10**6
SPARE = Fraction(6, 10)  # of the fastest move of all states at once


def number(value: float | str) -> Fraction:
    """A short decimal."""
    return Fraction(str(value))


def ticks(seconds: Fraction) -> Fraction:
    """The nearest whole number of ticks, at least one."""
    return max(1, round(seconds / TICK)) * TICK


@dataclass
class Draft:
    """A plant in the making."""

    dice: random.Random
    step: int
    seen: list[Seen] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    steps: dict[str, Form] = field(default_factory=dict)
    bands: dict[str, Span] = field(default_factory=dict)
    laws: list[Law] = field(default_factory=list)

    def some(self, *values: float | str) -> Fraction:
        return number(self.dice.choice(values))

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def close_bands(self) -> None:
        """Bands wide enough for what a step leaves out of states that move one another while it lasts."""
        spans: dict[str, Span] = {s.name: s.physical or s.range for s in self.seen}
        spans |= {o.name: o.range for o in self.outputs} | self.bands
        most = {name: max(map(abs, _ends(_change(name, f), spans))) for name, f in self.steps.items()}
        for name, form in self.steps.items():
            change = _change(name, form)
            left = sum((abs(f) * most[n] / 2 for n, f in change.terms.items() if n in most), Fraction(0))
            low, high = self.bands[f"w_{name}"]
            if left:
                left = Fraction(int(left * SPARE * PLACES) + 1, PLACES)
                self.bands[f"w_{name}"] = min(low, -left), max(high, left)


def _change(name: str, form: Form) -> Form:
    return Form({**form.terms, name: form.terms.get(name, Fraction(0)) - 1}, form.constant)


def _ends(form: Form, spans: Mapping[str, Span]) -> Span:
    low = high = form.constant
    for name, factor in form.terms.items():
        ends = sorted(factor * end for end in spans[name])
        low, high = low + ends[0], high + ends[1]
    return low, high

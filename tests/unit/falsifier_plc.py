"""The PLC's half of a loop: values in force, and a fallback by itself when nothing is heard or in local.

Its fallback is the module's backup in moves of a step each, at once or all through the step, on what its own
sensors show it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

from tests.unit.falsifier_judge import Judge
from tests.unit.falsifier_plant import Output
from tests.unit.falsifier_truth import PARTS, Truth
from tests.unit.falsifier_words import Values

AT_ONCE = 0.5  # of its moves
PACES = (Fraction(9, 10), Fraction(1))


class Plc:
    """Values in force, and the fallback: the module's backup in moves of a step each (S11)."""

    def __init__(self, truth: Truth, judge: Judge, dice: random.Random, polled: Callable[[], None]) -> None:
        """`polled`: working values are read back, now; no change of the fallback is missed between two."""
        self._truth, self._judge, self._dice, self.polled = truth, judge, dice, polled
        self._seen = {s.name: s for s in truth.plant.seen}
        self.falling, self.fell_at = False, Fraction(0)
        self.pace: Fraction | None = None  # of its ramps, of a full step's; None: now so, now so
        self._next_move = Fraction(0)
        self._moves: list[tuple[Fraction, dict[str, Fraction]]] = []

    def put(self, values: Values) -> None:
        """These act from now on, whoever wants it."""
        self._judge.look()
        for name, value in values.items():
            self._judge.changed(name, value)
            self._truth.acting[name] = value
        self._judge.look()

    def take(self, values: Values) -> None:
        """The gateway is in control."""
        self.falling = False
        self._moves.clear()
        self.put(values)

    def fall(self) -> None:
        """From now on it acts by itself."""
        if not self.falling:
            self.falling, self.fell_at = True, self._truth.now
            self._next_move = self._truth.now
            self._moves_due()

    def until(self, at: Fraction) -> None:
        """Time passes up to a moment."""
        while self._truth.now < at:
            ends = [at, *(m for m, _ in self._moves[:1]), *([self._next_move] if self.falling else [])]
            for _ in self._truth.advance(min(ends) - self._truth.now):
                self._judge.look()
            self._moves_due()

    def _moves_due(self) -> None:
        if self.falling and self._next_move <= self._truth.now:
            self._plan()
        while self._moves and self._moves[0][0] <= self._truth.now:
            self.polled()
            self.put(self._moves.pop(0)[1])

    def _plan(self) -> None:
        """What it does in the step that begins."""
        plant, now = self._truth.plant, self._truth.now
        self._next_move = now + plant.step
        after = self.policy()
        self._moves.clear()
        if self._dice.random() < AT_ONCE:
            self._moves.append((now, after))
            return
        before = dict(self._truth.acting)
        for part in range(1, PARTS):
            share = Fraction(part, PARTS - 1)
            mixed: dict[str, Fraction] = {}
            for output in plant.outputs:
                old, new = before[output.name], after[output.name]
                way = old + (new - old) * share
                mixed[output.name] = counted(output, way) if output.sort == "real" else new
            self._moves.append((now + Fraction(plant.step * (part - 1), PARTS), mixed))

    def policy(self) -> dict[str, Fraction]:
        """The backup's move of a step, on what the PLC's own sensors show."""
        plant, truth = self._truth.plant, self._truth
        after = dict(truth.acting)
        done: set[str] = set()
        for entry in plant.backup:
            shown = {**truth.shown(self._seen), **truth.acting}
            if entry.when is not None and not entry.when.holds(shown):
                continue
            for name, move in entry.moves.items():
                if name in done:
                    continue
                done.add(name)
                output = next(o for o in plant.outputs if o.name == name)
                if move.target is not None and move.rate is None:
                    after[name] = move.target
                elif move.target is not None and move.rate is not None:
                    pace = self.pace or self._dice.choice(PACES)
                    most = move.rate * plant.step * pace
                    way = max(-most, min(most, move.target - after[name]))
                    after[name] = counted(output, after[name] + way)
        return after


def counted(output: Output, value: Fraction) -> Fraction:
    return round(value / output.scale) * output.scale

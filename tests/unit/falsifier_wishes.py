"""What an adverse model proposes: the extreme, what heads for a limit, anything, what was refused before."""

from __future__ import annotations

import random
from fractions import Fraction

from tests.unit.falsifier_plant import Output, Plant
from tests.unit.falsifier_plc import counted
from tests.unit.falsifier_truth import Player, Truth, nearest
from tests.unit.falsifier_words import Values


class Wishes:
    """Proposals for one plant. `mulled` is what was refused last."""

    def __init__(self, plant: Plant, truth: Truth, player: Player, dice: random.Random) -> None:
        self._plant, self._truth, self._player, self._dice = plant, truth, player, dice
        self.mulled: Values | None = None

    def wanted(self) -> dict[str, Fraction]:
        """What an adverse model proposes."""
        way = self._dice.random()
        values = self._truth.values()
        if way < 0.15 and self.mulled is not None:  # again what was refused
            return dict(self.mulled)
        target = nearest(self._plant.every_law, values) if way < 0.65 else None
        self._player.aim(target or self._player.target)
        found: dict[str, Fraction] = {}
        for output in self._plant.outputs:
            low, high = output.range
            pull = self._player.pull(output.name)
            if target is not None and pull:
                found[output.name] = high if pull > 0 else low
            elif way < 0.75:
                found[output.name] = self._dice.choice((low, high))
            elif way < 0.9:
                found[output.name] = self.anywhere(output)
            else:
                found[output.name] = self._near(output)
        return found

    def anywhere(self, output: Output) -> Fraction:
        if output.labels:
            return Fraction(self._dice.choice(list(output.labels.values())))
        low, high = output.range
        grid = output.scale if output.sort == "real" else Fraction(1)
        return low + grid * self._dice.randint(0, int((high - low) / grid))

    def _near(self, output: Output) -> Fraction:
        value = self._truth.acting[output.name]
        if output.sort != "real":
            return value
        low, high = output.range
        wide = (high - low) / 10 * Fraction(self._dice.randint(-8, 8), 8)
        return min(high, max(low, counted(output, value + wide)))

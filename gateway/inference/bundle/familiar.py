"""Is what is measured like what training saw? Two distances, as numbers in `bundle.json`.

`state` looks at measurements with the values in force, `motion` at what measurements did since the last
cycle, less what a linear prediction fitted to training says they would do. Both are lengths of whitened
vectors (Mahalanobis distances). It tells that a plant or a sensor is strange, never that it is sound.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.inference.bundle.files import Strict

Vector = NDArray[np.float64]


class Distance(Strict, frozen=True):
    """`|whitening (x - center)|` and the largest that counts as familiar."""

    center: tuple[float, ...]
    whitening: tuple[tuple[float, ...], ...]
    limit: float

    def of(self, vector: Vector) -> float:
        """The distance of one vector, or the largest of rows of vectors."""
        off = (vector - np.array(self.center)) @ np.array(self.whitening).T
        return float(np.sqrt((off * off).sum(axis=-1)).max())


class Familiarity(Strict, frozen=True):
    """`prediction` has a row for each of the inputs at `predicted`: of 1, inputs, in force."""

    state: Distance
    predicted: tuple[int, ...]
    prediction: tuple[tuple[float, ...], ...]
    motion: Distance
    figures: dict[str, float] = msgspec.field(default_factory=dict)  # of held-out runs: alarms, jumps found

    def knows(
        self, inputs: Sequence[float], in_force: Sequence[float], before: Sequence[float] | None
    ) -> bool:
        """`before` are the inputs one cycle ago; without them only `state` is looked at."""
        if not self.state.of(np.array([*inputs, *in_force])) <= self.state.limit:
            return False
        if before is None:
            return True
        return self.motion.of(self.residual(inputs, in_force, before)) <= self.motion.limit

    def residual(self, inputs: Sequence[float], in_force: Sequence[float], before: Sequence[float]) -> Vector:
        """What the predicted inputs did beside the prediction."""
        expected = np.array(self.prediction) @ np.array([1.0, *before, *in_force])
        found: Vector = np.array([inputs[at] for at in self.predicted]) - expected
        return found

    def fits(self, inputs: int, outputs: int) -> bool:
        """Whether all rows have the lengths that so many inputs and outputs ask for; limits are above 0."""
        many = len(self.predicted)
        return (
            self.state.limit > 0
            and self.motion.limit > 0
            and len(self.state.center) == len(self.state.whitening) == inputs + outputs
            and len(self.motion.whitening) == many
            and all(len(row) == inputs + outputs for row in self.state.whitening)
            and len(self.prediction) == len(self.motion.center) == many
            and all(len(row) == 1 + inputs + outputs for row in self.prediction)
            and all(len(row) == many for row in self.motion.whitening)
            and all(0 <= at < inputs for at in self.predicted)
        )

"""What a stateless model's tensors mean: one register value for each output, inside its range. Pure.

What may be answered can be narrower than the range. An answer that may be given stays; else a classifier
gives what it comes to over the classes that may, and a number becomes the nearest that may.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.core.spans import Spans, holds
from gateway.inference.bundle.stateless import StatelessOutput, class_values
from gateway.inference.decoding.decode import (
    LEAST_LISTED,
    NOTHING_PROPOSED,
    DecodedOutput,
    Option,
    OutputRange,
)


class OutputReader:
    """Reads one output of one request. Raises `InferenceError` for what is no answer."""

    def __init__(self, spec: StatelessOutput, limits: OutputRange) -> None:
        if limits.low > limits.high or limits.scale == 0:
            message = f"tag `{spec.tag}`: no register value lies inside its range: correct its scale or range"
            raise InferenceError(message)
        self._spec, self.limits = spec, limits
        self._scaling = spec.scaling
        self._values = np.array([float(Fraction(value)) for value in class_values(spec)], dtype=np.float64)
        self._counts = [limits.nearest(value) for value in self._values]
        ends = sorted((float(limits.value(limits.low)), float(limits.value(limits.high))))
        room = abs(float(limits.scale)) / 2
        self._ends = ends[0] - room, ends[1] + room
        self._allowed = (self._values >= self._ends[0]) & (self._values <= self._ends[1])
        if spec.values and not self._allowed.any():
            message = f"tag `{spec.tag}`: no class of the model lies inside its range: correct `values`"
            raise InferenceError(message)

    @property
    def with_probabilities(self) -> bool:
        """Whether the model says how sure it is."""
        return bool(self._spec.values)

    def read(self, row: NDArray[Any], permitted: Spans | None = None) -> DecodedOutput:
        """The answer in one request's part of the output's tensor.

        `permitted` is not empty and within the range: no other count is answered.
        """
        try:
            found = np.asarray(row[self._spec.index])
        except IndexError as exc:
            self._refuse(f"has shape {list(row.shape)} for a row, `index` is {list(self._spec.index)}", exc)
        if self._spec.values:
            return self._of_classes(found, permitted)
        if found.shape != ():
            self._refuse(f"holds {list(found.shape)} values where one is wanted: let `index` lead to it")
        return self._decoded(self._label(found) if self._spec.labels else self._number(found), permitted)

    def options(self, row: NDArray[Any], permitted: Spans | None, most: int) -> list[Option]:
        """What `read` answers, then the other classes that may be answered, the likeliest first.

        A model that answers with a number or a label names no other. With less than `LEAST_LISTED` a class is
        none.
        """
        answer = self.read(row, permitted)
        if not self._spec.values:
            return [Option(answer, 1.0)]
        share, _ = self._shares(np.asarray(row[self._spec.index]))
        found = [Option(answer, answer.concentration)]
        may = np.where(self._allowed & self._held(permitted), share, 0.0)
        for at in np.argsort(-may, kind="stable"):
            if len(found) == most or may[at] < LEAST_LISTED:
                break
            sure = float(may[at])
            output = self._nearest(self._values[at], permitted, masked_out=answer.masked_out, sure=sure)
            if all(output.raw != other.output.raw for other in found):
                found.append(Option(output, sure))
        return found

    def _of_classes(self, found: NDArray[Any], permitted: Spans | None) -> DecodedOutput:
        share, inside = self._shares(found)
        wanted = self._chosen(share, self._allowed)
        may = self._allowed & self._held(permitted)
        kept = float(share[may].sum())
        if not may[wanted] and kept > 0.0:
            wanted = self._chosen(np.where(may, share, 0.0) / kept, may)
        return self._nearest(
            self._values[wanted],
            permitted,
            masked_out=max(0.0, 1.0 - kept * inside),
            sure=float(share[wanted]),
        )

    def _shares(self, found: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
        """Probability by class of those inside the range, and how much of all that is."""
        if found.shape != self._values.shape:
            self._refuse(f"holds {list(found.shape)} classes, `values` names {len(self._values)}")
        weights = found.astype(np.float64)
        self._require_numbers(weights)
        if self._spec.logits:
            weights = np.exp(weights - weights.max())
        elif weights.min() < 0:
            self._refuse("holds a probability below 0: set `logits`, if these are logits")
        allowed = np.where(self._allowed, weights, 0.0)
        mass, whole = float(allowed.sum()), float(weights.sum())
        if not np.isfinite(whole) or mass <= 0.0:
            self._refuse(f"holds no usable probabilities: {NOTHING_PROPOSED}")
        return allowed / mass, mass / whole

    def _chosen(self, share: NDArray[np.float64], may: NDArray[np.bool_]) -> int:
        """The class that a distribution comes to, of those that may be answered."""
        if self._spec.decoding == "expectation":
            away = np.abs(self._values - float(share @ self._values))
            return int(np.where(may, away, np.inf).argmin())
        return int(np.where(may, share, -1.0).argmax())

    def _held(self, permitted: Spans | None) -> NDArray[np.bool_]:
        """By class, whether it may be answered."""
        if permitted is None:
            return np.ones(len(self._counts), dtype=np.bool_)
        return np.array([holds(permitted, count) for count in self._counts], dtype=np.bool_)

    def _label(self, found: NDArray[Any]) -> float:
        label = str(found.item())
        if label not in self._spec.labels:
            self._refuse(f"answers with the label `{label}`, which `labels` does not name")
        return float(Fraction(self._spec.labels[label]))

    def _number(self, found: NDArray[Any]) -> float:
        if found.dtype.kind not in "fiub":
            self._refuse(f"holds {found.dtype} where a number is wanted: name `labels`")
        wanted = float(found)
        self._require_numbers(np.float64(wanted))
        if self._scaling is not None:
            wanted = wanted * float(Fraction(self._scaling.deviation)) + float(Fraction(self._scaling.mean))
        return wanted

    def _decoded(self, wanted: float, permitted: Spans | None) -> DecodedOutput:
        """A value that may not be answered counts as masked out altogether."""
        raw = self.limits.nearest(wanted)
        inside = self._ends[0] <= wanted <= self._ends[1] and (permitted is None or holds(permitted, raw))
        if not inside and self._spec.labels:
            may = np.flatnonzero(self._allowed & self._held(permitted))
            if len(may):
                wanted = float(self._values[may[np.abs(self._values[may] - wanted).argmin()]])
        return self._nearest(wanted, permitted, masked_out=0.0 if inside else 1.0, sure=1.0)

    def _nearest(
        self, wanted: float, permitted: Spans | None, *, masked_out: float, sure: float
    ) -> DecodedOutput:
        raw = self.limits.nearest(wanted) if permitted is None else self.limits.nearest_of(permitted, wanted)
        return DecodedOutput(raw, self.limits.value(raw), masked_out, sure)

    def _require_numbers(self, found: NDArray[np.float64] | np.float64) -> None:
        if not np.all(np.isfinite(found)):
            self._refuse(f"holds {found}, which is no number: {NOTHING_PROPOSED}")

    def _refuse(self, problem: str, cause: Exception | None = None) -> NoReturn:
        message = f"the model's tensor `{self._spec.tensor}` for `{self._spec.tag}` {problem}"
        raise InferenceError(message) from cause

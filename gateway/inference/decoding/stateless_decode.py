"""What a stateless model's tensors mean: one register value for each output, inside its range. Pure."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.stateless import StatelessOutput
from gateway.inference.decoding.decode import DecodedOutput, OutputRange


class OutputReader:
    """Reads one output of one request. Raises `InferenceError` for what is no answer."""

    def __init__(self, spec: StatelessOutput, limits: OutputRange) -> None:
        if limits.low > limits.high or limits.scale == 0:
            message = f"tag `{spec.tag}`: no register value lies inside its range"
            raise InferenceError(message)
        self._spec, self._limits = spec, limits
        self._scaling = spec.scaling
        values = [float(Fraction(value)) for value in spec.values]
        self._values = np.array(values, dtype=np.float64)
        ends = sorted((float(limits.value(limits.low)), float(limits.value(limits.high))))
        room = abs(float(limits.scale)) / 2
        self._allowed = (self._values >= ends[0] - room) & (self._values <= ends[1] + room)
        self._ends = ends[0] - room, ends[1] + room
        if spec.values and not self._allowed.any():
            message = f"tag `{spec.tag}`: no class of the model lies inside its range: correct `values`"
            raise InferenceError(message)

    @property
    def with_probabilities(self) -> bool:
        """Whether the model says how sure it is."""
        return bool(self._spec.values)

    def read(self, row: NDArray[Any]) -> DecodedOutput:
        """The answer in one request's part of the output's tensor."""
        try:
            found = np.asarray(row[self._spec.index])
        except IndexError as exc:
            self._refuse(f"has shape {list(row.shape)} for a row, `index` is {list(self._spec.index)}", exc)
        if self._spec.values:
            return self._of_classes(found)
        if found.shape != ():
            self._refuse(f"holds {list(found.shape)} values where one is wanted: let `index` lead to it")
        return self._of_label(found) if self._spec.labels else self._of_number(found)

    def _of_classes(self, found: NDArray[Any]) -> DecodedOutput:
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
            self._refuse("holds no usable probabilities")
        share = allowed / mass
        best = int(share.argmax())
        if self._spec.decoding == "expectation":
            wanted = float(share @ self._values)
            best = int(np.abs(self._values - wanted).argmin())
        else:
            wanted = float(self._values[best])
        return self._decoded(wanted, masked_out=max(0.0, 1.0 - mass / whole), sure=float(share[best]))

    def _of_label(self, found: NDArray[Any]) -> DecodedOutput:
        label = str(found.item())
        if label not in self._spec.labels:
            self._refuse(f"answers with the label `{label}`, which `labels` does not name")
        return self._decoded(float(Fraction(self._spec.labels[label])), masked_out=0.0, sure=1.0)

    def _of_number(self, found: NDArray[Any]) -> DecodedOutput:
        if found.dtype.kind not in "fiub":
            self._refuse(f"holds {found.dtype} where a number is wanted: name `labels`")
        wanted = float(found)
        self._require_numbers(np.float64(wanted))
        if self._scaling is not None:
            wanted = wanted * float(Fraction(self._scaling.deviation)) + float(Fraction(self._scaling.mean))
        return self._decoded(wanted, masked_out=0.0, sure=1.0)

    def _decoded(self, wanted: float, *, masked_out: float, sure: float) -> DecodedOutput:
        """A number outside the range counts as masked out altogether."""
        if not self._ends[0] <= wanted <= self._ends[1]:
            masked_out = 1.0
        raw = self._limits.nearest(wanted)
        return DecodedOutput(raw, self._limits.value(raw), masked_out, sure)

    def _require_numbers(self, found: NDArray[np.float64] | np.float64) -> None:
        if not np.all(np.isfinite(found)):
            self._refuse(f"holds {found}, which is no number: nothing is proposed")

    def _refuse(self, problem: str, cause: Exception | None = None) -> NoReturn:
        message = f"the model's tensor `{self._spec.tensor}` for `{self._spec.tag}` {problem}"
        raise InferenceError(message) from cause

"""A request to a model without a memory, on its way through one forward."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gateway.inference.decoding.guided import Awaited
from gateway.inference.messages import Propose
from gateway.inference.serving.scheduler import Waiting
from gateway.inference.serving.stateless_model import Rows


@dataclass(slots=True)
class StatelessJob:
    """One request and the rows it is asked with."""

    number: int
    request: Propose
    rows: Rows
    clamped: int  # measurements of this cycle outside what training saw
    familiar: bool  # no value of any row was
    began: float
    acting: tuple[Fraction, ...]  # in force, by output
    awaited: Awaited | None  # guidance
    parts: list[NDArray[np.generic]] = field(default_factory=list)  # by output, once the forward has run
    passed_over: int = 0
    arrived: float = 0.0  # monotonic seconds
    left_s: float = 0.0  # its forward takes, about

    @property
    def due(self) -> float:
        """Monotonic seconds; infinite where it does not matter when."""
        return self.request.due if self.request.due is not None else math.inf

    @property
    def waiting(self) -> Waiting:
        """How it stands in the next plan."""
        return Waiting(
            self.number,
            self.request.urgency,
            self.due,
            1,
            prefill=False,
            passed_over=self.passed_over,
            fresh=True,
            arrived=self.arrived,
            latest=self.due - self.left_s,
        )

    @property
    def waits(self) -> bool:
        """Whether its guidance may still come in time."""
        return self.awaited is not None and self.awaited.open and time.monotonic() < self.awaited.until

"""Requests at any rate become a history of equal cycles. Pure: time is an argument."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from gateway.inference.messages import Cycle

_EARLY = 0.25  # of a cycle: a trigger this much early or late still belongs to its own cycle
_LONGEST_GAP = 5  # cycles; a longer one forgets the history, a shorter one is filled with what was last known


@dataclass(frozen=True, slots=True)
class Step:
    """One request's place: the cycle it stands in, and whether earlier cycles must be sent again.

    Cycles that a short gap filled are numbered, too: whoever holds the one before lacks those only.
    """

    cycle: int
    inputs: tuple[str, ...]
    in_force: tuple[str, ...]
    rewritten: bool
    history: tuple[Cycle, ...]  # finished cycles before this one, oldest first


class Cadence:
    """The history of one decision point.

    The first request of a cycle closes the one before with the values in force; a further request within the
    same cycle replaces its measurements, so twenty requests a second leave the same history as one.
    """

    def __init__(self, cycle_s: float, keep: int) -> None:
        self._cycle_s = cycle_s
        self._finished: deque[Cycle] = deque(maxlen=keep)
        self._open: tuple[str, ...] | None = None
        self._started = 0.0
        self._cycle = 0

    @property
    def history(self) -> tuple[Cycle, ...]:
        """Finished cycles, oldest first."""
        return tuple(self._finished)

    @property
    def under_way(self) -> Step | None:
        """The newest request's place, with all the history; None before the first."""
        if self._open is None:
            return None
        return Step(self._cycle, self._open, (), rewritten=True, history=self.history)

    def copy(self) -> Cadence:
        """The same history, to place a request in that must leave no trace."""
        other = Cadence(self._cycle_s, 0)
        other._finished = self._finished.copy()
        other._open, other._started, other._cycle = self._open, self._started, self._cycle
        return other

    def place(self, now: float, inputs: tuple[str, ...], in_force: tuple[str, ...]) -> Step:
        """Take a request at `now` (monotonic seconds) into the history."""
        if self._open is None:
            self._open, self._started = inputs, now
            self._finished.append(Cycle((), in_force))
            return Step(self._cycle, inputs, in_force, rewritten=True, history=self.history)
        passed = math.floor((now - self._started) / self._cycle_s + _EARLY)
        if passed <= 0:
            self._open = inputs
            return Step(self._cycle, inputs, in_force, rewritten=False, history=self.history)
        forgotten = passed > _LONGEST_GAP
        if forgotten:
            self._finished.clear()
            self._finished.append(Cycle((), in_force))
            self._cycle += 1
        else:
            self._finished.extend([Cycle(self._open, in_force)] * passed)
            self._cycle += passed
        self._open = inputs
        self._started = self._next_start(now, passed)
        return Step(self._cycle, inputs, in_force, rewritten=forgotten, history=self.history)

    def _next_start(self, now: float, passed: int) -> float:
        due = self._started + passed * self._cycle_s
        early = _EARLY * self._cycle_s
        return min(max(due, now - early), now + early)

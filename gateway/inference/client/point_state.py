"""One decision point as its engine knows it: the history, what that rests on, and who holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from gateway.core.tag import TagId
from gateway.core.tagstore import Snapshot
from gateway.inference.bundle.any_bundle import AnyBundle
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.client.cadence import Cadence, Step
from gateway.inference.client.past import Past
from gateway.inference.messages import Cycle, Propose


class Held(NamedTuple):
    """Which worker holds a history, by its number, and up to which cycle."""

    worker: int
    cycle: int


class PointState:
    """One decision point's history and whether the worker holds it; one request of it is under way."""

    def __init__(self, bundle: AnyBundle) -> None:
        self.cadence = Cadence(bundle.cycle_s, bundle.history_cycles)
        self.past = Past()
        self.held: Held | None = None  # by the newest answer
        # beyond so many, a history is computed again rather than gone on with; a row of numbers is always
        self._most_missed = bundle.history_cycles // 2 if isinstance(bundle, Bundle) else 1
        self._rewritten = 0  # the cycle before which nothing counts that a worker held earlier
        self.ready_cycle: int | None = None  # of what a new worker made ready
        self.urgency = 1
        self.turn = asyncio.Lock()
        self.in_turn = 0  # requests that wait for it or have it

    def place(
        self,
        at: float,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        texts: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> Step:
        """Take a request at `at` (monotonic s) into the history; `texts` are inputs and values in force."""
        step = self.cadence.place(at, *texts)
        self.past.took(step.cycle, at, snapshot, previous)
        if step.rewritten:
            self.held, self._rewritten = None, step.cycle
        return step

    def beside(self, bundle: AnyBundle, step: Step) -> PointState:
        """A state of its own for a step that leaves no trace, with what the worker holds."""
        other = PointState(bundle)
        other.held, other._rewritten = None if step.rewritten else self.held, self._rewritten
        return other

    @property
    def held_by(self) -> int | None:
        """The number of the worker that holds all, or all but what came after its newest answer."""
        return self.held.worker if self.held is not None else None

    def missed(self, worker: int, step: Step) -> tuple[Cycle, ...] | None:
        """Of the finished cycles before a step those that a worker lacks; None where it lacks too many.

        Requests that were refused or came to nothing leave cycles that the worker never saw.
        """
        if self.held is None or self.held.worker != worker or self.held.cycle < self._rewritten:
            return None
        behind = step.cycle - self.held.cycle
        if behind <= 1:  # the request itself closes the cycle before
            return ()
        return step.history[-behind:] if behind <= self._most_missed else None


def request_of(point: str, step: Step, urgency: int, *, aside: bool, most: int = 1) -> Propose:
    """A step as the worker is asked for it."""
    return Propose(
        session=point,
        cycle=step.cycle,
        inputs=step.inputs,
        in_force=step.in_force,
        aside=aside,
        urgency=urgency,
        most=most,
    )

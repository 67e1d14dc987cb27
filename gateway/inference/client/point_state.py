"""One decision point as its engine knows it: the history, what that rests on, and who holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.core.tagstore import Snapshot
from gateway.inference.bundle.any_bundle import AnyBundle
from gateway.inference.client.cadence import Cadence, Step
from gateway.inference.client.past import Past
from gateway.inference.messages import Answer, Propose, decode_reply


class PointState:
    """One decision point's history and whether the worker holds it; one request of it is under way."""

    def __init__(self, bundle: AnyBundle) -> None:
        self.cadence = Cadence(bundle.cycle_s, bundle.history_cycles)
        self.past = Past()
        self.held_by: int | None = None  # number of the worker that answered last
        self.ready_cycle: int | None = None  # of what a new worker made ready
        self.urgency = 1
        self.turn = asyncio.Lock()

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
            self.held_by = None
        return step

    def note(self, asked: asyncio.Future[bytes], number: int) -> None:
        """A worker that answered holds what it answered on, whether or not anybody waited for that."""
        if asked.exception() is None and isinstance(decode_reply(asked.result()), Answer):
            self.held_by = number


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

"""A request that has begun: what it waits for, and what it would run next."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from gateway.inference.decoding.guided import Awaited
from gateway.inference.messages import Propose
from gateway.inference.serving.scheduler import Waiting
from gateway.inference.serving.sessions import Session
from gateway.inference.serving.work import Hold, Logits, Rows, Want, Work

ABANDONED = 3  # the class of work nobody waits for any more; what it leaves in the cache still counts


@dataclass(slots=True)
class UnderWay:
    """One request and the work on it."""

    number: int
    request: Propose
    name: str  # of the session it writes to
    session: Session
    urgency: int
    work: Work
    awaited: Awaited | None  # guidance
    want: Want | Rows | Hold | None = None  # None before it has begun
    logits: Logits | None = None  # sent last; while it holds
    passed_over: int = 0
    left_s: float = 0.0  # estimated, for admission
    decode_s: float = 0.0  # of that, what comes behind its history
    arrived: float = 0.0  # monotonic seconds

    @property
    def due(self) -> float:
        """Monotonic seconds; infinite where it does not matter when."""
        return self.request.due if self.request.due is not None else math.inf

    @property
    def rank(self) -> tuple[int, float]:
        """Class, then deadline; the first is the most urgent."""
        return self.urgency, self.due

    @property
    def turn(self) -> tuple[int, bool, float]:
        """In which order requests come to their next forward: class, then decoding before history."""
        return self.urgency, isinstance(self.want, Want) and self.want.prefill, self.due

    def ran(self, chunk_s: float, step_s: float) -> None:
        """A forward of it has run: a chunk of its history, or a step of decoding."""
        if isinstance(self.want, Want) and self.want.prefill:
            self.left_s = max(self.decode_s, self.left_s - chunk_s)
        else:
            self.left_s = self.decode_s = max(0.0, self.decode_s - step_s)

    @property
    def rows(self) -> tuple[Want, ...]:
        """What it would append in the next forward; nothing while it holds."""
        match self.want:
            case Want():
                return (self.want,)
            case Rows(wants):
                return wants
            case _:
                return ()

    @property
    def waiting(self) -> Waiting:
        """How it stands in the next plan; it has rows to append."""
        first, *others = self.rows
        return Waiting(
            self.number,
            self.urgency,
            self.due,
            len(first.tokens),
            first.prefill,
            self.passed_over,
            rows=1 + len(others),
            fresh=self.logits is None,
            arrived=self.arrived,
            latest=self.due - self.left_s,
        )

    @property
    def holds(self) -> bool:
        """Whether it waits for guidance, or for its time to be over."""
        return isinstance(self.want, Hold)

    @property
    def over(self) -> bool:
        """Whether it holds no longer: its guidance is there, or will not come in time."""
        return self.awaited is None or not self.awaited.open or time.monotonic() >= self.awaited.until

    def abandon(self) -> None:
        """Nobody waits for it any more; it is ended all the same, last."""
        self.urgency = ABANDONED
        if self.awaited is not None:
            self.awaited.give_up()

"""What the pipeline needs of the world, said at its own side. No I/O here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from fractions import Fraction
from typing import Protocol

from gateway.core.clock import Deadline
from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    DecisionRecord,
    InForce,
    Proposal,
    ProvedBand,
    RegisterValue,
    StateInterval,
    StateSet,
    WriteOutcome,
)
from gateway.core.guidance import PackedGuidance, Refusals, Unguided
from gateway.core.tag import TagId, TagValue
from gateway.core.tagstore import Snapshot

__all__ = [
    "AuditLog",
    "CheckRequest",
    "Checker",
    "Gate",
    "Guide",
    "InForce",
    "Propose",
    "Proposer",
    "ProvedBand",
    "SetpointSink",
    "StateInterval",
    "StateSet",
]


class Checker(Protocol):
    """Judges proposals under rule sets it has been given."""

    def prepare(self, request: CheckRequest, order: tuple[TagId, ...] = ()) -> None:
        """A check on these premises will be asked for; what is proposed in `request` does not count.

        With an `order` of outputs, `guidance` for it as well.
        Never waits and promises nothing: a check says the same without it, only later.
        """
        ...

    async def check(self, request: CheckRequest, deadline: Deadline) -> tuple[CheckResult, StateSet | None]:
        """The result, and the state set to carry into the next check.

        Never raises for a lost worker or a passed deadline: those are `Undetermined`.
        """
        ...

    async def guidance(
        self, request: CheckRequest, order: tuple[TagId, ...], refused: Refusals, deadline: Deadline
    ) -> PackedGuidance | Unguided:
        """Which blocks of outputs, in that order of decoding, a check on these premises may permit.

        What is proposed in `request` does not count. Never raises, and no verdict depends on it.
        """
        ...


Guide = Callable[[tuple[TagId, ...]], Awaitable[PackedGuidance | Unguided]]  # by the order of decoding


class Propose(Protocol):
    """How a model is asked for one proposal.

    With a `guide` it decodes along its guidance where that comes in time, and says so in the proposal's
    `decoding`; without one it proposes what it would. Where `most` proposals are wanted, the first is what it
    would be alone, and those after it, as many as there are, are its `others`.
    """

    async def __call__(
        self,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        """Wanted setpoints; raises `InferenceError` or `WorkerLostError`."""
        ...


class Proposer(Protocol):
    """A model that proposes setpoints for one decision point."""

    @property
    def propose(self) -> Propose:
        """For the plant's own inputs."""
        ...

    @property
    def propose_aside(self) -> Propose:
        """The same for inputs that are not the plant's own (what-if, S20): nothing of them is remembered."""
        ...


Gate = Callable[[], str]  # called synchronously directly before the bytes; a reason closes it, "" opens it


class SetpointSink(Protocol):
    """Where permitted setpoints leave the gateway: one device's hand-over block (S18)."""

    async def write(
        self, values: tuple[RegisterValue, ...], gate: Gate, deadline: Deadline
    ) -> tuple[WriteOutcome, str]:
        """Write the whole block once, read the PLC's working values back; outcome and, if not confirmed, why.

        Nothing is ever repeated. A closed gate is `REFUSED`; a time-out after the bytes is `UNCONFIRMED`.
        """
        ...

    async def release(self, deadline: Deadline) -> None:
        """Clear control-valid so that the PLC owns the plant at once (S10)."""
        ...


class AuditLog(Protocol):
    """Records that must last."""

    def expect(self, request: CheckRequest, inputs: Mapping[TagId, TagValue]) -> None:
        """A record of this check, on these inputs, will follow: what can be worked out now need not be then.

        Never waits and promises nothing.
        """
        ...

    async def append(self, record: DecisionRecord) -> None:
        """Durable when this returns; raises `StorageError`, and then nothing may be written."""
        ...

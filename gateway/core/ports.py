"""What the pipeline needs of the world, said at its own side. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from gateway.core.clock import Deadline
from gateway.core.decision import (
    CheckResult,
    DecisionId,
    DecisionRecord,
    PointId,
    Proposal,
    RegisterValue,
    WriteOutcome,
)
from gateway.core.tag import TagId, TagValue
from gateway.core.tagstore import Snapshot


@dataclass(frozen=True, slots=True)
class StateInterval:
    """A closed interval that held one state variable's true value at one monotonic instant."""

    low: Fraction
    high: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSet:
    """What the last check knew of the plant's state (S2), by tag id, at `at` s monotonic."""

    at: float
    intervals: Mapping[str, StateInterval]


@dataclass(frozen=True, slots=True)
class InForce:
    """A value an output had, and how many seconds ago it last had it (0: it has it now)."""

    value: Fraction
    ceased_s_ago: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """Everything one check depends on; nothing else may influence it.

    `proposal` None asks for the backup policy's own action, computed and checked (S9, S10).
    `history` lists the values of each output, newest first; those with `ceased_s_ago` 0 may be in force now:
    one, or {before, after} while a write is unconfirmed (S18). Ramps are checked against all of them (S6).
    `held_s` is how long an output has had its present value, 0 when unknown (S23).
    `hold_s` is how long the proposal may act before the next decision can replace it; `effect_delay_s` how
    long after acquisition it may take until it acts (deadline + write delay + scan, S4).
    """

    decision: DecisionId
    point: PointId
    generation: int
    inputs: Mapping[TagId, TagValue]
    taken_at: float  # monotonic seconds of the snapshot
    history: Mapping[TagId, tuple[InForce, ...]]
    held_s: Mapping[TagId, float]
    proposal: Proposal | None
    carried: StateSet | None
    hold_s: float
    effect_delay_s: float
    may_repair: bool = True


class Checker(Protocol):
    """Judges proposals under rule sets it has been given."""

    async def check(self, request: CheckRequest, deadline: Deadline) -> tuple[CheckResult, StateSet | None]:
        """The result, and the state set to carry into the next check.

        Never raises for a lost worker or a passed deadline: those are `Undetermined`.
        """
        ...


class Proposer(Protocol):
    """A model that proposes setpoints."""

    async def propose(
        self, snapshot: Snapshot, previous: Mapping[TagId, Fraction], deadline: Deadline
    ) -> Proposal:
        """Wanted setpoints; raises `InferenceError` or `WorkerLostError`."""
        ...

    async def propose_aside(
        self, snapshot: Snapshot, previous: Mapping[TagId, Fraction], deadline: Deadline
    ) -> Proposal:
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

    async def append(self, record: DecisionRecord) -> None:
        """Durable when this returns; raises `StorageError`, and then nothing may be written."""
        ...

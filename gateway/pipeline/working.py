"""One decision in the making: what it was taken on, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.core.clock import Clock
from gateway.core.decision import (
    DecisionRecord,
    DecisionRequest,
    Examination,
    Proposal,
    RegisterValue,
    Shortlist,
)
from gateway.core.errors import InferenceError, RegisterRangeError
from gateway.core.guidance import Decoding, Refusals
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagValue
from gateway.core.tagstore import Snapshot
from gateway.pipeline.point import Point
from gateway.pipeline.rules import RulesInForce


@dataclass(slots=True)
class Working:
    """Snapshot, rule set and history of one decision: read once, used for check, repair, gate and record."""

    point: Point
    request: DecisionRequest
    rules: RulesInForce
    snapshot: Snapshot
    session: int
    previous: dict[TagId, tuple[Fraction, ...]]
    timings: dict[str, float]  # ms
    examined: bool  # False: its deadline passed while it waited, so it says nothing of the plant
    proposal: Proposal | None = None
    checks: list[Examination] = field(default_factory=list)  # in the order they were made
    decoding: Decoding | None = None  # of the proposal, where guidance was asked for
    refused: Refusals = ()  # blocks of this decision's model that its checks have refused
    shortlist: Shortlist | None = None  # what the proposal is one of

    @property
    def is_question(self) -> bool:
        """A what-if, or somebody's own wish: a no to it is an answer, and the plant stays as it is."""
        return self.request.what_if is not None or self.request.proposal is not None


@dataclass(frozen=True, slots=True)
class Decided:
    """A durable record and the working it came from: what may be carried out."""

    record: DecisionRecord
    work: Working


def with_what_if(snapshot: Snapshot, inputs: Mapping[TagId, Fraction], clock: Clock) -> Snapshot:
    """The snapshot with a requester's own inputs in it: good for an answer, never for a write (S20)."""
    values = dict(snapshot.values)
    for tag, value in inputs.items():
        values[tag] = TagValue(
            value=float(value),
            status=StatusCode.Good,
            source_ts_ns=None,
            server_ts_ns=clock.utc_ns(),
            confirmed_at=snapshot.taken_at,
        )
    return Snapshot(snapshot.taken_at, values)


def register_values(
    wanted: Mapping[TagId, Fraction], definitions: Mapping[TagId, TagDefinition], *, by: str
) -> Proposal:
    """A proposal in the register values that would really be written; raises `InferenceError`."""
    values: list[RegisterValue] = []
    for tag, value in wanted.items():
        try:
            raw = definitions[tag].counts(value)
        except RegisterRangeError as exc:
            raise InferenceError(str(exc)) from exc
        values.append(RegisterValue(tag, raw, definitions[tag].engineering(raw)))
    return Proposal(values=tuple(values), by=by)

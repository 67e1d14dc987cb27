"""Requests, modes, verdicts and everything one decision leaves behind."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, NewType

from gateway.core.clock import Deadline
from gateway.core.guidance import Decoding
from gateway.core.override import Override
from gateway.core.restraint import UNRESTRAINED, Restraint
from gateway.core.tag import TagId, TagValue

DecisionId = NewType("DecisionId", str)
PointId = NewType("PointId", str)
RepairWay = Literal["segment", "nearest"]


class Mode(enum.Enum):
    """What a decision point may do with its verdicts."""

    OFF = "off"
    SHADOW = "shadow"
    ADVISORY = "advisory"
    ARMED = "armed"


class RequestClass(enum.IntEnum):
    """Class of a request; the lower goes first."""

    P0 = 0
    P1 = 1
    P2 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequest:
    """One wish for a decision. `what_if` inputs come from the requester: answered, never written (S20)."""

    id: DecisionId
    point: PointId
    requested_by: str
    request_class: RequestClass
    deadline: Deadline
    received_at: float
    what_if: Mapping[TagId, Fraction] | None = None
    proposal: Mapping[TagId, Fraction] | None = None  # a person's or SCADA's wish instead of the model's


@dataclass(frozen=True, slots=True)
class RegisterValue:
    """One output as it would really be written."""

    tag: TagId
    raw: int
    value: Fraction  # engineering units, exactly raw * scale + offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Wanted setpoints in register values, by whom, on what."""

    values: tuple[RegisterValue, ...]
    by: str  # model id, `backup`, `value_in_force`, `request:<user>`
    model_digest: str = ""
    confidence: float | None = None
    decoding: Decoding | None = field(
        default=None, compare=False
    )  # of a model's, where guidance was asked for
    masked_out: Mapping[TagId, float] = field(default_factory=dict, compare=False)  # of a model's probability
    others: tuple[Proposal, ...] = field(default=(), compare=False)  # of the same model, the likeliest first

    def alone(self) -> Proposal:
        """Only what a check depends on."""
        return replace(self, decoding=None, masked_out={}, others=())

    def engineering(self) -> dict[TagId, Fraction]:
        """Tag to exact engineering value."""
        return {v.tag: v.value for v in self.values}


@dataclass(frozen=True, slots=True)
class Holds:
    """A constraint holds under the assumptions; `margin` is the distance to its limit in `unit`.

    The unit is empty where nobody can tell: of products, quotients and bare numbers.
    """

    module: str
    constraint: str
    margin: Fraction | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Violated:
    """A constraint can be violated: `witness` lies inside the assumptions and was re-evaluated exactly."""

    module: str
    constraint: str
    kind: str  # critical, standard; informational or monitor, which refuse nothing
    margin: Fraction | None  # negative: by how much the limit is missed; None: it has no distance
    witness: Mapping[str, Fraction]
    message: str = ""
    where: str = ""  # file:line of the constraint
    unit: str = ""  # of the margin


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody could decide. Not a pass."""

    module: str
    constraint: str
    reason: str


Finding = Holds | Violated | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """An assignment inside sensor error and disturbance bounds that violates a named constraint."""

    module: str
    constraint: str
    margin: Fraction | None  # negative, or None where a rule about switches alone has no distance
    assignment: Mapping[str, Fraction]
    text: str  # one sentence in plant terms
    unit: str = ""  # of the margin


@dataclass(frozen=True, slots=True)
class Permitted:
    """Every critical and standard constraint holds for `setpoints` under the stated assumptions.

    They are the proposal's own, or nearer to the values in force: then `kept_back` says why (S12).
    """

    setpoints: tuple[RegisterValue, ...]
    kept_back: str = ""


@dataclass(frozen=True, slots=True)
class Repaired:
    """The proposal was not permitted; these register values, the nearest found, are.

    `said` tells a repair that may leave the way to the values in force: asked, permitted, while, because.
    """

    setpoints: tuple[RegisterValue, ...]
    counterexample: Counterexample
    said: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """Examined and not permitted."""

    counterexample: Counterexample


@dataclass(frozen=True, slots=True)
class Undetermined:
    """Nobody knows; so nothing is written on it."""

    reason: str


Verdict = Permitted | Repaired | Refused | Undetermined


@dataclass(frozen=True, slots=True)
class Rejected:
    """Never examined."""

    reason: str


Outcome = Verdict | Rejected


def outcome_name(outcome: Outcome) -> str:
    """The outcome as records, nodes, topics and the CLI spell it."""
    return type(outcome).__name__.lower()


class WriteOutcome(enum.Enum):
    """What became of a write."""

    REFUSED = "refused"
    FAILED = "failed"
    CONFIRMED = "confirmed"
    MISMATCH = "mismatch"
    UNCONFIRMED = "unconfirmed"
    UNREQUESTED = "unrequested"


@dataclass(frozen=True, slots=True)
class StateInterval:
    """A closed interval that held one state variable's true value at one monotonic instant."""

    low: Fraction
    high: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSet:
    """What the last check knew of the plant's state (S2), by tag id, at `at` s monotonic.

    `since`: by row of checks (`MODULE/condition`), since which monotonic instant the condition has surely and
    has possibly held in every check; None: it does not. A row without an entry may have held for ever.
    `earlier`: what checks before, no more than about one step old, showed of variables asked for by `prev`.
    """

    at: float
    intervals: Mapping[str, StateInterval]
    since: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    earlier: tuple[StateSet, ...] = ()


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
    `repair` is where a repair is looked for: between the values in force and the proposal, or nearest to the
    proposal wherever it lies (S12).
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
    restraint: Restraint = UNRESTRAINED
    repair: RepairWay = "segment"


_ULPS = 1e-14  # more than the rounding of one line between two corners


@dataclass(frozen=True, slots=True)
class ProvedBand:
    """Where one input's readings may lie while a proof lasts (S17).

    Each corner is seconds after `CheckRequest.taken_at`, least and greatest reading, in rising time; between
    corners straight lines hold. Already widened by the reading's error: a reading outside contradicts what
    the proof assumed. Numbers are rounded outward.
    """

    corners: tuple[tuple[float, float, float], ...]

    def at(self, seconds: float) -> tuple[float, float] | None:
        """Least and greatest reading at that time after acquisition, None where the proof does not reach."""
        if not self.corners or not self.corners[0][0] <= seconds <= self.corners[-1][0]:
            return None
        before = self.corners[0]
        for corner in self.corners:
            if seconds <= corner[0]:
                break
            before = corner
        length = corner[0] - before[0]
        share = (seconds - before[0]) / length if length > 0 else 0.0
        low = before[1] + (corner[1] - before[1]) * share
        high = before[2] + (corner[2] - before[2]) * share
        return low - _ULPS * abs(low), high + _ULPS * abs(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What the checker says of one proposal under one rule set.

    `proved` follows from the request alone, so it is no part of what is recorded or compared.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
    generation: int
    rule_set_digest: str
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    proposal: Proposal | None = None  # the repaired proposal, where the verdict is `repaired`
    recovery: bool = False  # S9: only the backup may be written
    proved: Mapping[TagId, ProvedBand] = field(default_factory=dict, compare=False)
    shadow: tuple[Finding, ...] = field(default=(), compare=False)  # of modules without effect (S27)
    overrides: tuple[Override, ...] = ()  # in force under this rule set, by name (S25)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A proposal of a model's list that a check did not permit."""

    rank: int  # from 1
    values: tuple[RegisterValue, ...]
    confidence: float | None
    counterexample: Counterexample


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortlist:
    """A model's proposals of one decision, best first. Information: each was checked as if it were alone."""

    length: int
    rank: int  # of the proposal on record, from 1
    passed_over: tuple[PassedOver, ...] = ()  # others that were checked, in their order

    def said(self) -> str:
        """In words, for people."""
        refused = ", ".join(
            f"{each.rank} by `{each.counterexample.module}/{each.counterexample.constraint}`"
            for each in self.passed_over
        )
        return f"proposal {self.rank} of {self.length} of the model" + (
            f"; not permitted: {refused}" if refused else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """One check as it was asked and answered: enough to repeat it."""

    request: CheckRequest
    result: CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """Everything one decision was decided on and what came of it; durable before any write."""

    id: DecisionId
    point: PointId
    mode: Mode
    requested_by: str
    received_utc_ns: int
    outcome: Outcome
    proposal: Proposal | None
    written: tuple[RegisterValue, ...]  # what the gate would let out: verdict's or fallback's setpoints
    written_by: str  # `verdict`, a fallback's name, or empty
    findings: tuple[Finding, ...]
    inputs: Mapping[TagId, TagValue]
    generation: int
    rule_set_digest: str
    model_digest: str
    timings_ms: Mapping[str, float]
    write_outcome: WriteOutcome | None = None
    certificate_digest: str = ""
    what_if: bool = False  # inputs came from the requester: answered, never written (S20)
    examined: Examination | None = None  # the check of the proposal; None where nothing was examined
    fallback: Examination | None = None  # the check that what a fallback wrote stands on (S10)
    shadow: tuple[Finding, ...] = ()  # what modules in shadow say of what was let out, or proposed; no effect
    overrides: tuple[Override, ...] = ()  # in force under the rule set of the outcome, by name (S25)
    decoding: Decoding | None = None  # how the model's proposal was decoded; None: nobody guided it
    shortlist: Shortlist | None = None  # what the proposal was one of; None: of nothing

"""In-memory twins of the pipeline's ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import msgspec

from gateway.core.clock import Deadline, FakeClock
from gateway.core.decision import (
    CheckResult,
    Counterexample,
    DecisionRecord,
    Mode,
    Permitted,
    PointId,
    Proposal,
    Refused,
    RegisterValue,
    Repaired,
    RequestClass,
    WriteOutcome,
)
from gateway.core.errors import StorageError
from gateway.core.guidance import (
    Decoding,
    Guidance,
    GuidanceCase,
    GuidanceLevel,
    PackedGuidance,
    Refusals,
    Unguided,
)
from gateway.core.ports import CheckRequest, Gate, Guide, StateSet
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind, TagValue
from gateway.core.tagstore import Snapshot, TagStore
from gateway.pipeline.decide import Decider
from gateway.pipeline.lane import Lane
from gateway.pipeline.point import Point, PointSettings
from gateway.pipeline.rules import RulesHolder, RulesInForce
from gateway.pipeline.writer import SetpointWriter

LEVEL, PUMP, PUMP_PV, STATUS = TagId("LT"), TagId("P.SP"), TagId("P.PV"), TagId("STATUS")
DEFINITIONS = (
    TagDefinition(id=LEVEL, kind=TagKind.REAL, unit="m", scale=Fraction(1, 1000), raw_range=(-32768, 32767)),
    TagDefinition(
        id=PUMP, kind=TagKind.REAL, unit="%", scale=Fraction(1, 10), raw_range=(0, 1000), writable=True
    ),
    TagDefinition(id=PUMP_PV, kind=TagKind.REAL, unit="%", scale=Fraction(1, 10), raw_range=(0, 1000)),
    TagDefinition(id=STATUS, kind=TagKind.INTEGER, raw_range=(0, 65535)),
)


def pump(percent: Fraction | int) -> RegisterValue:
    return RegisterValue(PUMP, int(Fraction(percent) * 10), Fraction(percent))


def proposal(percent: int, by: str = "model") -> Proposal:
    return Proposal(values=(pump(percent),), by=by)


COUNTEREXAMPLE = Counterexample(
    module="tank", constraint="no-overflow", margin=Fraction(-1, 100), assignment={}, text="level too high"
)


@dataclass
class ScriptedProposer:
    """Proposes `percent`, or raises what it is given."""

    percent: int = 50
    others: tuple[int, ...] = ()  # further proposals, where more than one is wanted
    failure: Exception | None = None
    wanted: list[int] = field(default_factory=list)  # proposals, by request
    asked: int = 0
    asked_aside: int = 0
    on_propose: Callable[[Deadline], None] = lambda _deadline: None

    async def propose(
        self,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        del snapshot, previous
        self.wanted.append(most)
        self.asked += 1
        self.on_propose(deadline)
        if guide is not None:
            return self._listed(await self._guided(guide), most)
        await asyncio.sleep(0)  # a model never answers at once
        if self.failure is not None:
            raise self.failure
        return self._listed(proposal(self.percent), most)

    async def propose_aside(
        self,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        del snapshot, previous, deadline, guide, most
        self.asked_aside += 1
        return proposal(self.percent)

    async def _guided(self, guide: Guide) -> Proposal:
        """The greatest count that is left, at most `percent`; without guidance as ever."""
        told_so = await guide((PUMP,))
        if isinstance(told_so, Unguided):
            decoding = Decoding(guided=False, because=told_so.because)
            return replace(proposal(self.percent), decoding=decoding)
        told = msgspec.json.decode(told_so, type=Guidance)
        greatest = max(high for _, high in told.after(()))
        decoding = Decoding(guided=True, masked_out={PUMP: 0.25})
        found = proposal(min(self.percent, greatest // 10))
        return replace(found, decoding=decoding, masked_out=decoding.masked_out)

    def _listed(self, first: Proposal, most: int) -> Proposal:
        others = tuple(replace(proposal(percent), model_digest="sha256:model") for percent in self.others)
        return replace(first, others=others[: most - 1])


@dataclass
class LimitChecker:
    """Permits pump values up to `limit`; the backup asks for `backup`. `on_check` may interfere.

    With `repaired` it repairs to that where it may.
    """

    rules: RulesHolder
    limit: int = 60
    backup: int = 10
    recovery: bool = False
    repaired: int | None = None
    requests: list[CheckRequest] = field(default_factory=list)
    on_check: Callable[[CheckRequest], None] = lambda _request: None
    prepared: list[CheckRequest] = field(default_factory=list)
    guidance_of: Callable[[Refusals], int | str] = lambda _refused: "none here"  # greatest %, or why none
    told_refused: list[Refusals] = field(default_factory=list)

    def prepare(self, request: CheckRequest, order: tuple[TagId, ...] = ()) -> None:
        del order
        self.prepared.append(request)

    async def guidance(
        self, request: CheckRequest, order: tuple[TagId, ...], refused: Refusals, deadline: Deadline
    ) -> PackedGuidance | Unguided:
        del request, deadline
        self.told_refused.append(refused)
        await asyncio.sleep(0)  # another process never answers at once
        greatest = self.guidance_of(refused)
        if isinstance(greatest, str):
            return Unguided(greatest)
        span = (0, 10 * greatest)
        levels = (GuidanceLevel((span,), (GuidanceCase((span,), ()),)),)
        return PackedGuidance(msgspec.json.encode(Guidance(order=order, levels=levels)))

    async def check(self, request: CheckRequest, deadline: Deadline) -> tuple[CheckResult, StateSet | None]:
        del deadline
        self.requests.append(request)
        await asyncio.sleep(0)  # another process never answers at once
        self.on_check(request)
        wanted = request.proposal or proposal(self.backup, "backup")
        ok = wanted.values[0].value <= self.limit
        verdict: Permitted | Repaired | Refused = Permitted(wanted.values)
        if not ok and request.may_repair and self.repaired is not None:
            verdict = Repaired((pump(self.repaired),), COUNTEREXAMPLE)
        elif not ok:
            verdict = Refused(COUNTEREXAMPLE)
        result = CheckResult(
            verdict=verdict,
            findings=(),
            generation=request.generation,
            rule_set_digest=f"digest-{request.generation}",
            proposal=wanted if request.proposal is None else None,
            recovery=self.recovery and request.proposal is None and not ok,
        )
        return result, StateSet(at=request.taken_at, intervals={})


@dataclass
class MemoryAudit:
    """Keeps records; `full` makes it refuse."""

    full: bool = False
    records: list[DecisionRecord] = field(default_factory=list)
    expected: list[tuple[CheckRequest, Mapping[TagId, TagValue]]] = field(default_factory=list)

    def expect(self, request: CheckRequest, inputs: Mapping[TagId, TagValue]) -> None:
        self.expected.append((request, inputs))

    async def append(self, record: DecisionRecord) -> None:
        if self.full:
            problem = "disk full"
            raise StorageError(problem)
        self.records.append(record)


@dataclass
class RecordingSink:
    """Accepts writes when the gate is open, and answers `outcome`."""

    outcome: WriteOutcome = WriteOutcome.CONFIRMED
    written: list[tuple[RegisterValue, ...]] = field(default_factory=list)
    gates: list[str] = field(default_factory=list)
    released: int = 0
    before_gate: Callable[[], None] = lambda: None

    async def write(
        self, values: tuple[RegisterValue, ...], gate: Gate, deadline: Deadline
    ) -> tuple[WriteOutcome, str]:
        del deadline
        self.before_gate()
        self.gates.append(gate())
        if self.gates[-1]:
            return WriteOutcome.REFUSED, self.gates[-1]
        self.written.append(values)
        return self.outcome, ""

    async def release(self, deadline: Deadline) -> None:
        del deadline
        self.released += 1


class House:
    """One decision point with everything around it in memory, armed, pump at 40 %, level 2 m."""

    def __init__(self, *, fallback: tuple[str, ...] = (), capacity: int = 64) -> None:
        self.clock = FakeClock()
        self.store = TagStore(DEFINITIONS, self.clock)
        self.rules = RulesHolder()
        self.rules.activate(RulesInForce(1, "digest-1", frozenset({"tank"}), ""))
        self.proposer, self.sink, self.audit = ScriptedProposer(), RecordingSink(), MemoryAudit()
        self.checker = LimitChecker(self.rules)
        self.session = 1
        self.stopped = False
        self.not_live = self.overdue = ""
        self.point = Point(
            PointSettings(
                id=PointId("tank"),
                inputs=(LEVEL,),
                outputs=(PUMP,),
                read_back={PUMP: PUMP_PV},
                status_tag=STATUS,
                remote_bit=0,
                in_control_bit=1,
                model="model",
                fallback=fallback,
                fallback_values={},
                required_modules=("tank",),
                period_s=None,
                on_request=True,
                deadline_s=0.1,
                request_class=RequestClass.P1,
                max_skew_s=0.2,
                hold_s=1.2,
                effect_delay_s=0.2,
                rearm_after_s=3.0,
                configured_mode=Mode.ARMED,
            ),
            self.proposer,
            self.sink,
            mode=Mode.ARMED,
            first_write_due=False,
        )
        self.point.histories[PUMP].observe(Fraction(40), self.clock.monotonic())
        self.sample(LEVEL, 2.0)
        self.sample(STATUS, 3)
        self.decider = Decider(
            clock=self.clock,
            store=self.store,
            checker=self.checker,
            audit=self.audit,
            rules=self.rules,
            link_session=lambda: self.session,
            certify=lambda _record: "certificate",
            overdue=lambda _rules: self.overdue,
        )
        self.writer = SetpointWriter(
            clock=self.clock,
            store=self.store,
            rules=self.rules,
            link_session=lambda: self.session,
            writes_stopped=lambda: self.stopped,
            not_live=lambda _point: self.not_live,
            overdue=lambda _rules: self.overdue,
        )
        self.reports: list[tuple[DecisionRecord, str]] = []
        self.unrecorded: list[str] = []
        self.lane = Lane(
            self.point,
            self.decider,
            self.writer,
            clock=self.clock,
            report=lambda _point, record, why: self.reports.append((record, why)),
            unrecorded=lambda _point, why: self.unrecorded.append(why),
            capacity=capacity,
        )

    def sample(self, tag: TagId, value: float, status: StatusCode = StatusCode.Good) -> None:
        """A new sample confirmed now."""
        now, utc = self.clock.monotonic(), self.clock.utc_ns()
        self.store.update(tag, _value(value, status, utc, now))


def _value(value: float, status: StatusCode, utc_ns: int, now: float) -> TagValue:
    return TagValue(value=value, status=status, source_ts_ns=None, server_ts_ns=utc_ns, confirmed_at=now)

"""The demo plant and the gateway's own decision path in one process and in simulated time.

The soft PLC scans, the real `Decider` proposes, checks and falls back, and its answer reaches the hand-over
block a little later, as it would. Without a checker the proposal is written as it is: only a harness can.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from gateway.config.load import load
from gateway.config.tags import tag_definitions
from gateway.core.clock import Deadline, FakeClock
from gateway.core.decision import (
    CheckResult,
    DecisionId,
    DecisionRecord,
    DecisionRequest,
    Mode,
    Permitted,
    Proposal,
    RegisterValue,
    RequestClass,
    outcome_name,
)
from gateway.core.errors import InferenceError
from gateway.core.guidance import PackedGuidance, Refusals, Unguided
from gateway.core.ports import CheckRequest, Guide, StateSet
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagValue
from gateway.core.tagstore import Snapshot, TagStore
from gateway.daemon.points import point_settings
from gateway.pipeline.decide import Decider
from gateway.pipeline.point import Point, PointSettings
from gateway.pipeline.rules import RulesHolder, RulesInForce
from gateway.pipeline.working import register_values
from gateway.plantsim.judge import judge
from gateway.plantsim.objective import Moment
from gateway.plantsim.plc import Block, Scan, SoftPlc, block_checksum
from gateway.plantsim.scan_log import LoggedScan
from gateway.plantsim.tank import Measurement, Outputs, TankState
from tests.bench.guided_model import Guides, Model
from tests.bench.no_way_out import KeptRecords, NoSink
from tests.bench.vertices import Known, unsafe_because

DEMO = Path(__file__).parents[2] / "packaging" / "demo" / "gateway.toml"
POINT = "buffer-tank"
LEVEL, INFLOW, TEMPERATURE = TagId("TK1.LT101"), TagId("TK1.FT101"), TagId("TK1.TT101")
PUMP, HEATER, MIXER = TagId("TK1.P101.SP"), TagId("TK1.H101.CMD"), TagId("TK1.M101.STAGE")
SCAN_S = 0.02
SCANS = 50  # per decision
_OLDEST_SAMPLE = 5  # scans: one poll of 100 ms
_SLOWEST_WRITE = 8  # scans: inside the effect delay of 170 ms
_READ = {LEVEL: 7, INFLOW: 8, TEMPERATURE: 9}
_READ_BACK = {PUMP: 4, HEATER: 5, MIXER: 6}
_ERROR = {LEVEL: 0.0105, INFLOW: 0.305, TEMPERATURE: 0.105}  # stated error and half a count


class Policy(Protocol):
    """Something that wants outputs once a second."""

    def act(self, measurement: Measurement, before: Outputs) -> Outputs:
        """The outputs wanted, on what is measured and in force."""
        ...


class Check(Protocol):
    """The solver's `Checks.check`, or a stand-in for it."""

    def check(self, request: CheckRequest) -> tuple[CheckResult, StateSet | None]:
        """The result and the state to carry."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """One decision: what was wanted, what became of it, and whether vertex sampling calls it safe."""

    wanted: Outputs
    outcome: str
    unchanged: bool  # permitted, and exactly what was wanted
    written_by: str  # `verdict`, a fallback's name, `recovery`, or nothing
    unsafe: str  # the constraint that vertex sampling sees broken, empty for none
    refused_for: str  # the first constraint the check names, or why a permitted value was changed


@dataclass(slots=True, kw_only=True)
class Run:
    """Everything one run leaves behind. Without a check `cycles` is empty."""

    moments: list[Moment] = field(default_factory=list)
    cycles: list[Cycle] = field(default_factory=list)
    violated: Counter[str] = field(default_factory=Counter)  # seconds with a violation, by constraint
    violated_steps: int = 0


async def simulate(
    policy: Policy,
    *,
    seed: int,
    steps: int,
    check: Check | None,
    start: TankState | None = None,
    records: list[DecisionRecord] | None = None,
    model: Model | None = None,
) -> Run:
    """`steps` decisions, one a second, of `policy` on the plant of `seed`; `records` takes the records.

    `model` proposes instead of `policy`, guided or not.
    """
    house = _House(policy, seed=seed, check=check, start=start, records=records, model=model)
    run = Run()
    for _ in range(steps):
        await house.cycle(run)
    broken: set[int] = set()
    pairs: set[tuple[str, int]] = set()
    for violation in judge(house.log):
        second = (violation.scan.scan - 1) // SCANS
        broken.add(second)
        pairs.add((violation.constraint, second))
    run.violated_steps = len(broken)
    run.violated = Counter(name for name, _ in pairs)
    return run


class _House:
    """Plant, store, decision point and the wire between them."""

    def __init__(
        self,
        policy: Policy,
        *,
        seed: int,
        check: Check | None,
        start: TankState | None,
        records: list[DecisionRecord] | None,
        model: Model | None,
    ) -> None:
        self._settings, definitions = demo()
        if model is not None:
            self._settings = replace(self._settings, guided=model.guided, n_best=model.n_best)
        self._definitions = definitions
        self._dice = random.Random(seed + 17)  # noqa: S311  # reproducible delays, not a secret
        self._clock = FakeClock()
        self._plc = SoftPlc(seed=seed, start=start, working=Outputs(pump_pct=30.0, mixer=1), scan_s=SCAN_S)
        self._ring: deque[tuple[float, list[int]]] = deque(maxlen=_OLDEST_SAMPLE)
        self._sequence = 0
        self.log: list[LoggedScan] = []
        self._policy = policy
        self._store = TagStore(definitions.values(), self._clock)
        proposer = _Proposer(policy, definitions) if model is None else model.proposer
        self._point = Point(self._settings, proposer, NoSink(), mode=Mode.ARMED, first_write_due=False)
        self._checker = None if check is None else _Checker(check, model.guides if model else None)
        if self._checker is not None:
            rules = RulesHolder()
            rules.activate(RulesInForce(1, "", frozenset(self._settings.required_modules), ""))
            self._decider = Decider(
                clock=self._clock,
                store=self._store,
                checker=self._checker,
                audit=KeptRecords(records),
                rules=rules,
                link_session=lambda: 1,
                certify=lambda _: "",
            )
        self._hand_over(register_values(_fractions(self._plc.working), definitions, by="start").values)
        self._scan()

    async def cycle(self, run: Run) -> None:
        """Sample, decide, write after a while, scan on to the next second."""
        sampled_at, inputs = self._ring[self._dice.randrange(len(self._ring))]
        measurement = self._sample(sampled_at, inputs)
        state = self._plc.state
        delay = self._dice.randint(1, _SLOWEST_WRITE)
        written = await self._decided(measurement, run)
        for scan in range(1, SCANS + 1):
            if scan == delay and written:
                self._hand_over(written)
            elif scan == delay:
                self._plc.block[Block.CONTROL_VALID] = 0
                self._seal()
            seen = self._scan()
            if scan == delay:
                if written:
                    self._point.confirm(written, seen.at_s)
                run.moments.append(Moment(state=state, measurement=measurement, outputs=seen.working))

    def _sample(self, at: float, inputs: list[int]) -> Measurement:
        values: dict[TagId, float] = {}
        for tag, address in _READ.items():
            raw = inputs[address] - 0x10000 if inputs[address] & 0x8000 else inputs[address]
            values[tag] = float(self._definitions[tag].engineering(raw))
        for tag, address in _READ_BACK.items():
            back = self._definitions[tag].engineering(inputs[address])
            values[self._settings.read_back[tag]] = float(back)
            self._point.histories[tag].observe(back, at)
        for tag, number in values.items():
            self._store.update(
                tag,
                TagValue(
                    value=number,
                    status=StatusCode.Good,
                    source_ts_ns=None,
                    server_ts_ns=self._clock.utc_ns(),
                    confirmed_at=at,
                ),
            )
        return Measurement(values[LEVEL], values[INFLOW], values[TEMPERATURE])

    async def _decided(self, measurement: Measurement, run: Run) -> tuple[RegisterValue, ...]:
        if self._checker is None:
            wanted = self._policy.act(measurement, self._plc.working)
            return register_values(_fractions(wanted), self._definitions, by="unchecked").values
        self._checker.asked = None
        decided = await self._decider.decide(
            self._point,
            DecisionRequest(
                id=DecisionId(f"d{len(run.cycles)}"),
                point=self._settings.id,
                requested_by="period",
                request_class=RequestClass.P1,
                deadline=Deadline.after(self._settings.deadline_s, self._clock),
                received_at=self._clock.monotonic(),
            ),
        )
        run.cycles.append(self._summary(decided.record))
        return decided.record.written

    def _summary(self, record: DecisionRecord) -> Cycle:
        asked = self._checker.asked if self._checker is not None else None
        unsafe, wanted = "no proposal", self._plc.working
        if asked is not None and asked[0].proposal is not None:
            request, state = asked
            wanted = _outputs(asked[0].proposal)
            unsafe = unsafe_because(_known(request, state, self._settings), wanted)
        permitted = isinstance(record.outcome, Permitted)
        unchanged = permitted and record.proposal is not None and record.written == record.proposal.values
        counterexample = getattr(record.outcome, "counterexample", None)
        kept_back = "least change or hysteresis" if permitted and not unchanged else ""
        return Cycle(
            wanted=wanted,
            outcome=outcome_name(record.outcome),
            unchanged=unchanged,
            written_by=record.written_by,
            unsafe=unsafe,
            refused_for=counterexample.constraint
            if counterexample
            else getattr(record.outcome, "reason", kept_back),
        )

    def _hand_over(self, values: tuple[RegisterValue, ...]) -> None:
        raws = {value.tag: value.raw for value in values}
        self._sequence = self._sequence % 0xFFFF + 1
        self._plc.block[:8] = [self._sequence, 1, 1, self._sequence, 1, raws[PUMP], raws[HEATER], raws[MIXER]]
        self._seal()

    def _seal(self) -> None:
        self._plc.block[Block.CHECKSUM] = block_checksum(self._plc.block[: Block.CHECKSUM])

    def _scan(self) -> Scan:
        seen = self._plc.scan(self._clock.monotonic() + SCAN_S)
        self._clock.advance(SCAN_S)
        self._ring.append((seen.at_s, self._plc.inputs))
        self.log.append(
            LoggedScan(
                run=0,
                monotonic_s=seen.at_s,
                scan=len(self.log),  # the first scan is the start's; a second's first is number 1, 51, ...
                level_m=seen.state.level_m,
                temperature_c=seen.state.temperature_c,
                inflow_m3h=seen.inflow_m3h,
                pump_pct=seen.working.pump_pct,
                heater=seen.working.heater,
                mixer=seen.working.mixer,
                in_control=seen.in_control,
                sequence=seen.sequence,
                reject=seen.reject.value,
            )
        )
        return seen


class _Proposer:
    """A policy as the pipeline's proposer."""

    def __init__(self, policy: Policy, definitions: Mapping[TagId, TagDefinition]) -> None:
        self._policy, self._definitions = policy, definitions

    async def propose(
        self,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        del deadline, guide, most
        level, inflow, temperature = (snapshot.values[tag].value for tag in (LEVEL, INFLOW, TEMPERATURE))
        assert isinstance(level, float)
        assert isinstance(inflow, float)
        assert isinstance(temperature, float)
        before = Outputs(float(previous[PUMP]), previous[HEATER] == 1, int(previous[MIXER]))
        wanted = self._policy.act(Measurement(level, inflow, temperature), before)
        return register_values(_fractions(wanted), self._definitions, by="policy")

    async def propose_aside(
        self,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        """Not answered: a policy remembers what it is asked."""
        del snapshot, previous, deadline, guide, most
        raise InferenceError("the simulator answers no what-if: a policy remembers what it is asked")


class _Checker:
    """The check in this process; keeps what the proposal's own check was asked and knew."""

    def __init__(self, check: Check, guides: Guides | None) -> None:
        self._check, self._guides = check, guides
        self.asked: tuple[CheckRequest, StateSet | None] | None = None

    def prepare(self, request: CheckRequest, order: tuple[TagId, ...] = ()) -> None:
        """Nothing is gained here."""

    async def guidance(
        self, request: CheckRequest, order: tuple[TagId, ...], refused: Refusals, deadline: Deadline
    ) -> PackedGuidance | Unguided:
        del deadline
        return Unguided("nobody guides") if self._guides is None else self._guides(request, order, refused)

    async def check(self, request: CheckRequest, deadline: Deadline) -> tuple[CheckResult, StateSet | None]:
        del deadline
        result, state = self._check.check(request)
        if self.asked is None:
            self.asked = request, state
        return result, state


@lru_cache(maxsize=1)
def demo() -> tuple[PointSettings, dict[TagId, TagDefinition]]:
    """The demo's decision point and tags, from its own configuration."""
    config = load(DEMO)
    return point_settings(config, config.point(POINT)), {d.id: d for d in tag_definitions(config)}


def _known(request: CheckRequest, state: StateSet | None, settings: PointSettings) -> Known:
    spans: dict[TagId, tuple[float, float]] = {}
    for tag, error in _ERROR.items():
        if state is not None:
            interval = state.intervals[tag]
            spans[tag] = float(interval.low), float(interval.high)
        else:
            read = request.inputs[tag].value
            assert isinstance(read, float)
            spans[tag] = read - error, read + error
    now = {tag: entries[0].value for tag, entries in request.history.items()}
    return Known(
        level_m=spans[LEVEL],
        inflow_m3h=spans[INFLOW],
        temperature_c=spans[TEMPERATURE],
        before=Outputs(float(now[PUMP]), now[HEATER] == 1, int(now[MIXER])),
        heater_held_s=request.held_s[HEATER],
        pump_history=[(float(e.value), e.ceased_s_ago) for e in request.history[PUMP]],
        delay_s=settings.effect_delay_s,
        hold_s=settings.hold_s,
    )


def _fractions(outputs: Outputs) -> dict[TagId, Fraction]:
    return {
        PUMP: Fraction(round(outputs.pump_pct * 10), 10),
        HEATER: Fraction(int(outputs.heater)),
        MIXER: Fraction(outputs.mixer),
    }


def _outputs(proposal: Proposal) -> Outputs:
    values = proposal.engineering()
    return Outputs(float(values[PUMP]), values[HEATER] == 1, int(values[MIXER]))

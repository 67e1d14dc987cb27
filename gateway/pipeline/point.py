"""A decision point: what configuration says of it, and what it remembers between decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.core.decision import Mode, PointId, RegisterValue, RepairWay, RequestClass
from gateway.core.ports import InForce, Proposer, SetpointSink, StateSet
from gateway.core.residual import Residual
from gateway.core.tag import TagId
from gateway.pipeline.alarm import PointAlarm
from gateway.pipeline.history import OutputHistory
from gateway.pipeline.list_counters import ListCounters
from gateway.pipeline.repairs import RepairLimit, Repairs
from gateway.pipeline.rules import RulesInForce


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSettings:
    """One decision point as configured. Times in seconds."""

    id: PointId
    inputs: tuple[TagId, ...]
    outputs: tuple[TagId, ...]
    read_back: Mapping[TagId, TagId]  # output -> tag of the PLC's working value (S22)
    status_tag: TagId | None
    remote_bit: int
    in_control_bit: int
    model: str
    fallback: tuple[str, ...]
    fallback_values: Mapping[TagId, Fraction]
    required_modules: tuple[str, ...]
    period_s: float | None
    on_request: bool
    deadline_s: float
    request_class: RequestClass
    max_skew_s: float
    hold_s: float  # period + sampling + jitter: how long a proposal may act before the next one can
    effect_delay_s: float  # deadline + write delay + scan
    rearm_after_s: float
    configured_mode: Mode
    least_change: Mapping[TagId, Fraction] = field(default_factory=dict)  # of outputs (S12)
    release_margin: Fraction = Fraction(1, 10)  # share of an output's range
    release_after_s: float = 60.0
    repair_limit: RepairLimit | None = None
    repair: RepairWay = "segment"
    guided: bool = False  # the model decodes among what the rules in force can still permit
    n_best: int = 1  # proposals of the model that are looked at before one is repaired


@dataclass(slots=True)
class Point:
    """One decision point at run time. Owned by the pipeline; nobody else writes here."""

    settings: PointSettings
    proposer: Proposer
    sink: SetpointSink
    mode: Mode = Mode.SHADOW
    histories: dict[TagId, OutputHistory] = field(default_factory=dict)
    carried: StateSet | None = None
    carried_standing: Mapping[str, str] = field(default_factory=dict)  # what `carried` stands on
    first_write_due: bool = True  # after arming, the first write is the value in force (S23)
    blocked: str = ""
    last_decision: str = ""
    confirmed_at: float = float("-inf")  # the newest confirmed write
    alarm: PointAlarm = field(default_factory=PointAlarm)
    repairs: Repairs = field(init=False)
    residuals: tuple[Residual, ...] = ()  # of the newest measurements, by tag and window (S16)
    decodes: tuple[TagId, ...] = ()  # the order in which the model was last guided
    drift: dict[TagId, float] = field(default_factory=dict)  # see `GuidedDecoding`
    lists: ListCounters = field(default_factory=ListCounters)

    def __post_init__(self) -> None:
        self.repairs = Repairs(self.settings.repair_limit, self.settings.release_after_s)
        for tag in self.settings.outputs:
            self.histories.setdefault(tag, OutputHistory())

    def carry(self, state: StateSet, rules: RulesInForce) -> None:
        """Take what a check under these rules leaves for the next one."""
        self.carried, self.carried_standing = state, rules.standing

    def carried_into(self, rules: RulesInForce) -> StateSet | None:
        """What the check before left, where these rules assume the same as those did (S2).

        Nothing where an output was out of sight since: what acted meanwhile nobody knows.
        """
        if self.carried is None or self.carried.at < self.in_sight_since:
            return None
        return self.carried if rules.carries_on(self.carried_standing) else None

    @property
    def in_sight_since(self) -> float:
        """Since when the values in force of all outputs are known without interruption, monotonic s."""
        return max((h.in_sight_since for h in self.histories.values()), default=float("-inf"))

    def previous(self) -> dict[TagId, Fraction] | None:
        """The one value in force of every output, or None while any is unknown or unconfirmed."""
        found = {tag: history.current for tag, history in self.histories.items()}
        known = {tag: value for tag, value in found.items() if value is not None}
        return known if len(known) == len(found) else None

    def values_in_force(self) -> dict[TagId, tuple[Fraction, ...]]:
        """The values each output may have now: one, or {before, after} while a write is unconfirmed."""
        return {tag: history.now() for tag, history in self.histories.items()}

    def in_force(self, now: float) -> dict[TagId, tuple[InForce, ...]]:
        """History of every output for the checker."""
        return {tag: history.in_force(now) for tag, history in self.histories.items()}

    def held_s(self, now: float) -> dict[TagId, float]:
        """Seconds each output has had its present value."""
        return {tag: history.held_s(now) for tag, history in self.histories.items()}

    def confirm(self, values: tuple[RegisterValue, ...], at: float) -> None:
        """The PLC works with these values."""
        self.confirmed_at = at
        for value in values:
            self.histories[value.tag].confirm(value.value, at)

    def unconfirmed(self, values: tuple[RegisterValue, ...], at: float) -> None:
        """The PLC may work with these values or with those before."""
        for value in values:
            self.histories[value.tag].unconfirmed(value.value, at)

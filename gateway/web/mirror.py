"""What this process knows of the gateway: a mirror of the Feed, never the truth."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeVar

from gateway.core.clock import Clock
from gateway.core.errors import LinkBrokenError
from gateway.link.messages import (
    Alarm,
    ConstraintCoverage,
    DecisionView,
    FeedBatch,
    FeedItem,
    GatewayState,
    ModelState,
    ModuleState,
    OverrideState,
    PointState,
    TagInfo,
    TagState,
)

DECISIONS_KEPT = 2000
T = TypeVar("T")


@dataclass(slots=True)
class Mirror:
    """State as of the last batch. `problem` is empty while the link lives and a snapshot is here."""

    clock: Clock
    problem: str = "not yet connected to the gateway"
    since_ns: int = 0  # when `problem` began or ended
    losses: int = 0
    batches: int = 0
    gateway: GatewayState | None = None
    infos: dict[str, TagInfo] = field(default_factory=dict)
    tags: dict[str, TagState] = field(default_factory=dict)
    points: dict[str, PointState] = field(default_factory=dict)
    modules: dict[str, ModuleState] = field(default_factory=dict)
    models: dict[str, ModelState] = field(default_factory=dict)
    overrides: dict[str, OverrideState] = field(default_factory=dict)
    alarms: dict[str, Alarm] = field(default_factory=dict)
    coverage: dict[str, ConstraintCoverage] = field(default_factory=dict)
    decisions: OrderedDict[str, DecisionView] = field(default_factory=OrderedDict)  # oldest first
    _sequence: int | None = None

    def apply(self, batch: FeedBatch) -> None:
        """Take a batch; a snapshot replaces all state. Raises `LinkBrokenError` when a batch is missing."""
        if batch.snapshot:
            self.coverage.clear()
            for held in (
                self.infos,
                self.tags,
                self.points,
                self.modules,
                self.models,
                self.overrides,
                self.alarms,
            ):
                held.clear()
        elif self._sequence is None or batch.sequence != self._sequence + 1:
            raise LinkBrokenError("o3", f"batch {batch.sequence} does not follow {self._sequence}")
        self._sequence = batch.sequence
        self.batches += 1
        for item in batch.items:
            self._take(item)
        if self.problem and self.gateway is not None:
            self.problem, self.since_ns = "", self.clock.utc_ns()

    def lose(self, problem: str) -> None:
        """The link is gone: what is held here is old, and every answer must say so."""
        self._sequence = None
        if not self.problem:
            self.losses += 1
            self.since_ns = self.clock.utc_ns()
        self.problem = problem

    def latest_decisions(self, limit: int, point: str | None = None) -> list[DecisionView]:
        """Newest first, of one point or of all."""
        found: list[DecisionView] = []
        for decision in reversed(self.decisions.values()):
            if point is None or decision.point == point:
                found.append(decision)
                if len(found) == limit:
                    break
        return found

    def _take(self, item: FeedItem) -> None:  # noqa: C901  one case for each kind of item
        match item:
            case TagState():
                self.tags[item.id] = item
            case DecisionView():
                self.decisions[item.id] = item  # told again when its write outcome is known: keeps its place
                if len(self.decisions) > DECISIONS_KEPT:
                    self.decisions.popitem(last=False)
            case PointState():
                self.points[item.id] = item
            case GatewayState():
                self.gateway = item
            case TagInfo():
                self.infos[item.id] = item
            case ModuleState():
                _keep(self.modules, item.id, item, there=item.state != "gone")
            case ModelState():
                self.models[item.id] = item
            case OverrideState():
                _keep(self.overrides, item.id, item, there=item.state != "ended")
            case ConstraintCoverage():
                _keep(self.coverage, item.id, item, there=not item.gone)
            case Alarm():
                _keep(self.alarms, item.source, item, there=item.active or not item.acknowledged)


def _keep(held: dict[str, T], key: str, item: T, *, there: bool) -> None:
    if there:
        held[key] = item
    else:
        held.pop(key, None)

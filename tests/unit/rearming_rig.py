"""A gateway that has just started, in memory, with a point that was armed before (S23)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from structlog.testing import capture_logs

from gateway.config.model import GatewayConfig
from gateway.core.clock import Deadline
from gateway.core.decision import DecisionRecord, Mode, PointId
from gateway.core.errors import LinkBrokenError, StorageError
from gateway.daemon.binding import Bindings
from gateway.daemon.modes import Modes
from gateway.daemon.readback import ReadBack
from gateway.daemon.rearming import Rearming
from gateway.daemon.reporting import Reporter
from gateway.daemon.takeover import TakeOver
from gateway.protocols.modbus.handover import WorkingState
from gateway.storage.audit import AuditLog
from gateway.storage.state import DurableState, GatewayMemory
from tests.fakes.pipeline import PUMP, House, pump
from tests.unit.test_daemon_takeover import working

TANK = PointId("tank")
LOOK_S = 0.5
LOOKS = 7  # the first that finds nothing against it, and 3 s of `rearm_after`
DIGESTS = {"rule_set": "digest-1", "model": "model-1", "binding": "sheet-1"}


class Sheet:
    """A signed binding sheet."""

    void, name = "", "sheet-1"

    def why_not(self, _point: PointId) -> str:
        return self.void

    def digest(self, _point: PointId) -> str:
        return self.name


class Log:
    """An audit log in memory. `problem` makes it refuse; `meanwhile` happens while it appends or reads."""

    def __init__(self) -> None:
        self.acts: list[tuple[str, str, dict[str, str]]] = []
        self.newest_first: list[DecisionRecord] = []
        self.problem = ""
        self.meanwhile: Callable[[], None] = lambda: None
        self.asked_for: list[PointId | None] = []

    async def append_event(self, kind: str, who: str, facts: dict[str, str]) -> None:
        self.meanwhile()
        await asyncio.sleep(0)
        if self.problem:
            raise StorageError(self.problem)
        self.acts.append((kind, who, facts))

    async def recent(self, limit: int, point: PointId | None = None) -> list[SimpleNamespace]:
        self.meanwhile()
        await asyncio.sleep(0)
        self.asked_for.append(point)
        if self.problem:
            raise StorageError(self.problem)
        return [SimpleNamespace(record=record) for record in self.newest_first[:limit]]


class State(DurableState):
    """Durable where nothing is written; `problem` makes that fail."""

    problem_now = ""
    durable = GatewayMemory()  # what a start would find
    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    async def flush(self) -> None:
        self.meanwhile()
        await asyncio.sleep(0)
        if self.problem_now:
            raise StorageError(self.problem_now)
        self.durable = self.memory


class Plc:
    """What the PLC says of itself, or that it does not answer."""

    owner = epoch = 1

    def __init__(self) -> None:
        self.says: WorkingState | None = working(pump(40))
        self.asked = 0
        self.meanwhile: Callable[[], None] = lambda: None

    async def read_working(self, deadline: Deadline) -> WorkingState:
        del deadline
        self.asked += 1
        self.meanwhile()
        await asyncio.sleep(0)
        if self.says is None:
            raise LinkBrokenError("plc", "reset")
        return self.says


class Rig:
    """A gateway that has just started; its point was armed before, with 40 % confirmed last."""

    def __init__(self, folder: Path) -> None:
        self.house, self.audit, self.plc, self.sheet = House(), Log(), Plc(), Sheet()
        self.point, self.clock = self.house.point, self.house.clock
        self.point.mode, self.point.blocked = Mode.SHADOW, "after a start"
        self.state = State(folder / "state.json")
        self.state.set_mode(TANK, Mode.ARMED, DIGESTS)
        self.state.confirm(TANK, {PUMP: 400}, 0)
        self.state.record_start(self.clock.utc_ns())
        self.published: list[Mode] = []
        self.between: dict[int, Callable[[], None]] = {}  # what happens before that look, of all
        self.looks = self._allowed = 0
        self._more = asyncio.Event()
        self.started: asyncio.Task[None] | None = None
        self.others: list[asyncio.Task[object]] = []  # what others do meanwhile
        self.rearming = self._built()

    def _built(self) -> Rearming:
        house, bindings = self.house, cast("Bindings", self.sheet)
        points, audit = {TANK: self.point}, cast("AuditLog", self.audit)
        read_back = ReadBack(points, house.store, house.writer, self.clock)
        take_over = TakeOver(points, {TANK: self.plc}, read_back, self.clock)
        self.reporter = Reporter(
            clock=self.clock,
            definitions=house.store.definitions,
            audit=audit,
            state=self.state,
            publish_decision=lambda _view: None,
            publish_alarm=lambda _alarm: None,
            publish_point=lambda _point: None,
        )
        common: dict[str, Any] = {
            "clock": self.clock, "points": points, "rules": house.rules, "store": house.store,
            "writer": house.writer, "audit": audit, "state": self.state,
            "model_digest": lambda _point: "model-1", "bindings": bindings,
        }  # fmt: skip
        self.modes = Modes(
            **common,
            reporter=self.reporter,
            changed=lambda point: self.published.append(point.mode),
            taken_over=take_over.why_not,
        )
        config = SimpleNamespace(gateway=SimpleNamespace(starts_per_hour=3))
        self.config = config
        return Rearming(
            **common,
            config=cast("GatewayConfig", config),
            modes=self.modes,
            take_over=take_over,
            pause=self._pause,
        )

    async def _pause(self) -> None:
        while self.looks >= self._allowed:
            self._more.clear()
            await self._more.wait()
        self.looks += 1
        self.clock.advance(LOOK_S)
        self.between.get(self.looks, lambda: None)()

    async def look(self, times: int) -> Mode:
        """The mode after so many more looks, or after fewer where it no longer waits."""
        self._allowed = self.looks + times
        self._more.set()
        if self.started is None:
            self.started = asyncio.create_task(self.rearming.run())
        for _ in range(20 * times + 20):
            await asyncio.sleep(0)
        assert not self.started.done(), "a point that waits ends nothing"
        return self.point.mode

    async def told(self, times: int = LOOKS + 3) -> str:
        """What is said against arming, which does not happen."""
        with capture_logs() as logs:
            assert await self.look(times) is Mode.SHADOW
        return "; ".join(str(entry["why"]) for entry in logs if entry["event"] == "not_rearmed_yet")

    def remembers(self, **digests: str) -> None:
        self.state.set_mode(TANK, Mode.ARMED, DIGESTS | digests)

    def person(self, mode: Mode) -> None:
        """Somebody sets another mode, as `Modes` does at once."""
        self.point.mode = mode
        self.state.set_mode(TANK, mode, DIGESTS)

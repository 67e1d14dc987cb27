"""S23: after a start a point goes back to armed by itself only where nothing at all speaks against it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from gateway.config.model import GatewayConfig
from gateway.core.clock import Deadline
from gateway.core.decision import DecisionRecord, Mode, PointId, WriteOutcome
from gateway.core.errors import LinkBrokenError, StorageError
from gateway.core.quality import StatusCode
from gateway.daemon.binding import Bindings
from gateway.daemon.modes import Modes
from gateway.daemon.readback import ReadBack
from gateway.daemon.rearming import Rearming
from gateway.daemon.reporting import Reporter
from gateway.daemon.takeover import TakeOver
from gateway.pipeline.history import OutputHistory
from gateway.pipeline.lane import Ordered
from gateway.pipeline.rules import RulesInForce
from gateway.protocols.modbus.handover import WorkingState
from gateway.storage.audit import AuditLog
from gateway.storage.state import DurableState
from tests.fakes.pipeline import LEVEL, PUMP, PUMP_PV, STATUS, House, pump
from tests.unit.test_daemon_takeover import decided, working

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
        await asyncio.sleep(0)
        self.meanwhile()
        if self.problem:
            raise StorageError(self.problem)
        self.acts.append((kind, who, facts))

    async def recent(self, limit: int, point: PointId | None = None) -> list[SimpleNamespace]:
        await asyncio.sleep(0)
        self.meanwhile()
        self.asked_for.append(point)
        if self.problem:
            raise StorageError(self.problem)
        return [SimpleNamespace(record=record) for record in self.newest_first[:limit]]


class State(DurableState):
    """Durable where nothing is written; `problem` makes that fail."""

    problem_now = ""
    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    async def flush(self) -> None:
        await asyncio.sleep(0)
        self.meanwhile()
        if self.problem_now:
            raise StorageError(self.problem_now)


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
        await asyncio.sleep(0)
        self.meanwhile()
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


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    yield made
    if made.started is not None:
        made.started.cancel()
        await asyncio.gather(made.started, return_exceptions=True)


async def test_s23_what_was_armed_and_is_as_it_was_is_armed_again_after_rearm_after(rig: Rig) -> None:
    rig.point.first_write_due = False
    assert await rig.look(LOOKS - 1) is Mode.SHADOW
    assert rig.audit.acts == []
    assert await rig.look(1) is Mode.ARMED
    facts = {"point": TANK, "to": "armed", "why": "armed before the start"}
    assert rig.audit.acts == [("mode", "gateway", facts)]
    assert (rig.point.first_write_due, rig.point.blocked) == (True, "")
    assert rig.published == [Mode.ARMED]
    assert rig.state.point(TANK).armed_before, "the next start may arm again"
    asked = rig.plc.asked
    await rig.look(3)
    assert (rig.looks, rig.plc.asked, len(rig.audit.acts)) == (LOOKS, asked, 1)


async def test_s23_the_first_write_is_the_value_in_force_whatever_the_model_wants(rig: Rig) -> None:
    assert await rig.look(LOOKS) is Mode.ARMED
    rig.house.sample(LEVEL, 2.0)
    rig.house.sample(STATUS, 3)
    serving = asyncio.create_task(rig.house.lane.run())
    async with asyncio.timeout(10):
        await rig.house.lane.request(Ordered(requested_by="test"))
    for _ in range(20):
        await asyncio.sleep(0)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert (rig.house.sink.written, rig.house.proposer.asked) == ([(pump(40),)], 0)


@pytest.mark.parametrize("mode", [Mode.SHADOW, Mode.ADVISORY, Mode.OFF])
async def test_s23_what_was_not_armed_before_is_not_even_looked_after(rig: Rig, mode: Mode) -> None:
    rig.state.set_mode(TANK, mode)
    assert await rig.look(LOOKS + 3) is Mode.SHADOW
    assert (rig.looks, rig.plc.asked, rig.audit.acts) == (0, 0, [])


async def test_s23_a_point_that_is_unknown_to_the_state_was_not_armed(rig: Rig, tmp_path: Path) -> None:
    rig.rearming._state = State(tmp_path / "another.json")
    assert await rig.look(LOOKS + 3) is Mode.SHADOW
    assert rig.looks == 0


def _starts(rig: Rig, *ago_s: float) -> None:
    for each in ago_s:
        rig.state.record_start(rig.clock.utc_ns() - round(each * 1e9))


def _unproved(rig: Rig) -> None:
    rig.house.rules.activate(RulesInForce(2, "digest-1", frozenset({"tank"}), "`tank` is not proved"))


def _bad(rig: Rig) -> None:
    rig.house.sample(LEVEL, 2.0, StatusCode.Bad)


def _uncertain(rig: Rig) -> None:
    rig.house.sample(LEVEL, 2.0, StatusCode.UncertainLastUsableValue)


def _says(rig: Rig, **other: object) -> None:
    assert rig.plc.says is not None
    rig.plc.says = replace(rig.plc.says, **other)  # type: ignore[arg-type]  # fields of a state


AGAINST: list[tuple[Callable[[Rig], object], str]] = [
    (lambda rig: rig.remembers(rule_set="digest-0"), "the rule set changed since it was armed"),
    (lambda rig: rig.remembers(model="model-0"), "the model changed since it was armed"),
    (lambda rig: rig.remembers(binding="sheet-0"), "another binding sheet was signed since"),
    (lambda rig: rig.state.set_mode(TANK, Mode.ARMED), "another binding sheet was signed since"),
    (lambda rig: _starts(rig, 60, 3590), "3 starts within an hour, not fewer than 3"),
    (lambda rig: _starts(rig, -60, 60), "3 starts within an hour"),  # the clock was stepped back
    (lambda rig: rig.state.stop_writes(), "writes are stopped by the kill switch"),
    (lambda rig: rig.state.latch(TANK, "the checkers differ"), "the checkers differ; find the cause"),
    (lambda rig: setattr(rig.sheet, "void", "the binding changed"), "the binding changed"),
    (_unproved, "`tank` is not proved"),
    (_bad, "input `LT` is Bad"),
    (_uncertain, "input `LT` is Uncertain"),
    (lambda rig: setattr(rig.house, "not_live", "`LIVE` is frozen"), "`LIVE` is frozen"),
    (lambda rig: rig.house.sample(STATUS, 2), "the PLC is in local"),  # by its polled word
    (lambda rig: _says(rig, remote=False), "the PLC is in local"),  # by its own, just asked
    (lambda rig: _says(rig, owner=2), "the PLC obeys owner 2 in epoch 1"),
    (lambda rig: _says(rig, epoch=9), "the PLC obeys owner 1 in epoch 9"),
    (lambda rig: setattr(rig.plc, "says", None), "the PLC's working values cannot be read"),
]


@pytest.mark.parametrize(("spoil", "words"), AGAINST, ids=[words for _, words in AGAINST])
async def test_s23_anything_that_speaks_against_it_keeps_it_in_shadow_and_is_told_once(
    rig: Rig, spoil: Callable[[Rig], object], words: str
) -> None:
    spoil(rig)
    assert (await rig.told()).count(words) == 1
    assert rig.audit.acts == []
    assert rig.state.point(TANK).armed_before, "it waits on"
    assert rig.reporter.alarms == {}


async def test_s23_a_value_in_force_that_is_not_known_is_asked_for_and_waited_for(rig: Rig) -> None:
    rig.point.histories[PUMP] = OutputHistory()
    assert "the value in force of `P.SP` is not known yet" in await rig.told()
    assert rig.plc.asked == 0, "the take-over asks for that"


async def test_s23_fewer_starts_than_the_limit_within_an_hour_count_as_few(rig: Rig) -> None:
    _starts(rig, 60, 3601)
    assert await rig.look(LOOKS) is Mode.ARMED


async def test_s23_a_lifted_limit_lets_any_number_of_starts_pass(rig: Rig) -> None:
    rig.config.gateway.starts_per_hour = "unlimited"
    _starts(rig, *range(1, 20))
    assert await rig.look(LOOKS) is Mode.ARMED


async def test_s23_rearm_after_begins_when_the_last_objection_is_gone(rig: Rig) -> None:
    _bad(rig)
    rig.between[4] = lambda: rig.house.sample(LEVEL, 2.0)
    rig.between[8] = lambda: _says(rig, owner=2)
    rig.between[9] = lambda: _says(rig, owner=1)
    assert await rig.look(8 + LOOKS - 1) is Mode.SHADOW
    assert await rig.look(1) is Mode.ARMED


# A transmitter that fails for the time between two looks is not one that was Good all along.
async def test_s23_an_input_that_was_bad_between_two_looks_begins_rearm_after_anew(rig: Rig) -> None:
    def blip() -> None:
        _bad(rig)
        rig.house.sample(LEVEL, 2.0)

    rig.between[LOOKS] = blip
    assert await rig.look(2 * LOOKS - 2) is Mode.SHADOW
    assert await rig.look(1) is Mode.ARMED


async def test_s23_a_lost_link_between_two_looks_begins_rearm_after_anew(rig: Rig) -> None:
    def lost() -> None:
        rig.house.store.degrade([LEVEL], StatusCode.Bad)
        rig.house.sample(LEVEL, 2.0)

    rig.between[LOOKS] = lost
    assert await rig.look(LOOKS + 1) is Mode.SHADOW


async def test_a_tag_that_the_point_does_not_read_delays_nothing(rig: Rig) -> None:
    def blip() -> None:
        rig.house.sample(PUMP_PV, 4.0, StatusCode.Bad)
        rig.house.sample(LEVEL, 2.1)  # nor does another good value

    rig.between[LOOKS] = blip
    assert await rig.look(LOOKS) is Mode.ARMED


async def test_s19_outputs_that_somebody_changed_end_it_with_an_alarm(rig: Rig) -> None:
    rig.plc.says = working(pump(70))
    assert await rig.look(LOOKS + 3) is Mode.SHADOW
    said = "unrequested: `P.SP` is at 700 counts, and 400 were the last ones confirmed"
    assert rig.reporter.alarms["point:tank"].cause == said
    assert [(kind, who) for kind, who, _ in rig.audit.acts] == [
        ("unrequested", "gateway"),
        ("mode", "gateway"),
    ]
    assert not rig.state.point(TANK).armed_before
    assert (rig.looks, rig.plc.asked) == (1, 1)


async def test_s23_what_the_plcs_own_fallback_moved_is_its_right(rig: Rig) -> None:
    rig.plc.says = working(pump(10), fallback=True)
    assert await rig.look(LOOKS) is Mode.ARMED


# A daemon killed after the bytes and before it remembered them.
async def test_s18_a_write_of_its_own_that_was_cut_off_is_no_change_by_somebody(rig: Rig) -> None:
    rig.plc.says = working(pump(45))
    rig.audit.newest_first = [decided(45), decided(40)]
    assert await rig.look(LOOKS) is Mode.ARMED
    assert set(rig.audit.asked_for) == {TANK}


@pytest.mark.parametrize("outcome", [WriteOutcome.FAILED, WriteOutcome.REFUSED])
async def test_s19_a_write_that_surely_was_not_carried_out_is_not_its_own(
    rig: Rig, outcome: WriteOutcome
) -> None:
    rig.plc.says = working(pump(45))
    rig.audit.newest_first = [replace(decided(45), write_outcome=outcome), decided(40)]
    assert await rig.look(LOOKS) is Mode.SHADOW
    assert "unrequested" in rig.reporter.alarms["point:tank"].cause


async def test_s19_what_was_written_before_the_newest_confirmed_write_is_not_in_force_by_itself(
    rig: Rig,
) -> None:
    rig.plc.says = working(pump(45))
    confirmed = replace(decided(46), write_outcome=WriteOutcome.CONFIRMED)
    rig.audit.newest_first = [confirmed, decided(45), decided(40)]
    assert await rig.look(LOOKS) is Mode.SHADOW
    assert "unrequested" in rig.reporter.alarms["point:tank"].cause


@pytest.mark.parametrize(("others", "mode"), [(49, Mode.ARMED), (50, Mode.SHADOW)])
async def test_s18_its_own_write_is_looked_for_among_the_newest_decisions(
    rig: Rig, others: int, mode: Mode
) -> None:
    rig.plc.says = working(pump(45))
    rig.audit.newest_first = [*[replace(decided(45), written=())] * others, decided(45)]
    assert await rig.look(LOOKS) is mode


async def test_s19_where_the_log_cannot_be_read_nobody_can_say_that_it_was_us(rig: Rig) -> None:
    rig.plc.says = working(pump(45))
    rig.audit.newest_first = [decided(45)]
    rig.audit.problem = "audit log cannot be read"
    assert await rig.look(LOOKS) is Mode.SHADOW
    assert "unrequested" in rig.reporter.alarms["point:tank"].cause


# Armed, and gone before the first write was confirmed: nobody knows what ought to be in force.
async def test_s23_without_any_confirmed_value_only_a_person_arms(rig: Rig) -> None:
    rig.state.set_point(TANK, type(rig.state.point(TANK))(armed_before=True, digests=DIGESTS))
    assert "no value of `P.SP` was ever confirmed: only a person may arm it" in await rig.told()
    assert rig.reporter.alarms == {}, "nobody changed anything, as far as is known"
    assert rig.state.point(TANK).armed_before


async def test_s18_a_first_write_that_was_cut_off_and_is_in_force_is_its_own(rig: Rig) -> None:
    rig.state.set_point(TANK, type(rig.state.point(TANK))(armed_before=True, digests=DIGESTS))
    rig.audit.newest_first = [decided(40)]
    assert await rig.look(LOOKS) is Mode.ARMED


@pytest.mark.parametrize("mode", [Mode.ADVISORY, Mode.OFF, Mode.SHADOW])
async def test_s23_a_person_who_decides_otherwise_meanwhile_is_obeyed(rig: Rig, mode: Mode) -> None:
    rig.between[LOOKS] = lambda: rig.person(mode)
    assert await rig.look(2 * LOOKS) is mode
    assert (rig.looks, rig.audit.acts) == (LOOKS, [])


# What it compares with is then older than what the person's arming let be written.
@pytest.mark.parametrize("asked", ["plc", "audit"])
async def test_s19_a_person_who_arms_while_the_plc_is_asked_is_not_disarmed(rig: Rig, asked: str) -> None:
    rig.plc.says = working(pump(70))
    getattr(rig, asked).meanwhile = lambda: rig.person(Mode.ARMED)
    assert await rig.look(3) is Mode.ARMED
    assert (rig.looks, rig.reporter.alarms, rig.audit.acts) == (1, {}, [])


def _blip(rig: Rig) -> None:
    _bad(rig)
    rig.house.sample(LEVEL, 2.0)


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (lambda rig: rig.state.latch(TANK, "the checkers differ"), "the checkers differ"),
        (lambda rig: rig.state.stop_writes(), "kill switch"),
        (lambda rig: rig.person(Mode.ADVISORY), "no longer waits"),
        (_bad, "input `LT` is Bad"),
        (_blip, "an input was not Good for a moment"),
    ],
    ids=["latch", "kill switch", "person", "input", "moment"],
)
async def test_s23_what_happens_while_arming_is_recorded_keeps_it_unarmed_and_is_recorded(
    rig: Rig, happens: Callable[[Rig], object], words: str
) -> None:
    def once() -> None:
        rig.audit.meanwhile = lambda: None
        happens(rig)

    rig.audit.meanwhile = once
    await rig.look(LOOKS)
    assert rig.point.mode is not Mode.ARMED
    assert Mode.ARMED not in rig.published
    assert [facts["to"] for _, _, facts in rig.audit.acts] == ["armed", rig.point.mode.value]
    assert words in rig.audit.acts[-1][2]["why"]


async def test_s23_what_cannot_be_recorded_does_not_count_and_is_tried_again(rig: Rig) -> None:
    rig.audit.problem = "disk full"
    assert (await rig.told(LOOKS)).count("disk full") == 1
    rig.audit.problem = ""
    assert await rig.look(LOOKS - 1) is Mode.SHADOW, "all of `rearm_after` again"
    assert await rig.look(1) is Mode.ARMED


async def test_after_ten_minutes_beside_rearm_after_it_is_a_persons_and_is_told(rig: Rig) -> None:
    _bad(rig)
    looks = round(603 / LOOK_S)
    with capture_logs() as logs:
        await rig.look(looks + 5)
    assert rig.looks == looks
    assert [e["why"] for e in logs if e["event"] == "not_rearmed"] == ["input `LT` is Bad"]
    rig.house.sample(LEVEL, 2.0)
    assert await rig.look(LOOKS) is Mode.SHADOW


async def test_a_rearm_after_of_an_hour_is_waited_for(rig: Rig) -> None:
    rig.point.settings = replace(rig.point.settings, rearm_after_s=3600.0)
    assert await rig.look(round(3600 / LOOK_S)) is Mode.SHADOW
    assert await rig.look(1) is Mode.ARMED

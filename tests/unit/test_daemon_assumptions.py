"""S16: what a trip leads to beside the running gateway, and what its watching costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    DecisionId,
    DecisionRecord,
    Examination,
    Mode,
    PointId,
    StateInterval,
    StateSet,
    Undetermined,
)
from gateway.core.residual import Residual, broken
from gateway.core.tag import TagId
from gateway.daemon.assumptions import Assumptions
from gateway.daemon.modes import Modes
from gateway.pipeline.point import Point
from gateway.pipeline.rearm import not_armable
from gateway.solver.monitor.residual_worker import Desk, Watch, asked
from gateway.solver.rules.ruleset import RuleSet
from tests.fakes.pipeline import House
from tests.unit.solver_demo import LEVEL, TAGS, rule_set
from tests.unit.test_solver_residuals import Tank

RULES = rule_set()


def record_of(request: CheckRequest, **changes: object) -> DecisionRecord:
    verdict = Undetermined("whatever: measurements are judged under every verdict")
    result = CheckResult(verdict=verdict, findings=(), generation=request.generation, rule_set_digest="")
    record = DecisionRecord(
        id=DecisionId("d-1"),
        point=PointId("tank"),
        mode=Mode.ARMED,
        requested_by="period",
        received_utc_ns=0,
        outcome=verdict,
        proposal=None,
        written=(),
        written_by="",
        findings=(),
        inputs=request.inputs,
        generation=request.generation,
        rule_set_digest="",
        model_digest="",
        timings_ms={},
        examined=Examination(request=request, result=result),
    )
    return replace(record, **changes)  # type: ignore[arg-type]  # of any field


@dataclass
class Latches:
    """The modes, as far as a trip needs them."""

    why: str = ""
    times: int = 0

    async def latch(self, point: Point, why: str) -> None:
        self.why, point.mode = why, Mode.ADVISORY
        self.times += 1

    def latched(self, _point: Point) -> str:
        return self.why


@dataclass
class Audit:
    events: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)

    async def append_event(self, kind: str, who: str, details: Mapping[str, str]) -> None:
        self.events.append((kind, who, details))


@dataclass
class Rig:
    watch: Assumptions
    latches: Latches
    audit: Audit
    point: Point
    tank: Tank

    async def decide(self, times: int = 1) -> None:
        """Decisions, each judged before the next."""
        for _ in range(times):
            self.tank.advance()
            before = self.watch.statistics().judged
            self.watch.look(self.point, record_of(self.tank.request()))
            await until(lambda was=before: self.watch.statistics().judged > was)  # type: ignore[misc]
            self.tank.act()


@asynccontextmanager
async def watching(mode: Mode = Mode.ARMED) -> AsyncIterator[Rig]:
    latches, audit, point = Latches(), Audit(), House().point
    point.mode = mode
    watch = Assumptions(
        lambda generation: RULES if generation == 1 else None, TAGS, cast("Modes", latches), audit
    )
    task = asyncio.create_task(watch.run())
    try:
        yield Rig(watch, latches, audit, point, Tank(rules=RULES, seed=2))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):
        while not holds():  # noqa: ASYNC110  # counters have no event
            await asyncio.sleep(0.002)


async def test_measurements_that_cannot_be_told_end_no_watch() -> None:
    async with watching() as rig:
        await rig.decide()
        request = rig.tank.request()
        endless = {**request.inputs, LEVEL: replace(request.inputs[LEVEL], value=10**30)}
        rig.watch.look(rig.point, record_of(replace(request, inputs=endless)))
        await until(lambda: rig.watch.statistics().unread == 1)
        assert "cannot be told" in rig.watch.health().text
        await rig.decide()
        assert rig.watch.health().ok
    assert rig.watch.statistics().lost == 0


async def test_s16_a_trip_latches_the_point_once_with_its_cause_and_is_audited() -> None:
    async with watching() as rig:
        await rig.decide(15)
        assert rig.latches.times == 0
        rig.tank.bias = 0.1
        await rig.decide(8)
        found = rig.watch.statistics()
    assert (rig.latches.times, found.trips) == (1, 1)  # five more measurements tripped: it stands already
    assert "`TK1.LT101` lies 0.0" in rig.latches.why
    assert " m outside what was predicted " in rig.latches.why
    assert rig.point.mode is Mode.ADVISORY
    ((kind, who, details),) = rig.audit.events
    assert (kind, who, details["why"]) == ("assumption", "gateway", rig.latches.why)
    assert found.outside >= 3


async def test_s16_in_shadow_a_trip_is_counted_and_keeps_the_point_from_being_armed_while_it_lasts() -> None:
    async with watching(Mode.SHADOW) as rig:
        await rig.decide(15)
        rig.tank.bias = 0.1
        await rig.decide(4)
        assert rig.latches.times == 0
        assert rig.watch.statistics().shadow_trips > 0
        house = House()
        house.point.residuals = rig.point.residuals
        why = not_armable(house.point, house.rules.current, house.store, house.writer, writes_stopped=False)
        assert why.startswith("broken assumption: `TK1.LT101` lies ")
        assert why.endswith("try again once the readings agree with what is predicted")
        house.point.residuals = ()
        after = not_armable(house.point, house.rules.current, house.store, house.writer, writes_stopped=False)
        assert "S16" not in after


async def test_s16_after_an_acknowledgement_only_what_is_measured_from_then_on_counts() -> None:
    async with watching() as rig:
        await rig.decide(15)
        rig.tank.bias = 0.1  # for ever: somebody exchanged the transmitter
        await rig.decide(6)
        assert rig.latches.times == 1
        rig.latches.why, rig.point.mode = "", Mode.ARMED  # acknowledged, armed again
        await rig.decide(30)
        assert rig.latches.times == 1
        assert rig.watch.statistics().restarts == 1
        rig.tank.leak = -0.01  # what is not mended trips again
        await rig.decide(20)
        assert rig.latches.times == 2


async def test_s16_residuals_are_what_the_point_shows_and_end_with_the_windows() -> None:
    async with watching() as rig:
        await rig.decide(12)
        level = {r.window: r for r in rig.point.residuals if r.tag == LEVEL}
        assert level.keys() == {1, 10}
        assert all(0 <= r.used_share < 1 and r.outside == 0 for r in level.values())
        rig.tank.now += 100
        await rig.decide(1)
        assert not rig.point.residuals
        await rig.decide(2)
        assert {r.window for r in rig.point.residuals} == {1}


async def test_s16_outputs_out_of_sight_meanwhile_begin_the_windows_anew() -> None:
    async with watching() as rig:
        await rig.decide(15)
        (history,) = rig.point.histories.values()
        history.out_of_sight(rig.tank.now + 0.1)
        rig.tank.level += 0.5
        history.observe(next(iter(rig.tank.request().history.values()))[0].value, rig.tank.now + 0.5)
        await rig.decide(12)
        assert rig.latches.times == 0
        assert rig.watch.statistics().restarts == 1


async def test_s16_a_lost_process_is_replaced_told_the_rules_again_and_seen_in_health() -> None:
    async with watching() as rig:
        await rig.decide(3)
        assert rig.watch.health().ok
        worker = rig.watch._worker
        assert worker is not None
        worker.kill()
        await worker.wait()
        await rig.decide(1)
        assert not rig.point.residuals  # its windows begin anew
        assert rig.watch.statistics().lost == 1
        await rig.decide(3)
        assert rig.watch._worker is not worker
        assert rig.watch.health().ok


async def test_s16_a_process_that_does_not_answer_is_no_health_until_another_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.daemon.assumptions._PAUSE_S", 0.0)
    async with watching() as rig:
        with monkeypatch.context() as broken_install:
            broken_install.setattr("gateway.daemon.assumptions.MODULE", "gateway.is_not_there")
            rig.watch.look(rig.point, record_of(rig.tank.request()))
            await until(lambda: rig.watch.statistics().lost >= 1)
        assert not rig.watch.health().ok
        assert "its process was lost" in rig.watch.health().text
        await rig.decide(3)
        assert rig.watch.health().ok
        assert rig.point.residuals != ()


async def test_s16_rules_that_the_process_does_not_have_are_told_again() -> None:
    async with watching() as rig:
        await rig.decide(3)
        rig.watch._told.add(2)  # as if it had forgotten them
        rig.tank.rules = replace(RULES, generation=2)
        rig.watch._rules = lambda _: rig.tank.rules
        request = replace(rig.tank.request(), generation=2)
        rig.watch.look(rig.point, record_of(request))
        await until(lambda: rig.watch.statistics().unread == 1)
        assert "rule set 2 was never told" in rig.watch.health().text
        rig.tank.advance()
        rig.watch.look(rig.point, record_of(replace(rig.tank.request(), generation=2)))
        await until(lambda: rig.watch.statistics().judged == 4)
        assert rig.watch.health().ok


async def test_a_rule_set_without_modules_states_nothing_that_could_be_watched() -> None:
    async with watching() as rig:
        asked_for = asyncio.Event()

        def nothing(_generation: int) -> RuleSet:
            asked_for.set()
            return RuleSet.of((), 1)

        rig.watch._rules = nothing
        rig.watch.look(rig.point, record_of(rig.tank.request()))
        async with asyncio.timeout(180):
            await asked_for.wait()
        rig.watch._rules = lambda _: RULES
        await rig.decide(2)
        assert rig.watch.statistics().unread == 0
        assert rig.watch.health().ok


async def test_what_if_decisions_and_those_nobody_examined_are_no_measurements() -> None:
    watch = Assumptions(lambda _: RULES, TAGS, cast("Modes", Latches()), Audit())
    request = Tank(rules=RULES).request()
    watch.look(House().point, record_of(request, what_if=True))
    watch.look(House().point, record_of(request, examined=None))
    assert not watch._jobs
    of_a_backup = record_of(request).examined  # the model gave no proposal
    watch.look(House().point, record_of(request, examined=None, fallback=of_a_backup))
    assert len(watch._jobs) == 1


async def test_what_comes_faster_than_it_can_be_judged_is_dropped_and_counted() -> None:
    watch = Assumptions(lambda _: RULES, TAGS, cast("Modes", Latches()), Audit())
    for _ in range(20):
        watch.look(House().point, record_of(Tank(rules=RULES).request()))
    assert watch.statistics().dropped == 4


async def test_looking_and_asking_hold_the_loop_for_less_than_two_milliseconds() -> None:
    watch, here, took = (
        Assumptions(lambda _: RULES, TAGS, cast("Modes", Latches()), Audit()),
        House().point,
        [],
    )
    request = Tank(rules=RULES).request()
    kept = StateSet(
        at=request.taken_at,
        intervals={
            str(LEVEL): StateInterval(*(request.history[t][0].value for t in list(request.history)[:1] * 2))
        },
    )
    here.carried = kept
    record = record_of(request)
    for _ in range(20):
        started = time.process_time()
        watch.look(here, record)
        job = watch._jobs[-1]
        asked(job.request, job.kept, job.unbroken_since, None)
        took.append(time.process_time() - started)
    assert sorted(took)[10] < 0.001


def test_a_rule_set_that_was_never_told_is_a_problem_and_no_silence() -> None:
    answer = Desk().answer(Watch(Tank(rules=RULES).request(), None, 0.0))
    assert answer.problem == "rule set 1 was never told"


def test_a_residual_trips_only_while_the_newest_measurement_is_outside() -> None:
    def of(outside: float, missed: int) -> Residual:
        return Residual(tag=TagId("T"), window=1, residual=0, outside=outside, used_share=0, missed=missed)

    assert [of(0.1, 3).tripped, of(0.1, 2).tripped, of(0.0, 3).tripped] == [True, False, False]


def test_s16_of_several_broken_assumptions_the_widest_miss_is_told_with_its_unit_and_window() -> None:
    def of(tag: str, window: int, share: float, missed: int = 3) -> Residual:
        outside = share - 1
        return Residual(
            tag=TagId(tag), window=window, residual=9, outside=outside, used_share=share, missed=missed
        )

    found = [of("A", 10, 1.25), of("B", 1, 1.5), of("C", 60, 3.0, missed=2), of("D", 60, 1.125, missed=5)]
    assert broken(found, {TagId("B"): "m"}) == (
        "broken assumption: `B` lies 0.5 m outside what was predicted one step before, as 3 of its last 5 "
        "measurements did; a sensor, a bound or the dynamics of a module are wrong"
    )
    assert "`A` lies 0.25 outside what was predicted 10 steps before" in broken(found[::3])
    assert broken(found[2:3]) == ""

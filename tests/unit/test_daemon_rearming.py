"""S23: after a start a point goes back to armed by itself only where nothing at all speaks against it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.core.decision import Mode, WriteOutcome
from gateway.core.quality import StatusCode
from gateway.pipeline.history import OutputHistory
from gateway.pipeline.lane import Ordered
from gateway.pipeline.rules import RulesInForce
from tests.fakes.pipeline import LEVEL, PUMP, PUMP_PV, STATUS, pump
from tests.unit.rearming_rig import DIGESTS, LOOK_S, LOOKS, TANK, Rig, State
from tests.unit.test_daemon_takeover import decided, working


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
    async with asyncio.timeout(60):
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


@pytest.mark.parametrize("kind", ["rule_set", "model", "binding"])
async def test_s23_armed_with_nobody_knows_what_is_never_armed_again(rig: Rig, kind: str) -> None:
    digests = {name: digest for name, digest in DIGESTS.items() if name != kind}
    rig.state.set_mode(TANK, Mode.ARMED, digests)
    assert "since it was armed" in await rig.told()


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
    with capture_logs() as logs:
        assert await rig.look(LOOKS) is Mode.SHADOW
    assert [e["problem"] for e in logs if e["event"] == "audit_unread"] == [rig.audit.problem]
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

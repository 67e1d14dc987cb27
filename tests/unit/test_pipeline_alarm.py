"""S28: one alarm per decision point, with delays, and none in shadow."""

from __future__ import annotations

from gateway.pipeline.alarm import PointAlarm

CAUSE = "decisions are undetermined: input `LT` is Bad"


def active(*, at: float = 100.0) -> PointAlarm:
    alarm = PointAlarm()
    for n in range(3):
        alarm.judge(CAUSE, at + n, suppressed=False)
    assert alarm.state.active
    return alarm


def test_a_passing_trouble_is_no_alarm() -> None:
    alarm = PointAlarm()
    for cause in (CAUSE, CAUSE, "", CAUSE, CAUSE, ""):
        assert alarm.judge(cause, 100.0, suppressed=False) is False
    assert not alarm.state.active


def test_the_third_bad_decision_in_a_row_raises_it_once() -> None:
    alarm = PointAlarm()
    assert [alarm.judge(CAUSE, 100.0 + n, suppressed=False) for n in range(4)] == [False, False, True, False]
    assert alarm.state.cause == CAUSE
    assert alarm.state.since == 102.0


def test_it_ends_only_after_a_quiet_while_and_stands_until_acknowledged() -> None:
    alarm = active()
    assert alarm.judge("", 104.0, suppressed=False) is False
    assert alarm.judge("", 107.0, suppressed=False) is True
    assert not alarm.state.active
    assert not alarm.state.acknowledged
    assert alarm.acknowledge() is True
    assert alarm.acknowledge() is False


def test_a_bad_decision_in_between_keeps_it_active() -> None:
    alarm = active()
    alarm.judge(CAUSE, 106.0, suppressed=False)
    assert alarm.judge("", 108.0, suppressed=False) is False
    assert alarm.state.active


def test_acknowledging_does_not_end_an_active_alarm() -> None:
    alarm = active()
    alarm.acknowledge()
    assert alarm.state.active
    assert alarm.state.acknowledged


def test_none_in_shadow_and_what_stood_ends_there() -> None:
    quiet = PointAlarm()
    for n in range(10):
        assert quiet.judge(CAUSE, 100.0 + n, suppressed=True) is False
    alarm = active()
    assert alarm.judge(CAUSE, 103.0, suppressed=True) is True
    assert not alarm.state.active


def test_bad_decisions_in_shadow_do_not_count_after_it() -> None:
    alarm = PointAlarm()
    alarm.judge(CAUSE, 100.0, suppressed=True)
    alarm.judge(CAUSE, 101.0, suppressed=True)
    assert alarm.judge(CAUSE, 102.0, suppressed=False) is False


def test_a_change_nobody_requested_needs_no_delay() -> None:
    alarm = PointAlarm()
    assert alarm.trip("`P.SP` became 3 without a request", 100.0) is True
    assert alarm.trip("again", 101.0) is False
    assert alarm.state.cause == "`P.SP` became 3 without a request"


def test_s28_what_is_latched_stands_unacknowledged_whatever_stood_before_and_comes_after() -> None:
    alarm = PointAlarm(on_after=1)
    alarm.judge("undetermined", 0.0, suppressed=False)
    alarm.acknowledge()
    assert alarm.latch("an assumption is broken", 1.0)
    assert (alarm.state.active, alarm.state.acknowledged) == (True, False)
    assert alarm.state.cause == "an assumption is broken"
    assert not alarm.latch("an assumption is broken", 2.0)  # it stands already
    alarm.judge("", 20.0, suppressed=False)
    assert (alarm.state.active, alarm.state.acknowledged) == (False, False)
    alarm.judge("undetermined again", 21.0, suppressed=False)
    assert alarm.state.cause == "an assumption is broken"  # still what a person must clear
    alarm.acknowledge()
    alarm.judge("", 40.0, suppressed=False)
    alarm.judge("undetermined again", 41.0, suppressed=False)
    assert alarm.state.cause == "undetermined again"


WATCHED = {"plant/spec": "plant/spec is violated, and no action can influence it: off-spec"}


def test_s28_what_is_only_watched_is_a_line_of_its_own_in_the_one_alarm() -> None:
    alarm = active()
    for n in range(3):
        alarm.judge(CAUSE, 110.0 + n, suppressed=False, watched=WATCHED)
    assert alarm.state.cause == f"{CAUSE}; {WATCHED['plant/spec']}"
    assert not alarm.only_watched
    alarm.acknowledge()
    assert alarm.judge("", 120.0, suppressed=False, watched=WATCHED) is True
    assert (alarm.state.active, alarm.state.cause) == (True, WATCHED["plant/spec"])
    assert alarm.only_watched


def test_s28_a_new_line_in_an_acknowledged_alarm_asks_to_be_seen() -> None:
    alarm = active()
    alarm.acknowledge()
    changes = [alarm.judge(CAUSE, 110.0 + n, suppressed=False, watched=WATCHED) for n in range(4)]
    assert changes == [False, False, True, False]
    assert not alarm.state.acknowledged


def test_s28_a_watched_line_has_the_alarms_delays_ends_by_itself_and_stands_until_acknowledged() -> None:
    alarm = PointAlarm()
    for n in range(2):
        assert alarm.judge("", 100.0 + n, suppressed=False, watched=WATCHED) is False
    assert alarm.judge("", 102.0, suppressed=False, watched=WATCHED) is True
    assert alarm.judge("", 104.0, suppressed=False) is False
    assert alarm.judge("", 107.0, suppressed=False) is True
    assert (alarm.state.active, alarm.state.acknowledged) == (False, False)
    assert alarm.acknowledge() is True
    assert (alarm.state.cause, alarm.only_watched) == ("", False)


def test_s28_in_shadow_a_watched_line_is_no_alarm() -> None:
    alarm = PointAlarm(on_after=1)
    assert alarm.judge("", 100.0, suppressed=True, watched=WATCHED) is False
    alarm.judge("", 101.0, suppressed=False, watched=WATCHED)
    assert alarm.judge("", 102.0, suppressed=True, watched=WATCHED) is True
    assert not alarm.state.active


def test_s28_where_nobody_knows_a_watched_line_neither_ends_nor_begins() -> None:
    alarm = PointAlarm(on_after=1)
    alarm.judge("", 100.0, suppressed=False, watched=WATCHED)
    assert alarm.judge("", 200.0, suppressed=False, watched=None) is False
    assert alarm.state.active
    assert alarm.judge("", 201.0, suppressed=False) is True
    assert not alarm.state.active

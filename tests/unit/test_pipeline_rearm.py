"""S23: who may be armed, by a person or again by itself, and in which words it is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.core.quality import StatusCode
from gateway.pipeline.history import OutputHistory
from gateway.pipeline.rearm import ArmedBefore, not_armable, not_rearmable
from gateway.pipeline.rules import RulesInForce
from tests.fakes.pipeline import LEVEL, PUMP, STATUS, House

BEFORE = ArmedBefore(
    armed=True,
    rule_set_digest="digest-1",
    model_digest="model-1",
    starts_last_hour=1,
    starts_limit=3,
)


def armable(house: House) -> str:
    return not_armable(
        house.point, house.rules.current, house.store, house.writer, writes_stopped=house.stopped
    )


def rearmable(before: ArmedBefore) -> str:
    return not_rearmable(House().rules.current, before, "model-1")


def test_a_healthy_point_may_be_armed() -> None:
    assert not armable(House())


def _stop(house: House) -> None:
    house.stopped = True


def _no_required(house: House) -> None:
    house.point.settings = replace(house.point.settings, required_modules=())


def _empty_rules(house: House) -> None:
    house.rules.activate(RulesInForce(2, "empty", frozenset(), ""))


def _unproved(house: House) -> None:
    house.rules.activate(RulesInForce(2, "two", frozenset({"tank"}), "safe set of `tank` is not proved"))


# S1, S11: what is proved of the backup is proved for a move in each step.
def test_s1_a_point_that_decides_less_often_than_its_backup_must_move_cannot_be_armed() -> None:
    house = House()
    house.rules.activate(replace(house.rules.current, backup_moves_each_s=1.0))
    assert not armable(house)  # it is only asked, and the PLC falls back by itself in between
    for period_s, refused in ((0.5, False), (1.0, False), (1.2, True), (5.0, True)):
        house.point.settings = replace(house.point.settings, period_s=period_s)
        assert ("for a move in each step of 1 s" in armable(house)) is refused
    house.rules.activate(replace(house.rules.current, backup_moves_each_s=None))
    assert not armable(house)


def _bad_input(house: House) -> None:
    house.sample(LEVEL, 2.0, StatusCode.Bad)


def _frozen(house: House) -> None:
    house.not_live = "the liveness counter `LIVE` was not seen to move"


def _local(house: House) -> None:
    house.sample(STATUS, 0)


def _silent_plc(house: House) -> None:
    house.sample(STATUS, 3, StatusCode.UncertainLastUsableValue)


def _unread(house: House) -> None:
    house.point.histories[PUMP] = OutputHistory()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_stop, "kill switch"),
        (_no_required, "`required_modules` is empty"),
        (_empty_rules, "empty rule set permits nothing"),
        (_unproved, "safe set of `tank` is not proved"),
        (_bad_input, "`LT` is Bad"),
        (_frozen, "`LIVE` was not seen to move"),
        (_local, "local"),
        (_silent_plc, "local"),
        (_unread, "value in force of `P.SP` is not known"),
    ],
)
def test_what_is_not_fit_is_not_armed_and_is_told_why(spoil: Callable[[House], None], words: str) -> None:
    house = House()
    spoil(house)
    assert words in armable(house)


def test_what_was_armed_and_unchanged_goes_back_by_itself() -> None:
    assert not rearmable(BEFORE)


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (replace(BEFORE, armed=False), "not armed before"),
        (replace(BEFORE, rule_set_digest="digest-0"), "rule set changed"),
        (replace(BEFORE, model_digest="model-0"), "model changed"),
        (replace(BEFORE, starts_last_hour=3), "3 starts within an hour"),
    ],
)
def test_any_change_since_leaves_it_to_a_person(before: ArmedBefore, words: str) -> None:
    assert words in rearmable(before)


def test_a_lifted_start_limit_counts_nothing() -> None:
    assert not rearmable(replace(BEFORE, starts_last_hour=100, starts_limit=None))

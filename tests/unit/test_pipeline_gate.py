"""S17: the last gate names the first reason that closes it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gateway.core.decision import Mode
from gateway.core.tag import TagId
from gateway.pipeline.gate import GateFacts, gate

PUMP = TagId("P.SP")
OPEN = GateFacts(
    writes_stopped=False,
    mode=Mode.ARMED,
    deadline_passed=False,
    remote=True,
    session_used=3,
    session_now=3,
    generation_used=7,
    generation_now=7,
    override_over="",
    unusable_input="",
    outside_proof="",
    not_live="",
    previous_used={PUMP: (Fraction(40),)},
    previous_now={PUMP: (Fraction(40),)},
)


def test_it_is_open_when_nothing_changed() -> None:
    assert not gate(OPEN)


def test_every_single_fact_closes_it_with_its_own_words() -> None:
    for changed, words in (
        (replace(OPEN, writes_stopped=True), "kill switch"),
        (replace(OPEN, mode=Mode.SHADOW), "in shadow, not armed"),
        (replace(OPEN, mode=Mode.ADVISORY), "in advisory, not armed"),
        (replace(OPEN, mode=Mode.OFF), "in off, not armed"),
        (replace(OPEN, deadline_passed=True), "the deadline passed"),
        (replace(OPEN, remote=False), "local"),
        (replace(OPEN, session_now=4), "renewed"),
        (replace(OPEN, generation_now=8), "rule set 8 came into force after the check under 7"),
        (replace(OPEN, override_over="the override of `tank/ramp` ended"), "`tank/ramp` ended"),
        (replace(OPEN, unusable_input="LT"), "`LT` is not Good"),
        (replace(OPEN, outside_proof="`LT` now reads 3 m"), "`LT` now reads 3 m"),
        (replace(OPEN, not_live="the counter stands still"), "the counter stands still"),
        (replace(OPEN, previous_now={PUMP: (Fraction(41),)}), "`P.SP` changed"),
        (replace(OPEN, previous_now={PUMP: (Fraction(50), Fraction(40))}), "`P.SP` changed"),
        (replace(OPEN, previous_now={}), "`P.SP` changed"),
    ):
        assert words in gate(changed)


def test_the_kill_switch_comes_before_every_other_reason() -> None:
    assert "kill switch" in gate(replace(OPEN, writes_stopped=True, mode=Mode.OFF, remote=False))

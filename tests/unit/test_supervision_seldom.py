"""Events that strangers bring about."""

from __future__ import annotations

from gateway.supervision.seldom import Seldom


def test_the_first_is_told_at_once_and_then_one_a_period_with_how_many_there_were() -> None:
    seldom = Seldom(10.0)
    assert [seldom.due(now) for now in (5.0, 5.0, 14.9, 15.0, 15.1, 40.0, 41.0)] == [1, 0, 0, 3, 0, 2, 0]

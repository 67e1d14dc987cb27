"""What people read of a violated rule."""

from __future__ import annotations

import pytest

from gateway.core.decision import Refused
from tests.unit.solver_small import Plant, judged, small


@pytest.mark.parametrize(
    ("require", "missed"),
    [
        ("abs(l - 1.5) <= 0.2", "0.3105 m"),
        ("l + 0.01*q <= 1", "1.2135 m"),
        ("abs(t - 20) <= 5", "15.105 K"),
        ("g - 1 <= 0.5", "0.605 bar"),
        ("abs(rate(p)) <= 10", "20 %/s"),
        ("p*p <= 100", "4800"),
        ("2*b <= 1", "1"),
    ],
)
def test_what_a_rule_is_missed_by_is_told_in_its_unit_where_it_has_one(require: str, missed: str) -> None:
    result = judged(small(require), Plant(b=True, new={"P": "70"}))
    assert isinstance(result.verdict, Refused)
    assert f"` is missed by {missed}, with" in result.verdict.counterexample.text

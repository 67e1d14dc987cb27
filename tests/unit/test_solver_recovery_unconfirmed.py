"""S9 while a write is unconfirmed: no violation may grow against any of the values that may be in force."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import InForce
from gateway.core.tag import TagId
from tests.unit.solver_small import Plant, checks, rule, small

BACKUP = [{"p": "50", "h": False, "s": "idle"}]


@pytest.mark.parametrize(
    ("may_be", "recovers"),
    [(("0",), True), (("50",), True), (("100",), False), (("0", "100"), False), (("100", "0"), False)],
)
def test_s9_the_backup_is_no_worse_than_each_value_that_may_be_in_force(
    may_be: tuple[str, ...],
    recovers: bool,  # noqa: FBT001
) -> None:
    """The level is too high and rises: with the pump at 50 % less than at 0, and more than at 100."""
    module = small(
        rule("l <= 3", "high", always=True),
        dynamics={"l": "l + 0.2 - 0.001*p"},
        backup=BACKUP,
        safe_set=["l <= 2"],
    )
    request = Plant(l=3.4, hold_s=1.0).request()
    told = tuple(InForce(Fraction(value), 0.0) for value in may_be)
    asked = replace(request, proposal=None, history={**request.history, TagId("P"): told})
    result, _ = checks(module).check(asked)
    assert type(result.verdict).__name__ == "Refused"
    assert result.recovery is recovers

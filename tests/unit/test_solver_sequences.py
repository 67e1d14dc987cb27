"""Sequences: where an enum action may go, and how long it stays."""

from __future__ import annotations

import pytest

from gateway.core.decision import Permitted, Refused, Violated
from tests.unit.solver_small import Plant, judged, small

CYCLE = {
    "id": "cycle",
    "variable": "s",
    "kind": "critical",
    "cyclic": True,
    "states": [{"state": "idle"}, {"state": "run", "min": "5 s", "max": "9 s"}],
}


@pytest.mark.parametrize(
    ("old", "new", "held", "violated"),
    [
        ("0", "0", 1e6, set()),
        ("0", "5", 0.0, set()),
        ("0", "9", 9.0, {"cycle.order"}),
        ("5", "0", 5.0, set()),
        ("5", "0", 4.9, {"cycle.min"}),
        ("5", "5", 8.9, set()),
        ("5", "5", 9.0, {"cycle.max"}),
        ("9", "9", 9.0, set()),
        ("9", "0", 9.0, {"cycle.order"}),
    ],
)
def test_a_sequence_keeps_its_order_and_its_times(
    old: str, new: str, held: float, violated: set[str]
) -> None:
    found = judged(small("p <= 90", sequences=[CYCLE]), Plant(old={"S": old}, new={"S": new}, held_s=held))

    assert {f.constraint for f in found.findings if isinstance(f, Violated)} == violated
    assert isinstance(found.verdict, Permitted) is (not violated)


# Unknown never passes: a register may hold what no label stands for, also where every label is a state.
@pytest.mark.parametrize(
    ("old", "new", "violated"),
    [("7", "0", {"cycle.order"}), ("7", "7", {"s.range"}), ("0", "7", {"cycle.order", "s.range"})],
)
def test_a_sequence_with_every_label_listed_is_neither_left_nor_entered_from_a_value_that_is_none(
    old: str, new: str, violated: set[str]
) -> None:
    module = small(
        "p <= 90", sequences=[{**CYCLE, "states": [{"state": label} for label in ("idle", "run", "stop")]}]
    )

    found = judged(module, Plant(old={"S": old}, new={"S": new}, held_s=9.0))

    assert {f.constraint for f in found.findings if isinstance(f, Violated)} == violated
    assert isinstance(found.verdict, Refused)

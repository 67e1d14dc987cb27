"""The independent checker under overrides: it sets the same rules aside, never a critical one (S7, S25)."""

from __future__ import annotations

import pytest

from gateway.recheck.check import recheck
from gateway.recheck.declared import faults
from gateway.recheck.language import LanguageError
from gateway.recheck.overridden import set_aside
from gateway.recheck.source import read_source
from tests.unit.solver_demo import rule_set
from tests.unit.test_recheck_courses import ORDER, E, rule, small
from tests.unit.test_recheck_module import TANK, ask

JUMP = ask(("1.99", "2.01"), ("40", "80"))


def test_an_overridden_rule_is_still_reported_and_breaks_nothing_s25() -> None:
    assert recheck([TANK], JUMP).violated == {"tank/pump-ramp"}

    report = recheck([TANK], JUMP, overridden=["tank/pump-ramp"])

    assert report.violated == frozenset()
    assert [(b.name, b.kind) for b in report.breaches if b.constraint == "pump-ramp"] == [
        ("tank/pump-ramp", "informational")
    ]


@pytest.mark.parametrize(
    "name", ["no-overflow", "safe_set[1]", "pump.range", "heater.min_on", "pump-rmap", "prefer-slow"]
)
def test_anything_but_a_standard_constraint_is_never_set_aside_s25(name: str) -> None:
    texts = [m.text for m in rule_set().modules]
    with pytest.raises(LanguageError, match="nothing can override it"):
        recheck(texts, JUMP, overridden=[f"buffer-tank/{name}"])


def test_one_rule_of_a_standard_sequence_is_set_aside_and_the_others_go_on_s25() -> None:
    text = small({"e": E}, rule("e != run or e == run"), sequences=[ORDER])
    source = read_source(text)
    order = source.orders[0]
    (aside,) = set_aside([source], [f"{source.id}/{order.id}.order"])
    assert [aside.orders[0].kind_of(end) for end in ("order", "min", "max")] == [
        "informational",
        "standard",
        "standard",
    ]
    now, later = next(iter(order.states)), list(order.states)[-1]
    found = list(faults(aside, {order.tag: now}, {order.tag: later}, {}))
    assert [(f.id, f.kind) for f in found] == [(f"{order.id}.order", "informational")]


@pytest.mark.parametrize("end", ["order", "min", "max"])
def test_each_rule_of_a_standard_sequence_can_be_set_aside_alone_s25(end: str) -> None:
    source = read_source(small({"e": E}, rule("e != run or e == run"), sequences=[ORDER]))
    order = source.orders[0]
    (aside,) = set_aside([source], [f"{source.id}/{order.id}.{end}"])
    kinds = {each: aside.orders[0].kind_of(each) for each in ("order", "min", "max")}
    assert kinds == dict.fromkeys(kinds, "standard") | {end: "informational"}


def test_a_critical_sequence_is_never_set_aside_s25() -> None:
    text = small({"e": E}, rule("e != run or e == run"), sequences=[{**ORDER, "kind": "critical"}])
    source = read_source(text)
    with pytest.raises(LanguageError, match="nothing can override it"):
        set_aside([source], [f"{source.id}/{source.orders[0].id}.order"])

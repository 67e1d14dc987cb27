"""What a solver worker refuses to load: modules that can never hold together."""

from __future__ import annotations

import pytest

from gateway.solver.module import Module
from gateway.solver.ruleset import RuleSet
from gateway.solver.wire import Answer, Done, Failed, Load, given
from gateway.solver.worker import Desk
from tests.unit.solver_small import TAGS, rule, small


def loaded(*modules: Module) -> Answer | None:
    ask = Load(generation=1, modules=given(RuleSet.of(modules, 1)), tags=tuple(TAGS.values()), warm=())
    return Desk().answer(ask)


def test_modules_that_can_never_hold_together_are_not_loaded_and_both_are_named() -> None:
    answer = loaded(small("p >= 60", id="one"), small(rule("p <= 20", "low"), id="two"))

    assert answer == Failed(
        "`r` of module `one` (one.json:1: `p >= 60`) and `low` of module `two` (two.json:1: `p <= 20`) can "
        "never hold together: nothing would be permitted"
    )


@pytest.mark.parametrize("second", ["p <= 60", "p <= 20 or l >= 1"])
def test_modules_that_may_hold_together_are_loaded(second: str) -> None:
    assert isinstance(loaded(small("p >= 60", id="one"), small(rule(second, "low"), id="two")), Done)


def test_what_is_only_reported_or_watched_contradicts_nothing() -> None:
    report = small(rule("p <= 20", "low", "informational"), rule("p <= 30", "watch", monitor=True), id="two")

    assert isinstance(loaded(small("p >= 60", id="one"), report), Done)


# A search that is not done in its budget refuses nothing: every check still shows what holds.
def test_a_contradiction_that_is_not_known_in_the_budget_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.solver.worker.CONFLICT_S", 0.0)

    assert isinstance(loaded(small("p >= 60", id="one"), small(rule("p <= 20", "low"), id="two")), Done)

"""How a solver worker loads a set: what it refuses, what it need not work out again, what it rehearses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import msgspec
import pytest

from gateway.core.decision import CheckResult
from gateway.core.ports import CheckRequest, StateSet
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.analysis.asking import Asking
from gateway.solver.checking.terms import Answer as AnswerOfZ3
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.wire import Answer, Done, Drop, Failed, Load, Prepare, given
from gateway.solver.workers.check import Checks
from gateway.solver.workers.seat import Kept
from gateway.solver.workers.worker import Desk
from tests.unit.solver_demo import LOWER_LEVEL, Situation, proposal
from tests.unit.solver_demo import module as demo_module
from tests.unit.solver_demo import rule_set as demo_rules
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


# What the first worker has found the others take over; what can never hold together none of them has loaded.
def test_a_set_that_another_worker_has_examined_is_not_examined_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[RuleSet] = []
    monkeypatch.setattr("gateway.solver.workers.worker._conflict", lambda rules, _met: asked.append(rules))
    kept = Kept(RuleSet.of([small("p >= 60", id="one")], 1))
    first = Desk().answer(kept.ask([(1.0, 0.0)]))
    assert isinstance(first, Done)
    assert len(asked) == 1
    assert any(first.outlines.values())
    kept.learn(first)

    second = Desk().answer(kept.ask([(1.0, 0.0)]))

    assert second == first
    assert len(asked) == 1


def test_what_a_worker_has_compiled_it_compiles_again_only_over_other_tags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def compiling(data: bytes, source: str, tags: Mapping[TagId, TagDefinition]) -> Module:
        seen.append(source)
        return compile_module(data, source, tags)

    monkeypatch.setattr("gateway.solver.workers.worker.compile_module", compiling)
    one, two = small("p >= 10", id="one"), small(rule("p <= 90", "high"), id="two")
    desk, ask = Desk(), Kept(RuleSet.of([one], 1)).ask([])
    assert isinstance(desk.answer(ask), Done)

    assert isinstance(desk.answer(Kept(RuleSet.of([one, two], 2)).ask([])), Done)
    assert seen == ["one.json", "two.json"]

    tags = tuple(replace(d, scale=d.scale / 10) if d.id == "P" else d for d in ask.tags)
    assert tags != ask.tags
    assert isinstance(desk.answer(msgspec.structs.replace(ask, generation=3, tags=tags)), Done)
    assert seen == ["one.json", "two.json", "one.json"]


def test_a_set_is_rehearsed_on_the_premises_told_last_and_a_rehearsal_that_fails_refuses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, bool]] = []
    true_check = Checks.check

    def check(
        self: Checks, request: CheckRequest, *late: Callable[[], bool]
    ) -> tuple[CheckResult, StateSet | None]:
        seen.append((request.generation, request.may_repair))
        if len(seen) == 3:
            raise ZeroDivisionError
        return true_check(self, request, *late)

    monkeypatch.setattr(Checks, "check", check)
    desk = Desk()
    assert isinstance(desk.answer(Kept(demo_rules()).ask([])), Done)
    assert seen == []  # no premises were told yet
    desk.prepare(Prepare(Situation().request(proposal())))

    for generation in (2, 3, 4):
        assert isinstance(desk.answer(Kept(demo_rules(generation=generation)).ask([])), Done)

    assert seen == [(2, False), (3, False), (4, False)]
    for gone in (2, 2, 4):
        assert desk.answer(Drop(gone)) == Done()
    assert seen[3:] == [(4, False), (3, False)]  # the newest that is left, where anything was dropped


def test_many_sets_leave_no_more_behind_than_the_last_two() -> None:
    desk, tank = Desk(), demo_module()
    counts: list[int] = []
    for generation in range(1, 9):
        limit = f"{3.1 - generation / 1000:.3f}"
        fresh = demo_module(LOWER_LEVEL, ('"revision": 1', f'"revision": {generation}'), ("3.2", limit))
        assert isinstance(desk.answer(Kept(RuleSet.of([tank, fresh], generation)).ask([(1.2, 0.3)])), Done)
        desk.answer(Drop(generation - 1))
        counts.append(len(desk._shelf._parts))
    assert len(set(counts)) == 1


# A search that is not done in its budget refuses nothing: every check still shows what holds.
def test_a_contradiction_that_is_not_known_in_the_budget_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.solver.workers.worker.CONFLICT_S", 0.0)

    assert isinstance(loaded(small("p >= 60", id="one"), small(rule("p <= 20", "low"), id="two")), Done)


def asked_of_z3(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rules were put to Z3 in each search for a contradiction."""
    seen: list[int] = []
    true = Asking.ask

    def ask(self: Asking, names: Iterable[str] = ()) -> AnswerOfZ3:
        seen.append(len(given := tuple(names)))
        return true(self, given)

    monkeypatch.setattr(Asking, "ask", ask)
    return seen


def load_into(desk: Desk, *modules: Module, generation: int) -> Answer | None:
    return desk.answer(Kept(RuleSet.of(modules, generation)).ask([]))


# Most sets permit what the set before permitted, and that is seen by calculating it.
def test_a_state_that_the_last_set_permits_answers_for_the_next_where_that_permits_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, desk = asked_of_z3(monkeypatch), Desk()
    one = small("p >= 60", id="one")
    assert isinstance(load_into(desk, one, generation=1), Done)
    assert len(seen) == 1

    assert isinstance(load_into(desk, one, small("p >= 5", id="two"), generation=2), Done)
    assert len(seen) == 1

    assert isinstance(load_into(desk, small(rule("p <= 20", "low"), id="two"), generation=3), Done)
    assert len(seen) == 2


# The state kept is of one set only: it never makes up for one that the next set does not have.
def test_modules_that_can_never_hold_together_are_refused_whatever_was_loaded_before() -> None:
    desk = Desk()
    one, two = small("p >= 60", id="one"), small(rule("p <= 20", "low"), id="two")
    for generation, alone in enumerate((one, two, one), 1):
        assert isinstance(load_into(desk, alone, generation=generation), Done)

    answer = load_into(desk, one, two, generation=4)

    assert isinstance(answer, Failed)
    assert "can never hold together" in answer.reason


def test_a_state_at_a_root_answers_for_no_other_set(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, desk = asked_of_z3(monkeypatch), Desk()

    for generation in (1, 2):
        root = small("l * l >= 2 and l * l <= 2", id="root")
        assert isinstance(load_into(desk, root, generation=generation), Done)

    assert len(seen) == 2

"""What one rule set takes over from another changes no answer, and only what is the same is taken over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import CheckResult
from gateway.solver.checking import outline
from gateway.solver.checking.condense import condense, keys
from gateway.solver.checking.shelf import Shelf
from gateway.solver.checking.terms import Budget
from gateway.solver.language.affine import Formula
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import Rule, RuleSet
from gateway.solver.workers.check import Checks, millis_up
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL, PATIENT, Situation, module, proposal, rule_set

DELAY, HOLD = millis_up(0.3), millis_up(1.2)
SITUATIONS = [
    Situation(level=level, pump=pump, heater=heater)
    for level in (0.35, 0.6, 2.0, 3.05, 3.2, 3.55)
    for pump, heater in (("40", 0), ("95", 1))
]


def tighter(number: int) -> Module:
    return module(
        LOWER_LEVEL, ('"revision": 1', f'"revision": {number}'), ("3.2", f"{3.1 - number / 1000:.3f}")
    )


def answers(checks: Checks) -> Iterator[CheckResult]:
    for here in SITUATIONS:
        for wanted in ("0", "35", "100"):
            result, _ = checks.check(here.request(proposal(wanted)))
            yield CheckResult(
                verdict=result.verdict,
                findings=result.findings,
                generation=result.generation,
                rule_set_digest=result.rule_set_digest,
                proposal=result.proposal,
            )


def warmed(rules: RuleSet, shelf: Shelf | None = None, budget: Budget = PATIENT) -> Checks:
    checks = Checks(rules, budget, shelf)
    checks.warm(1.2, 0.3)
    return checks


# S17: one generation a decision. A set on a shelf with others, built and gone, says what it says alone.
def test_s17_a_set_beside_others_says_word_for_word_what_it_says_alone() -> None:
    shelf, tank = Shelf(), module()
    before: Checks | None = None
    for number in range(1, 4):
        rules = RuleSet.of([tank, tighter(number)] if number % 2 else [tank], number)
        beside = warmed(rules, shelf)
        assert list(answers(beside)) == list(answers(warmed(rules)))
        if before is not None:
            assert list(answers(before)) == list(answers(warmed(before.rules)))
        before = beside


def test_only_the_parts_of_the_changed_module_are_made_anew() -> None:
    shelf, tank = Shelf(), module()
    one = warmed(RuleSet.of([tank, tighter(1)], 1), shelf)
    two = warmed(RuleSet.of([tank, tighter(2)], 2), shelf)

    mine = {(r.module, r.constraint.id): k for r, k in _keyed(one.rules)}
    theirs = {(r.module, r.constraint.id): k for r, k in _keyed(two.rules)}

    assert mine.keys() == theirs.keys()
    changed = {rule for rule, key in mine.items() if theirs[rule] != key}
    assert changed == {("lower-level-limit", "lower-level"), ("lower-level-limit", "safe_set[1]")}
    assert len(shelf._parts) == len({*mine.values(), *theirs.values()})


def test_what_no_set_has_any_more_is_gone() -> None:
    shelf, tank = Shelf(), module()
    kept = warmed(RuleSet.of([tank], 1), shelf)
    fewest = len(shelf._parts)
    for number in range(2, 12):
        warmed(RuleSet.of([tank, tighter(number)], number), shelf)

    assert len(shelf._parts) == fewest
    del kept
    assert len(shelf._parts) == 0


@pytest.mark.parametrize(
    "change",
    [
        ('"error": "0.01"', '"error": "0.02"'),
        ('"range": ["-0.1", "5"]', '"range": ["-0.1", "5.5"]'),
        ('"max_rate": "2 m3/h/s"', '"max_rate": "3 m3/h/s"'),
        ('"physical": ["0", "36"]', '"physical": ["0", "38"]'),
        ("0.0000625*pump", "0.0000626*pump"),
        ('"leak": ["-0.00051", "0.00051"]', '"leak": ["-0.00051", "0.00052"]'),
        ('"level <= 3.6", "always": true', '"level <= 3.6 and level <= 4", "always": true'),
        ('"level <= 3.6", "always": true', '"level <= 3.6", "always": false'),
    ],
    ids=lambda change: change[1],
)
def test_s3_a_premise_or_a_word_that_differs_makes_another_part(change: tuple[str, str]) -> None:
    if change[0] not in BUFFER_TANK.read_text():
        pytest.fail(f"{change[0]} is not in the module")
    was, now = rule_set(), rule_set(module(BUFFER_TANK, change))
    index = next(i for i, r in enumerate(was.rules) if r.constraint.id == "no-overflow")

    assert keys(was, DELAY, HOLD)[index] == keys(rule_set(), DELAY, HOLD)[index]
    assert keys(was, DELAY, HOLD)[index] != keys(now, DELAY, HOLD)[index]


def test_other_times_make_other_parts() -> None:
    rules = rule_set()
    found = {keys(rules, delay, hold) for delay in (DELAY, Fraction(0)) for hold in (HOLD, Fraction(3))}
    assert len(found) == 4


def test_the_same_words_as_a_rule_and_in_the_safe_set_are_two_parts() -> None:
    rules = rule_set()
    named = {k: (r.constraint.id, r.constraint.text) for r, k in _keyed(rules)}
    assert len(named) == len(rules.rules) + len(rules.safe_set)
    texts = [text for _, text in named.values()]
    assert texts.count("temp <= 75") == 2


def test_a_plan_made_of_known_duties_is_the_plan_made_anew() -> None:
    shelf, first = Shelf(), replace(tighter(1), priority=15)  # before the others: their numbers differ
    kept, rules = warmed(rule_set(), shelf), rule_set(module(), first)
    assert kept.rules.rules[0].constraint.id != rules.rules[0].constraint.id

    taken, made = condense(rules, DELAY, HOLD, shelf.duties), condense(rules, DELAY, HOLD)

    assert taken == made
    assert set(keys(kept.rules, DELAY, HOLD)) < set(taken.keys)


# S8: Z3 is asked of every outline, by one worker; what it said there counts here, and nothing else does.
def test_s8_what_z3_said_of_an_outline_elsewhere_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = rule_set(module(), tighter(1))
    first = warmed(rules)
    said = first.outlines
    assert any(said.values())
    shelf = Shelf()
    shelf.kept = said
    monkeypatch.setattr(outline._Prover, "keeps", _never)

    second = warmed(rules, shelf)

    assert second.outlines == said
    assert list(answers(second)) == list(answers(first))


def test_a_rule_whose_outline_was_refused_elsewhere_has_none_here() -> None:
    rules = rule_set()
    shelf = Shelf()
    shelf.kept = dict.fromkeys(keys(rules, DELAY, HOLD), False)

    checks = warmed(rules, shelf)

    assert not any(checks.outlines.values())
    assert list(answers(checks)) == list(answers(warmed(rules)))


def test_an_outline_of_which_z3_did_not_say_is_not_told_of_and_asked_again() -> None:
    shelf, rules = Shelf(), rule_set()
    hurried = warmed(rules, shelf, Budget(rlimit=1, timeout_ms=60_000))
    of_products_or_long = set(hurried.outlines)

    patient = warmed(rules, shelf)

    assert set(patient.outlines) > of_products_or_long
    assert not any(hurried.outlines[key] for key in of_products_or_long)
    assert patient.outlines == warmed(rules).outlines


def _keyed(rules: RuleSet) -> list[tuple[Rule, str]]:
    return list(zip((*rules.rules, *rules.safe_set, *rules.terminal), keys(rules, DELAY, HOLD), strict=True))


def _never(*_: object) -> Formula:
    raise AssertionError

"""What a new revision newly permits and newly refuses, and proofs that it permits nothing new (S24)."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from gateway.core.decision import Permitted, Refused
from gateway.solver.analysis import apart, difference
from gateway.solver.analysis.asking import Allowance
from gateway.solver.in_force.comparing import Comparing
from gateway.solver.in_force.watcher import Content, FileSettled
from gateway.solver.in_force.weakening import weakens
from gateway.solver.modules.module import Module
from gateway.solver.rules.around import Around
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL, module, rule_set
from tests.unit.solver_small import Plant, judged, rule, small
from tests.unit.true_registry import TrueBench


def why(old: Module, new: Module, allowance: Allowance | None = None) -> str:
    return why_among([old], old, new, allowance)


def why_among(modules: list[Module], old: Module, new: Module, allowance: Allowance | None = None) -> str:
    given = allowance or Allowance()
    return weakens(
        RuleSet.of(modules, 1), old, new, lambda a, b, around: difference.unkept(a, b, given, around)
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("p <= 80", "2*p <= 159"),
        ("p <= 80", "p <= 70 and p + 2*l <= 100"),
        ("abs(p - 40) <= 20", "25 <= p <= 55"),
        ("p <= 80 or l >= 2", "p <= 80"),
        ("max(p, 2*l) <= 80", "p <= 80 and l <= 40"),
        ("h implies l >= 1", "h implies l >= 1 and t <= 80"),
        ("s in (idle, run)", "s == idle"),
        ("p*l <= 200", "p <= 10 and l <= 4 and l >= 0 and p >= 0"),
        ("rate(p) <= 5", "abs(rate(p)) <= 5"),
        ("p - prev(p) <= 5", "p <= prev(p)"),
    ],
)
def test_s24_a_rule_reworded_so_that_it_permits_nothing_new_is_a_tightening(old: str, new: str) -> None:
    assert why(small(old), small(new, rule("p <= 100", "more"))) == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("p <= 80", "2*p <= 161", "`r` would permit p 80."),
        ("p <= 80", "p <= 80 or l >= 4.9", "`r` would permit"),
        ("s in (idle, run)", "s != idle", "s stop"),
        (
            "abs(rate(p)) <= 5",
            "abs(p - prev(p)) <= 5",
            "rate(p) ",
        ),  # other values were in force
        ("l >= 0.5", "l >= 0.5 or b", "b true"),
        (
            "l <= 5.5",
            "l <= 6 and l <= 0.1*p + 5.4",
            "l 6 m",
        ),  # out of its range: a predicted state may be there
    ],
)
def test_s24_a_rule_that_permits_something_new_is_told_with_an_example(old: str, new: str, said: str) -> None:
    assert said in why(small(old), small(new))


MEASURED = {"l": "2", "q": "20", "t": "40", "g": "2", "b": False, "n": "3", "m": "auto"}
GIVEN = {**MEASURED, "p": "40", "h": False, "s": "idle"}


def critical(require: str, beside: dict[str, object] | None = None, *also: str) -> Module:
    """Critical `a`, and another rule beside it; a level of 4.5 m violates `a` and what `also` names."""
    cases = [
        {"given": {**GIVEN, "l": "4.5"}, "expect": {"violated": ["a", *also]}},
        {"given": GIVEN, "expect": "permitted"},
    ]
    rules = [rule(require, "a", "critical", always=True), *([beside] if beside is not None else [])]
    return small(*rules, cases=cases)


@pytest.mark.parametrize(
    ("beside", "also", "stands_for"),
    [
        (rule("2*l <= 6", "b", "critical", always=True), ("b",), True),
        (rule("l <= 3", "b", "standard", always=True), ("b",), False),
        (rule("l <= 3", "b", "critical"), ("b",), False),
        (rule("l <= 3", "b", "informational", always=True), (), False),
        (rule("l <= 3", "b", "critical", always=True, monitor=True), ("b",), False),
        (rule("l <= 3 + 0*prev(p)", "b", "critical", always=True), ("b",), True),
        (rule("l <= 3 or p < prev(p)", "b", "critical", always=True), ("b",), False),
    ],
)
def test_s24_a_rule_is_not_stood_for_by_one_that_weighs_less_or_is_asked_at_fewer_instants(
    beside: dict[str, object], also: tuple[str, ...], *, stands_for: bool
) -> None:
    assert (why(critical("l <= 3"), critical("l <= 4", beside, *also)) == "") == stands_for


def test_s24_a_safe_set_cut_smaller_in_other_words_is_a_tightening() -> None:
    tank = module()
    smaller = module(
        BUFFER_TANK,
        ('"revision": 7', '"revision": 8'),
        ('"heater implies temp <= 74.04"', '"heater implies temp <= 73 and level >= 0.6"'),
    )
    larger = module(
        BUFFER_TANK,
        ('"revision": 7', '"revision": 8'),
        ('"heater implies temp <= 74.04"', '"heater implies temp <= 74.04 + 0.5"'),
    )

    assert why(tank, smaller) == ""
    assert "`safe_set[6]` would permit" in why(tank, larger)


def test_s24_over_budget_is_a_weakening_and_never_fine() -> None:
    assert "not known in the budget" in why(small("p <= 80"), small("2*p <= 100"), Allowance(seconds=0.0))
    assert "not known in the budget" in why(small("p*p <= 80"), small("2*p*p <= 100"), Allowance(rlimit=1))


def test_s24_structure_is_judged_before_any_proof() -> None:
    asked: list[str] = []

    def ask(one: Module, _other: Module, _around: Around) -> str:
        asked.append(one.id)
        return ""

    old, new = small("p <= 80"), small("p <= 70", variables={"l": {"error": "0.001"}})

    found = weakens(RuleSet.of((old,), 1), old, new, ask)

    assert found == "the error of `l` became smaller"
    assert asked == []


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has the time that a slow machine needs to start it and to compare."""
    monkeypatch.setattr(apart, "BUDGET_S", 60.0)
    monkeypatch.setattr(apart, "_START_S", 120.0)


def test_s24_the_comparison_of_another_process_is_the_same() -> None:
    assert apart.unkept(small("p <= 80"), small("2*p <= 159")) == ""
    assert "`r` would permit p 80." in apart.unkept(small("p <= 80"), small("2*p <= 161"))


def test_s24_a_comparison_that_cannot_be_made_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")

    assert "not known in the budget" in apart.unkept(small("p <= 80"), small("2*p <= 159"))


def said(old: Module, new: Module, *weaker: str) -> dict[str, str]:
    found = difference.examine(old, new, weaker, Allowance())
    return {f.said.partition(":")[0]: f"{f.level} {f.said}" for f in found}


def test_the_difference_shows_one_example_each_way() -> None:
    old, new = small("p <= 80", rule("l <= 3", "deep")), small("p <= 90", rule("l <= 2", "deep"))

    told = said(old, new, "`r` would permit p 81 %")

    assert told["newly permitted against revision 1"].startswith("note")
    assert "`r`: `p <= 80`" in told["newly permitted against revision 1"]
    assert "`deep`: `l <= 2`" in told["newly refused against revision 1"]


# S3, S4: an example is a reading; the state behind it may be anywhere within the error.
def test_a_smaller_error_shows_a_reading_that_is_newly_permitted_and_the_state_that_breaks_the_rule() -> None:
    old = small("l <= 3")
    new = small("l <= 3", variables={"l": {"error": "0.001"}})

    told = said(old, new, "the error of `l` became smaller")

    assert "true l" in told["newly permitted against revision 1"]
    assert (
        told["newly refused against revision 1"]
        == "fine newly refused against revision 1: no snapshot in range"
    )


def test_a_tightening_has_no_newly_permitted_example_and_says_that_it_is_proved() -> None:
    told = said(small("p <= 80"), small("2*p <= 159"))

    assert told["newly permitted against revision 1"].startswith("fine")
    assert told["proved"].startswith("fine")
    assert (
        "p 80 %" in told["newly refused against revision 1"]
        or "p 79." in told["newly refused against revision 1"]
    )


def test_the_difference_of_a_lower_limit_of_the_demo_is_told_in_plant_terms() -> None:
    old = module(LOWER_LEVEL)
    new = module(
        LOWER_LEVEL,
        ('"require": "level <= 3.2"', '"require": "level <= 3.1"'),
        ('"level": "3.2", "inflow"', '"level": "3.1", "inflow"'),
    )

    told = said(old, new)

    assert "level 3." in told["newly refused against revision 1"]
    assert rule_set(old).modules[0].source in next(
        f.where for f in difference.examine(old, new, (), Allowance()) if f.where
    )


# S3: what one module vouches for is no premise where another one that knows the tag does not.
def test_s24_limits_that_another_module_does_not_vouch_for_prove_no_tightening() -> None:
    limits = {"q": {"physical": ["0", "36"]}}
    old = small("p + 1*q <= 57", variables=limits)
    new = small("p <= 20", variables=limits, revision=2)
    other = small(rule("q <= 40", monitor=True), id="other")
    plant = Plant(q=38.0, old={"P": "19"}, new={"P": "20"})
    assert isinstance(judged((old, other), plant).verdict, Refused)
    assert isinstance(judged((new, other), plant).verdict, Permitted)

    assert why(old, new) == ""
    assert "would permit" in why_among([old, other], old, new)
    assert "would permit" in apart.unkept(old, new, Around.of(RuleSet.of([old, other], 1), old, new))


# Where another module predicts the tag, its states may lie beyond the limits a reading is held to.
def test_s24_limits_of_what_another_module_predicts_prove_no_tightening() -> None:
    limits = {"q": {"physical": ["0", "36"]}}
    old, new = (small(rule(r, always=True), variables=limits) for r in ("p + 1*q <= 57", "p <= 20"))
    moves = small(rule("q <= 40", monitor=True), id="moves", variables=limits, dynamics={"q": "q + 0.1*p"})
    assert why(old, new) == ""
    assert "would permit" in difference.unkept(
        old, new, Allowance(), Around.of(RuleSet.of([old, moves], 1), old, new)
    )


# S24 from the folder on: a reworded limit is in force once it is compared, a wider one waits and says why.
@pytest.mark.parametrize(
    ("limit", "state", "why"),
    [
        ("2*level <= 6.2", "active", ""),
        ("2*level <= 6.6", "pending", "`lower-level` would permit level 3.3 m, which may weaken the rules"),
    ],
)
async def test_s24_a_reworded_file_is_in_force_without_a_person_only_where_it_is_proved(
    tmp_path: Path, limit: str, state: str, why: str
) -> None:
    registry = TrueBench(tmp_path).registry()
    told = asyncio.Event()
    registry.on_change = told.set
    comparing = asyncio.create_task(Comparing(registry, apart.unkept, Around.of).run(), name="compare")
    text = LOWER_LEVEL.read_text()
    new = text.replace('"revision": 1', '"revision": 2').replace(
        '"require": "level <= 3.2"', f'"require": "{limit}"'
    )
    new = new.replace('"level": "3.21"', '"level": "3.5"').replace(
        '"level": "3.2", "in', '"level": "3.1", "in'
    )
    await registry.start([settled("limit.json", text)])

    await registry.apply([settled("limit.json", new)])
    (meanwhile,) = [s for s in registry.statuses() if s.id == "lower-level-limit"]
    assert (meanwhile.state, meanwhile.revision) == ("pending", 1)
    async with asyncio.timeout(180):
        while any(waiting.comparing for waiting in registry.book.waiting.values()):
            told.clear()
            await told.wait()
    comparing.cancel()

    (status,) = [s for s in registry.statuses() if s.id == "lower-level-limit"]
    assert status.state == state
    assert why in "; ".join(status.refused_because)
    assert (status.revision == 2) == (state == "active")


def settled(name: str, text: str) -> FileSettled:
    return FileSettled(name, Content(text.encode(), hashlib.sha256(text.encode()).hexdigest()))

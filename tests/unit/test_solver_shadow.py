"""Modules in shadow judge every decision and change none (S27)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from fractions import Fraction

import pytest_asyncio

from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import (
    CheckResult,
    Finding,
    Holds,
    Permitted,
    Refused,
    Repaired,
    Undetermined,
    Unknown,
    Violated,
)
from gateway.core.ports import StateSet
from gateway.core.tag import TagId
from gateway.daemon.views import _would_have_said
from gateway.solver.checking.shadow import Trial
from gateway.solver.workers.check import Checks, millis_up
from gateway.solver.workers.pool import CheckerPool
from tests.unit.solver_demo import LOWER_LEVEL, PATIENT, Situation, good, module, proposal, rule_set
from tests.unit.solver_pools import PatientPool

CLOCK = SystemClock()
TANK = module()
LOWER = module(LOWER_LEVEL)
TIMES = millis_up(0.3), millis_up(1.2)


def of_limit(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    return {f.constraint: f for f in findings if f.module == "lower-level-limit"}


def found(situation: Situation, pump: str) -> tuple[Finding, ...]:
    wanted = proposal(pump)
    trial = Trial(rule_set(TANK, LOWER), rule_set(TANK))
    return trial.findings(situation.request(wanted), wanted.engineering(), *TIMES)


def test_only_the_shadow_modules_rules_are_told_and_a_violated_one_comes_first() -> None:
    findings = found(Situation(level=3.3, pump="50"), "50")
    assert {f.module for f in findings} == {"lower-level-limit"}
    first = findings[0]
    assert isinstance(first, Violated)
    assert first.constraint == "lower-level"
    assert first.margin is not None
    assert first.margin < 0
    assert any(value > Fraction("3.2") for value in first.witness.values())
    said = _would_have_said(first)
    assert said.startswith("lower-level-limit/lower-level would have refused it, missed by 0.1")
    assert "lower-level-limit.json:" in said


# Without Z3, and yet never wrong about what Z3 knows: what it says to hold or to be violated is so.
def test_findings_agree_with_the_full_check_where_the_module_is_in_force() -> None:
    full = Checks(rule_set(TANK, LOWER), PATIENT)
    compared = 0
    for level in (1.0, 2.5, 3.0, 3.1, 3.15, 3.18, 3.21, 3.4):
        for pump in ("0", "30", "60"):
            situation = Situation(level=level, pump=pump, may_repair=False)
            result, _ = full.check(situation.request(proposal(pump)))
            known = of_limit(result.findings)
            for constraint, finding in of_limit(found(situation, pump)).items():
                if not isinstance(finding, Unknown):
                    assert type(finding) is type(known[constraint]), (level, pump, constraint)
                    compared += 1
    assert compared > 60


def test_inputs_that_cannot_be_used_are_said_and_are_no_fault() -> None:
    situation = Situation()
    inputs = {**situation.inputs(), TagId("TK1.LT101"): good(9.0)}
    trial = Trial(rule_set(TANK, LOWER), rule_set(TANK))
    wanted = proposal()
    [unknown] = trial.findings(situation.request(wanted, inputs), wanted.engineering(), *TIMES)
    assert isinstance(unknown, Unknown)
    assert unknown.module == "lower-level-limit"
    assert "would not have known" in _would_have_said(unknown)
    [unknown] = trial.findings(situation.request(None), {}, *TIMES)
    assert isinstance(unknown, Unknown)


# A new revision of a module in force: its rules are told, not those of the one it would replace.
def test_a_new_revision_in_shadow_is_judged_in_place_of_the_one_in_force() -> None:
    permitted = '"level": "{}", "inflow": "10", "pump": "50"'
    stricter = module(
        LOWER_LEVEL,
        ('"revision": 1', '"revision": 2'),
        ("level <= 3.2", "level <= 2.5"),
        (permitted.format("3.2"), permitted.format("2.5")),
    )
    trial = Trial(rule_set(TANK, stricter), rule_set(TANK, LOWER))
    wanted = proposal("50")
    findings = trial.findings(Situation(level=2.8, pump="50").request(wanted), wanted.engineering(), *TIMES)
    assert isinstance(findings[0], Violated)
    assert all(f.module == "lower-level-limit" for f in findings)


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[CheckerPool]:
    made = PatientPool(1, CLOCK, warm=[(1.2, 0.3)])
    await made.start()
    yield made
    await made.aclose()


async def check(pool: CheckerPool, situation: Situation, pump: str) -> tuple[CheckResult, StateSet | None]:
    return await pool.check(situation.request(proposal(pump)), Deadline.after(60.0, CLOCK))


async def test_s27_a_module_in_shadow_changes_no_verdict_and_says_what_it_would_have(
    pool: CheckerPool,
) -> None:
    await pool.load(rule_set(TANK, generation=1))
    await pool.load(rule_set(TANK, generation=2), rule_set(TANK, LOWER, generation=2))
    seen: set[type] = set()
    for situation, pump in (
        (Situation(level=3.3, pump="50"), "50"),
        (Situation(level=2.0), "82.5"),
        (Situation(level=9.0), "40"),
        (Situation(level=3.59, pump="0", may_repair=False), "0"),
    ):
        alone, state = await check(pool, situation, pump)
        beside, state_too = await check(pool, replace(situation, generation=2), pump)
        assert beside.verdict == alone.verdict
        assert beside.findings == alone.findings
        assert state_too == state
        assert alone.shadow == ()
        assert beside.shadow or not situation.may_repair
        seen.add(type(beside.verdict))
    looked_at = replace(
        proposal("0"), model_digest="sha256:model"
    )  # of a model's list, before any is repaired
    late = Situation(level=3.59, may_repair=False, generation=2)
    found, _ = await pool.check(late.request(looked_at), Deadline.after(60.0, CLOCK))
    assert isinstance(found.verdict, Refused)
    assert found.shadow
    assert seen == {Permitted, Repaired, Undetermined, Refused}
    held, _ = await check(pool, Situation(level=2.0, generation=2), "40")
    assert {type(f) for f in held.shadow} == {Holds}


async def test_a_module_in_shadow_that_cannot_be_loaded_stops_nothing(pool: CheckerPool) -> None:
    await pool.load(rule_set(TANK, generation=3), rule_set(TANK, replace(LOWER, text="{"), generation=3))
    result, _ = await check(pool, Situation(generation=3), "40")
    assert isinstance(result.verdict, Permitted)
    assert result.shadow == ()

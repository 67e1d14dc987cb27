"""Rule sets put in force: what may be armed under them, and what may not stay armed (S1)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from gateway.daemon.proofs import ProofBook
from gateway.daemon.runtime import RunningRules
from gateway.pipeline.rules import RulesHolder, RulesInForce
from gateway.solver.proofs.safeset import Proof
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.pool import CheckerPool
from gateway.solver.workers.seat import PoolError
from tests.unit.solver_demo import rule_set


class ScriptedPool:
    """Takes every rule set; its proofs end as told."""

    def __init__(self, escape: str | None = "") -> None:
        self.loaded: list[int] = []
        self.may_prove = asyncio.Event()
        self.may_prove.set()
        self.proving: list[int] = []
        self.given_up: list[int] = []
        self._escape = escape

    async def load(self, rules: RuleSet, trial: RuleSet | None) -> None:
        assert trial is None
        self.loaded.append(rules.generation)

    async def drop(self, generation: int) -> None:
        self.loaded.remove(generation)

    async def prove(self, rules: RuleSet, budget_s: float) -> Proof:
        del budget_s
        self.proving.append(rules.generation)
        try:
            await self.may_prove.wait()
        except asyncio.CancelledError:
            self.given_up.append(rules.generation)
            raise
        if self._escape is None:
            problem = f"the worker was lost while it proved {rules.generation}"
            raise PoolError(problem)
        return Proof(digest=rule_set().proof_digest, escape=self._escape)


async def in_force(
    folder: Path, pool: ScriptedPool, *, proved: bool = False, grace_s: float = 10.0
) -> tuple[RunningRules, list[RulesInForce]]:
    """A set activated, and every picture of it that was told."""
    rules = rule_set()
    proofs = ProofBook(folder / "proofs.json")
    if proved:
        await proofs.add(rules.proof_digest, ["buffer-tank"])
    told: list[RulesInForce] = []
    outputs = tuple(variable.tag for variable in rules.actions)
    running = RunningRules(
        cast("CheckerPool", pool), RulesHolder(), proofs, outputs, told.append, grace_s=grace_s
    )
    await running.activate(rules, None)
    return running, told


async def after_the_proof(running: RunningRules, told: list[RulesInForce]) -> RulesInForce:
    task = asyncio.create_task(running.run())
    try:
        async with asyncio.timeout(60):
            while len(told) < 2:  # noqa: ASYNC110  # the next picture
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return told[-1]


async def test_s1_what_is_in_force_tells_how_often_its_backup_must_move(tmp_path: Path) -> None:
    _, told = await in_force(tmp_path, ScriptedPool())
    assert told[0].too_seldom(1.0) == ""
    assert "in each step of 1 s, and the point decides every 2 s" in told[0].too_seldom(2.0)


async def test_s1_a_set_with_a_committed_proof_may_be_armed_at_once(tmp_path: Path) -> None:
    _, told = await in_force(tmp_path, ScriptedPool(), proved=True)
    assert (told[0].not_armable, told[0].disproved) == ("", "")


async def test_s1_an_unproved_set_is_in_force_and_not_armable_until_it_is_proved(tmp_path: Path) -> None:
    running, told = await in_force(tmp_path, ScriptedPool())
    assert "not proved" in told[0].not_armable
    assert told[0].disproved == ""
    after = await after_the_proof(running, told)
    assert (after.not_armable, after.disproved) == ("", "")
    assert rule_set().proof_digest in ProofBook(tmp_path / "proofs.json")


async def test_s1_nothing_stays_armed_under_a_set_that_escapes_or_cannot_be_proved(tmp_path: Path) -> None:
    for number, escape in enumerate(("level 3.59 m, pump 0 %", None)):
        folder = tmp_path / str(number)
        folder.mkdir()
        running, told = await in_force(folder, ScriptedPool(escape))
        after = await after_the_proof(running, told)
        assert (escape or "worker was lost") in after.disproved
        assert after.not_armable == after.disproved
        assert rule_set().proof_digest not in ProofBook(folder / "proofs.json")


async def test_the_generation_before_stays_loaded_for_decisions_in_flight(tmp_path: Path) -> None:
    pool = ScriptedPool()
    running, _ = await in_force(tmp_path, pool, proved=True)
    for generation in (2, 3):
        await running.activate(RuleSet.of(rule_set().modules, generation), None)
    assert pool.loaded == [2, 3]


# Tightening is instant (S24), but a point does not stay armed for long under what nobody has proved.
async def test_s1_a_point_does_not_stay_armed_when_the_proof_outlasts_its_grace(tmp_path: Path) -> None:
    pool = ScriptedPool()
    pool.may_prove.clear()
    running, told = await in_force(tmp_path, pool, grace_s=0.05)
    late = await after_the_proof(running, told)
    assert "was not proved within 0.05 s" in late.disproved
    assert late.not_armable == late.disproved


async def test_s1_a_proof_that_comes_after_the_grace_lets_the_point_be_armed_again(tmp_path: Path) -> None:
    pool = ScriptedPool()
    pool.may_prove.clear()
    running, told = await in_force(tmp_path, pool, grace_s=0.02)
    task = asyncio.create_task(running.run())
    try:
        async with asyncio.timeout(60):
            while len(told) < 2:  # noqa: ASYNC110  # the next picture
                await asyncio.sleep(0.005)
            assert told[-1].disproved
            pool.may_prove.set()
            while len(told) < 3:  # noqa: ASYNC110  # the next picture
                await asyncio.sleep(0.005)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (told[-1].not_armable, told[-1].disproved) == ("", "")


async def test_a_proof_of_what_is_no_longer_in_force_is_given_up(tmp_path: Path) -> None:
    pool = ScriptedPool()
    pool.may_prove.clear()
    running, told = await in_force(tmp_path, pool)
    task = asyncio.create_task(running.run())
    try:
        async with asyncio.timeout(60):
            while pool.proving != [1]:  # noqa: ASYNC110  # a list gives no event
                await asyncio.sleep(0.005)
            await running.activate(RuleSet.of(rule_set().modules, 2), None)
            while pool.proving != [1, 2]:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.005)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert pool.given_up == [1, 2]
    assert [rules.generation for rules in told] == [1, 2]


async def test_s1_proofs_that_cannot_be_read_prove_nothing_and_stop_nothing(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"proved": 3}', '{"proved": [{"modules": []}]}'):
        (tmp_path / "proofs.json").write_text(text)
        assert ProofBook(tmp_path / "proofs.json").digests == frozenset()
    await ProofBook(tmp_path / "proofs.json").add("d", ["m"])
    assert "d" in ProofBook(tmp_path / "proofs.json")

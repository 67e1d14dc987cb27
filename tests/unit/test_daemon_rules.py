"""Rule sets put in force: what may be armed under them, and what may not stay armed (S1)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from gateway.daemon.proofs import ProofBook
from gateway.daemon.runtime import RunningRules
from gateway.pipeline.rules import RulesHolder, RulesInForce
from gateway.solver.pool import CheckerPool, PoolError
from gateway.solver.ruleset import RuleSet
from gateway.solver.safeset import Proof
from tests.unit.solver_demo import rule_set


class ScriptedPool:
    """Takes every rule set; its proofs end as told."""

    def __init__(self, escape: str | None = "") -> None:
        self.loaded: list[int] = []
        self._escape = escape

    async def load(self, rules: RuleSet) -> None:
        self.loaded.append(rules.generation)

    async def drop(self, generation: int) -> None:
        self.loaded.remove(generation)

    async def prove(self, generation: int, budget_s: float) -> Proof:
        del budget_s
        if self._escape is None:
            problem = f"the worker was lost while it proved {generation}"
            raise PoolError(problem)
        return Proof(digest=rule_set().proof_digest, escape=self._escape)


async def in_force(
    folder: Path, pool: ScriptedPool, *, proved: bool = False
) -> tuple[RunningRules, list[RulesInForce]]:
    """A set activated, and every picture of it that was told."""
    rules = rule_set()
    proofs = ProofBook(folder / "proofs.json")
    if proved:
        await proofs.add(rules.proof_digest, ["buffer-tank"])
    told: list[RulesInForce] = []
    outputs = tuple(variable.tag for variable in rules.actions)
    running = RunningRules(cast("CheckerPool", pool), RulesHolder(), proofs, outputs, told.append)
    await running.activate(rules)
    return running, told


async def after_the_proof(running: RunningRules, told: list[RulesInForce]) -> RulesInForce:
    task = asyncio.create_task(running.run())
    try:
        async with asyncio.timeout(5):
            while len(told) < 2:  # noqa: ASYNC110  # the next picture
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return told[-1]


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
        await running.activate(RuleSet.of(rule_set().modules, generation))
    assert pool.loaded == [2, 3]

"""A safe set proved in a process of its own, beside the workers that decide."""

from __future__ import annotations

from gateway.solver.proofs.safeset import Proof
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.wire import Failed, Prove, Proved
from gateway.solver.workers.seat import ASK_TIMEOUT_S, MODULE, Kept, PoolError, Seat
from gateway.supervision.precedence import Precedence
from gateway.supervision.worker import WorkerProcess

PROVER_BYTES = 2 << 30
_PROOF_ASIDE = 0.1  # of its budget a proof leaves the processor to decisions; then it has its share


async def proved(rule_set: RuleSet, budget_s: float, precedence: Precedence) -> Proof:
    """What became of the proof; the process is gone when this ends, however it does.

    Raises `PoolError` or `WorkerLostError`.
    """
    prover = WorkerProcess(MODULE, ("--memory-bytes", str(PROVER_BYTES)), name="solver-prover")
    await prover.start()
    try:
        seat = Seat(-1, prover)
        await seat.give(Kept(rule_set))
        with precedence.builds(prover, _PROOF_ASIDE * budget_s):
            answer = await seat.ask(Prove(rule_set.generation, budget_s), budget_s + ASK_TIMEOUT_S)
    finally:
        await prover.aclose()
    if isinstance(answer, Proved):
        return Proof(digest=answer.digest, escape=answer.escape)
    raise PoolError(answer.reason if isinstance(answer, Failed) else "the prover gave no proof")

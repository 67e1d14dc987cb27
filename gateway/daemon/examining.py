"""Who looks at modules in the background: rewordings are compared (S24), and every module is analysed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gateway.config.lease import lease_sum, until_effect
from gateway.config.model import GatewayConfig
from gateway.daemon.runtime import RunningRules
from gateway.solver.analysis.apart import unkept
from gateway.solver.analysis.effective import Times
from gateway.solver.analysis.examiner import Examiner
from gateway.solver.analysis.examining import Examine, Examining
from gateway.solver.analysis.findings import Report
from gateway.solver.analysis.sidecar import Key, Sidecar, key
from gateway.solver.bytecode.signing import Seal
from gateway.solver.in_force.comparing import Comparing
from gateway.solver.in_force.registry import Registry
from gateway.solver.modules.module import Module
from gateway.solver.rules.around import Around
from gateway.solver.rules.ruleset import RuleSet


def make_background(
    config: GatewayConfig, registry: Registry[RuleSet], running: RunningRules
) -> tuple[Comparing[RuleSet], Examining[RuleSet]]:
    """Both over one registry; raises `KeyRefusedError` where the key of `answers_key` cannot be used."""
    modules = config.modules
    examiner = Examiner(modules.analysis_budget)
    examine = Examine(
        report=partial(_report, config, running, examiner),
        key=partial(_key, config),
        rest=examiner.rest,
        budget_s=modules.analysis_budget,
    )
    seal = Seal.of(modules.answers_key) if modules.answers_key is not None else None
    answers = Sidecar(config.gateway.state_dir / "analysis", seal)
    return Comparing(registry, unkept, Around.of), Examining(registry, examine, answers, running.settled)


async def _report(
    config: GatewayConfig,
    running: RunningRules,
    examiner: Examiner,
    module: Module,
    active: Sequence[Module],
) -> Report:
    times, silence_s = _times(config, module)
    return await examiner.report(module, active, times, silence_s, running.proofs.digests)


def _key(config: GatewayConfig, module: Module, active: Sequence[Module]) -> Key:
    times, silence_s = _times(config, module)
    return key(module, active, times, silence_s, False)  # noqa: FBT003  as `o3ctl analyze` asks: none suggested


def _times(config: GatewayConfig, module: Module) -> tuple[Times, float]:
    """Of the point that writes the module's actions: until its proposals act, and its longest hold."""
    point = next((p for p in config.decision_point if set(p.outputs) & set(module.actions)), None)
    if point is None:
        return Times(), 0.0
    times = Times(tuple(until_effect(config, point)), point.max_skew)
    return times, sum(seconds for _, seconds in lease_sum(config, point))

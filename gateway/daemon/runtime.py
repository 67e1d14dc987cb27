"""The running rule set: activations reach the checker, the pipeline and everybody who looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from gateway.link.messages import ModuleState
from gateway.pipeline.rules import RulesHolder, RulesInForce
from gateway.solver.pool import CheckerPool
from gateway.solver.registry import ModuleStatus, Registry
from gateway.solver.ruleset import RuleSet

log = structlog.get_logger().bind(component="runtime")


class RunningRules:
    """Activates rule sets: warm in every worker first, then one reference swapped, then the old let go."""

    def __init__(
        self, pool: CheckerPool, rules: RulesHolder, changed: Callable[[RulesInForce], None]
    ) -> None:
        self._pool, self._rules, self._changed = pool, rules, changed
        self._loaded: list[int] = []

    async def activate(self, rule_set: RuleSet) -> None:
        """Put `rule_set` in force; raises what the pool raises, and then the old one stays."""
        await self._pool.load(rule_set)
        fresh = RulesInForce(
            generation=rule_set.generation,
            digest=rule_set.digest,
            modules=frozenset(module.id for module in rule_set.modules),
            not_armable=rule_set.not_armable(),
        )
        self._rules.activate(fresh)
        log.info(
            "rule_set_activated",
            generation=fresh.generation,
            digest=fresh.digest[:12],
            modules=sorted(fresh.modules),
            not_armable=fresh.not_armable,
        )
        self._loaded.append(rule_set.generation)
        while len(self._loaded) > 2:  # noqa: PLR2004  # the one before serves decisions still in flight
            await self._pool.drop(self._loaded.pop(0))
        self._changed(fresh)


def module_state(status: ModuleStatus) -> ModuleState:
    """A module's status for the Feed."""
    return ModuleState(
        id=status.id,
        file=status.file,
        state=status.state,
        revision=status.revision,
        digest=status.digest,
        priority=status.priority,
        last_attempt_ns=status.last_attempt_ns,
        last_success_ns=status.last_success_ns,
        refused_because=list(status.refused_because),
        constraints=list(status.constraints),
    )


class RuntimeVerbs:
    """Loading and unloading by people, over the registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def states(self) -> list[ModuleState]:
        """Every known module."""
        return [module_state(status) for status in self._registry.states()]

    async def load(self, path: Path, priority: int | None, who: str) -> str:
        """Put a module file in force; why not, or ""."""
        return await self._registry.load_file(path, priority=priority, who=who)

    async def unload(self, module: str, who: str) -> str:
        """Take a module out; why not (a weakening waits for approval), or ""."""
        return await self._registry.unload(module, who)

    async def approve(self, module: str, who: str) -> str:
        """Put a waiting change in force; why not, or ""."""
        return await self._registry.approve(module, who)

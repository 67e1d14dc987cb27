"""The running rule set: activations reach the checker, the pipeline and everybody who looks."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import structlog

from gateway.config.model import GatewayConfig
from gateway.core.clock import Clock
from gateway.core.errors import GatewayError
from gateway.core.tag import TagId
from gateway.core.tagstore import TagStore
from gateway.daemon.proofs import ProofBook
from gateway.link.messages import ModuleState
from gateway.pipeline.rules import RulesHolder, RulesInForce
from gateway.solver.activation import Activation
from gateway.solver.compile import compile_module
from gateway.solver.module import Module
from gateway.solver.module_reports import ReportWriter
from gateway.solver.module_status import ModuleStatus
from gateway.solver.pool import CheckerPool
from gateway.solver.registry import Registry
from gateway.solver.ruleset import RuleSet
from gateway.solver.watcher import LIMIT_BYTES, FolderWatcher

log = structlog.get_logger().bind(component="runtime")

_PROVE_S = 60.0
_GENERATIONS_KEPT = 2  # the one before serves decisions still in flight


class RunningRules:
    """Activates rule sets: warm in every worker first, then one reference swapped, then the old let go.

    A set whose safe set is not known to be invariant is in force at once all the same (it can only forbid),
    but no point is armed under it until Z3 has proved it in the background, and none stays armed where the
    proof fails (S1).
    """

    def __init__(
        self,
        pool: CheckerPool,
        rules: RulesHolder,
        proofs: ProofBook,
        outputs: tuple[TagId, ...],
        changed: Callable[[RulesInForce], None],
        keep: Callable[[RuleSet], Awaitable[None]] | None = None,
    ) -> None:
        self._pool, self._rules, self._proofs = pool, rules, proofs
        self._outputs, self._changed, self._keep = outputs, changed, keep
        self._loaded: list[int] = []
        self._to_prove: asyncio.Queue[RuleSet] = asyncio.Queue()

    async def activate(self, rule_set: RuleSet) -> None:
        """Put `rule_set` in force, what certificates need of it kept first.

        Raises what the pool raises, or `StorageError`, and then the old one stays.
        """
        if self._keep is not None:
            await self._keep(rule_set)
        await self._pool.load(rule_set)
        self._swap(rule_set)
        self._loaded.append(rule_set.generation)
        while len(self._loaded) > _GENERATIONS_KEPT:
            await self._pool.drop(self._loaded.pop(0))
        if rule_set.modules and rule_set.proof_digest not in self._proofs:
            self._to_prove.put_nowait(rule_set)

    async def run(self) -> None:
        """Proves what is in force and not known to be invariant; never ends by itself."""
        while True:
            rule_set = await self._to_prove.get()
            if rule_set.generation != self._rules.current.generation:
                continue
            escape = await self._prove(rule_set)
            if rule_set.generation == self._rules.current.generation:
                self._swap(rule_set, escape)

    async def _prove(self, rule_set: RuleSet) -> str:
        """Empty when the set is proved and that is remembered; else why it is not."""
        try:
            proof = await self._pool.prove(rule_set.generation, _PROVE_S)
            if proof.holds:
                await self._proofs.add(proof.digest, sorted(rule_set.module_ids))
                return ""
            why = proof.escape
        except (GatewayError, OSError) as exc:
            why = str(exc)
        log.warning("safe_set_not_proved", generation=rule_set.generation, why=why)
        return f"the safe set of the modules in force is not proved: {why}"

    def _swap(self, rule_set: RuleSet, escape: str = "") -> None:
        fresh = RulesInForce(
            generation=rule_set.generation,
            digest=rule_set.digest,
            modules=rule_set.module_ids,
            not_armable=escape or rule_set.armable(self._outputs, self._proofs.digests),
            disproved=escape or rule_set.armable(self._outputs, (rule_set.proof_digest,)),
        )
        self._rules.activate(fresh)
        log.info(
            "rule_set_activated",
            generation=fresh.generation,
            digest=fresh.digest[:12],
            modules=sorted(fresh.modules),
            not_armable=fresh.not_armable,
        )
        self._changed(fresh)


def make_registry(
    config: GatewayConfig,
    store: TagStore,
    running: RunningRules,
    clock: Clock,
    on_change: Callable[[], None],
) -> tuple[Registry[RuleSet], FolderWatcher]:
    """The registry over the watched folder, and the watcher that feeds it."""
    folder = config.gateway.constraints_dir
    state = config.gateway.state_dir
    registry = Registry(
        folder=folder,
        activation=Activation(state / "modules"),
        reports=ReportWriter(folder, state / "refusals"),
        compile=partial(_compiled, store),
        assemble=RuleSet.of,
        activate=running.activate,
        clock=clock,
        weakening=config.gateway.weakening,
        required=frozenset(m for point in config.decision_point for m in point.required_modules),
        on_change=on_change,
    )
    return registry, FolderWatcher(folder, _parses, clock)


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
    """Loading and unloading by people, over the registry. Each answers why not, or ""."""

    def __init__(self, registry: Registry[RuleSet]) -> None:
        self._registry = registry

    def states(self) -> list[ModuleState]:
        """Every known module."""
        return [module_state(status) for status in self._registry.statuses()]

    async def load(self, path: Path, priority: int | None, who: str) -> str:
        """Put a module file in force under its own name."""
        if priority is not None:
            return "`--priority` is not built yet: write the priority into the module file"
        try:
            data = await asyncio.to_thread(_module_bytes, path)
        except OSError as exc:
            return f"`{path}` cannot be read: {exc.strerror or exc}"
        return await self._registry.load(path.name, data, who)

    async def unload(self, module: str, who: str) -> str:
        """Take a module out; as a weakening it may wait for approval."""
        return await self._registry.unload(module, who)

    async def approve(self, module: str, who: str) -> str:
        """Put a waiting change in force."""
        try:
            await self._registry.approve(module, who)
        except GatewayError as exc:
            return str(exc)
        return ""


def _compiled(store: TagStore, data: bytes, source: str) -> Module:
    return compile_module(data, source, store.definitions)


def _parses(data: bytes) -> bool:
    """Whether a file may be whole already: a partial copy of JSON never parses."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):  # what is nested too deeply is refused where it is compiled
        return False
    return True


def _not_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _module_bytes(path: Path) -> bytes:
    """The file at a path somebody named; a device or a FIFO there must not hold us or fill memory."""
    with open(path, "rb", opener=_not_waiting) as file:  # Path.open() takes no opener
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            problem = "it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file"
            raise OSError(problem)
        data = file.read(LIMIT_BYTES + 1)
    if len(data) > LIMIT_BYTES:
        problem = f"a module has at most {LIMIT_BYTES} bytes"
        raise OSError(problem)
    return data

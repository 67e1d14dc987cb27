"""The running rule set: activations reach the checker, the pipeline and everybody who looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec
import structlog

from gateway.config.model import GatewayConfig
from gateway.core.clock import Clock
from gateway.core.tag import TagId
from gateway.core.tagstore import TagStore
from gateway.daemon.proofs import ProofBook, prove
from gateway.link.messages import ModuleState
from gateway.pipeline.rules import RulesHolder, RulesInForce
from gateway.solver.bytecode.accept import accepted, whole
from gateway.solver.bytecode.signing import Trust
from gateway.solver.in_force.activation import Activation
from gateway.solver.in_force.acts import Acts
from gateway.solver.in_force.module_reports import ReportWriter
from gateway.solver.in_force.module_status import ModuleStatus
from gateway.solver.in_force.registry import Invariance, Registry
from gateway.solver.in_force.watcher import FolderWatcher
from gateway.solver.in_force.weakening import weakens
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.standing import standing
from gateway.solver.workers.pool import CheckerPool

log = structlog.get_logger().bind(component="runtime")

_GENERATIONS_KEPT = 2  # the one before serves decisions still in flight


class RunningRules:
    """Activates rule sets: warm in every worker first, then one reference swapped, then the old let go.

    A set whose safe set is not known to be invariant is in force at once all the same (it can only forbid),
    but no point is armed under it until Z3 has proved it in the background. A point that is armed stays so
    while that proof runs, for `grace_s` at most, and not where the proof fails (S1).
    """

    def __init__(
        self,
        pool: CheckerPool,
        rules: RulesHolder,
        proofs: ProofBook,
        outputs: tuple[TagId, ...],
        changed: Callable[[RulesInForce], None],
        keep: Callable[[RuleSet], Awaitable[None]] | None = None,
        grace_s: float = 10.0,
        silence_s: float = 0.0,
    ) -> None:
        """`silence_s`: how long the last values may act, which a horizon must cover (S11)."""
        self._pool, self._rules, self.proofs = pool, rules, proofs
        self._outputs, self._changed, self._keep, self._grace_s = outputs, changed, keep, grace_s
        self._silence_s = silence_s
        self._loaded: list[int] = []
        self._activated: asyncio.Queue[RuleSet | None] = asyncio.Queue()  # None: nothing to prove of it
        self._settled = asyncio.Event()

    async def activate(self, rule_set: RuleSet, trial: RuleSet | None) -> None:
        """Put `rule_set` in force and judge `trial` beside it; what certificates need of it is kept first.

        Raises what the pool raises, or `StorageError`, and then the old one stays.
        """
        if self._keep is not None:
            await self._keep(rule_set)
        await self._pool.load(rule_set, trial)
        await asyncio.to_thread(self._in_force, rule_set, "")  # what it works out, the exchange need not
        self._swap(rule_set)
        self._loaded.append(rule_set.generation)
        while len(self._loaded) > _GENERATIONS_KEPT:
            await self._pool.drop(self._loaded.pop(0))
        unproved = bool(rule_set.modules) and not rule_set.proved_by(self.proofs.digests)
        self._settled.clear()
        self._activated.put_nowait(rule_set if unproved else None)

    async def settled(self) -> None:
        """Waits until it is known whether the safe set in force is invariant, or that nobody knows."""
        await self._settled.wait()

    async def run(self) -> None:
        """Proves what is in force and not known to be invariant; never ends by itself."""
        async with asyncio.TaskGroup() as tasks:
            proving: asyncio.Task[None] | None = None
            while True:
                rule_set = await self._activated.get()
                if proving is not None:
                    proving.cancel()  # it would prove what is no longer in force
                proving = (
                    tasks.create_task(self._settle(rule_set), name="prove-in-force")
                    if rule_set is not None
                    else None
                )
                if rule_set is None:
                    self._settled.set()

    async def _settle(self, rule_set: RuleSet) -> None:
        async with asyncio.TaskGroup() as tasks:
            grace = tasks.create_task(self._end_grace(rule_set), name="proof-grace")
            why = await prove(self._pool, self.proofs, rule_set)
            grace.cancel()
        if rule_set.generation == self._rules.current.generation:
            self._swap(rule_set, why)
            self._settled.set()

    async def _end_grace(self, rule_set: RuleSet) -> None:
        await asyncio.sleep(self._grace_s)
        if rule_set.generation == self._rules.current.generation:
            self._swap(
                rule_set,
                f"the safe set of the modules in force was not proved within {self._grace_s:g} s of their "
                "change; the proof goes on, and the point may be armed again when it is there",
            )

    def _in_force(self, rule_set: RuleSet, escape: str) -> RulesInForce:
        return RulesInForce(
            generation=rule_set.generation,
            digest=rule_set.digest,
            modules=rule_set.module_ids,
            not_armable=escape or rule_set.armable(self._outputs, self.proofs.digests, self._silence_s),
            disproved=escape or rule_set.armable(self._outputs, (rule_set.proof_digest,), self._silence_s),
            tolerated=rule_set.tolerated,
            accepted={v.tag: v.accept_quality for v in rule_set.measured if v.accept_quality},
            overrides=rule_set.overrides,
            standing=standing(rule_set),
            backup_moves_each_s=float(rule_set.modules[0].step) if rule_set.backup_goes_on else None,
        )

    def _swap(self, rule_set: RuleSet, escape: str = "") -> None:
        fresh = self._in_force(rule_set, escape)
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
    pool: CheckerPool,
    running: RunningRules,
    clock: Clock,
    *,
    armed: Callable[[], bool],
    record: Callable[[str, str, Mapping[str, str]], Awaitable[None]],
    on_change: Callable[[], None],
    on_folder: Callable[[bool], None],
) -> tuple[Registry[RuleSet], FolderWatcher]:
    """The registry over the watched folder, and the watcher that feeds it."""
    folder = config.gateway.constraints_dir
    state = config.gateway.state_dir
    proofs = running.proofs
    trust = Trust(frozenset(config.modules.trusted_keys), config.modules.signed_only)
    registry = Registry(
        folder=folder,
        activation=Activation(state / "modules"),
        reports=ReportWriter(folder, state / "refusals"),
        compile=partial(load_source, store, trust),
        assemble=RuleSet.of,
        activate=running.activate,
        clock=clock,
        weakening=config.gateway.weakening,
        required=frozenset(m for point in config.decision_point for m in point.required_modules),
        weaker=weakens,
        invariance=Invariance(
            armed=armed,
            known=lambda rule_set: rule_set.proved_by(proofs.digests),
            prove=lambda rule_set: prove(pool, proofs, rule_set),
        ),
        record=record,
        trial=frozenset(config.modules.shadow),
        on_change=on_change,
    )
    return registry, FolderWatcher(folder, whole, clock, on_folder)


def load_source(store: TagStore, trust: Trust, data: bytes, source: str) -> Module:
    """The module in a file's bytes, whatever its format; raises `ModuleRefusedError`."""
    return accepted(data, source, store.definitions, trust)


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
        priority_by=status.priority_by,
        changed_by=list(status.changed_by),
        change=status.change,
        analysis=list(status.analysis),
    )


class ToldModules:
    """Which modules the Feed was told of: what is there no more is told once as `gone`."""

    def __init__(self) -> None:
        self._told: dict[str, ModuleState] = {}

    def news(self, statuses: Sequence[ModuleStatus]) -> list[ModuleState]:
        """How every module stands, and first what is gone."""
        now = {status.id: module_state(status) for status in statuses}
        gone = [
            msgspec.structs.replace(state, state="gone", refused_because=[], changed_by=[])
            for name, state in self._told.items()
            if name not in now
        ]
        self._told = now
        return [*gone, *now.values()]


class RuntimeVerbs(Acts[RuleSet]):
    """People's verbs over the registry, and how modules stand."""

    def states(self) -> list[ModuleState]:
        """Every known module."""
        return [module_state(status) for status in self.registry.statuses()]

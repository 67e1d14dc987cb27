"""What is known of modules beyond that they may be in force: asked in the background, kept, and told.

A module is analysed once it is in force, in shadow or waits, among what is in force then; one that waits is
first, for a person looks at it. Nothing waits for an answer, and none decides anything (S24). Of a module
that was analysed before a restart the kept report counts, also where others have come since: theirs say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NoReturn, TypeVar

import structlog

from gateway.core.errors import GatewayError, StorageError, WorkerLostError
from gateway.solver.analysis.findings import Report
from gateway.solver.analysis.sidecar import Key, Sidecar
from gateway.solver.analysis.telling import told
from gateway.solver.in_force.module_analysis import ModuleAnalysis
from gateway.solver.in_force.module_status import Held
from gateway.solver.in_force.registry import Registry
from gateway.solver.modules.module import Module

log = structlog.get_logger().bind(component="registry")

R = TypeVar("R")  # a rule set
MOST_ASKED = 50  # of the modules found at a start that nothing is kept of: the rest a person may ask for


@dataclass(frozen=True, slots=True)
class Examine:
    """How a module is analysed among others."""

    report: Callable[[Module, Sequence[Module]], Awaitable[Report]]  # raises `WorkerLostError`
    key: Callable[[Module, Sequence[Module]], Key]
    rest: Callable[[], Awaitable[None]]  # nothing is asked for a while
    budget_s: float


@dataclass(slots=True)
class Examining(Generic[R]):
    """Analyses what the registry holds, one module after the other."""

    registry: Registry[R]
    examine: Examine
    answers: Sidecar
    settled: Callable[[], Awaitable[None]]  # until the safe set in force is proved, or is not
    _asked: int = 0
    _known: frozenset[str] | None = None  # contents found at the start
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)

    def look(self) -> None:
        """Something changed."""
        self._stirred.set()

    async def run(self) -> NoReturn:
        """Never ends by itself."""
        self._known = frozenset(held.content for held in self._subjects())
        self._stirred.set()
        if not self.examine.budget_s:
            await asyncio.Event().wait()
        try:
            while True:
                await self._stirred.wait()
                self._stirred.clear()
                while (held := self._next()) is not None:
                    await self._one(held)
                await self.examine.rest()
        finally:
            await self.examine.rest()

    def _subjects(self) -> list[Held]:
        """What waits, then what is in force and in shadow, the newest first."""
        sets, waiting = self.registry.sets, self.registry.book.waiting.values()
        held = sorted((*sets.active.values(), *sets.shadow.values()), key=lambda h: -h.since_ns)
        return [*(w.offer for w in waiting if w.offer is not None), *held]

    def _next(self) -> Held | None:
        known = self.registry.book.analyses
        return next((held for held in self._subjects() if held.content not in known), None)

    async def _one(self, held: Held) -> None:
        """Analyse a module, or find what is kept of it, and tell."""
        if self.registry.sets.active.get(held.module.id) is held:
            await self.settled()
        active = await self._among(held)
        analysis = await self._analysis(held, active)
        async with self.registry.lock:
            await self.registry.book.analysed(held.content, analysis)
            self.registry.changed()

    async def _analysis(self, held: Held, active: Sequence[Module]) -> ModuleAnalysis:
        key, budget_s = self.examine.key(held.module, active), self.examine.budget_s
        report = await asyncio.to_thread(self.answers.read, key, budget_s)
        at_start = self._known is not None and held.content in self._known
        if report is None and at_start:
            report = await asyncio.to_thread(self.answers.latest, key, budget_s)
        if report is not None:
            return told(report)
        if at_start:
            self._asked += 1
            if self._asked > MOST_ASKED:
                return ModuleAnalysis.unasked(held.file)
        try:
            report = await self.examine.report(held.module, active)
        except (WorkerLostError, OSError) as exc:
            log.warning("module_not_analysed", module=held.module.id, reason=str(exc))
            return ModuleAnalysis.failed(str(exc))
        log.info(
            "module_analysed", module=held.module.id, revision=held.module.revision, took_s=report.took_s
        )
        try:
            await asyncio.to_thread(self.answers.keep, key, report, budget_s)
        except OSError as exc:
            log.warning("analysis_not_kept", module=held.module.id, reason=exc.strerror or str(exc))
        return told(report)

    async def _among(self, held: Held) -> list[Module]:
        """What it is in force with, and its own revision before: what is in force now, where it waits."""
        registry, name = self.registry, held.module.id
        active = [h.module for n, h in sorted(registry.sets.active.items()) if n != name]
        now = registry.sets.active.get(name)
        if now is not None and now is not held:
            return [*active, now.module]
        kept = registry.activation.before(name)
        if now is held and kept is not None:
            try:
                return [*active, (await registry.restoring.held(kept)).module]
            except (StorageError, GatewayError):
                return active  # it fits no more, or its bytes are gone: nothing to compare with
        return active

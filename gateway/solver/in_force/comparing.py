"""Reworded modules put to a solver while everything else goes on (S24).

A comparison takes seconds. Until it is done the revision in force stays, the new one is `pending` and says
what it waits for, and other files come into force as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import structlog

from gateway.solver.in_force.module_status import Held, Waiting
from gateway.solver.in_force.registry import Registry
from gateway.solver.in_force.weakening import Unkept
from gateway.solver.modules.module import Module
from gateway.solver.rules.around import Around

log = structlog.get_logger().bind(component="registry")

R = TypeVar("R")  # a rule set


@dataclass(slots=True)
class Comparing(Generic[R]):
    """Compares what waits for it, one revision after the other."""

    registry: Registry[R]
    unkept: Unkept  # may block for seconds
    around: Callable[[R | None, Module, Module], Around]  # among what is in force, old, new

    def __post_init__(self) -> None:
        self.registry.staging.compares = True

    async def run(self) -> None:
        """Put in force what is shown to tighten, and leave the rest to a person; never ends by itself."""
        registry = self.registry
        while True:
            await registry.stirred.wait()
            registry.stirred.clear()
            while (found := self._next()) is not None:
                name, waiting, offer = found
                old = registry.sets.active.get(name)
                around, why = self._around(old, offer), ""
                if old is not None:
                    why = await asyncio.to_thread(self.unkept, old.module, offer.module, around)
                async with registry.lock:
                    if self._around(old, offer) != around:
                        continue  # a module that came meanwhile takes a premise away, or brings one
                    if registry.book.waiting.get(name) is waiting:
                        await self._compared(name, waiting, offer, old, why)
                        registry.changed()

    def _around(self, old: Held | None, offer: Held) -> Around:
        modules = (old or offer).module, offer.module
        return self.around(self.registry.rule_set, *modules)

    def _next(self) -> tuple[str, Waiting, Held] | None:
        """A module whose change waits to be compared."""
        for name, waiting in self.registry.book.waiting.items():
            if waiting.comparing and waiting.offer is not None:
                return name, waiting, waiting.offer
        return None

    async def _compared(self, name: str, waiting: Waiting, offer: Held, old: Held | None, why: str) -> None:
        """What follows from a comparison; `old` was in force when it began. Call with the lock held."""
        registry = self.registry
        if old is None or registry.sets.active.get(name) is not old:
            if not waiting.takes_back:
                registry.book.waiting.pop(name)
                sets = await registry.staging.offered(registry.sets, offer, waiting.by)
                await registry.take(sets, offer.file)
                return
            why = "another revision came into force meanwhile"
        if why:
            because = f"{waiting.because.partition(': ')[0]}: {why}, which may weaken the rules"
            judged = replace(waiting, comparing=False, because=because)
            await registry.book.wait(name, judged, f"an engineer approves it: o3ctl runtime approve {name}")
            await registry.approve_signed()
            return
        log.info("reworded_module_tightens", module=name, revision=offer.module.revision)
        if waiting.takes_back:
            await registry.carry_out(name, replace(waiting, comparing=False))
            return
        registry.book.waiting.pop(name)
        await registry.take(registry.sets.with_active(offer), offer.file)

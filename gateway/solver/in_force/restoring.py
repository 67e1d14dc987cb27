"""What was in force before a stop, brought back from its kept bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.core.errors import StorageError
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.in_force.activation import Activation, KeptModule
from gateway.solver.in_force.module_book import ModuleBook
from gateway.solver.in_force.module_status import Held, Sets, told
from gateway.solver.in_force.staging import Compile
from gateway.solver.in_force.watcher import FileGone, is_gone


@dataclass(slots=True)
class Restoring:
    """Reads kept modules; tells the book of those that cannot come back."""

    folder: Path
    activation: Activation
    book: ModuleBook
    compile: Compile

    async def sets(self) -> Sets:
        """Modules in force before the stop; one that cannot come back is refused."""
        active = await self._every(self.activation.modules)
        return Sets(active, await self._every(self.activation.shadow))

    async def held(self, kept: KeptModule) -> Held:
        """A module from its kept bytes; raises `StorageError` or `ModuleRefusedError`."""
        data = await asyncio.to_thread(self.activation.kept, kept.content)
        module = await asyncio.to_thread(self.compile, data, kept.file)
        if kept.priority is not None:
            module = replace(module, priority=kept.priority)
        return Held(module, data, kept.file, kept.content, kept.last_success_ns, kept.priority_by)

    def missing(self, sets: Sets) -> list[FileGone]:
        """Files taken out during the stop; a folder that is away altogether takes nothing out."""
        try:
            if not self.folder.is_dir():
                return []
        except OSError:  # nobody may look
            return []
        every = (*sets.active.values(), *sets.shadow.values())
        return [FileGone(held.file) for held in every if is_gone(self.folder / held.file)]

    async def _every(self, modules: Mapping[str, KeptModule]) -> dict[str, Held]:
        held: dict[str, Held] = {}
        for name, kept in modules.items():
            try:
                held[name] = await self.held(kept)
            except StorageError as exc:
                await self.book.refuse(kept.file, "the module in force before the stop is lost", (str(exc),))
            except ModuleRefusedError as exc:
                await self.book.refuse(
                    kept.file, "the module in force before the stop fits no more", told(exc)
                )
        return held

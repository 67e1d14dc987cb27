"""Changes that failed by no fault of theirs: a full disk, a lost worker. They are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.solver.in_force.module_status import Waiting
from gateway.solver.in_force.watcher import FolderChange

PAUSE_S = 5.0  # before another try


@dataclass(slots=True)
class PutOff:
    """The newest change of each file that is to be tried again, and changes that a person has approved."""

    pause_s: float = PAUSE_S
    _changes: dict[str, FolderChange] = field(default_factory=dict)
    _approved: dict[str, Waiting] = field(default_factory=dict)  # by module
    _some: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, change: FolderChange) -> None:
        """It failed, and not by what the file holds."""
        self._changes[change.name] = change
        self._some.set()

    def note_approved(self, module: str, waiting: Waiting) -> None:
        """The approved change of a module failed, and not by what it is."""
        self._approved[module] = waiting
        self._some.set()

    def forget(self, names: Iterable[str]) -> None:
        """These files say something else now."""
        for name in names:
            self._changes.pop(name, None)

    def taken(self) -> tuple[list[FolderChange], Mapping[str, Waiting]]:
        """What to try now, changes of files and approved ones; it is noted again should it fail again."""
        changes, self._changes = list(self._changes.values()), {}
        approved, self._approved = self._approved, {}
        self._some.clear()
        return changes, approved

    async def due(self) -> None:
        """Waits until there is something, and then the pause."""
        await self._some.wait()
        await asyncio.sleep(self.pause_s)

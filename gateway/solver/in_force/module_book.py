"""What is known of each module file beyond what is in force: refusals, attempts, what waits. Reports it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from gateway.core.clock import Clock
from gateway.solver.in_force.module_reports import ModuleReport, ReportWriter
from gateway.solver.in_force.module_status import (
    Held,
    ModuleStatus,
    Refusal,
    Sets,
    Waiting,
    held_status,
    offered_status,
    refused_status,
)

log = structlog.get_logger().bind(component="registry")


@dataclass(slots=True)
class ModuleBook:
    """Kept in memory by the registry's one change at a time; reports are written as it is kept."""

    reports: ReportWriter
    clock: Clock
    sets: Sets = field(default_factory=Sets)  # in force now
    waiting: dict[str, Waiting] = field(default_factory=dict)  # by module
    refused: dict[str, Refusal] = field(default_factory=dict)  # by file
    attempts: dict[str, int] = field(default_factory=dict)  # by module, UTC ns
    unloaded: dict[str, ModuleStatus] = field(default_factory=dict)

    def tried(self, name: str) -> None:
        """Somebody tried to change this module now."""
        self.attempts[name] = self.clock.utc_ns()

    async def accept(self, held: Held, *, shadow: bool = False) -> None:
        """A module is in force, or judged beside those that are."""
        name = held.module.id
        self.refused.pop(held.file, None)
        self.waiting.pop(name, None)
        self.unloaded.pop(name, None)
        where = "judged beside the modules in force, without effect" if shadow else "in force"
        text = f"module `{name}` revision {held.module.revision} is {where}"
        if held.module.signed_by:
            text += f", signed with key {held.module.signed_by[:16]}..."
        if held.priority_by:
            text += f", with priority {held.module.priority} given by {held.priority_by}"
        report = ModuleReport(kind="accepted", file=held.file, at_ns=held.since_ns, summary=text)
        await asyncio.to_thread(self.reports.write, report)

    async def wait(self, name: str, waiting: Waiting, todo: str) -> None:
        """A change waits for a person, or for its proof."""
        known = self.waiting.get(name)
        if known is not None and known.told_again_by(waiting):
            waiting = known.joined(waiting)
            if waiting == known:
                return  # the folder tells again of what somebody asked for
        self.waiting[name] = waiting
        self.refused.pop(waiting.file, None)
        log.warning(
            "module_change_waits",
            module=name,
            file=waiting.file,
            change=waiting.because,
            by=sorted(waiting.by),
            proving=waiting.proving,
        )
        report = ModuleReport(
            kind="pending",
            file=waiting.file,
            at_ns=self.clock.utc_ns(),
            summary=f"module `{name}`: {waiting.because}",
            todo=todo,
            in_force=self._in_force(name),
        )
        await asyncio.to_thread(self.reports.write, report)

    async def refuse(
        self, file: str, summary: str, problems: tuple[str, ...], todo: str = "", *, passing: bool = False
    ) -> None:
        """A file cannot be taken; the last good stays. `passing`: for no fault of the file."""
        now = self.clock.utc_ns()
        because = problems or (summary,)
        self.refused[file] = Refusal(file, because, now, passing)
        log.error("module_refused", file=file, summary=summary, problems=because)
        name = self.sets.owner(file) or ""
        report = ModuleReport(kind="refused", file=file, at_ns=now, summary=summary, problems=problems)
        report = replace(report, todo=todo, in_force=self._in_force(name))
        await asyncio.to_thread(self.reports.write, report)

    async def forget(self, file: str) -> None:
        """A file is gone, and nothing is left to say of it."""
        self.refused.pop(file, None)
        await asyncio.to_thread(self.reports.clear, file)

    def note_unloaded(self, held: Held) -> None:
        """A module was in force and is no more."""
        status = replace(self._status(held), state="unloaded", refused_because=(), changed_by=())
        self.unloaded[held.module.id] = status

    def statuses(self) -> tuple[ModuleStatus, ...]:
        """Every module and every refused file, by id; a shadow of a module in force stands beside it."""
        active, shadow = self.sets.active, self.sets.shadow
        found = {name: self._status(held) for name, held in active.items()}
        for name, held in shadow.items():
            refusal = self.refused.get(held.file)
            attempt = self.attempts.get(name, held.since_ns)
            key = name if name not in found else f"{name} (shadow)"
            found[key] = replace(held_status(held, None, refusal, attempt, shadow=True), id=key)
        for name, waiting in self.waiting.items():
            status = offered_status(waiting, self.attempts.get(name, 0))
            if status is not None:
                found.setdefault(name, status)
        files: Mapping[str, object] = {h.file: h for h in (*active.values(), *shadow.values())}
        for refusal in self.refused.values():
            if refusal.file not in files:
                stem = Path(refusal.file).stem
                name = stem if stem not in found else refusal.file
                found[name] = refused_status(name, refusal)
        for name, status in self.unloaded.items():
            found.setdefault(name, status)
        return tuple(found[name] for name in sorted(found))

    def _in_force(self, name: str) -> str:
        held = self.sets.active.get(name)
        if held is None:
            return "the modules that were in force before, unchanged"
        return f"module `{name}` revision {held.module.revision}, unchanged"

    def _status(self, held: Held) -> ModuleStatus:
        name = held.module.id
        attempt = self.attempts.get(name, held.since_ns)
        return held_status(held, self.waiting.get(name), self.refused.get(held.file), attempt)

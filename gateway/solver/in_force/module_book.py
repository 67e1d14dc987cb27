"""What is known of each module file beyond what is in force: refusals, attempts, what waits. Reports it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from gateway.core.clock import Clock
from gateway.solver.in_force.module_analysis import ModuleAnalysis
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
    analyses: dict[str, ModuleAnalysis] = field(default_factory=dict)  # by content of what is held or waits

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
        report = ModuleReport(
            kind="accepted",
            file=held.file,
            at_ns=held.since_ns,
            summary=text,
            analysis=self._lines(held.content),
        )
        await asyncio.to_thread(self.reports.write, report)

    async def wait(self, name: str, waiting: Waiting, todo: str) -> None:
        """A change waits for a person, or for its proof."""
        known = self.waiting.get(name)
        if known is not None and known.told_again_by(waiting):
            waiting = known.joined(waiting)
            if waiting == known:
                return  # the folder tells again of what somebody asked for
        waiting = self.waiting[name] = replace(waiting, todo=todo)
        self.refused.pop(waiting.file, None)
        log.warning(
            "module_change_waits",
            module=name,
            file=waiting.file,
            change=waiting.because,
            by=sorted(waiting.by),
            proving=waiting.proving,
        )
        await self._report_waiting(name, waiting)

    async def _report_waiting(self, name: str, waiting: Waiting) -> None:
        report = ModuleReport(
            kind="pending",
            file=waiting.file,
            at_ns=self.clock.utc_ns(),
            summary=f"module `{name}`: {waiting.because}",
            todo=waiting.todo,
            in_force=self._in_force(name),
            analysis=self._lines(waiting.offer.content) if waiting.offer is not None else (),
        )
        await asyncio.to_thread(self.reports.write, report)

    async def analysed(self, content: str, analysis: ModuleAnalysis) -> None:
        """What is known of a module's bytes, told beside its file and from now on."""
        sets, waiting = self.sets, dict(self.waiting)
        held = [(h, False) for h in sets.active.values()] + [(h, True) for h in sets.shadow.values()]
        there = {h.content for h, _ in held} | {w.offer.content for w in waiting.values() if w.offer}
        self.analyses = {c: a for c, a in self.analyses.items() if c in there} | {content: analysis}
        for name, waits in waiting.items():
            if waits.offer is not None and waits.offer.content == content:
                await self._report_waiting(name, waits)
        for one, shadow in held:
            if one.content == content and one.file not in self.refused and one.module.id not in waiting:
                await self.accept(one, shadow=shadow)

    def _lines(self, content: str) -> tuple[str, ...]:
        known = self.analyses.get(content)
        return (known.summary, *known.lines) if known is not None else ()

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
            status = held_status(held, None, refusal, attempt, shadow=True)
            found[key] = replace(status, id=key, analysis=self._told(held))
        for name, waiting in self.waiting.items():
            offered = offered_status(waiting, self.attempts.get(name, 0))
            if offered is not None:
                found.setdefault(name, replace(offered, analysis=self._told(waiting.offer)))
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
        waiting = self.waiting.get(name)
        status = held_status(held, waiting, self.refused.get(held.file), attempt)
        offer = waiting.offer if waiting is not None else None
        return replace(status, analysis=self._told(offer or held))

    def _told(self, held: Held | None) -> tuple[str, ...]:
        known = self.analyses.get(held.content) if held is not None else None
        return known.told if known is not None else ()

"""The modules in force, and every change of them: from the watched folder, from a person, after a start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar, assert_never

import structlog

from gateway.core.clock import Clock
from gateway.core.errors import GatewayError, StorageError
from gateway.solver.activation import Activation, KeptModule, store_durably
from gateway.solver.changes import (
    AtOnce,
    Offer,
    Refuse,
    Same,
    Standing,
    Waits,
    Weakening,
    judge_offer,
    judge_removal,
)
from gateway.solver.errors import ModuleRefusedError, NothingToApproveError
from gateway.solver.module import Module
from gateway.solver.module_reports import ModuleReport, ReportWriter
from gateway.solver.module_status import (
    Held,
    ModuleStatus,
    Refusal,
    Waiting,
    held_status,
    listed,
    refused_status,
    told,
)
from gateway.solver.watcher import Content, FileGone, FileSettled, FolderChange, is_module_name

log = structlog.get_logger().bind(component="registry")

R = TypeVar("R")  # a rule set
Compile = Callable[[bytes, str], Module]  # raises ModuleRefusedError
Assemble = Callable[[Sequence[Module], int], R]  # modules and generation; raises ModuleRefusedError
Activate = Callable[[R], Awaitable[None]]  # raises GatewayError where the set cannot be loaded


@dataclass(slots=True)
class Registry(Generic[R]):
    """Owner of the rule set. One change at a time; what fails leaves the last good in force."""

    folder: Path  # the watched one
    activation: Activation
    reports: ReportWriter
    compile: Compile
    assemble: Assemble[R]
    activate: Activate[R]
    clock: Clock
    weakening: Weakening
    required: frozenset[str]
    on_change: Callable[[], None] = lambda: None
    rule_set: R | None = None  # None until `start` has come back
    _held: dict[str, Held] = field(default_factory=dict)
    _waiting: dict[str, Waiting] = field(default_factory=dict)
    _refused: dict[str, Refusal] = field(default_factory=dict)  # by file
    _attempts: dict[str, int] = field(default_factory=dict)  # by module, UTC ns
    _unloaded: dict[str, ModuleStatus] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self, found: Sequence[FolderChange]) -> None:
        """Put in force what was in force before the stop, joined by what the folder holds now.

        One activation where all is well, also of an empty set. Raises `StorageError` where the kept state
        cannot be read, and whatever else keeps even that from being activated.
        """
        async with self._lock:
            await asyncio.to_thread(self.activation.load)
            before = self._held = await self._restore()
            changes = [*found, *self._missing(before)]
            held: Mapping[str, Held] = before
            for change in changes:
                held = await self._staged(held, change)
            try:
                await self._switch(held)
            except ModuleRefusedError as exc:
                log.warning("start_set_refused", reasons=told(exc))
                await self._start_one_by_one(before, changes)
            for module in self._held.values():
                if module.file not in self._refused and module.module.id not in self._waiting:
                    await self._accept(module)
            self.on_change()

    async def apply(self, changes: Sequence[FolderChange]) -> None:
        """Take certain changes of the folder; never raises for what a file holds."""
        async with self._lock:
            if len(changes) == 1 or not await self._taken_together(changes):
                await self._take_one_by_one(changes)
            self.on_change()

    async def approve(self, module: str, user: str) -> None:
        """Put a waiting weakening in force (S24); `NothingToApproveError` when none waits.

        Raises `GatewayError` when the change cannot be put in force any more; it then waits no longer.
        """
        async with self._lock:
            waiting = self._waiting.pop(module, None)
            if waiting is None:
                raise NothingToApproveError(module)
            log.info("weakening_approved", module=module, user=user, change=waiting.because)
            old = self._held[module]
            held = {name: kept for name, kept in self._held.items() if name != module}
            if waiting.offer is not None:
                held[module] = waiting.offer
            file = waiting.offer.file if waiting.offer is not None else old.file
            done = await self._take(held, file)
            if done and waiting.offer is None:
                self._note_unloaded(old)
                await asyncio.to_thread(self.reports.clear, old.file)
            self.on_change()
            if not done:
                raise GatewayError("; ".join(self._refused[file].because))

    def statuses(self) -> tuple[ModuleStatus, ...]:
        """Every module and every refused file, by id."""
        found = {name: self._status(held) for name, held in self._held.items()}
        for refusal in self._refused.values():
            owner = next((n for n, held in self._held.items() if held.file == refusal.file), None)
            if owner is None:
                stem = Path(refusal.file).stem
                name = stem if stem not in found else refusal.file
                found[name] = refused_status(name, refusal)
        for name, status in self._unloaded.items():
            found.setdefault(name, status)
        return tuple(found[name] for name in sorted(found))

    async def load(self, name: str, data: bytes, user: str) -> str:
        """Put a module file that compiles into the watched folder and take it at once; why not, or empty."""
        if Path(name).name != name or not is_module_name(name):
            return (
                f"`{name}` is not a name for a module file; it ends in .json and does not begin with a point"
            )
        try:
            module = await asyncio.to_thread(self.compile, data, name)
            await asyncio.to_thread(store_durably, self.folder / name, data)
        except ModuleRefusedError as exc:
            return "; ".join(told(exc))
        except StorageError as exc:
            return str(exc)
        log.info("module_load_asked", module=module.id, file=name, user=user)
        await self.apply([FileSettled(name, Content(data, module.digest))])
        refusal = self._refused.get(name)
        return "; ".join(refusal.because) if refusal is not None else ""

    async def unload(self, module: str, user: str) -> str:
        """Take a module's file out of the watched folder; why not, or empty. A weakening then waits."""
        held = self._held.get(module)
        if held is None:
            return f"no module `{module}` is in force{listed(self._held)}"
        if module in self.required:
            return f"a decision point requires module `{module}`; take it out of `required_modules` first"
        log.info("module_unload_asked", module=module, file=held.file, user=user)
        try:
            await asyncio.to_thread((self.folder / held.file).unlink, missing_ok=True)
        except OSError as exc:
            return f"`{held.file}` cannot be taken out: {exc.strerror}"
        await self.apply([FileGone(held.file)])
        return ""

    def _missing(self, held: Mapping[str, Held]) -> list[FileGone]:
        """Files taken out during the stop; a folder that is away altogether takes nothing out."""
        if not self.folder.is_dir():
            return []
        return [FileGone(h.file) for h in held.values() if not (self.folder / h.file).exists()]

    async def _restore(self) -> dict[str, Held]:
        """Modules in force before the stop, from their kept bytes; one that cannot come back is refused."""
        held: dict[str, Held] = {}
        for name, kept in self.activation.modules.items():
            try:
                data = await asyncio.to_thread(self.activation.kept, kept.content)
                module = await asyncio.to_thread(self.compile, data, kept.file)
            except StorageError as exc:
                await self._refuse(kept.file, "the module in force before the stop is lost", (str(exc),))
            except ModuleRefusedError as exc:
                await self._refuse(kept.file, "the module in force before the stop fits no more", told(exc))
            else:
                held[name] = Held(module, kept.file, kept.content, kept.last_success_ns)
        return held

    async def _staged(self, held: Mapping[str, Held], change: FolderChange) -> dict[str, Held]:
        """The modules as they should be after a change; the same ones where it is refused or waits."""
        match change:
            case FileSettled():
                return await self._with_file(held, change)
            case FileGone():
                return await self._without_file(held, change.name)
            case _:
                assert_never(change)

    async def _with_file(self, held: Mapping[str, Held], change: FileSettled) -> dict[str, Held]:
        file, same = change.name, dict(held)
        now = self.clock.utc_ns()
        owner = next((name for name, h in held.items() if h.file == file), None)
        if owner is not None:
            self._attempts[owner] = now
            self._waiting.pop(owner, None)  # the file says something else now
        if change.content.problem:
            await self._refuse(file, "the file cannot be read", (change.content.problem,))
            return same
        try:
            module = await asyncio.to_thread(self.compile, change.content.data, file)
        except ModuleRefusedError as exc:
            await self._refuse(file, "the module cannot be used", told(exc), "mend the places above")
            return same
        if owner is not None and owner != module.id:
            because = f"the file held module `{owner}`, which is in force, and now holds `{module.id}`"
            await self._refuse(file, because, (), f"put `{owner}` back and give the new module its own file")
            return same
        self._attempts[module.id] = now
        new = Held(module, file, change.content.digest, now)
        return await self._judged(held, new)

    async def _judged(self, held: Mapping[str, Held], new: Held) -> dict[str, Held]:
        name, now = new.module.id, dict(held)
        old = held.get(name)
        elsewhere = old is not None and old.file != new.file
        verdict = judge_offer(
            Offer(name, new.file, new.module.revision, new.module.digest),
            Standing(old.file, old.module.revision, old.module.digest) if old is not None else None,
            self.activation.highest.get(name),
            self.weakening,
            other_file_there=elsewhere and old is not None and (self.folder / old.file).exists(),
        )
        match verdict:
            case Same():
                if old is not None and elsewhere:
                    await asyncio.to_thread(self.reports.clear, old.file)
                    now[name] = replace(old, file=new.file)
                await self._accept(now[name])
            case AtOnce():
                now[name] = new
            case Waits():
                await self._wait(name, Waiting(new, verdict.because), new.file)
            case Refuse():
                await self._refuse(new.file, verdict.because, (), verdict.todo)
            case _:
                assert_never(verdict)
        return now

    async def _without_file(self, held: Mapping[str, Held], file: str) -> dict[str, Held]:
        now = dict(held)
        self._refused.pop(file, None)
        name = next((name for name, h in held.items() if h.file == file), None)
        if name is None:
            await asyncio.to_thread(self.reports.clear, file)
            return now
        self._attempts[name] = self.clock.utc_ns()
        verdict = judge_removal(name, self.weakening, required=name in self.required)
        match verdict:
            case AtOnce():
                self._waiting.pop(name, None)
                self._note_unloaded(now.pop(name))
                await asyncio.to_thread(self.reports.clear, file)
            case Waits():
                await self._wait(name, Waiting(None, verdict.because), file)
            case Refuse():
                self._waiting.pop(name, None)
                await self._refuse(file, verdict.because, (), verdict.todo)
            case Same():
                pass
            case _:
                assert_never(verdict)
        return now

    async def _start_one_by_one(self, before: Mapping[str, Held], changes: Sequence[FolderChange]) -> None:
        """Some module fits not with the others: find it by adding one file after another."""
        try:
            await self._switch(before)
        except ModuleRefusedError as exc:
            for held in before.values():
                await self._refuse(held.file, "the modules in force before the stop fit no more", told(exc))
            await self._switch({})
        await self._take_one_by_one(changes)

    async def _taken_together(self, changes: Sequence[FolderChange]) -> bool:
        """One activation for many files; False where some do not fit: then nothing changed."""
        before = held = self._held
        for change in changes:
            held = await self._staged(held, change)
        try:
            if held != before:
                await self._switch(held)
        except GatewayError:
            return False
        for module in held.values():
            if before.get(module.module.id) is not module:
                await self._accept(module)
        return True

    async def _take_one_by_one(self, changes: Sequence[FolderChange]) -> None:
        for change in changes:
            await self._take(await self._staged(self._held, change), change.name)

    async def _take(self, held: Mapping[str, Held], cause: str) -> bool:
        """Put a changed set in force; False where it cannot be: `cause` is refused, the last good stays."""
        if held == self._held:
            return True
        try:
            await self._switch(held)
        except GatewayError as exc:
            reasons = told(exc) if isinstance(exc, ModuleRefusedError) else (str(exc),)
            await self._refuse(cause, "the modules together cannot be put in force", reasons)
            return False
        for module in held.values():
            if module.file == cause:
                await self._accept(module)
        return True

    async def _switch(self, held: Mapping[str, Held]) -> None:
        """Activate a set and make it durable; the last set under other file names keeps its number.

        Bytes are kept before, the set is committed after: a crash in between goes back to the last good set.
        """
        kept = {name: await self._kept(h) for name, h in held.items()}
        last = {name: k.content for name, k in self.activation.modules.items()}
        same = self.activation.complete and last == {name: k.content for name, k in kept.items()}
        generation = self.activation.generation if same else await asyncio.to_thread(self.activation.reserve)
        if not same or self.rule_set is None:
            modules = [held[name].module for name in sorted(held)]
            rule_set = await asyncio.to_thread(self.assemble, modules, generation)
            await self.activate(rule_set)
            self.rule_set = rule_set
            log.info("rule_set_activated", generation=generation, modules=sorted(held))
        self._held = dict(held)
        try:
            await asyncio.to_thread(self.activation.commit, generation, kept)
        except StorageError as exc:  # it is in force; only a restart would not know
            log.error("module_state_not_durable", generation=generation, reason=str(exc))  # noqa: TRY400  handled

    async def _kept(self, held: Held) -> KeptModule:
        content = await asyncio.to_thread(self.activation.keep, held.module.text.encode())
        return KeptModule(
            file=held.file,
            content=content,
            revision=held.module.revision,
            digest=held.module.digest,
            last_success_ns=held.since_ns,
        )

    async def _accept(self, held: Held) -> None:
        name = held.module.id
        self._refused.pop(held.file, None)
        self._waiting.pop(name, None)
        self._unloaded.pop(name, None)
        text = f"module `{name}` revision {held.module.revision} is in force"
        await self._report(ModuleReport(kind="accepted", file=held.file, at_ns=held.since_ns, summary=text))

    async def _wait(self, name: str, waiting: Waiting, file: str) -> None:
        self._waiting[name] = waiting
        self._refused.pop(file, None)
        log.warning("weakening_waits", module=name, file=file, change=waiting.because)
        await self._report(
            ModuleReport(
                kind="pending",
                file=file,
                at_ns=self.clock.utc_ns(),
                summary=f"module `{name}`: {waiting.because}, which may weaken the rules",
                todo=f"an engineer approves it: o3ctl runtime approve {name}",
                in_force=self._in_force(name),
            )
        )

    async def _refuse(self, file: str, summary: str, problems: tuple[str, ...], todo: str = "") -> None:
        now = self.clock.utc_ns()
        because = problems or (summary,)
        self._refused[file] = Refusal(file, because, now)
        log.error("module_refused", file=file, summary=summary, problems=because)
        name = next((name for name, h in self._held.items() if h.file == file), "")
        report = ModuleReport(kind="refused", file=file, at_ns=now, summary=summary, problems=problems)
        await self._report(replace(report, todo=todo, in_force=self._in_force(name)))

    async def _report(self, report: ModuleReport) -> None:
        await asyncio.to_thread(self.reports.write, report)

    def _in_force(self, name: str) -> str:
        held = self._held.get(name)
        if held is None:
            return "the modules that were in force before, unchanged"
        return f"module `{name}` revision {held.module.revision}, unchanged"

    def _note_unloaded(self, held: Held) -> None:
        self._unloaded[held.module.id] = replace(self._status(held), state="unloaded", refused_because=())

    def _status(self, held: Held) -> ModuleStatus:
        name = held.module.id
        attempt = self._attempts.get(name, held.since_ns)
        return held_status(held, self._waiting.get(name), self._refused.get(held.file), attempt)

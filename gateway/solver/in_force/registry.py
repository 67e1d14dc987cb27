"""Owner of the modules in force: their changes from the watched folder, from people, after a start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from gateway.core.clock import Clock
from gateway.core.errors import GatewayError, StorageError, WorkerLostError
from gateway.core.override import Override
from gateway.solver.errors import ModuleRefusedError, refused_on_a_fault
from gateway.solver.in_force.activation import Activation, KeptModule
from gateway.solver.in_force.changes import Weakening
from gateway.solver.in_force.module_book import ModuleBook
from gateway.solver.in_force.module_reports import ReportWriter
from gateway.solver.in_force.module_status import Held, ModuleStatus, Sets, Waiting, told
from gateway.solver.in_force.override_book import OverrideBook, Record
from gateway.solver.in_force.proving import Invariance, Proving
from gateway.solver.in_force.put_off import PutOff
from gateway.solver.in_force.restoring import Restoring
from gateway.solver.in_force.staging import Compile, Staging
from gateway.solver.in_force.watcher import FolderChange
from gateway.solver.modules.module import Module

log = structlog.get_logger().bind(component="registry")

R = TypeVar("R")  # a rule set
Assemble = Callable[[Sequence[Module], int, Sequence[Override]], R]  # with its generation; ModuleRefusedError
Activate = Callable[[R, R | None], Awaitable[None]]  # in force, and with the shadow modules; GatewayError
_NOT_TOGETHER = "the modules together cannot be put in force"
_AGAIN = "nothing, should that pass: it is tried again every few seconds"
Weaker = Callable[[R | None, Module | None, Module | None], str]  # set in force, old, new; why, or ""


@dataclass(slots=True)
class Registry(Generic[R]):
    """One change at a time; what fails leaves the last good in force. People's verbs: `acts`.

    A tightening is in force at once. A weakening waits for a person (S24), and on an armed point then for the
    proof of the safe set it leads to (S1).
    """

    folder: Path  # the watched one
    activation: Activation
    reports: ReportWriter
    compile: Compile
    assemble: Assemble[R]
    activate: Activate[R]
    clock: Clock
    weakening: Weakening
    required: frozenset[str]
    weaker: Weaker[R]
    invariance: Invariance[R]
    record: Record
    trial: frozenset[str] = frozenset()  # modules that begin in shadow
    on_change: Callable[[], None] = lambda: None
    rule_set: R | None = None  # None until `start` has come back
    progress: tuple[int, int] = (0, 0)  # files looked at and to look at, of the change at hand
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stirred: asyncio.Event = field(default_factory=asyncio.Event)  # something may wait that did not before
    book: ModuleBook = field(init=False)
    staging: Staging = field(init=False)
    restoring: Restoring = field(init=False)
    overrides: OverrideBook = field(init=False)
    proving: Proving[R] = field(init=False)
    _restored_set: R | None = None  # what was in force before the stop, until something is in force
    put_off: PutOff = field(default_factory=PutOff)

    def __post_init__(self) -> None:
        self.book = ModuleBook(self.reports, self.clock)
        self.overrides = OverrideBook(self.record, self.clock)
        self.proving = Proving(self.invariance, self.book, self.lock, self._proved)
        self.restoring = Restoring(self.folder, self.activation, self.book, self.compile)
        self.staging = Staging(
            folder=self.folder,
            activation=self.activation,
            book=self.book,
            compile=self.compile,
            weakens=lambda old, new: self.weaker(self.rule_set or self._restored_set, old, new),
            required=self.required,
            trial=self.trial,
        )

    @property
    def sets(self) -> Sets:
        """The modules in force, and in shadow."""
        return self.book.sets

    def statuses(self) -> tuple[ModuleStatus, ...]:
        """Every module and every refused file, by id."""
        return self.book.statuses()

    async def start(self, found: Sequence[FolderChange]) -> None:
        """Put in force what was in force before the stop, joined by what the folder holds now.

        One activation where all is well, also of an empty set. Raises `StorageError` where the kept state
        cannot be read, and whatever else keeps even that from being activated.
        """
        async with self.lock:
            await asyncio.to_thread(self.activation.load)
            await self.overrides.restarted(self.activation.overrides)
            before = self.book.sets = await self.restoring.sets()
            if before.active:
                with contextlib.suppress(ModuleRefusedError):  # then one after the other is tried, below
                    self._restored_set = await asyncio.to_thread(self._assembled, before, 0)
            changes = [*found, *self.restoring.missing(before)]
            sets = await self._staged(before, changes)
            try:
                await self._switch(sets)
            except ModuleRefusedError as exc:
                log.warning("start_set_refused", reasons=told(exc))
                await self._start_one_by_one(before, changes)
            await self.approve_signed()
            for held in self.sets.active.values():
                if held.file not in self.book.refused and held.module.id not in self.book.waiting:
                    await self.book.accept(held)
            self._changed()

    async def apply(self, changes: Sequence[FolderChange]) -> None:
        """Take certain changes of the folder; never raises for what a file holds."""
        async with self.lock:
            self.put_off.forget(change.name for change in changes)
            await self._take_many(changes)
            await self.approve_signed()
            self._changed()

    async def approve_signed(self) -> None:
        """Carry out what waits and bears a trusted signature: it counts as the second person (S24).

        What the log cannot keep goes on waiting. Call with the lock held.
        """
        for name, waiting in list(self.book.waiting.items()):
            if not waiting.signed_by or waiting.proving or waiting.comparing:
                continue
            facts = {"module": name, "change": waiting.because, "made_by": ", ".join(sorted(waiting.by))}
            try:
                await self.record("module_approved", f"key:{waiting.signed_by}", facts)
            except StorageError as exc:
                log.error("signed_change_waits", module=name, reason=str(exc))  # noqa: TRY400  handled
                continue
            log.info("weakening_signed", module=name, key=waiting.signed_by, change=waiting.because)
            await self.carry_out(name, waiting)

    async def run(self) -> None:
        """Prove what approved changes lead to, and try again what was put off; never ends by itself."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.proving.run(), name="prove-approved")
            while True:
                await self.put_off.due()
                async with self.lock:
                    changes, approved = self.put_off.taken()
                    log.info("changes_tried_again", files=[change.name for change in changes])
                    await self._take_many(changes)
                    for name, waiting in approved.items():
                        if self.book.waiting.get(name) is waiting:
                            await self.carry_out(name, waiting)
                    await self.approve_signed()
                    self._changed()

    async def carry_out(self, name: str, waiting: Waiting) -> bool:
        """Put an approved change in force, or first have its safe set proved; False where it is refused.

        One that fails by no fault of its own waits on, and is tried again. Call with the lock held.
        """
        offer = waiting.offer
        old = self.sets.active.get(name)
        sets = self.sets.with_active(offer) if offer is not None else self.sets.without_active(name)
        if self.invariance.armed():
            try:
                fresh = await asyncio.to_thread(self._assembled, sets, 0)
            except ModuleRefusedError as exc:
                self.book.waiting.pop(name, None)
                await self.book.refuse(waiting.file, "the modules together do not fit", told(exc))
                return False
            if not self.invariance.known(fresh):
                await self.proving.begin(name, waiting, fresh)
                return True
        self.book.waiting.pop(name, None)
        back = {waiting.takes_back: ", ".join(sorted(waiting.by))} if waiting.takes_back else {}
        done = await self.take(sets, waiting.file, back)
        if done and offer is None and old is not None:
            self.book.note_unloaded(old)
            await self.book.forget(old.file)
        refusal = self.book.refused.get(waiting.file)
        if not done and refusal is not None and refusal.passing:
            self.book.waiting[name] = waiting
            self.put_off.note_approved(name, waiting)
        return done

    async def take(self, sets: Sets, cause: str, taken_back: Mapping[str, str] | None = None) -> bool:
        """Put a changed set in force; False where it cannot be: `cause` is refused, the last good stays.

        Call with the lock held.
        """
        before = self.sets
        if sets == before:
            return True
        try:
            await self._switch(sets, taken_back or {})
        except ModuleRefusedError as exc:
            await self.book.refuse(cause, _NOT_TOGETHER, told(exc))
            return False
        except GatewayError as exc:
            passing = isinstance(exc, StorageError | WorkerLostError)
            await self.book.refuse(
                cause, _NOT_TOGETHER, (str(exc),), _AGAIN if passing else "", passing=passing
            )
            return False
        await self._accept_new(before)
        return True

    async def override(self, overrides: Mapping[str, Override]) -> None:
        """The same modules with these constraints set aside; raises `GatewayError`, and nothing changed.

        Call with the lock held.
        """
        await self._switch(replace(self.sets, overrides=overrides))

    def changed(self) -> None:
        """Tell everybody who looks. Call with the lock held."""
        self._changed()

    def _changed(self) -> None:
        self.staging.forget_compiled()
        self.progress = (0, 0)
        self.stirred.set()
        self.on_change()

    async def _start_one_by_one(self, before: Sets, changes: Sequence[FolderChange]) -> None:
        """Some module fits not with the others: find it by adding one file after another."""
        try:
            await self._switch(before)
        except ModuleRefusedError as exc:
            for held in before.active.values():
                await self.book.refuse(
                    held.file, "the modules in force before the stop fit no more", told(exc)
                )
            await self._switch(Sets())
        await self._take_many(changes)

    async def _staged(self, sets: Sets, changes: Sequence[FolderChange]) -> Sets:
        for number, change in enumerate(changes):
            self.progress = (number, len(changes))
            sets = await self.staging.staged(sets, change)
        return sets

    async def _take_many(self, changes: Sequence[FolderChange]) -> None:
        """One activation for many files; where some do not fit, halves, until the misfits are found."""
        if len(changes) <= 1:
            for change in changes:
                taken = await self.take(await self.staging.staged(self.sets, change), change.name)
                if not taken and self.book.refused[change.name].passing:
                    self.put_off.note(change)
            return
        before = self.sets
        try:
            sets = await self._staged(before, changes)
            if sets != before:
                await self._switch(sets)
        except GatewayError:
            middle = len(changes) // 2
            await self._take_many(changes[:middle])
            await self._take_many(changes[middle:])
            return
        await self._accept_new(before)

    async def _accept_new(self, before: Sets) -> None:
        for name, held in self.sets.active.items():
            was = before.active.get(name)
            if was is not None and was.file != held.file:
                await self.book.forget(was.file)
            if was is not held:
                await self.book.accept(held)
        for name, held in self.sets.shadow.items():
            if before.shadow.get(name) is not held:
                await self.book.accept(held, shadow=True)

    async def _proved(self, name: str, waiting: Waiting, why: str) -> None:
        """What follows from the proof of an approved change. Call with the lock held."""
        if why and self.invariance.armed():
            self.book.waiting.pop(name, None)
            await self.book.refuse(
                waiting.file,
                "the approved change is not put in force while a decision point is armed",
                (why,),
                "mend the `safe_set` or the `backup`, or disarm the point and offer the change again",
            )
        else:
            await self.carry_out(name, waiting)
        self._changed()

    def _assembled(self, sets: Sets, generation: int) -> R:
        modules = [sets.active[name].module for name in sorted(sets.active)]
        with refused_on_a_fault("the modules in force together"):
            return self.assemble(modules, generation, _by_name(sets))

    def _on_trial(self, sets: Sets, generation: int) -> R | None:
        """All modules, shadow ones too; None where there are none, or they do not fit."""
        if not sets.shadow:
            return None
        try:
            with refused_on_a_fault("the modules in shadow"):
                return self.assemble(sets.trial(), generation, ())
        except ModuleRefusedError as exc:
            log.warning("shadow_modules_do_not_fit", modules=sorted(sets.shadow), reasons=told(exc))
            return None

    async def _switch(self, sets: Sets, taken_back: Mapping[str, str] | None = None) -> None:
        """Activate a set and make it durable; the last set under other file names keeps its number.

        Bytes are kept before, the set is committed after: a crash in between goes back to the last good set.
        """
        kept = {name: await self._kept(h) for name, h in sets.active.items()}
        shadow = {name: await self._kept(h) for name, h in sets.shadow.items()}
        same = self.activation.complete and (
            _content(self.activation.modules) == _content(kept)
            and _content(self.activation.shadow) == _content(shadow)
            and self.activation.overrides == _by_name(sets)
        )
        generation = self.activation.generation if same else await asyncio.to_thread(self.activation.reserve)
        if not same or self.rule_set is None:
            rule_set = await asyncio.to_thread(self._assembled, sets, generation)
            trial = await asyncio.to_thread(self._on_trial, sets, generation)
            await self.activate(rule_set, trial)
            self.rule_set = rule_set
            log.info("rule_set_activated", generation=generation, modules=sorted(sets.active))
        before, self.book.sets = self.book.sets, sets
        overrides = _by_name(sets)
        try:
            await asyncio.to_thread(
                self.activation.commit, generation, kept, shadow, taken_back or {}, overrides
            )
            facts = {"generation": str(generation), "modules": _revisions(sets.active)}
            facts |= {"overrides": ", ".join(o.name for o in overrides)} if overrides else {}
            await self.record("activation", "gateway", facts | {"shadow": _revisions(sets.shadow)})
        except StorageError as exc:  # it is in force; only a restart would not know
            log.error("module_state_not_durable", generation=generation, reason=str(exc))  # noqa: TRY400  handled
        await self.overrides.switched(before, sets)

    async def _kept(self, held: Held) -> KeptModule:
        content = await asyncio.to_thread(self.activation.keep, held.data)
        return KeptModule(
            file=held.file,
            content=content,
            revision=held.module.revision,
            digest=held.module.digest,
            last_success_ns=held.since_ns,
            priority=held.module.priority if held.priority_by else None,
            priority_by=held.priority_by,
        )


def _content(modules: Mapping[str, KeptModule]) -> dict[str, tuple[str, int | None]]:
    return {name: (kept.content, kept.priority) for name, kept in modules.items()}


def _by_name(sets: Sets) -> tuple[Override, ...]:
    return tuple(sets.overrides[name] for name in sorted(sets.overrides))


def _revisions(modules: Mapping[str, Held]) -> str:
    return ", ".join(f"{name} {held.module.revision}" for name, held in sorted(modules.items()))

"""One change of the watched folder, judged: which modules should be in force after it."""

from __future__ import annotations

import asyncio
import hashlib
import pwd
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import assert_never

from gateway.solver.errors import ModuleRefusedError, refused_on_a_fault
from gateway.solver.in_force.activation import Activation
from gateway.solver.in_force.changes import (
    AtOnce,
    Compares,
    Judgement,
    Offer,
    Refuse,
    Same,
    Standing,
    Waits,
    judge_offer,
    judge_removal,
)
from gateway.solver.in_force.module_book import ModuleBook
from gateway.solver.in_force.module_status import Held, Sets, Waiting, told
from gateway.solver.in_force.watcher import FileGone, FileSettled, FolderChange, leads_nowhere, read_file
from gateway.solver.modules.module import Module

Compile = Callable[[bytes, str], Module]  # raises ModuleRefusedError
COMPARES = "wait for the comparison, or an engineer approves it before: o3ctl runtime list says how it went"
Weakens = Callable[[Module | None, Module | None], str]  # old and new; against what is in force


@dataclass(slots=True)
class Staging:
    """Judges changes; tells the book of what waits and what is refused. Puts nothing in force."""

    folder: Path
    activation: Activation
    book: ModuleBook
    compile: Compile
    weakens: Weakens
    required: frozenset[str]
    trial: frozenset[str]  # modules that begin in shadow
    compares: bool = False  # whether somebody compares revisions: see `gateway.solver.in_force.comparing`
    _copies: dict[str, FileSettled] = field(default_factory=dict)  # files of modules that others hold
    _compiled: dict[tuple[str, str], Module | ModuleRefusedError] = field(default_factory=dict)

    async def staged(self, sets: Sets, change: FolderChange) -> Sets:
        """The modules as they should be after a change; the same ones where it is refused or waits."""
        match change:
            case FileSettled():
                return await self._with_file(sets, change)
            case FileGone():
                return await self._copied(await self.without_file(sets, change.name, frozenset()))
            case _:
                assert_never(change)

    def forget_compiled(self) -> None:
        """A batch of changes is done: what was compiled for it is not kept."""
        self._compiled.clear()

    async def module(self, data: bytes, file: str) -> Module:
        """A compiled module; the same bytes of one batch are compiled once. Raises `ModuleRefusedError`."""
        key = (file, hashlib.sha256(data).hexdigest())
        if key not in self._compiled:
            try:
                with refused_on_a_fault(file):
                    self._compiled[key] = await asyncio.to_thread(self.compile, data, file)
            except ModuleRefusedError as exc:
                self._compiled[key] = exc
        found = self._compiled[key]
        if isinstance(found, ModuleRefusedError):
            raise found
        return found

    async def offered(self, sets: Sets, new: Held, by: frozenset[str]) -> Sets:
        """The modules as they should be with this one in force; the same where it is refused or waits."""
        name = new.module.id
        self.book.tried(name)
        try:
            with refused_on_a_fault(new.file):
                verdict = await asyncio.to_thread(self.judge, sets, new)
        except ModuleRefusedError as exc:
            await self.book.refuse(new.file, "the module cannot be compared with what is in force", told(exc))
            return sets
        match verdict:
            case Same():
                return await self._same(sets, new)
            case AtOnce():
                self.book.waiting.pop(name, None)
                return sets.with_active(new)
            case Waits():
                because = f"{verdict.because}, which may weaken the rules"
                waiting = Waiting(new, because, by, file=new.file, signed_by=new.module.signed_by)
                await self.book.wait(name, waiting, f"an engineer approves it: o3ctl runtime approve {name}")
            case Compares():
                await self.book.wait(name, self.compared(new, verdict.because, by), COMPARES)
            case Refuse():
                await self.book.refuse(new.file, verdict.because, (), verdict.todo)
            case _:
                assert_never(verdict)
        return sets

    def compared(self, new: Held, because: str, by: frozenset[str]) -> Waiting:
        """A reworded module: put to a solver where there is one, else a weakening."""
        said = f"{because}; whether it still demands all that it did is being looked into"
        weak = f"{because}, which may weaken the rules"
        return Waiting(
            new,
            said if self.compares else weak,
            by,
            file=new.file,
            signed_by=new.module.signed_by,
            comparing=self.compares,
        )

    def judge(self, sets: Sets, new: Held) -> Judgement:
        """What to do with a module that compiles."""
        module = new.module
        old = sets.active.get(module.id)
        elsewhere = old is not None and old.file != new.file
        return judge_offer(
            Offer(module.id, new.file, module.revision, module.digest),
            Standing(old.file, old.module.revision, old.module.digest) if old is not None else None,
            self.activation.highest.get(module.id),
            lambda: self.weakens(old.module if old is not None else None, module),
            other_file_there=elsewhere and old is not None and not leads_nowhere(self.folder / old.file),
            taken_back=self.activation.taken_back.get(module.digest, ""),
        )

    async def without_file(self, sets: Sets, file: str, by: frozenset[str]) -> Sets:
        """The modules as they should be now that a file is gone, taken out by `by` (empty: nobody knows)."""
        self.book.refused.pop(file, None)
        self._copies.pop(file, None)
        shadow = next((n for n, h in sets.shadow.items() if h.file == file), None)
        if shadow is not None:
            sets = sets.without_shadow(shadow)
        name = sets.owner(file)
        if name is None:
            await self.book.forget(file)
            name = self._no_longer_offered(sets, file)
            if name is None:
                return sets
            file = sets.active[name].file
        elif self._offered_elsewhere(name, file):
            await self.book.forget(file)
            return sets
        self.book.tried(name)
        verdict = judge_removal(name, required=name in self.required)
        match verdict:
            case Waits():
                waiting = Waiting(None, f"{verdict.because}, which may weaken the rules", by, file=file)
                await self.book.wait(name, waiting, f"an engineer approves it: o3ctl runtime approve {name}")
            case Refuse():
                self.book.waiting.pop(name, None)
                await self.book.refuse(file, verdict.because, (), verdict.todo)
            case AtOnce() | Same() | Compares():
                pass
            case _:
                assert_never(verdict)
        return sets

    def _offered_elsewhere(self, name: str, file: str) -> bool:
        """Whether a file was renamed and changed: what waits under the new name stands for the module."""
        waits = self.book.waiting.get(name)
        return waits is not None and waits.offer is not None and waits.file != file

    def _no_longer_offered(self, sets: Sets, file: str) -> str | None:
        """Forget what waits from a file that is gone; the module in force that is left without a file."""
        alone = None
        for name in [n for n, w in self.book.waiting.items() if w.file == file]:
            self.book.waiting.pop(name)
            held = sets.active.get(name)
            if held is not None and leads_nowhere(self.folder / held.file):
                alone = name
        return alone

    async def _with_file(self, sets: Sets, change: FileSettled) -> Sets:
        file, data = change.name, change.content.data
        self._copies.pop(file, None)
        owner = sets.owner(file)
        if owner is not None:
            self.book.tried(owner)
        for name, waits in self._contradicted(change, owner):
            if waits.file == file and await asyncio.to_thread(self._stands, waits):
                return sets  # it was read before what waits was written, and is told of once more
            self.book.waiting.pop(name)  # the file says something else now
        if change.content.problem:
            todo = "put a module file there that the gateway's account may read, or take it out"
            await self.book.refuse(file, "the file cannot be read", (change.content.problem,), todo)
            return sets
        try:
            module = await self.module(data, file)
        except ModuleRefusedError as exc:
            await self.book.refuse(file, "the module cannot be used", told(exc), "mend the places above")
            return sets
        if owner is not None and owner != module.id:
            because = f"the file held module `{owner}`, which is in force, and now holds `{module.id}`"
            await self.book.refuse(
                file, because, (), f"put `{owner}` back and give the new module its own file"
            )
            return sets
        for other in [n for n, h in sets.shadow.items() if h.file == file and n != module.id]:
            sets = sets.without_shadow(other)
        content = hashlib.sha256(data).hexdigest()
        new = Held(module, data, file, content, self.book.clock.utc_ns())
        if self._for_trial(sets, new):
            return await self.tried(sets, new)
        holder = sets.active.get(module.id)
        by = await asyncio.to_thread(self._authors, change, content)  # names may come over a network
        sets = await self.offered(sets, new, by)
        if file in self.book.refused and holder is not None and holder.file != file:
            self._copies[file] = change
        return sets

    async def _copied(self, sets: Sets) -> Sets:
        """A file is gone: copies of its module are judged anew, unless a person took the module out."""
        for change in list(self._copies.values()):
            asked = any(w.offer is None and w.by for w in self.book.waiting.values())
            if not asked and not leads_nowhere(self.folder / change.name):
                sets = await self._with_file(sets, change)
        return sets

    async def tried(self, sets: Sets, new: Held) -> Sets:
        """The modules as they should be with this one judged beside those in force."""
        name = new.module.id
        self.book.tried(name)
        old = sets.shadow.get(name)
        if old is not None and old.content == new.content and old.file == new.file:
            await self.book.accept(old, shadow=True)
            return sets
        return sets.with_shadow(new)

    def _for_trial(self, sets: Sets, new: Held) -> bool:
        name = new.module.id
        old = sets.shadow.get(name)
        if old is not None:
            return old.file == new.file
        return name in self.trial and name not in sets.active

    async def _same(self, sets: Sets, new: Held) -> Sets:
        """The same source: under another name, or in another file format or with another signature."""
        old = sets.active[new.module.id]
        if old.content != new.content:
            await self.book.forget(old.file)
            return sets.with_active(new)
        if old.file != new.file:
            await self.book.forget(old.file)
            old = replace(old, file=new.file)
            sets = sets.with_active(old)
        await self.book.accept(old)
        return sets

    def _contradicted(self, change: FileSettled, owner: str | None) -> list[tuple[str, Waiting]]:
        """What waits of the module of a file, or from it, and is not what the file shows."""
        return [
            (name, waits)
            for name, waits in self.book.waiting.items()
            if (name == owner or waits.file == change.name) and not _repeats(waits, change)
        ]

    def _stands(self, waiting: Waiting) -> bool:
        """Whether a file holds what waits at this moment."""
        if waiting.offer is None:
            return False
        try:
            return read_file(self.folder / waiting.file).data == waiting.offer.data
        except FileNotFoundError:
            return False

    def _authors(self, change: FileSettled, content: str) -> frozenset[str]:
        """Whose change a settled file is: for whom we wrote it, else the owners of the file and of a link."""
        asked = self.activation.author(change.name, content)
        return frozenset({asked}) if asked else frozenset(map(account, change.content.owners))


def account(uid: int) -> str:
    """The account of a Unix user; one without a name keeps its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _repeats(waiting: Waiting, change: FileSettled) -> bool:
    """Whether a file only shows again what waits."""
    offer = waiting.offer
    return offer is not None and offer.file == change.name and offer.data == change.content.data

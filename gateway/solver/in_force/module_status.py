"""How each module file stands: what was tried, what succeeded and what is in force, apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gateway.core.errors import ConstraintError
from gateway.core.override import Override
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.module import Module

_MARK = 12  # digits
ModuleStateName = Literal["active", "shadow", "pending", "refused", "unloaded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleStatus:
    """One constraint module file: attempt, success and what is in force, apart."""

    id: str
    file: str
    state: ModuleStateName
    revision: int
    digest: str
    priority: int
    last_attempt_ns: int
    last_success_ns: int
    refused_because: tuple[str, ...]
    constraints: tuple[str, ...]
    priority_by: str = ""  # who gave the priority; empty: the file itself
    changed_by: tuple[str, ...] = ()  # whose change waits
    change: str = ""  # the mark of what waits
    analysis: tuple[str, ...] = ()  # of what waits, else of what is in force: a summary, then what to look at


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A module in force or in shadow, its bytes and where it came from. `content`: sha256 of the bytes."""

    module: Module
    data: bytes
    file: str
    content: str
    since_ns: int
    priority_by: str = ""  # who gave it another priority than the file's


@dataclass(frozen=True, slots=True)
class Sets:
    """Modules in force, and those judged beside them without effect; by id.

    `overrides`: what of those in force is set aside, by `MODULE/CONSTRAINT`; never of a module that changed.
    """

    active: Mapping[str, Held] = field(default_factory=dict)
    shadow: Mapping[str, Held] = field(default_factory=dict)
    overrides: Mapping[str, Override] = field(default_factory=dict)

    def owner(self, file: str) -> str | None:
        """The module in force that came from a file."""
        return next((name for name, h in self.active.items() if h.file == file), None)

    def with_active(self, held: Held) -> Sets:
        """This module in force; its shadow of the same bytes is one no more."""
        name = held.module.id
        shadow = {n: h for n, h in self.shadow.items() if n != name or h.content != held.content}
        old = self.active.get(name)
        same = old is not None and old.module.digest == held.module.digest
        return Sets(
            {**self.active, name: held}, shadow, self.overrides if same else self._overrides_without(name)
        )

    def without_active(self, name: str) -> Sets:
        """This module no longer in force."""
        active = {n: h for n, h in self.active.items() if n != name}
        return Sets(active, self.shadow, self._overrides_without(name))

    def with_shadow(self, held: Held) -> Sets:
        """This module judged beside those in force."""
        return replace(self, shadow={**self.shadow, held.module.id: held})

    def without_shadow(self, name: str) -> Sets:
        """This module no longer judged beside those in force."""
        return replace(self, shadow={n: h for n, h in self.shadow.items() if n != name})

    def _overrides_without(self, module: str) -> dict[str, Override]:
        return {n: o for n, o in self.overrides.items() if o.module != module}

    def trial(self) -> list[Module]:
        """What would be in force if all shadow modules were, in the order of their ids."""
        return [h.module for _, h in sorted({**self.active, **self.shadow}.items())]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A change nobody has approved yet, or one that is being proved; `offer` None: to be taken out.

    `by` are the accounts that made it; empty: nobody knows. `proving`: approved, and being proved.
    `comparing`: in force without anybody, should a solver show that it demands all that was demanded.
    """

    offer: Held | None
    because: str
    by: frozenset[str] = frozenset()
    proving: bool = False
    comparing: bool = False
    takes_back: str = ""  # digest of the revision a rollback replaces
    file: str = ""
    signed_by: str = ""  # a trusted key whose signature stands for the second person (S24)
    todo: str = ""  # what a person can do

    @property
    def mark(self) -> str:
        """By which a person says what was looked at: of the bytes that would be in force."""
        return self.offer.content[:_MARK] if self.offer is not None else "removal"

    def same_change(self, other: Waiting) -> bool:
        """Whether both would put the same bytes in force, or take the module out."""
        if self.offer is None or other.offer is None:
            return self.offer is other.offer
        return self.offer.content == other.offer.content

    def told_again_by(self, other: Waiting) -> bool:
        """Whether `other` only repeats this change: then who made it and who approved it stay."""
        if other.proving or (self.comparing and not other.comparing):
            return False
        return self.same_change(other)

    def joined(self, again: Waiting) -> Waiting:
        """This change as it was told again: perhaps by another account, or under another file's name."""
        by = self.by | again.by if self.by else self.by
        if again.file == self.file:
            return self if by == self.by else replace(self, by=by)
        return replace(self, by=by, offer=again.offer, file=again.file)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is wrong with a file; its module's last good stays in force where there is one."""

    file: str
    because: tuple[str, ...]
    at_ns: int
    passing: bool = False  # not by what it holds: it is tried again


def told(error: ModuleRefusedError) -> tuple[str, ...]:
    """The problems of a module as `file:line:column: sentence`."""
    return tuple(_placed(problem) for problem in error.problems)


def _placed(problem: ConstraintError) -> str:
    return f"{problem.source}:{problem.line}:{problem.column}: {problem.problem}"


def refused_status(name: str, refusal: Refusal) -> ModuleStatus:
    """A file of which nothing is in force."""
    return ModuleStatus(
        id=name,
        file=refusal.file,
        state="refused",
        revision=0,
        digest="",
        priority=0,
        last_attempt_ns=refusal.at_ns,
        last_success_ns=0,
        refused_because=refusal.because,
        constraints=(),
    )


def offered_status(waiting: Waiting, last_attempt_ns: int) -> ModuleStatus | None:
    """A module of which nothing is in force yet and that waits; None for what is to be taken out."""
    if waiting.offer is None:
        return None
    module = waiting.offer.module
    return ModuleStatus(
        id=module.id,
        file=waiting.offer.file,
        state="pending",
        revision=module.revision,
        digest=module.digest,
        priority=module.priority,
        last_attempt_ns=last_attempt_ns,
        last_success_ns=0,
        refused_because=(waiting.because,),
        constraints=module.constraints,
        changed_by=tuple(sorted(waiting.by)),
        change=waiting.mark,
    )


def held_status(
    held: Held,
    waiting: Waiting | None,
    refusal: Refusal | None,
    last_attempt_ns: int,
    *,
    shadow: bool = False,
) -> ModuleStatus:
    """A module in force or in shadow; `refused_because` then tells of its newest file, or of what waits."""
    module = held.module
    because = refusal.because if refusal is not None else ()
    return ModuleStatus(
        id=module.id,
        file=held.file,
        state="shadow" if shadow else "pending" if waiting is not None else "active",
        revision=module.revision,
        digest=module.digest,
        priority=module.priority,
        last_attempt_ns=last_attempt_ns,
        last_success_ns=held.since_ns,
        refused_because=because or ((waiting.because,) if waiting is not None else ()),
        constraints=module.constraints,
        priority_by=held.priority_by,
        changed_by=tuple(sorted(waiting.by)) if waiting is not None else (),
        change=waiting.mark if waiting is not None else "",
    )


def listed(names: Iterable[str]) -> str:
    """What is in force, for the end of a sentence; empty when nothing is."""
    known = ", ".join(sorted(names))
    return f"; in force: {known}" if known else ""

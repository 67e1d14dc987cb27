"""How each module file stands: what was tried, what succeeded and what is in force, apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gateway.core.errors import ConstraintError
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.module import Module

ModuleStateName = Literal["active", "pending", "refused", "unloaded"]


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


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A module in force, and where it came from. `content`: sha256 of its bytes."""

    module: Module
    file: str
    content: str
    since_ns: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A weakening nobody has approved yet; `offer` None: the module is to be taken out."""

    offer: Held | None
    because: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is wrong with a file; its module's last good stays in force where there is one."""

    file: str
    because: tuple[str, ...]
    at_ns: int


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


def held_status(
    held: Held, waiting: Waiting | None, refusal: Refusal | None, last_attempt_ns: int
) -> ModuleStatus:
    """A module in force; `refused_because` then tells of its newest file, or of what waits."""
    module = held.module
    because = refusal.because if refusal is not None else ()
    return ModuleStatus(
        id=module.id,
        file=held.file,
        state="pending" if waiting is not None else "active",
        revision=module.revision,
        digest=module.digest,
        priority=module.priority,
        last_attempt_ns=last_attempt_ns,
        last_success_ns=held.since_ns,
        refused_because=because or ((waiting.because,) if waiting is not None else ()),
        constraints=module.constraints,
    )


def listed(names: Iterable[str]) -> str:
    """What is in force, for the end of a sentence; empty when nothing is."""
    known = ", ".join(sorted(names))
    return f"; in force: {known}" if known else ""

"""A registry over a folder, with a compiler, a checker and proofs that do as told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

from gateway.core.clock import FakeClock
from gateway.core.errors import ConstraintError, WorkerLostError
from gateway.core.override import Override
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.in_force.activation import Activation
from gateway.solver.in_force.acts import Acts
from gateway.solver.in_force.changes import Weakening
from gateway.solver.in_force.module_reports import ReportWriter
from gateway.solver.in_force.registry import Invariance, Registry
from gateway.solver.in_force.watcher import Content, FileGone, FileSettled
from gateway.solver.modules.module import Module


@dataclass(frozen=True)
class Rules:
    generation: int
    ids: tuple[str, ...]
    overrides: tuple[Override, ...] = ()


def compiled(data: bytes, source: str) -> Module:
    try:
        read = json.loads(data)
    except ValueError as exc:
        raise ModuleRefusedError((ConstraintError(source, 3, 7, "expected `:`"),)) from exc
    return Module(
        id=read["id"], revision=read["revision"], digest=sha256(data).hexdigest(), priority=8,
        source=source, text=data.decode(), tags={}, actions=(), constraints=("c",),
        critical=frozenset(), step=Fraction(1), variables={}, dynamics={}, forms={},
        disturbances={}, rules=(), backup=(), safe_set=(), repair=frozenset(), cases=(),
    )  # fmt: skip


def assembled(modules: Sequence[Module], generation: int, overrides: Sequence[Override] = ()) -> Rules:
    ids = tuple(f"{m.id}@{m.revision}" for m in modules)
    if "clash@1" in ids and len(ids) > 1:
        raise ModuleRefusedError((ConstraintError("clash.json", 1, 1, "another backup for `pump`"),))
    return Rules(generation, ids, tuple(overrides))


def weaker(_in_force: Rules | None, old: Module | None, new: Module | None) -> str:
    """A replaced module weakens, but where its text says that it tightens."""
    if old is None or (new is not None and '"tighter"' in new.text):
        return ""
    return "its limit is wider" if new is not None else "it would be taken out"


@dataclass
class Bench:
    root: Path
    weakening: Weakening = "confirm"
    required: frozenset[str] = frozenset()
    trial: frozenset[str] = frozenset()
    armed: bool = False
    known: bool = True  # whether every safe set is proved
    escape: str = ""  # what a proof ends with
    proofs: list[Rules] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    active: list[Rules] = field(default_factory=list)
    beside: list[Rules | None] = field(default_factory=list)  # with the shadow modules
    recorded: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    lost: bool = False

    @property
    def folder(self) -> Path:
        return self.root / "constraints.d"

    async def activate(self, rules: Rules, beside: Rules | None) -> None:
        if self.lost:
            raise WorkerLostError("no solver worker is left")
        self.active.append(rules)
        self.beside.append(beside)

    async def prove(self, rules: Rules) -> str:
        self.proofs.append(rules)
        await self.may_end.wait()
        if not self.escape:
            self.known = True
        return self.escape

    async def record(self, kind: str, who: str, facts: Mapping[str, str]) -> None:
        self.recorded.append((kind, who, dict(facts)))

    def registry(self) -> Registry[Rules]:
        return Registry(
            folder=self.folder,
            activation=Activation(self.root / "state" / "modules"),
            reports=ReportWriter(self.folder, self.root / "state" / "refusals"),
            compile=compiled,
            assemble=assembled,
            activate=self.activate,
            clock=FakeClock(),
            weakening=self.weakening,
            required=self.required,
            weaker=weaker,
            invariance=Invariance(lambda: self.armed, lambda _: self.known, self.prove),
            record=self.record,
            trial=self.trial,
        )

    def drop(self, name: str, text: str, owner: int = 0) -> FileSettled:
        (self.folder / name).write_text(text)
        content = Content(text.encode(), sha256(text.encode()).hexdigest(), owners=frozenset({owner}))
        return FileSettled(name, content)

    def module(self, name: str, module: str, revision: int, *, owner: int = 0, more: str = "") -> FileSettled:
        return self.drop(name, text_of(module, revision, more), owner)

    def take_out(self, name: str) -> FileGone:
        (self.folder / name).unlink()
        return FileGone(name)


def text_of(module: str, revision: int, more: str = "") -> str:
    return json.dumps({"id": module, "revision": revision} | ({more: True} if more else {}))


def states(registry: Registry[Rules]) -> dict[str, str]:
    return {s.id: s.state for s in registry.statuses()}


@asynccontextmanager
async def at_work(bench: Bench) -> AsyncIterator[tuple[Registry[Rules], Acts[Rules]]]:
    """A started registry over an empty folder whose proofs run in the background."""
    registry = bench.registry()
    await registry.start([])
    proving = asyncio.create_task(registry.run())
    try:
        yield registry, Acts(registry)
    finally:
        proving.cancel()
        await asyncio.gather(proving, return_exceptions=True)

"""The true registry over fakes, with people's verbs over its overrides. Time is a fake clock's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from gateway.core.clock import FakeClock
from gateway.core.errors import GatewayError, StorageError
from gateway.solver.in_force.activation import Activation
from gateway.solver.in_force.acts import Acts
from gateway.solver.in_force.module_reports import ReportWriter
from gateway.solver.in_force.overriding import Overriding
from gateway.solver.in_force.registry import Invariance, Registry
from gateway.solver.in_force.weakening import weakens
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.seat import PoolError
from tests.unit.solver_demo import BUFFER_TANK, TAGS

RAMP = "buffer-tank/pump-ramp"
SOURCE = BUFFER_TANK.read_text(encoding="utf-8")


def revised(revision: int) -> bytes:
    return json.dumps({**json.loads(SOURCE), "revision": revision}).encode()


@cache
def compiled(data: bytes, source: str) -> Module:
    return compile_module(data, source, TAGS)


@dataclass
class Bench:
    root: Path
    clock: FakeClock = field(default_factory=FakeClock)
    active: list[RuleSet] = field(default_factory=list)
    recorded: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    lost: bool = False
    full: bool = False
    told: int = 0

    async def activate(self, rules: RuleSet, _trial: RuleSet | None) -> None:
        if self.lost:
            raise PoolError("no worker takes it")
        self.active.append(rules)

    async def record(self, kind: str, who: str, facts: Mapping[str, str]) -> None:
        if self.full:
            raise StorageError("disk full")
        self.recorded.append((kind, who, dict(facts)))

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.recorded if kind.startswith("override")]

    def because(self) -> str:
        return self.recorded[-1][2].get("because", "")

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[tuple[Registry[RuleSet], Overriding[RuleSet]]]:
        (self.root / "constraints.d").mkdir(exist_ok=True)

        async def proved(_rules: RuleSet) -> str:
            return ""

        def changed() -> None:
            self.told += 1

        registry = Registry(
            folder=self.root / "constraints.d",
            activation=Activation(self.root / "state" / "modules"),
            reports=ReportWriter(self.root / "constraints.d", self.root / "state" / "refusals"),
            compile=compiled,
            assemble=RuleSet.of,
            activate=self.activate,
            clock=self.clock,
            weakening="confirm",
            required=frozenset(),
            weaker=weakens,
            invariance=Invariance(lambda: False, lambda _: True, proved),
            record=self.record,
            on_change=changed,
        )
        await registry.start([])
        overriding = Overriding(registry, longest_s=3600.0)
        running = asyncio.create_task(overriding.run())
        try:
            if "buffer-tank" not in registry.sets.active:
                await Acts(registry).load("tank.json", revised(1), "anna")
            yield registry, overriding
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @asynccontextmanager
    async def overridden(
        self, for_s: float = 600.0
    ) -> AsyncIterator[tuple[Registry[RuleSet], Overriding[RuleSet]]]:
        async with self.at_work() as (registry, overriding):
            await overriding.request(RAMP, "valve test", for_s, "anna")
            await overriding.confirm(RAMP, "bert")
            yield registry, overriding


async def refused(asking: object) -> str:
    with pytest.raises(GatewayError) as caught:
        await asking  # type: ignore[misc]
    return str(caught.value)

"""Approved changes whose safe set is proved before they are in force on an armed point (S1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Generic, NoReturn, TypeVar

import structlog

from gateway.solver.in_force.module_book import ModuleBook
from gateway.solver.in_force.module_status import Waiting

log = structlog.get_logger().bind(component="registry")

R = TypeVar("R")  # a rule set


@dataclass(frozen=True, slots=True)
class Invariance(Generic[R]):
    """What is known of safe sets (S1), and whether it matters now."""

    armed: Callable[[], bool]  # whether a decision point is
    known: Callable[[R], bool]
    prove: Callable[[R], Awaitable[str]]  # in the background; why it is not invariant, or ""


@dataclass(slots=True)
class Proving(Generic[R]):
    """Proves what approved changes lead to, one after the other; `settled` says what follows from it."""

    invariance: Invariance[R]
    book: ModuleBook
    lock: asyncio.Lock  # the registry's
    settled: Callable[[str, Waiting, str], Awaitable[None]]  # module, its change, why not; the lock held
    _to_prove: asyncio.Queue[tuple[str, Waiting, R]] = field(default_factory=asyncio.Queue)

    async def begin(self, name: str, waiting: Waiting, fresh: R) -> None:
        """The last good stays in force until the set a change leads to is proved invariant."""
        proving = replace(
            waiting,
            proving=True,
            comparing=False,  # a person approved it: what a comparison says changes nothing any more
            because=f"{waiting.because}; approved, and in force once its safe set is proved invariant: "
            "a decision point is armed",
        )
        await self.book.wait(name, proving, "wait for the proof; o3ctl runtime list says how it went")
        self._to_prove.put_nowait((name, proving, fresh))
        log.info("change_waits_for_its_proof", module=name)

    async def run(self) -> NoReturn:
        """Never ends by itself."""
        while True:
            name, proving, rule_set = await self._to_prove.get()
            if self._still(name, proving) is None:
                continue
            why = await self.invariance.prove(rule_set)
            async with self.lock:
                waiting = self._still(name, proving)
                if waiting is not None:
                    await self.settled(name, waiting, why)

    def _still(self, name: str, proving: Waiting) -> Waiting | None:
        """The change as it waits now, if it is still the one that was approved, perhaps told again."""
        now = self.book.waiting.get(name)
        return now if now is not None and now.proving and now.same_change(proving) else None

"""Coverage beside the running gateway: every decision's findings are counted, and kept over a restart."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import structlog

from gateway.core.clock import Clock
from gateway.core.decision import DecisionRecord
from gateway.core.errors import StorageError
from gateway.core.margins import BINS, ends_of
from gateway.link.messages import ConstraintCoverage
from gateway.solver.rules.ruleset import RuleSet
from gateway.storage.coverage import CoverageBook, Covered

log = structlog.get_logger().bind(component="coverage")

_WAITING = 1_000
_KEPT_EVERY_S = 60.0  # what a kill -9 may cost: counts of a minute, never a decision
_TAKEN_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageStatistics:
    """Counters since start. `dropped` decisions came too fast to be counted."""

    noted: int
    dropped: int
    forgotten: int


class Coverage:
    """Looks at every decision after it was reported; the lane never waits for it."""

    def __init__(
        self,
        book: CoverageBook,
        rules: Callable[[int], RuleSet | None],
        generation: Callable[[], int],
        clock: Clock,
        publish: Callable[[ConstraintCoverage], None],
    ) -> None:
        self._book, self._rules, self._generation, self._clock = book, rules, generation, clock
        self._publish = publish
        self._waiting: deque[DecisionRecord] = deque()
        self._some = asyncio.Event()
        self._noted = self._dropped = 0
        self._told: dict[str, ConstraintCoverage] = {}

    def look(self, record: DecisionRecord) -> None:
        """Called by the lane, synchronously. What-ifs are no evidence of the plant."""
        if record.what_if or not record.findings:
            return
        if len(self._waiting) >= _WAITING:
            self._dropped += 1
            return
        self._waiting.append(record)
        self._some.set()

    async def run(self) -> NoReturn:
        """Count, and keep the counts now and then and at the end."""
        try:
            while True:
                try:
                    async with asyncio.timeout(_KEPT_EVERY_S):
                        while True:
                            await self._some.wait()
                            await self._count()
                except TimeoutError:
                    await self._keep()
                    self.tell()
        finally:
            self._count_now(len(self._waiting))
            await self._keep()

    def states(self) -> list[ConstraintCoverage]:
        """Every constraint in force, judged or not yet."""
        rules = self._rules(self._generation())
        if rules is None:
            return []
        found: list[ConstraintCoverage] = []
        every = (*rules.rules, *rules.safe_set, *rules.terminal)
        revisions = {module.id: module.revision for module in rules.modules}
        for rule in every:
            name = rule.constraint.id
            self._book.watch(rule.module, revisions[rule.module], (name,), self._clock.utc_ns())
            covered = self._book.of(rule.module, name)
            if covered is not None:
                found.append(_state(covered, rule.constraint.kind))
        return found

    def tell(self) -> None:
        """Publish every constraint in force, and those that are no more."""
        now = {state.id: state for state in self.states()}
        for name, state in self._told.items():
            if name not in now:
                self._publish(msgspec.structs.replace(state, gone=True))
        for state in now.values():
            self._publish(state)
        self._told = now

    def statistics(self) -> CoverageStatistics:
        """Counters since start."""
        return CoverageStatistics(noted=self._noted, dropped=self._dropped, forgotten=self._book.forgotten)

    async def _count(self) -> None:
        """What waits, a few at a time: a decision that comes meanwhile is not held."""
        while self._waiting:
            self._count_now(_TAKEN_AT_ONCE)
            await asyncio.sleep(0)
        self._some.clear()

    def _count_now(self, most: int) -> None:
        for _ in range(min(most, len(self._waiting))):
            self._book.note(self._waiting.popleft(), self._revision)
            self._noted += 1

    def _revision(self, generation: int, module: str) -> int | None:
        rules = self._rules(generation)
        return (
            next((m.revision for m in rules.modules if m.id == module), None) if rules is not None else None
        )

    async def _keep(self) -> None:
        try:
            await self._book.flush()
        except StorageError as exc:
            log.warning("coverage_not_kept", problem=str(exc))


def _state(covered: Covered, kind: str) -> ConstraintCoverage:
    return ConstraintCoverage(
        id=f"{covered.module}/{covered.constraint}",
        kind=kind,
        revision=covered.revision,
        since_ns=covered.since_ns,
        judged=covered.judged,
        fired=covered.fired,
        unknown=covered.unknown,
        judged_ns=covered.judged_ns,
        fired_ns=covered.fired_ns,
        bound_ns=covered.bound_ns,
        least_margin=covered.least,
        margin_unit=covered.unit,
        least_ns=covered.least_ns,
        margins=[(*ends_of(n), covered.margins[n]) for n in range(BINS) if covered.margins[n]],
    )

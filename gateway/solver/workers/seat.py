"""A solver worker's place in the pool, and when the worker in it is worn."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.core.decision import CheckResult, Undetermined
from gateway.core.errors import GatewayError
from gateway.core.ports import CheckRequest
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.wire import Answer, Ask, Done, Failed, Load, answers, encoder, given
from gateway.supervision.worker import WorkerProcess

MODULE = "gateway.solver.workers.worker"
ASK_TIMEOUT_S = 20.0  # for what no decision waits for
_LOAD_EACH_S = 0.1  # more for each module of a set

RECYCLE_CHECKS = 200_000
RECYCLE_RSS_BYTES = 400 * 1024 * 1024
_LOOK_EVERY = 1_000  # checks between two looks at a worker's memory


class PoolError(GatewayError):
    """Workers cannot take a rule set."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Counters since start."""

    workers: int
    alive: int
    idle: int
    checks: int
    lost: int
    recycled: int
    undetermined_late: int
    generations: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Kept:
    """A rule set every worker has, and the same with the shadow modules where there are any.

    What one worker found out about it, the next need not: the workers are the same program, and Z3's answer
    is to the same question.
    """

    rules: RuleSet
    trial: RuleSet | None = None
    examined: bool = False  # no contradiction between the modules
    outlines: dict[str, bool] = field(default_factory=dict)

    def ask(self, warm: Iterable[tuple[float, float]]) -> Load:
        """What a worker is told; it builds the plans for these (hold, effect delay) pairs."""
        every = self.rules if self.trial is None else self.trial
        return Load(
            generation=self.rules.generation,
            modules=given(self.rules),
            tags=tuple(every.definitions.values()),
            warm=tuple(warm),
            trial=given(self.trial) if self.trial is not None else (),
            overrides=self.rules.overrides,
            examined=self.examined,
            outlines=self.outlines,
        )

    def learn(self, done: Done) -> None:
        """Keep what a worker that has loaded the set found out."""
        self.examined = True
        self.outlines.update(done.outlines)


@dataclass(slots=True, eq=False)
class Seat:
    """One place for a worker; the worker in it changes."""

    # INVARIANT: a seat is used by one task at a time, the one that took it out of `_idle`; `loaded` lists
    # what the worker in it now has compiled.
    number: int
    worker: WorkerProcess
    loaded: set[int] = field(default_factory=set)
    checks: int = 0
    told: CheckRequest | None = None  # the premises the worker was told last
    wanted: int = 0  # how many wait for this very seat; checks leave it to them
    kept: bool = False  # for the decision that had them prepared; another takes it only where none is free

    @property
    def worn(self) -> bool:
        """Whether the worker has done enough, or grown too much."""
        if self.checks >= RECYCLE_CHECKS:
            return True
        return self.checks % _LOOK_EVERY == 0 and _rss_bytes(self.worker.pid) > RECYCLE_RSS_BYTES

    async def ask(self, ask: Ask, timeout_s: float = ASK_TIMEOUT_S) -> Answer:
        """The worker's answer; raises `WorkerLostError`, and then the worker is lost."""
        return answers.decode(await self.worker.ask(encoder.encode(ask), timeout_s))

    async def give(self, kept: Kept, warm: Iterable[tuple[float, float]] = ()) -> None:
        """Have the worker build a rule set; raises `PoolError` where it refuses, `WorkerLostError`."""
        rules = kept.rules
        answer = await self.ask(kept.ask(warm), ASK_TIMEOUT_S + _LOAD_EACH_S * len(rules.modules))
        if isinstance(answer, Done) and answer.digest == rules.digest:
            self.loaded.add(rules.generation)
            kept.learn(answer)
            return
        reason = answer.reason if isinstance(answer, Failed) else "its digest of the set differs"
        raise PoolError(f"solver worker {self.number} refused rule set {rules.generation}: {reason}")


def _rss_bytes(pid: int | None) -> int:
    """Resident memory of a process; 0 where the system does not say."""
    if pid is None:
        return 0
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")  # 16 KiB and more on some ARM kernels


def undetermined(request: CheckRequest, kept: Kept | None, reason: str) -> CheckResult:
    """What a check that no worker answered comes to, under a rule set that is kept, or is not."""
    return CheckResult(
        verdict=Undetermined(reason),
        findings=(),
        generation=request.generation,
        rule_set_digest=kept.rules.digest if kept is not None else "",
        overrides=kept.rules.overrides if kept is not None else (),
    )

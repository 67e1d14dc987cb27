"""Rule sets swapped while decisions run: none may be lost, none judged by a mixture, none wait long.

Part one drives the workers alone: 200 decisions a second for a minute, another rule set every 100 ms. Part
two drops revisions of a module into the watched folder of the running demo until each is in force.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import Permitted, Undetermined
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.pool import CheckerPool
from gateway.supervision.loop import before_traffic
from tests.bench.report import Figure, percentile
from tests.integration.house import ROOT, House
from tests.unit.solver_demo import LOWER_LEVEL, Situation, module, proposal, rule_set

RATE = 200  # decisions a second
EVERY_S = 0.1
LASTS_S = 60.0
QUIET_S = 10.0
DROPS = 20
HIGH = Situation(level=3.2)  # permitted by the demo's module alone, refused by the one that tightens it


@dataclass(slots=True)
class Load:
    """What came of one stretch of decisions."""

    waits_ms: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    mixed: int = 0


class Swapper:
    """The rule set in force, and its exchange for the next one."""

    def __init__(self, pool: CheckerPool, revisions: int) -> None:
        """So many revisions of the module that tightens are compiled ahead: making load must be cheap."""
        self.pool = pool
        self._tank = module()
        self._tighter = [_revision(number) for number in range(1, revisions + 1)]
        self.current = rule_set(self._tank)
        self.exchange_ms: list[float] = []
        self.load_ms: list[float] = []
        self._in_use: dict[int, int] = {}

    async def begin(self) -> None:
        """The first set loaded."""
        await self.pool.load(self.current)

    async def swap(self) -> None:
        """The next set beside this one, then the exchange, then this one dropped after its last decision.

        With and without the module that tightens, in turn; each time it is a revision nobody has seen.
        """
        before = self.current
        number = before.generation + 1
        tighter = [self._tighter[(number // 2) % len(self._tighter)]] if before.generation % 2 else []
        fresh = await asyncio.to_thread(RuleSet.of, [self._tank, *tighter], number)
        started = time.perf_counter()
        await self.pool.load(fresh)
        loaded = time.perf_counter()
        self.current = fresh
        await asyncio.sleep(0)  # whoever is ready now takes the new one
        self.exchange_ms.append(1000 * (time.perf_counter() - loaded))
        self.load_ms.append(1000 * (loaded - started))
        while self._in_use.get(before.generation):  # noqa: ASYNC110  what is awaited is a counter
            await asyncio.sleep(0.001)
        await self.pool.drop(before.generation)

    async def decide(self, into: Load, clock: SystemClock, patience_s: float = 1.0) -> None:
        """One decision under the set in force when it begins, and whether its verdict is that set's."""
        mine = self.current
        self._in_use[mine.generation] = self._in_use.get(mine.generation, 0) + 1
        request = replace(HIGH.request(proposal("40")), generation=mine.generation, may_repair=False)
        started = time.perf_counter()
        result, _ = await self.pool.check(request, Deadline.after(patience_s, clock))
        into.waits_ms.append(1000 * (time.perf_counter() - started))
        self._in_use[mine.generation] -= 1
        if isinstance(result.verdict, Undetermined):
            into.lost.append(result.verdict.reason)
        elif result.rule_set_digest != mine.digest or isinstance(result.verdict, Permitted) != (
            len(mine.modules) == 1
        ):
            into.mixed += 1


def _revision(number: int) -> Module:
    """The demo's tighter limit, a tenth of a millimetre lower each time."""
    limit = f"{3.1 - number / 10_000:.4f}"
    return module(LOWER_LEVEL, ('"revision": 1', f'"revision": {number}'), ("3.2", limit))


def run(console: Console) -> list[Figure]:
    """Both parts."""
    return [*asyncio.run(_workers(console)), *asyncio.run(_drops(console))]


async def _workers(console: Console) -> list[Figure]:
    clock = SystemClock()
    pool = CheckerPool(2, clock, warm=[(HIGH.hold_s, HIGH.effect_delay_s)])
    await pool.start()
    try:
        swapper = Swapper(pool, int(LASTS_S / EVERY_S / 2) + 1)
        await swapper.begin()
        before_traffic()
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("decisions", total=RATE * (LASTS_S + QUIET_S))

            def step() -> None:
                progress.advance(task)

            quiet, _ = await _stretch(swapper, clock, QUIET_S / 2, None, step)
            await swapper.swap()  # a refusal costs more than a permission: the quiet stretch has both, too
            refusing, _ = await _stretch(swapper, clock, QUIET_S / 2, None, step)
            quiet.waits_ms += refusing.waits_ms
            busy, swaps = await _stretch(swapper, clock, LASTS_S, swapper.swap, step)
    finally:
        await pool.aclose()
    for reason in dict.fromkeys(busy.lost):
        console.print(f"lost {busy.lost.count(reason)}: {reason}")
    p99, before = percentile(busy.waits_ms, 0.99), percentile(quiet.waits_ms, 0.99)
    console.print(
        f"{len(busy.waits_ms)} decisions, {swaps} swaps; p50 {percentile(busy.waits_ms, 0.5):.1f} ms "
        f"(quiet {percentile(quiet.waits_ms, 0.5):.1f}), p99 {p99:.1f} ms (quiet {before:.1f}); "
        f"load of a set p50 {percentile(swapper.load_ms, 0.5):.0f} ms"
    )
    return [
        Figure("swap", "swaps", swaps),
        Figure("swap", "lost", len(busy.lost)),
        Figure("swap", "mixed", busy.mixed),
        Figure("swap", "p99_over_quiet", p99 / before),
        Figure("swap", "exchange_p99_ms", percentile(swapper.exchange_ms, 0.99)),
    ]


async def _stretch(
    swapper: Swapper,
    clock: SystemClock,
    lasts_s: float,
    swap: Callable[[], Awaitable[None]] | None,
    step: Callable[[], None],
) -> tuple[Load, int]:
    """Open loop: decisions begin at their time, whether the ones before are done or not."""
    found, swaps = Load(), 0
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:

        async def swapping() -> None:
            nonlocal swaps
            assert swap is not None
            while time.perf_counter() - began < lasts_s:
                due = began + (swaps + 1) * EVERY_S
                await swap()
                swaps += 1
                await asyncio.sleep(max(0.0, due - time.perf_counter()))

        if swap is not None:
            group.create_task(swapping(), name="swaps")
        for number in range(int(lasts_s * RATE)):
            await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
            group.create_task(swapper.decide(found, clock), name=f"decision {number}")
            step()
    return found, swaps


def fifty(revision: int) -> str:
    """A module with 50 constraints, each a hair tighter with every revision; the demo comes near none."""
    tank = json.loads((ROOT / "docs" / "examples" / "lower-level-limit.json").read_text())
    hair = revision / 10_000
    rules: list[str] = []
    for number in range(17):
        rules.append(f"level <= {4.9 - number / 100 - hair:.4f}")
        rules.append(f"level + 0.001*inflow - 0.0005*pump <= {4.9 - number / 100 - hair:.4f}")
        rules.append(f"pump > {number} implies level >= {hair - 0.05 + number / 1000:.4f}")
    named = [
        {"id": f"rule-{n:02}", "kind": "standard", "require": rule, "always": True}
        for n, rule in enumerate(rules[:50])
    ]
    variables = tank["variables"]
    return json.dumps(
        {
            "id": "fifty",
            "revision": revision,
            "language": 1,
            "step": "1 s",
            "variables": variables,
            "constraints": named,
        },
        indent=1,
    )


async def _drops(console: Console) -> list[Figure]:
    example = json.loads((ROOT / "docs" / "examples" / "lower-level-limit.json").read_text())

    def limit(revision: int) -> str:
        return json.dumps({**example, "revision": revision}, indent=1)

    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as name, Progress(console=console, transient=True) as progress:
        task = progress.add_task("drops", total=2 * DROPS)
        async with House(Path(name)) as house:
            for module_id, text, figure in (
                ("lower-level-limit", limit, "drop_to_force_p99_s"),
                ("fifty", fifty, "drop_of_50_to_force_p99_s"),
            ):
                took = [
                    await _dropped(house, module_id, text(number + 1), partial(progress.advance, task))
                    for number in range(DROPS)
                ]
                console.print(
                    f"{module_id} dropped and in force: median {percentile(took, 0.5):.2f} s, "
                    f"worst {max(took):.2f} s"
                )
                found.append(Figure("swap", figure, percentile(took, 0.99)))
    return found


async def _dropped(house: House, module_id: str, text: str, step: Callable[[], None]) -> float:
    """Seconds from a file's appearance to its module in force, as whoever looks on is told."""
    before = house.picture.gateway.generation if house.picture.gateway else 0
    started = time.monotonic()
    (house.watched / f"{module_id}.json").write_text(text)
    await house.until(
        lambda p: bool(p.gateway and p.gateway.generation > before), 30, f"{module_id} in force"
    )
    step()
    return time.monotonic() - started

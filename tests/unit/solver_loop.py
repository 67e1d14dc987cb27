"""The demo module in a closed loop with the demo tank, one decision a second, and proposers for it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from gateway.core.decision import CheckResult, Permitted, Repaired, Undetermined
from gateway.core.ports import CheckRequest, InForce, StateSet
from gateway.core.tag import TagId
from gateway.plantsim.tank import Disturbance, Sensors, TankState, step
from tests.unit.solver_demo import HEATER, INFLOW, LEVEL, MIXER, NOW, PUMP, TEMP, Situation, proposal

HOLD_S, DELAY_S, LEASE_S = 1.2, 0.3, 4
LEAK = 0.00051
Acting = tuple[float, int, int]  # pump, heater, mixer


class Checker(Protocol):
    """The part of `gateway.solver.workers.check.Checks` that a loop needs."""

    def check(self, request: CheckRequest) -> tuple[CheckResult, StateSet | None]:
        """The result and the state to carry."""


Proposer = Callable[[random.Random, Acting], Acting]


def any_corner_is_unsafe(state: StateSet, old: Acting, new: Acting) -> bool:
    """Vertex sampling that knows no solver: one decision's time, the PLC's patience, then the backup."""
    ends = [(float(state.intervals[t].low), float(state.intervals[t].high)) for t in (LEVEL, INFLOW, TEMP)]
    return any(
        not survives(corner, first, new, rising=rising)
        for corner in itertools.product(*ends)
        for first in (old, new)
        for rising in (False, True)
    )


def survives(corner: tuple[float, ...], first: Acting, new: Acting, *, rising: bool) -> bool:
    level, inflow, temp = corner

    def kept(acting: Acting) -> bool:
        pump, heater, mixer = acting
        wet = level >= 0.3 or pump == 0
        fire = not heater or (level >= 0.5 and mixer >= 1)
        return level <= 3.6 and wet and fire and temp <= 75

    def wait(seconds: float, acting: Acting) -> None:
        nonlocal level, inflow, temp
        after = min(36.0, inflow + 2 * seconds) if rising else max(0.0, inflow - 2 * seconds)
        leak = LEAK if rising else -LEAK
        level += seconds * (0.000138889 * (inflow + after) / 2 - 0.0000625 * acting[0] + leak)
        temp += seconds * (0.2 * acting[1] - 0.0002 * (temp - 20) + 0.001)
        inflow = after

    course = [(DELAY_S, first), (HOLD_S - DELAY_S, new), *([(1.0, new)] * LEASE_S)]
    for seconds, acting in course:
        if not kept(acting):
            return False
        wait(seconds, acting)
        if not kept(acting):
            return False
    pump = new[0]
    for _ in range(12):
        pump = min(100.0, pump + 10) if level >= 2 else max(0.0, pump - 10)
        wait(1.0, (pump, 0, new[2]))
        if not kept((pump, 0, new[2])):
            return False
    return True


@dataclass
class Tally:
    safe: int = 0
    permitted: int = 0
    broken: int = 0
    silent: int = 0  # cycles with nothing to write
    stuck: int = 0  # cycles in which nothing was permitted, not even the backup
    undetermined: int = 0
    missed: list[str] = field(default_factory=list)


class Loop:
    """One closed loop, one decision a second."""

    def __init__(self, checks: Checker, seed: int, *, start: float) -> None:
        self.checks, self.rng = checks, random.Random(seed)  # noqa: S311  # repeatable
        self.tank, self.sensors = TankState(start, 40.0), Sensors(seed + 1)
        self.disturbance = Disturbance(12.0, 0.0, 20.0)
        self.acting: Acting = (40.0, 0, 1)
        self.past: list[tuple[float, float]] = []  # pump values and when they ceased
        self.held, self.now = 1_000.0, 0.0
        self.state: StateSet | None = None
        self.tally = Tally()

    def advance(self, propose: Proposer) -> None:
        before = self.disturbance
        self.disturbance = Disturbance(
            min(36.0, max(0.0, before.inflow_m3h + self.rng.uniform(-1.6, 2.0))),
            min(0.00035, max(-0.00035, before.leak_m_s + self.rng.uniform(-2e-4, 2e-4))),
            20.0,
        )
        here = self.situation()
        wanted = propose(self.rng, self.acting)
        asked = proposal(f"{wanted[0]:.1f}", wanted[1], wanted[2])
        result, state = self.checks.check(here.request(asked))
        self.state = state
        self.tally.undetermined += isinstance(result.verdict, Undetermined)
        if (
            state is not None
            and self.allowed_to_move(wanted, here)
            and not any_corner_is_unsafe(state, self.acting, wanted)
        ):
            self.tally.safe += 1
            if isinstance(result.verdict, Permitted):
                self.tally.permitted += 1
            else:
                self.tally.missed.append(f"{wanted} at {self.tank}: {result.verdict}")
        written = result.verdict.setpoints if isinstance(result.verdict, Permitted | Repaired) else ()
        if not written:
            fallback, _ = self.checks.check(here.request(None))
            self.tally.stuck += not isinstance(fallback.verdict, Permitted)
            if isinstance(fallback.verdict, Permitted) or fallback.recovery:
                assert fallback.proposal is not None
                written = fallback.proposal.values
        self.tally.silent += not written
        values: dict[TagId, Fraction] = {v.tag: v.value for v in written}
        self.live({t: float(v) for t, v in values.items()})

    def situation(self) -> Situation:
        seen = self.sensors.measure(self.tank, self.disturbance.inflow_m3h)
        past = tuple(InForce(Fraction(f"{v:.1f}"), self.now - at) for v, at in reversed(self.past[-6:]))
        return Situation(
            level=round(seen.level_m, 3),
            inflow=round(seen.inflow_m3h, 2),
            temp=round(seen.temperature_c, 2),
            pump=f"{self.acting[0]:.1f}",
            heater=self.acting[1],
            mixer=self.acting[2],
            held_s=self.held,
            older={PUMP: past},
            carried=StateSet(at=NOW - 1, intervals=self.state.intervals) if self.state is not None else None,
            hold_s=HOLD_S,
            effect_delay_s=DELAY_S,
        )

    def allowed_to_move(self, wanted: Acting, here: Situation) -> bool:
        """Ramp and minimum times, as the module states them."""
        pump = Fraction(f"{wanted[0]:.1f}")
        past = (InForce(Fraction(here.pump), 0.0), *here.older[PUMP])
        ramps = all(abs(pump - e.value) <= 10 * Fraction(max(1.0, e.ceased_s_ago + 1)) for e in past)
        dwell = wanted[1] == self.acting[1] or self.held >= (30 if self.acting[1] else 60)
        return ramps and dwell

    def live(self, written: dict[TagId, float]) -> None:
        """One second of plant; the new values act a little late."""
        late = self.rng.uniform(0.02, 0.1)
        old = self.acting
        new = (
            written.get(PUMP, old[0]),
            int(written.get(HEATER, old[1])),
            int(written.get(MIXER, old[2])),
        )
        for acting, seconds in ((old, late), (new, 1 - late)):
            self.tank = step(self.tank, acting[0], bool(acting[1]), acting[2], seconds, self.disturbance)
        tank = self.tank
        self.tally.broken += (
            tank.level_m > 3.6
            or (new[0] > 0 and tank.level_m < 0.3)
            or (new[1] and (tank.level_m < 0.5 or new[2] < 1))
            or tank.temperature_c > 75
        )
        if new[0] != old[0]:
            self.past.append((old[0], self.now + late))
        self.held = self.held + 1 if new[1] == old[1] else 1.0
        self.acting, self.now = new, self.now + 1


def anything(rng: random.Random, _: Acting) -> Acting:
    return rng.randint(0, 1000) / 10, rng.randint(0, 1), rng.randint(0, 3)


def walking(rng: random.Random, now: Acting) -> Acting:
    return min(100.0, max(0.0, now[0] + rng.randint(-95, 95) / 10)), now[1], now[2]


def flooding(_: random.Random, __: Acting) -> Acting:
    return 0.0, 1, 1


def draining(_: random.Random, now: Acting) -> Acting:
    return min(100.0, now[0] + 9), 1, 1


SCENES: list[tuple[Proposer, float]] = [(anything, 2.0), (walking, 2.0), (flooding, 3.45), (draining, 0.8)]


def run(checks: Checker, propose: Proposer, start: float, seed: int, steps: int) -> Tally:
    loop = Loop(checks, seed, start=start)
    for _ in range(steps):
        loop.advance(propose)
    return loop.tally

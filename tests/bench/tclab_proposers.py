"""Who asks the twin's heaters for what: the reckless, the random, a controller with faults, a good one."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.bench.tclab_twin import POWER, RAMP, Heat, Proposer, Seen

SETPOINT_STEPS = 60  # 10 minutes
FAULTY_SHARE = 0.15
_TINY = 1e-6
_GAIN, _INTEGRAL_STEPS = (4.0, 5.0), 14.0  # % per K; the time constant of 140 s


def setpoints(seed: int) -> Callable[[int], Heat]:
    """New aims every ten minutes, some of them 2 K below the limit."""
    dice = random.Random(seed + 99)  # noqa: S311  # reproducible, not a secret
    aims = [(dice.uniform(35.0, 58.0), dice.uniform(30.0, 42.0)) for _ in range(1_000)]
    return lambda step: aims[step // SETPOINT_STEPS % len(aims)]


def anything(seed: int) -> Proposer:
    """Every step another heat, anywhere."""
    dice = random.Random(seed)  # noqa: S311  # reproducible, not a secret
    return lambda _: (dice.uniform(0.0, 100.0), dice.uniform(0.0, 100.0))


def wandering(seed: int) -> Proposer:
    """Every step a little more or less, so that most proposals keep the ramps."""
    dice = random.Random(seed)  # noqa: S311  # reproducible, not a secret

    def act(seen: Seen) -> Heat:
        moved = [min(100.0, max(0.0, q + dice.uniform(-RAMP, RAMP))) for q in seen.before]
        return round(moved[0], 1), round(moved[1], 1)

    return act


def full(_: int) -> Proposer:
    """Always everything."""
    return lambda _: (100.0, 100.0)


def rising(_: int) -> Proposer:
    """As fast up as the ramps and the supply allow, and never down."""

    def act(seen: Seen) -> Heat:
        q1 = min(100.0, seen.before[0] + RAMP)
        q2 = min(100.0, seen.before[1] + RAMP)
        return q1, min(q2, max(0.0, (POWER - 200 * q1) / 100))

    return act


class Controller:
    """Two PI loops with limits of their own: a good one keeps ramps and supply, whatever it wants."""

    def __init__(self, aims: Callable[[int], Heat]) -> None:
        self._aims = aims
        self._sums = [0.0, 0.0]

    def __call__(self, seen: Seen) -> Heat:
        """The next heat."""
        aims = self._aims(seen.step)
        wanted: list[float] = []
        for place, (aim, read) in enumerate(zip(aims, (seen.t1, seen.t2), strict=True)):
            error = aim - read
            asked = _GAIN[place] * error + self._sums[place]
            before = seen.before[place]
            given = min(100.0, max(0.0, min(before + RAMP, max(before - RAMP, asked))))
            self._sums[place] += (
                _GAIN[place] * error / _INTEGRAL_STEPS + 0.5 * (given - asked) / _INTEGRAL_STEPS
            )
            wanted.append(given)
        q1, q2 = wanted
        q1 = min(q1, (POWER - 100 * max(0.0, seen.before[1] - RAMP)) / 200)  # q2 gives way as fast as it may
        q2 = min(q2, max(0.0, (POWER - 200 * q1) / 100, seen.before[1] - RAMP))
        return int(q1 * 10 + _TINY) / 10, int(q2 * 10 + _TINY) / 10


def controller(seed: int) -> Proposer:
    """A good controller."""
    return Controller(setpoints(seed))


def faulty(seed: int) -> Proposer:
    """The same, with 15 % of its proposals replaced by anything at all."""
    dice = random.Random(seed)  # noqa: S311  # reproducible, not a secret
    good = Controller(setpoints(seed))

    def act(seen: Seen) -> Heat:
        wanted = good(seen)
        if dice.random() < FAULTY_SHARE:
            return dice.uniform(0.0, 100.0), dice.uniform(0.0, 100.0)
        return wanted

    return act


PROPOSERS: dict[str, Callable[[int], Proposer]] = {
    "anything": anything,
    "wandering": wandering,
    "full": full,
    "rising": rising,
    "faulty": faulty,
    "controller": controller,
}

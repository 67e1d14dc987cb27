"""S1, S7, S11: wherever a fallback begins, all judges say the same of it, and what survives it is permitted.

Plants of one level that a pump moves, on a few backups, terminal sets and times of a proposal, at random. The
exact judge tells of each whether some fallback breaks a rule; it shares nothing with the solver and steps
nothing over.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.decision import Permitted, Refused
from gateway.core.ports import CheckRequest, StateSet
from gateway.recheck.check import Question, recheck
from gateway.recheck.exactly import HOLDS, VIOLATED, recheck_exactly
from gateway.solver.checking.condense import LEASE_S
from gateway.solver.modules.module import Module
from tests.unit.solver_small import Plant, checks, rule, small

COUNT = 12  # plants
EACH = 4  # proposals on each
BACKUPS = ("ramp(0, 2)", "ramp(100, 1)", "ramp(30, 5)", "0", "60", "hold")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plant and what is asked of it; a step later `l + pump*p + rest + own*(2 - l)` and a leak."""

    module: Module
    plants: tuple[Plant, ...]
    step: int
    pump: Fraction
    rest: Fraction
    own: Fraction
    leak: Fraction
    backup: str
    both: bool  # whether `l + 0.002*p <= 3.1` is a rule as well
    terminal: str
    horizon: int


def drawn(dice: random.Random, backup: str, *, guarded: bool) -> Drawn:
    step = dice.choice((1, 2, 5, 10))
    pump, own, leak = (
        dice.choice((0.001, -0.001, 0.002)),
        dice.choice((0, 0.02, 0.1)),
        dice.choice((0, 0.004)),
    )
    rest = round(dice.uniform(-0.05, 0.05), 3)
    rules = [rule("l <= 3", "high", always=True), rule("l >= 1", "low", always=True)]
    if dice.random() < 0.3:
        rules.append(rule("l + 0.002*p <= 3.1", "both", always=True))
    moves = [{"p": backup}, {"h": False}, {"s": "hold"}]
    if guarded:
        moves.insert(0, {"when": f"l >= {dice.choice((1.6, 2, 2.3))}", "p": dice.choice(BACKUPS)})
    terminal, horizon = dice.choice(("l <= 2.9", "l >= 1.1", "p <= 100")), dice.choice((4, 6, 9))
    module = small(
        *rules,
        step=f"{step} s",
        dynamics={
            "l": f"l + {pump}*p + {rest} + {own}*(2 - l) + leak",
            "disturbance": {"leak": [f"-{leak}", f"{leak}"]},
        },
        backup=moves,
        terminal=[terminal],
        horizon=horizon,
    )
    plants = []
    for _ in range(EACH):
        delay = dice.choice((0.0, 0.3, 1.1))
        plants.append(
            Plant(
                l=round(dice.uniform(1.1, 2.9), 3),
                old={"P": str(dice.randint(0, 100))},
                new={"P": str(dice.randint(0, 100))},
                hold_s=delay + step * dice.choice((0.3, 1.0, 1.07, 2.5)),
                effect_delay_s=delay,
            )
        )
    return Drawn(
        module=module,
        plants=tuple(plants),
        step=step,
        pump=Fraction(str(pump)),
        rest=Fraction(str(rest)),
        own=Fraction(str(own)),
        leak=Fraction(str(leak)),
        backup=backup,
        both=len(rules) > 2,
        terminal=terminal,
        horizon=horizon,
    )


def slowest_breaks(case: Drawn, asked: Question) -> bool:
    """Whether a fallback breaks a rule that begins when the PLC's patience ends and ramps at nine tenths.

    Played out in exact rationals, scan by scan, which the exact judge does not: it plays steps at full rate.
    """
    new, (old, *_) = asked.proposal["P"], asked.previous["P"]
    end = max(asked.effect_delay_s + asked.hold_s, Fraction(case.step))
    cuts = {Fraction(0), end, *(k * Fraction(case.step) for k in range(int(end // case.step) + 1))}
    cuts = {at for at in (*cuts, asked.effect_delay_s) if at <= end}
    ordered = [*sorted(cuts), *(end + k * case.step for k in range(1, case.horizon + 1))]
    leaks = itertools.product(asked.inputs["L"], (-case.leak, case.leak), {Fraction(0), asked.effect_delay_s})
    return any(_breaks(case, ordered, old, new, end, *vertex) for vertex in leaks)


def _breaks(
    case: Drawn,
    cuts: list[Fraction],
    old: Fraction,
    new: Fraction,
    end: Fraction,
    level: Fraction,
    leak: Fraction,
    effect: Fraction,
) -> bool:
    patience = end + LEASE_S
    value = old if effect else new
    for begins, ends in itertools.pairwise(cuts):
        value = new if begins == effect else value
        mean, after = _slowly(case.backup, value, begins, ends, patience)
        change = case.pump * mean + case.rest + case.own * (2 - level) + leak
        level += change * (ends - begins) / case.step
        for acting in (value, after):
            if not 1 <= level <= 3 or (case.both and level + acting / 500 > Fraction("3.1")):
                return True
        value = after
    name, _, limit = case.terminal.partition(" <= " if "<" in case.terminal else " >= ")
    if name == "p":
        return value > 100
    return level > Fraction(limit) if "<" in case.terminal else level < Fraction(limit)


def _slowly(
    backup: str, value: Fraction, begins: Fraction, ends: Fraction, patience: Fraction
) -> tuple[Fraction, Fraction]:
    """Mean of the output in a segment, and its value at the end."""
    moving = ends - max(begins, patience)
    if moving <= 0 or backup == "hold":
        return value, value
    share = moving / (ends - begins)
    if not backup.startswith("ramp"):
        target = Fraction(backup)
        return value + (target - value) * share, target
    target, rate = (Fraction(part) for part in backup.removeprefix("ramp(").rstrip(")").split(","))
    way = abs(target - value)
    reach = rate * Fraction(9, 10) * moving
    gone = min(way, reach)
    on_average = gone / 2 if reach <= way else way - way * way / (2 * reach)
    sign = 1 if target > value else -1
    return value + sign * on_average * share, value + sign * gone


def question(request: CheckRequest, state: StateSet) -> Question:
    assert request.proposal is not None
    delay = Fraction(str(request.effect_delay_s))
    return Question(
        inputs={str(tag): (i.low, i.high) for tag, i in state.intervals.items()},
        previous={str(tag): [e.value for e in past] for tag, past in request.history.items()},
        proposal={str(tag): value for tag, value in request.proposal.engineering().items()},
        hold_s=Fraction(str(round(request.hold_s, 6))) - delay,
        effect_delay_s=delay,
    )


def judged(seed: str, *, guarded: bool) -> Iterator[tuple[str, Drawn, Question]]:
    """Verdicts, and the same questions for the judges that share nothing with the solver."""
    dice = random.Random(seed)  # noqa: S311  # repeatable
    for k in range(COUNT):
        case = drawn(dice, BACKUPS[k % len(BACKUPS)], guarded=guarded)
        judge = checks(case.module)
        for plant in case.plants:
            result, state = judge.check(plant.request())
            assert state is not None
            yield type(result.verdict).__name__, case, question(plant.request(), state)


def test_s7_s11_no_fallback_breaks_what_is_permitted_and_what_none_breaks_is() -> None:
    said: Counter[tuple[str, bool]] = Counter()
    for verdict, case, asked in judged("e", guarded=False):
        text = case.module.text
        shown = {worst.says for worst in recheck_exactly([text], asked).values()}
        broken = VIOLATED in shown or bool(recheck([text], asked, samples=4).violated)
        broken = broken or slowest_breaks(case, asked)
        said[verdict, broken] += 1

        assert shown <= {HOLDS, VIOLATED}
        assert not (broken and verdict == Permitted.__name__)

    assert said[Refused.__name__, True] > COUNT * EACH / 10
    assert said[Permitted.__name__, False] > COUNT * EACH / 2
    assert not said[Refused.__name__, False]  # what no fallback breaks is permitted, all of it


def test_s7_s11_no_fallback_that_acts_by_what_it_reads_breaks_what_is_permitted() -> None:
    said: Counter[tuple[str, bool]] = Counter()
    for verdict, case, asked in judged("c", guarded=True):
        broken = bool(recheck([case.module.text], asked, samples=6).violated)
        said[verdict, broken] += 1

        assert not (broken and verdict == Permitted.__name__)

    assert said[Refused.__name__, True] > COUNT * EACH / 10
    assert said[Permitted.__name__, False] > COUNT * EACH / 3

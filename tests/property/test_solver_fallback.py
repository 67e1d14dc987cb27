"""S1, S7, S11: wherever a fallback begins, all judges say the same of it, and what survives it is permitted.

Plants of one level that a pump moves, on a few backups, terminal sets and times of a proposal, at random. The
exact judge tells of each whether some fallback breaks a rule; it shares nothing with the solver and steps
nothing over.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.decision import Permitted, Refused
from gateway.core.ports import CheckRequest, StateSet
from gateway.recheck.check import Question, recheck
from gateway.recheck.exactly import HOLDS, VIOLATED, recheck_exactly
from gateway.solver.modules.module import Module
from tests.unit.solver_small import Plant, checks, rule, small

COUNT = 12  # plants
EACH = 4  # proposals on each
BACKUPS = ("ramp(0, 2)", "ramp(100, 1)", "ramp(30, 5)", "0", "60", "hold")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plant and what is asked of it."""

    module: Module
    plants: tuple[Plant, ...]


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
    module = small(
        *rules,
        step=f"{step} s",
        dynamics={
            "l": f"l + {pump}*p + {rest} + {own}*(2 - l) + leak",
            "disturbance": {"leak": [f"-{leak}", f"{leak}"]},
        },
        backup=moves,
        terminal=[dice.choice(("l <= 2.9", "l >= 1.1", "p <= 100"))],
        horizon=dice.choice((4, 6, 9)),
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
    return Drawn(module, tuple(plants))


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


def judged(seed: str, *, guarded: bool) -> Iterator[tuple[str, Module, Question]]:
    """Verdicts, and the same questions for the judges that share nothing with the solver."""
    dice = random.Random(seed)  # noqa: S311  # repeatable
    for k in range(COUNT):
        case = drawn(dice, BACKUPS[k % len(BACKUPS)], guarded=guarded)
        judge = checks(case.module)
        for plant in case.plants:
            result, state = judge.check(plant.request())
            assert state is not None
            yield type(result.verdict).__name__, case.module, question(plant.request(), state)


def test_s7_s11_no_fallback_breaks_what_is_permitted_and_what_none_breaks_is() -> None:
    said: Counter[tuple[str, bool]] = Counter()
    for verdict, module, asked in judged("e", guarded=False):
        shown = {worst.says for worst in recheck_exactly([module.text], asked).values()}
        broken = VIOLATED in shown or bool(recheck([module.text], asked, samples=4).violated)
        said[verdict, broken] += 1

        assert shown <= {HOLDS, VIOLATED}
        assert not (broken and verdict == Permitted.__name__)

    safe = said[Permitted.__name__, False] + said[Refused.__name__, False]
    assert said[Refused.__name__, True] > COUNT * EACH / 10
    # One in two hundred is lost to ramps that lose a tenth or go on scan by scan: this judge plays steps.
    assert said[Permitted.__name__, False] >= safe - 1 > COUNT * EACH / 2


def test_s7_s11_no_fallback_that_acts_by_what_it_reads_breaks_what_is_permitted() -> None:
    said: Counter[tuple[str, bool]] = Counter()
    for verdict, module, asked in judged("c", guarded=True):
        broken = bool(recheck([module.text], asked, samples=6).violated)
        said[verdict, broken] += 1

        assert not (broken and verdict == Permitted.__name__)

    assert said[Refused.__name__, True] > COUNT * EACH / 10
    assert said[Permitted.__name__, False] > COUNT * EACH / 3

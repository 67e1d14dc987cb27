"""Whatever else an engine does meanwhile, each answer is the one a session computed from nothing gives.

Histories, what-ifs, lists, guidance, missed cycles and cancels of five sessions in a pool too small for them:
pages are shared, copied before a write, found again, moved out, brought back and given up.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from gateway.core.guidance import Guidance, GuidanceCase, GuidanceLevel
from gateway.core.tag import TagId
from gateway.inference.bundle.manifest import Window
from gateway.inference.decoding.decode import OutputRange
from gateway.inference.messages import Answer, Cycle, Propose
from gateway.inference.serving.engine import Engine
from gateway.inference.serving.scheduler import Policy
from tests.unit.random_decoder import MINUTE, tag_names, write_decoder

OUTPUTS = (OutputRange(Fraction(1, 10), Fraction(0), 0, 1000),) * 3
NAMES = tuple("abcde")
STEPS = 120
Mode = Literal["swa", "hop"]


def _guidance(dice: random.Random) -> bytes:
    """Two spans for each output."""
    levels = []
    for _ in OUTPUTS:
        a, b, c, d = sorted(dice.sample(range(1001), 4))
        levels.append(GuidanceLevel(((a, b), (c, d)), (GuidanceCase(((0, 1000),) * 3, ()),)))
    order = tuple(TagId(name) for name in tag_names(0, len(OUTPUTS)))
    return msgspec.json.encode(Guidance(order=order, levels=tuple(levels)))


@dataclass
class _Plant:
    """Requests of sessions whose cycles go on, and what was asked with each."""

    dice: random.Random
    cycles: dict[str, list[Cycle]] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        alike = [self._cycle() for _ in range(20)]
        for name in NAMES:
            own = [self._cycle() for _ in range(STEPS * 3)]
            self.cycles[name] = alike + own if name in "bc" else own  # those two begin alike
            self.at[name] = self.dice.randrange(8, 20)

    def asks(self, *, first: bool, name: str) -> tuple[Propose, tuple[Cycle, ...]]:
        dice, cycles = self.dice, self.cycles[name]
        self.at[name] += dice.choice((0, 0, 1, 1, 1, 3))
        at, aside = self.at[name], dice.random() < 0.25
        if aside or dice.random() < 0.2:
            inputs = self._cycle().inputs
            if not aside:
                cycles[at] = Cycle(inputs, cycles[at].in_force)
        else:
            inputs = cycles[at].inputs
        history = tuple(cycles[:at])
        request = Propose(
            session=name,
            cycle=at,
            inputs=inputs,
            in_force=cycles[at - 1].in_force,
            history=history if first or dice.random() < 0.1 else None,
            missed=history[-dice.randrange(1, 6) :],
            aside=aside,
            urgency=dice.randrange(3),
            most=dice.choice((1, 1, 3, 5)),
            guided_until=time.monotonic() + 60.0 if dice.random() < 0.3 else None,
        )
        return request, history

    def _cycle(self) -> Cycle:
        dice = self.dice
        return Cycle(
            tuple(f"{dice.uniform(0, 100):.2f}" for _ in range(3)),
            tuple(f"{dice.uniform(0, 100):.1f}" for _ in range(3)),
        )


@dataclass
class _Answers:
    """What was asked, and what a session computed from nothing answers to it."""

    engine: Engine
    twin: Engine
    asked: dict[int, tuple[Propose, tuple[Cycle, ...], bytes]] = field(default_factory=dict)
    compared: int = 0

    def compare(self) -> None:
        for number, reply in self.engine.drain():
            request, history, guidance = self.asked.pop(number)
            if not isinstance(reply, Answer):
                continue
            expected = self._expected(request, history, guidance if reply.guided else b"")
            assert reply.raws == expected.raws, (number, request)
            assert reply.concentration == pytest.approx(expected.concentration, abs=1e-4)
            if reply.others:  # without room for a list there is none
                assert [other.raws for other in reply.others] == [other.raws for other in expected.others]
            self.compared += 1

    def _expected(self, request: Propose, history: tuple[Cycle, ...], guidance: bytes) -> Answer:
        request = msgspec.structs.replace(request, session="twin", history=history, missed=(), aside=False)
        self.twin.submit(0, request)
        self.twin.guide(0, guidance, "" if guidance else "there is none")
        while not (found := self.twin.drain()):
            self.twin.step()
        assert isinstance(found[0][1], Answer), found
        return found[0][1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mode", ["swa", "hop"])
def test_every_answer_is_that_of_a_session_computed_from_nothing(
    tmp_path: Path, mode: Mode, seed: int
) -> None:
    dice = random.Random(100 + seed)  # noqa: S311 - test data
    window = Window(mode, dice.choice((24, 48, 61)))
    bundle = write_decoder(tmp_path, MINUTE, inputs=3, outputs=3, window=window, quantized=None, seed=4)
    policy = Policy(widest=dice.choice((1, 3, 8)), patience=dice.choice((2, 32)))
    engine = Engine(bundle, OUTPUTS, pages=(12, 16, 24, 24, 40)[seed], cold_pages=6 * seed, policy=policy)
    plant, answers = _Plant(dice), _Answers(engine, Engine(bundle, OUTPUTS, pages=400))
    seen = set[str]()
    for number in range(STEPS):
        name = dice.choice(NAMES)
        request, history = plant.asks(first=name not in seen, name=name)
        seen |= set() if request.aside else {name}
        guidance = _guidance(dice) if request.guided_until is not None and dice.random() < 0.8 else b""
        answers.asked[number] = request, history, guidance
        engine.submit(number, request)
        for _ in range(dice.randrange(4)):
            engine.step()
        engine.guide(number, guidance, "" if guidance else "there is none")
        if dice.random() < 0.15:
            engine.cancel(dice.choice(sorted(answers.asked)))
        for _ in range(dice.randrange(5)):
            engine.step()
        answers.compare()
    while engine.queued:
        engine.step()
    answers.compare()
    for name in NAMES:
        engine.release(name)

    assert answers.compared > STEPS // 4
    assert not answers.asked
    pool = engine.pool_statistics()
    assert (engine.sessions, pool.in_tables, pool.cold) == (0, 0, 0)
    assert pool.free + pool.found_again == pool.pages

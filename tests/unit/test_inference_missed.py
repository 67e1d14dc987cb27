"""Cycles that a worker never saw, because their requests were refused or came to nothing, are made up for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gateway.inference.bundle.manifest import Bundle, Window, load_bundle
from gateway.inference.client.point_state import Held, PointState
from gateway.inference.messages import Answer, Cycle, Failed, NeedHistory, Propose
from gateway.inference.serving.costs import Costs
from gateway.inference.serving.engine import Engine
from tests.unit.inference_demo import BUFFER_TANK
from tests.unit.test_inference_engine import OUTPUTS, _cycles

SWA = load_bundle(BUFFER_TANK)


def hopping() -> Bundle:
    """Twelve cycles in each half."""
    manifest = msgspec.structs.replace(SWA.manifest, window=Window(mode="hop", length=145))
    return replace(SWA, manifest=manifest)


def request(
    cycles: Sequence[Cycle], at: int, missed: int = 0, *, history: bool = False, aside: bool = False
) -> Propose:
    return Propose(
        session="a",
        cycle=at,
        inputs=cycles[at].inputs,
        in_force=cycles[at - 1].in_force,
        history=tuple(cycles[:at]) if history else None,
        missed=tuple(cycles[at - missed : at]),
        aside=aside,
    )


def raws(engine: Engine, asked: Propose) -> tuple[int, ...]:
    answer = engine.propose(asked)
    assert isinstance(answer, Answer)
    return answer.raws


@pytest.mark.parametrize("bundle", [SWA, hopping()], ids=["swa", "hop"])
@pytest.mark.parametrize("gap", [2, 3, 7, 13])
def test_what_goes_on_from_missed_cycles_answers_like_plain_recomputation(bundle: Bundle, gap: int) -> None:
    kept, plain, cycles = Engine(bundle, OUTPUTS), Engine(bundle, OUTPUTS), _cycles(100)
    kept.propose(request(cycles, 1, history=True))
    for at in range(1 + gap, 90, gap + 1):
        found = raws(kept, request(cycles, at, gap)), raws(kept, request(cycles, at + 1))
        exact = [raws(plain, request(cycles, number, history=True)) for number in (at, at + 1)]

        assert list(found) == exact
    assert kept.rebuilt == 1


@pytest.mark.parametrize("bundle", [SWA, hopping()], ids=["swa", "hop"])
def test_over_many_gaps_nothing_drifts(bundle: Bundle) -> None:
    kept, plain, cycles = Engine(bundle, OUTPUTS), Engine(bundle, OUTPUTS), _cycles(100)
    kept.propose(request(cycles, 1, history=True))
    at = 1
    for gap in (2, 1, 5, 3, 12, 2, 1, 25, 4, 9):
        at += gap
        kept.propose(request(cycles, at, gap))
        plain.release("a")
        plain.propose(request(cycles, at, history=True))
        exact = plain.first_logits("a")

        assert np.linalg.norm(kept.first_logits("a") - exact) <= 1e-5 * np.linalg.norm(exact), at
    assert kept.rebuilt == 1


def test_going_on_costs_fewer_forwards_than_the_history() -> None:
    engine, cycles = Engine(SWA, OUTPUTS), _cycles(100)
    engine.propose(request(cycles, 60, history=True))
    whole = engine.forwards
    engine.propose(request(cycles, 61))
    ordinary = engine.forwards - whole
    at, costs = 61, []
    for gap in (2, 7, 9, 20):
        before, at = engine.forwards, at + gap
        engine.propose(request(cycles, at, gap))
        costs.append(engine.forwards - before - ordinary)

    assert costs == [0, 0, 1, 2]  # chunks of 48 tokens beside the one that ends with the measurements
    assert ordinary + 2 < whole


def test_where_the_history_comes_what_was_missed_does_not_count() -> None:
    engine, twin, cycles = Engine(hopping(), OUTPUTS), Engine(hopping(), OUTPUTS), _cycles(60)
    both = msgspec.structs.replace(request(cycles, 40, history=True), missed=tuple(cycles[37:40]))

    assert raws(engine, both) == raws(twin, request(cycles, 40, history=True))
    assert np.array_equal(engine.first_logits("a"), twin.first_logits("a"))


def test_the_cycle_that_was_answered_on_counts_as_it_ended() -> None:
    engine, twin, cycles = Engine(SWA, OUTPUTS), Engine(SWA, OUTPUTS), _cycles(60)
    early = msgspec.structs.replace(request(cycles, 40, history=True), inputs=cycles[3].inputs)
    engine.propose(early)  # measured anew before it ended
    engine.propose(request(cycles, 43, 3))
    twin.propose(request(cycles, 43, history=True))

    assert np.allclose(engine.first_logits("a"), twin.first_logits("a"), rtol=1e-4, atol=1e-5)


def test_a_what_if_goes_on_from_missed_cycles_and_leaves_the_session_where_it_was() -> None:
    asked, twin, cycles = Engine(hopping(), OUTPUTS), Engine(hopping(), OUTPUTS), _cycles(60)
    for engine in (asked, twin):
        engine.propose(request(cycles, 21, history=True))
    asked.propose(request(cycles, 26, 5, aside=True))
    for at, gap in ((23, 2), (24, 1), (27, 3)):
        assert raws(asked, request(cycles, at, gap)) == raws(twin, request(cycles, at, gap))
    assert np.array_equal(asked.first_logits("a"), twin.first_logits("a"))
    assert asked.pool_statistics().in_tables == twin.pool_statistics().in_tables


def test_without_the_cycle_in_between_the_history_is_asked_for() -> None:
    engine, cycles = Engine(SWA, OUTPUTS), _cycles(60)
    engine.propose(request(cycles, 40, history=True))

    assert isinstance(engine.propose(request(cycles, 43)), NeedHistory)
    assert isinstance(engine.propose(request(cycles, 43, 2)), NeedHistory)
    assert isinstance(engine.propose(request(cycles, 43, 3)), Answer)
    assert isinstance(engine.propose(request(cycles, 42, 3)), NeedHistory)  # it is past


def test_what_cannot_come_in_time_is_refused_and_the_next_goes_on_from_what_is_held() -> None:
    engine, cycles = Engine(SWA, OUTPUTS), _cycles(60)
    engine.propose(request(cycles, 40, history=True))
    engine.costs = Costs(decision_ms=1.0, chunk_ms=1.0)
    late = msgspec.structs.replace(request(cycles, 41), due=time.monotonic())
    engine.submit(7, late)
    ((number, reply),) = engine.drain()

    assert (number, isinstance(reply, Failed)) == (7, True)
    assert isinstance(engine.propose(request(cycles, 42, 2)), Answer)
    assert engine.rebuilt == 1


def test_a_point_sends_only_what_its_worker_never_saw() -> None:
    state = PointState(SWA)
    steps = [state.cadence.place(float(at), (str(at),), (str(at),)) for at in range(80)]
    assert state.missed(1, steps[5]) is None

    state.held = Held(1, 5)
    assert state.missed(1, steps[5]) == ()
    assert state.missed(1, steps[6]) == ()
    assert state.missed(2, steps[6]) is None  # another worker
    missed = state.missed(1, steps[8])
    assert missed is not None
    assert [cycle.inputs for cycle in missed] == [("5",), ("6",), ("7",)]
    assert state.missed(1, steps[6 + SWA.history_cycles // 2]) is None  # computing all again costs no more

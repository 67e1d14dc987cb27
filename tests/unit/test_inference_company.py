"""On CUDA a request may wait a moment for others to share its first forward; on the processor never."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gateway.core.errors import InferenceError
from gateway.inference.bundle.any_bundle import load_any
from gateway.inference.bundle.stateless import StatelessBundle
from gateway.inference.client.place import CPU, CUDA
from gateway.inference.decision_model import ranges_of
from gateway.inference.kv.backend import ProviderTruth
from gateway.inference.messages import Propose
from gateway.inference.serving.engine import Engine
from gateway.inference.serving.serving import Size, start_engine, window_of
from gateway.inference.serving.stateless_engine import StatelessEngine
from tests.unit.inference_exports import REGRESSOR
from tests.unit.test_inference_engine import OUTPUTS, _cycles
from tests.unit.test_inference_together import BUNDLE, asked, raws

WINDOW_S = 0.002
STATELESS = load_any(REGRESSOR)


@dataclass
class Clock:
    """Seconds that pass when told."""

    s: float = 100.0

    def __call__(self) -> float:
        return self.s


def an_engine(clock: Clock) -> Engine:
    """Two sessions that are held, and then a window."""
    engine, cycles = Engine(BUNDLE, OUTPUTS, now=clock), _cycles(70)
    for name in ("a", "b"):
        engine.propose(asked(cycles, 60, name, rebuild=True))
    while engine.busy:
        engine.step()
    engine.waits(WINDOW_S)
    return engine


def test_two_that_come_within_the_window_share_every_forward_and_answer_as_alone() -> None:
    clock, cycles = Clock(), _cycles(70)
    engine, alone = an_engine(clock), an_engine(Clock())
    alone.waits(0.0)
    forwards, rows = engine.forwards, engine.rows

    engine.submit(1, asked(cycles, 61, "a"))
    assert not engine.busy
    assert engine.held_until == pytest.approx(clock.s + WINDOW_S)
    engine.step()
    assert engine.forwards == forwards  # it obeys
    clock.s += 0.0015
    engine.submit(2, asked(cycles, 61, "b"))
    assert not engine.busy
    assert engine.held_until == pytest.approx(clock.s + 0.0005)
    clock.s += 0.0005
    assert engine.busy
    while engine.queued:
        engine.step()

    assert engine.rows - rows == 2 * (engine.forwards - forwards)
    answers = dict(engine.drain())
    for number, name in ((1, "a"), (2, "b")):
        assert raws(answers[number]) == raws(alone.propose(asked(cycles, 61, name)))
    assert engine.held_until is None


def test_once_it_has_begun_a_request_is_not_kept_waiting_again() -> None:
    clock, cycles = Clock(), _cycles(70)
    engine = an_engine(clock)
    engine.submit(1, asked(cycles, 61, "a"))
    clock.s += WINDOW_S
    engine.step()
    clock.s -= WINDOW_S  # as if no time had passed: its window would still be open

    assert engine.queued
    assert engine.busy


def test_a_deadline_ends_the_wait() -> None:
    clock, cycles = Clock(), _cycles(70)
    engine = an_engine(clock)
    engine.submit(1, asked(cycles, 61, "a", due=clock.s + 0.0005))

    assert engine.held_until == pytest.approx(clock.s + 0.0005)


def test_requests_to_a_model_without_a_memory_wait_as_well() -> None:
    assert isinstance(STATELESS, StatelessBundle)
    clock = Clock()
    engine = StatelessEngine(STATELESS, tuple(ranges_of(STATELESS).values()), now=clock)
    engine.merges(2)
    engine.waits(WINDOW_S)
    requests = [
        Propose(session=name, cycle=0, inputs=("2", "12", "40"), in_force=("27",), history=())
        for name in ("a", "b", "c")
    ]

    engine.submit(1, requests[0])
    assert not engine.busy
    assert engine.held_until == pytest.approx(clock.s + WINDOW_S)
    engine.step()
    assert engine.forwards == 0
    engine.submit(2, requests[1])  # full
    assert engine.busy
    engine.step()
    assert (engine.forwards, engine.rows) == (1, 2)
    engine.submit(3, requests[2])
    clock.s += WINDOW_S
    assert engine.busy
    engine.step()
    assert sorted(number for number, _ in engine.drain()) == [1, 2, 3]


def test_the_window_is_for_cuda_and_none_where_a_model_fell_back_from_there() -> None:
    assert window_of(ProviderTruth("cuda:0", CUDA, "1", CUDA), WINDOW_S) == WINDOW_S
    assert window_of(ProviderTruth("auto", CPU, "1", CUDA), WINDOW_S) == 0.0
    assert window_of(ProviderTruth("auto", CPU, "1", CPU), 0.0) == 0.0
    with pytest.raises(InferenceError, match=r'wait 2 ms .* runs on CPU.*write `max_wait = "0 ms"`'):
        window_of(ProviderTruth("auto", CPU, "1", CPU), WINDOW_S)


def test_a_worker_on_the_processor_refuses_a_window_in_a_sentence() -> None:
    with pytest.raises(InferenceError, match="every millisecond of waiting is one more of each answer"):
        start_engine(STATELESS, tuple(ranges_of(STATELESS).values()), Size("cpu", max_wait_s=WINDOW_S))

"""A history is kept so that another bundle can be given it: the same cycles, whatever the rate."""

from __future__ import annotations

import random

from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.past import MOST_MOMENTS, Past
from gateway.inference.client.point_state import PointState
from tests.unit.inference_demo import BUFFER_TANK, demo_definitions, in_force, snapshot


def _at_any_rate(seed: int, count: int) -> list[tuple[float, float, str]]:
    """Requests 10 ms to 7 s apart, so that cycles are replaced, filled and forgotten."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    at, requests = 0.0, []
    for number in range(count):
        at += chance.choice((0.01, 0.05, 0.2, 0.9, 1.0, 1.0, 1.1, 2.5, 7.0))
        requests.append((at, 1.0 + number / 100, f"{20 + number % 50}.5"))
    return requests


def test_a_history_taken_over_at_once_or_in_pieces_is_the_history_that_the_requests_left() -> None:
    for seed in range(30):
        served, late, early = (ModelEngine(BUFFER_TANK, demo_definitions(), "cpu") for _ in range(3))
        state = served._points.setdefault("a", PointState(served.bundle))
        for number, (at, level, pump) in enumerate(_at_any_rate(seed, 90)):
            taken, previous = snapshot(at, level), in_force(pump)
            state.place(at, taken, previous, served._texts(taken, previous))
            if number % 7 == 0:
                list(early.adopt(served.pasts()))
        list(early.adopt(served.pasts()))
        list(late.adopt(served.pasts()))
        assert early._points["a"].cadence.under_way == late._points["a"].cadence.under_way
        assert late._points["a"].cadence.under_way == state.cadence.under_way


def test_requests_that_lack_an_input_leave_no_trace_in_the_successor() -> None:
    served, fresh = (ModelEngine(BUFFER_TANK, demo_definitions(), "cpu") for _ in range(2))
    state = served._points.setdefault("a", PointState(served.bundle))
    for at in range(5):
        taken, previous = snapshot(float(at), float("nan") if at == 4 else 2.0), in_force()
        state.place(float(at), taken, previous, (("2", "12", "45"), ("26.7", "0", "1")))
    list(fresh.adopt(served.pasts()))
    under_way = fresh._points["a"].cadence.under_way
    assert under_way is not None
    assert under_way.cycle == 3


def test_no_more_than_a_bounded_number_of_cycles_is_kept() -> None:
    past = Past()
    for cycle in range(MOST_MOMENTS + 100):
        for at in (cycle, cycle + 0.25, cycle + 0.5):
            past.took(cycle, at, snapshot(at), in_force())
    assert len(past.moments) == MOST_MOMENTS
    assert past.moments[0].at == 100
    assert past.moments[0].snapshot.taken_at == 100.5

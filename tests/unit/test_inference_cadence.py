import pytest

from gateway.inference.client.cadence import Cadence
from gateway.inference.messages import Cycle


def _fed(interval: float, seconds: float, keep: int = 64) -> Cadence:
    cadence = Cadence(1.0, keep)
    for at in range(round(seconds / interval)):
        now = at * interval
        cadence.place(now, (f"{int(now + 1e-9)}",), ("7",))
    return cadence


def test_twenty_requests_a_second_leave_one_cycle_a_second() -> None:
    assert len(_fed(0.05, 30.0).history) == pytest.approx(len(_fed(1.0, 30.0).history), abs=1)


def test_a_request_within_a_cycle_replaces_its_measurements() -> None:
    cadence = Cadence(1.0, 8)
    cadence.place(0.0, ("1",), ("a",))
    second = cadence.place(0.4, ("2",), ("b",))
    third = cadence.place(1.0, ("3",), ("c",))

    assert (second.cycle, second.rewritten) == (0, False)
    assert (third.cycle, third.rewritten) == (1, False)
    assert third.history == (Cycle((), ("a",)), Cycle(("2",), ("c",)))


@pytest.mark.parametrize("interval", [0.97, 1.0, 1.03, 1.1])
def test_a_jittery_trigger_still_makes_one_cycle_a_request(interval: float) -> None:
    cadence = Cadence(1.0, 64)

    steps = [cadence.place(at * interval, ("1",), ("a",)) for at in range(9)]

    assert [step.cycle for step in steps] == list(range(9))


def test_missed_cycles_are_filled_with_what_was_last_known_and_numbered() -> None:
    cadence = Cadence(1.0, 8)
    cadence.place(0.0, ("1",), ("a",))

    step = cadence.place(3.0, ("2",), ("b",))

    assert (step.cycle, step.rewritten) == (3, False)
    assert step.history == (Cycle((), ("a",)), *[Cycle(("1",), ("b",))] * 3)


def test_a_long_gap_forgets_the_history() -> None:
    cadence = Cadence(1.0, 8)
    cadence.place(0.0, ("1",), ("a",))

    step = cadence.place(30.0, ("2",), ("b",))

    assert step.rewritten
    assert step.history == (Cycle((), ("b",)),)


def test_the_history_never_grows_beyond_what_the_model_can_see() -> None:
    assert len(_fed(1.0, 200.0, keep=16).history) == 16

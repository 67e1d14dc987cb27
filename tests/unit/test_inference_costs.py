"""What work is reckoned to take, by figures measured at the start: milliseconds in, seconds out."""

from __future__ import annotations

import time

import pytest

from gateway.inference.kv.backend import ProviderTruth
from gateway.inference.serving.costs import Costs, TooLateError, stopwatch

# A row costs 2 ms alone, and eight of them 4 ms together.
MEASURED = Costs(decision_ms=10.0, chunk_ms=3.0, steps_ms=((1, 2.0), (2, 3.0), (4, 4.0), (8, 4.0)))


def test_a_decision_with_chunks_before_it_takes_what_all_of_them_take() -> None:
    assert MEASURED.seconds(0) == pytest.approx(0.010)
    assert MEASURED.seconds(4) == pytest.approx(0.022)


def test_others_of_a_list_take_their_forwards_and_one_answer_takes_none() -> None:
    assert MEASURED.listed(0, 2) == 0.0
    assert MEASURED.listed(1, 2) == pytest.approx(0.004)
    assert MEASURED.listed(3, 2) == pytest.approx(2 * 0.003 * 3 / 2)  # as in the forward of two that fits
    assert MEASURED.listed(16, 1) == pytest.approx(0.008)  # two forwards of eight
    assert Costs(10.0, 3.0).listed(3, 2) == 0.0  # never measured


@pytest.mark.parametrize(
    ("others", "share"),
    [(1, 1.0), (2, 3 / 4), (3, 3 / 4), (4, 1 / 2), (8, 1 / 4), (20, 1 / 4)],
)
def test_decisions_that_wait_share_their_forwards(others: int, share: float) -> None:
    assert MEASURED.ahead([0.010] * others) == pytest.approx(others * 0.010 * share)


def test_what_prefill_takes_is_shared_with_nobody() -> None:
    alone = MEASURED.seconds(4)

    assert MEASURED.ahead([alone] * 8) == pytest.approx(8 * (alone - 0.010 * 3 / 4))
    assert MEASURED.ahead([]) == 0.0
    assert MEASURED.ahead([0.001] * 8) == 0.0  # nearly done; never less than nothing


def test_a_model_that_gains_nothing_from_company_is_reckoned_one_by_one() -> None:
    for steps in ((), ((1, 2.0), (8, 40.0)), ((1, 0.0), (8, 0.0))):
        assert Costs(10.0, 3.0, steps).ahead([0.010] * 8) == pytest.approx(0.080)


def test_what_ends_just_in_time_is_admitted_and_what_ends_later_is_told_how_long_it_takes() -> None:
    MEASURED.admit(1.0, 1.75, 0.25, 0.5)
    with pytest.raises(TooLateError, match=r"^750\.0 ms are left and an answer takes about 875\.0 ms$"):
        MEASURED.admit(1.0, 1.75, 0.25, 0.625)
    with pytest.raises(TooLateError, match=r"^0\.0 ms are left"):
        MEASURED.admit(2.0, 1.75, 0.0, 0.5)


def test_on_a_processor_only_the_own_thread_counts_and_elsewhere_the_time_that_passes() -> None:
    def truth(actual: str) -> ProviderTruth:
        return ProviderTruth("auto", actual, "1", actual)

    assert stopwatch(truth("CPUExecutionProvider")) is time.thread_time
    assert stopwatch(truth("CUDAExecutionProvider")) is time.perf_counter

"""Plans of the engine: who leads, who goes along, and how long anybody can be passed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.inference.serving.scheduler import Policy, Waiting


def waiting(
    number: int, *, urgency: int = 1, due: float = 1.0, tokens: int = 1, prefill: bool = False
) -> Waiting:
    return Waiting(number, urgency, due, tokens, prefill, 0)


def plan(*jobs: Waiting) -> tuple[int, ...]:
    return Policy(widest=3, patience=5).plan(jobs)


def test_nobody_waits_nobody_runs() -> None:
    assert plan() == ()


def test_class_goes_before_deadline_and_the_earlier_deadline_leads() -> None:
    assert plan(waiting(1, urgency=2, due=0.1), waiting(2, urgency=0, due=9.0))[0] == 2
    assert plan(waiting(1, due=0.2), waiting(2, due=0.1))[0] == 2


def test_within_a_class_who_decodes_goes_before_who_prefills_whatever_the_deadline() -> None:
    chunk, step = waiting(1, due=0.1, tokens=48, prefill=True), waiting(2, due=0.9)

    assert plan(chunk, step) == (2,)
    assert plan(replace(chunk, urgency=0), step) == (1,)


def test_as_many_as_fit_decode_together_but_only_with_equally_many_tokens() -> None:
    alike = [waiting(n, due=n / 10) for n in range(1, 6)]

    assert plan(*alike) == (1, 2, 3)
    assert plan(waiting(1, tokens=6), waiting(2, tokens=1), waiting(3, tokens=6)) == (1, 3)


def test_a_chunk_goes_alone() -> None:
    assert plan(waiting(1, tokens=48, prefill=True), waiting(2, tokens=48, prefill=True)) == (1,)
    # the rest of a history may be as short as a cycle
    assert plan(waiting(1, urgency=0, tokens=6, prefill=True), waiting(2, urgency=1, tokens=6)) == (1,)


def test_a_less_urgent_job_goes_along_where_it_costs_nothing() -> None:
    assert plan(waiting(1, urgency=0), waiting(2, urgency=3, due=99.0)) == (1, 2)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 3)), min_size=1, max_size=9))
def test_nobody_is_passed_over_for_long_however_urgent_the_others_are(
    kinds: Sequence[tuple[int, bool, int]],
) -> None:
    policy = Policy(widest=2, patience=5, apart=3)
    jobs = {
        number: waiting(number, urgency=urgency, due=float(number), tokens=tokens, prefill=prefill)
        for number, (urgency, prefill, tokens) in enumerate(kinds)
    }
    longest = 0
    in_turn: int | None = 0
    for _ in range(150):  # everybody comes again at once: the worst there can be
        chosen = policy.plan(jobs.values(), in_turn)
        assert len(set(chosen)) == len(chosen) >= 1
        in_turn = policy.then_in_turn(jobs[chosen[0]].passed_over, in_turn)
        for number, job in jobs.items():
            jobs[number] = replace(job, passed_over=0 if number in chosen else job.passed_over + 1)
        longest = max(longest, *(job.passed_over for job in jobs.values()))

    assert longest <= policy.patience + policy.apart + (policy.apart + 1) * len(jobs)


def test_who_was_passed_over_for_long_leads_once_and_then_the_urgent_go_on() -> None:
    policy = Policy(widest=1, patience=5, apart=3)
    urgent = waiting(0, urgency=0)
    jobs = {n: replace(waiting(n, urgency=2, tokens=48, prefill=True), passed_over=9) for n in range(1, 31)}
    led: list[int] = []
    in_turn: int | None = None
    for _ in range(16):
        (number,) = policy.plan([urgent, *jobs.values()], in_turn)
        in_turn = policy.then_in_turn(jobs.get(number, urgent).passed_over, in_turn)
        led.append(number)
        jobs = {
            n: replace(job, passed_over=0 if n == number else job.passed_over + 1) for n, job in jobs.items()
        }

    assert [number == 0 for number in led] == [False, True, True, True] * 4
    assert sorted(number for number in led if number) == [1, 2, 3, 4]  # each of them once


# --- waiting for company

WINDOW = Policy(widest=3, window_s=0.002)


def fresh(number: int, arrived: float, *, latest: float = 9.0, tokens: int = 1) -> Waiting:
    return replace(waiting(number, tokens=tokens), fresh=True, arrived=arrived, latest=latest)


def test_without_a_window_nobody_waits() -> None:
    assert Policy().window_s == 0.0
    assert Policy().waits_until([fresh(1, 5.0)], 5.0) is None


def test_who_comes_alone_waits_for_others_no_longer_than_the_window() -> None:
    assert WINDOW.waits_until([fresh(1, 5.0)], 5.0) == 5.002
    assert WINDOW.waits_until([fresh(1, 5.0)], 5.001) == 5.002
    assert WINDOW.waits_until([fresh(1, 5.0)], 5.002) is None
    assert (
        WINDOW.waits_until([fresh(1, 5.0), fresh(2, 5.001)], 5.001) == 5.002
    )  # the first's time, not its own
    assert WINDOW.waits_until([], 5.0) is None


def test_nobody_waits_into_the_time_that_its_own_work_needs() -> None:
    assert WINDOW.waits_until([fresh(1, 5.0, latest=5.0005), fresh(2, 5.0)], 5.0) == 5.0005
    assert WINDOW.waits_until([fresh(1, 5.0, latest=4.9)], 5.0) is None


def test_a_full_forward_waits_for_nobody() -> None:
    assert WINDOW.waits_until([fresh(n, 5.0) for n in (1, 2)], 5.0) == 5.002
    assert WINDOW.waits_until([fresh(n, 5.0) for n in (1, 2, 3)], 5.0) is None
    assert WINDOW.waits_until([replace(fresh(1, 5.0), rows=3)], 5.0) is None


def test_who_has_begun_waits_no_more_and_who_prefills_never() -> None:
    assert WINDOW.waits_until([replace(fresh(1, 5.0), fresh=False)], 5.0) is None
    assert WINDOW.waits_until([fresh(1, 5.0), replace(fresh(2, 5.0), fresh=False)], 5.0) is None
    assert WINDOW.waits_until([replace(fresh(1, 5.0), prefill=True)], 5.0) is None


def test_nobody_waits_while_there_is_work_for_the_forward_after() -> None:
    assert WINDOW.waits_until([fresh(1, 5.0, tokens=6), fresh(2, 5.0, tokens=7)], 5.0) is None

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from gateway.core.clock import Deadline
from gateway.core.decision import Permitted, Repaired, Undetermined
from gateway.core.guidance import Guidance, Unguided
from gateway.solver.decoding.permitted_next import Exactly, NotKnown
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers import pool as pool_of_workers
from gateway.solver.workers import seat
from gateway.solver.workers.check import Checks
from gateway.solver.workers.pool import CheckerPool
from gateway.supervision import share
from tests.unit.solver_demo import (
    BUFFER_TANK,
    HEATER,
    LOWER_LEVEL,
    MIXER,
    PATIENT,
    PUMP,
    Situation,
    module,
    proposal,
    rule_set,
)
from tests.unit.solver_pools import CLOCK, soon, two_workers

pool = pytest_asyncio.fixture(two_workers)


def threads(pid: int) -> list[int]:
    """What the scheduler knows of a process."""
    return [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]


async def until_both_are_idle(pool: CheckerPool) -> None:
    async with asyncio.timeout(120):
        while pool.statistics().idle < 2:  # noqa: ASYNC110  what is awaited is a counter
            await asyncio.sleep(0.01)


async def test_a_check_in_a_worker_says_what_a_check_in_this_process_says(pool: CheckerPool) -> None:
    result, state = await pool.check(Situation().request(proposal("82.5")), soon())

    assert isinstance(result.verdict, Repaired)
    assert result.verdict.setpoints == proposal("50").values
    assert result.rule_set_digest == rule_set().digest
    assert state is not None


# A killed worker costs the decision that it held; the next one finds another worker warm.
async def test_kill_9_of_the_worker_in_a_check_is_undetermined_and_the_next_verdict_comes_at_once(
    pool: CheckerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_replace: list[seat.Seat] = []
    replace_it = pool._replace
    monkeypatch.setattr(pool, "_replace", to_replace.append)  # not before the next verdict is there
    for pid in pool.pids():
        os.kill(pid, signal.SIGSTOP)  # so that the check is surely still held when the kill comes
    held = asyncio.create_task(pool.check(Situation().request(proposal()), soon()))
    async with asyncio.timeout(60):
        while pool.statistics().idle == 2:  # noqa: ASYNC110  what is awaited is a counter
            await asyncio.sleep(0.001)
    holder = next(s.worker.pid for s in pool._seats if s not in pool._bench)
    assert holder is not None
    os.kill(holder, signal.SIGKILL)
    for pid in pool.pids():
        if pid != holder:
            os.kill(pid, signal.SIGCONT)

    result, state = await held
    after, _ = await pool.check(Situation().request(proposal()), soon())

    assert isinstance(result.verdict, Undetermined)
    assert "died while it held a request" in result.verdict.reason
    assert state is None
    assert isinstance(after.verdict, Permitted)
    (lost,) = to_replace
    replace_it(lost)
    await until_both_are_idle(pool)
    assert pool.statistics().lost == 1
    assert len(pool.pids()) == 2


async def test_a_worker_that_misses_the_deadline_is_killed_and_replaced(pool: CheckerPool) -> None:
    for pid in pool.pids():
        os.kill(pid, signal.SIGSTOP)

    result, _ = await pool.check(Situation().request(proposal()), Deadline.after(0.05, CLOCK))

    assert isinstance(result.verdict, Undetermined)
    assert "deadline" in result.verdict.reason
    async with asyncio.timeout(120):
        while pool.statistics().lost < 1:  # noqa: ASYNC110  what is awaited is a counter
            await asyncio.sleep(0.01)
    for pid in pool.pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    await until_both_are_idle(pool)
    again, _ = await pool.check(Situation().request(proposal()), soon())
    assert isinstance(again.verdict, Permitted)


async def test_what_comes_too_late_for_one_check_is_not_the_answer_to_the_next(
    pool: CheckerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_of_workers, "LATE_S", 60.0)  # a slow machine's worker does not hang
    for pid in pool.pids():
        os.kill(pid, signal.SIGSTOP)
    late = [pool.check(Situation().request(proposal("82.5")), Deadline.after(0.05, CLOCK)) for _ in range(2)]

    verdicts = [type(result.verdict) for result, _ in await asyncio.gather(*late)]
    for pid in pool.pids():
        os.kill(pid, signal.SIGCONT)
    after = [(await pool.check(Situation().request(proposal("40")), soon()))[0].verdict for _ in range(4)]

    assert verdicts == [Undetermined, Undetermined]
    assert after == [Permitted(proposal("40").values)] * 4
    await until_both_are_idle(pool)
    assert pool.statistics().lost == 0


async def test_a_check_says_the_same_whether_its_premises_were_prepared_or_others_were(
    pool: CheckerPool,
) -> None:
    here, elsewhere = Situation(), Situation(level=0.4)
    wanted = proposal("20", mixer=0)
    plain = [(await pool.check(s.request(wanted), soon()))[0].verdict for s in (here, elsewhere)]

    pool.prepare(here.request(None))
    pool.prepare(elsewhere.request(proposal("1")))
    prepared = [(await pool.check(s.request(wanted), soon()))[0].verdict for s in (here, elsewhere)]
    pool.prepare(elsewhere.request(None))
    others = (await pool.check(here.request(wanted), soon()))[0].verdict

    assert prepared == plain
    assert others == plain[0]
    assert plain[0] != plain[1]


async def test_the_loss_of_a_prepared_worker_costs_nothing(pool: CheckerPool) -> None:
    request = Situation().request(proposal())
    pool.prepare(request)
    kept = next(seat for seat in pool._seats if seat.kept)
    assert kept.worker.pid is not None
    os.kill(kept.worker.pid, signal.SIGKILL)
    await kept.worker.wait()

    result, _ = await pool.check(request, soon())

    assert isinstance(result.verdict, Permitted)
    await until_both_are_idle(pool)
    assert pool.statistics().lost == 1


async def test_a_replacement_knows_every_generation_in_force(pool: CheckerPool) -> None:
    await pool.load(rule_set(module(), module(LOWER_LEVEL), generation=2))
    for pid in pool.pids():
        os.kill(pid, signal.SIGKILL)
    for _ in range(2):
        await pool.check(Situation().request(proposal()), soon())
    await until_both_are_idle(pool)

    for generation in (1, 2):
        for _ in range(2):
            result, _ = await pool.check(Situation(generation=generation).request(proposal()), soon())
            assert isinstance(result.verdict, Permitted)
            assert result.generation == generation


# Swap: the new set is compiled beside the old one, and no check waits for it or misses its own generation.
async def test_checks_go_on_while_a_new_generation_is_loaded_and_the_old_one_dropped(
    pool: CheckerPool,
) -> None:
    current, seen = 1, []

    async def decide() -> None:
        for _ in range(60):
            result, _ = await pool.check(Situation(generation=current).request(proposal()), soon())
            seen.append((result.generation, type(result.verdict)))

    deciding = asyncio.create_task(decide())
    for generation in (2, 3):
        await pool.load(rule_set(module(), module(LOWER_LEVEL), generation=generation))
        current = generation
    await deciding
    await pool.drop(1)
    gone, _ = await pool.check(Situation(generation=1).request(proposal()), soon())

    assert {verdict for _, verdict in seen} == {Permitted}
    assert [g for g, _ in seen] == sorted(g for g, _ in seen)
    assert isinstance(gone.verdict, Undetermined)
    assert "not loaded" in gone.verdict.reason
    assert pool.statistics().generations == (2, 3)


def who_is_lowered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process ids, in their order, of those who from now on have only the time that nobody else wants."""
    lowered: list[int] = []
    true = share.what_is_left

    def what_is_left(pid: int) -> None:
        true(pid)
        assert os.sched_getscheduler(pid) == os.SCHED_IDLE
        lowered.append(pid)

    monkeypatch.setattr(share, "what_is_left", what_is_left)
    return lowered


# While a worker builds a set, the other one and main decide: they must not wait for a core.
@pytest.mark.skipif(not share.comes_back(), reason="this account may not raise what it lowered")
async def test_a_set_is_built_in_the_time_that_nobody_wants_and_all_of_a_worker_has_its_share_again(
    pool: CheckerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = who_is_lowered(monkeypatch)
    pool._precedence.linger_s = 60.0
    await pool.check(Situation().request(proposal()), soon())
    assert lowered == []
    await pool.load(rule_set(module(), module(LOWER_LEVEL), generation=2))

    assert sorted(lowered) == sorted(pool.pids())
    for pid in pool.pids():
        assert os.SCHED_IDLE not in map(os.sched_getscheduler, threads(pid))


# Z3's timer is a thread of its own and would be late on a full machine: so would every check's end.
@pytest.mark.skipif(not share.comes_back(), reason="this account may not raise what it lowered")
async def test_a_worker_that_replaces_a_worn_one_beside_decisions_has_all_its_threads_as_ever(
    pool: CheckerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered, before = who_is_lowered(monkeypatch), pool.pids()
    pool._precedence.linger_s, pool._precedence.patience_s = 60.0, 3.0
    with monkeypatch.context() as worn:
        worn.setattr(seat, "RECYCLE_CHECKS", 1)
        await pool.check(Situation().request(proposal()), soon())
    async with asyncio.timeout(180):
        while pool.statistics().recycled < 1:  # noqa: ASYNC110  what is awaited is a counter
            await asyncio.sleep(0.01)

    (fresh,) = set(pool.pids()) - set(before)
    assert fresh in lowered
    assert len(threads(fresh)) > 1
    assert os.SCHED_IDLE not in map(os.sched_getscheduler, threads(fresh))


@pytest.mark.skipif(not share.comes_back(), reason="this account may not raise what it lowered")
async def test_a_proof_gives_way_to_decisions_and_comes_all_the_same(
    pool: CheckerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = who_is_lowered(monkeypatch)
    pool._precedence.linger_s = 60.0
    await pool.check(Situation().request(proposal()), soon())

    proof = await pool.prove(rule_set(module(BUFFER_TANK, ("temp <= 74.04", "temp <= 74.9"))), 120.0)

    assert not proof.holds
    (prover,) = lowered
    assert prover not in pool.pids()


async def test_an_empty_rule_set_can_be_loaded_and_permits_nothing(pool: CheckerPool) -> None:
    await pool.load(RuleSet.of((), 9))

    result, _ = await pool.check(Situation(generation=9).request(proposal()), soon())

    assert isinstance(result.verdict, Undetermined)


async def test_a_set_is_proved_in_a_process_of_its_own_before_it_is_loaded(pool: CheckerPool) -> None:
    wider = rule_set(module(BUFFER_TANK, ("temp <= 74.04", "temp <= 74.9")), generation=2)

    refuted = await pool.prove(wider)

    assert not refuted.holds
    assert "max-temperature" in refuted.escape
    assert pool.statistics().generations == (1,)


async def test_a_worker_says_what_may_come_next_and_is_still_ready_for_the_check(pool: CheckerPool) -> None:
    order = (HEATER, MIXER, PUMP)
    request = Situation().request(None)
    here = Checks(rule_set(), PATIENT)

    pool.prepare(request, order)
    first = await pool.permitted_next(request, order, (), soon())
    last = await pool.permitted_next(request, order, (0, 1), soon())

    assert first == here.permitted_next(request, order, ())
    assert last == here.permitted_next(request, order, (0, 1))
    assert isinstance(last, Exactly)
    (low, high), *_ = last.counts
    for raw, expected in ((low - 1, Repaired), (low, Permitted), (high, Permitted), (high + 1, Repaired)):
        result, _ = await pool.check(Situation().request(proposal(str(raw / 10))), soon())
        assert isinstance(result.verdict, expected), raw


async def test_what_may_come_next_is_not_known_of_a_rule_set_that_is_not_loaded(pool: CheckerPool) -> None:
    request = replace(Situation().request(None), generation=7)
    found = await pool.permitted_next(request, (HEATER, MIXER, PUMP), (), soon())
    assert found == NotKnown("rule set 7 is not loaded")


async def test_guidance_of_a_worker_says_what_it_answers_one_by_one(pool: CheckerPool) -> None:
    order = (HEATER, MIXER, PUMP)
    request = Situation().request(None)

    packed = await pool.guidance(request, order, (), soon())
    last = await pool.permitted_next(request, order, (0, 1), soon())

    assert not isinstance(packed, Unguided)
    told = msgspec.json.decode(packed, type=Guidance)
    assert isinstance(last, Exactly)
    assert told.after((0, 1)) == last.counts
    assert await pool.guidance(replace(request, generation=7), order, (), soon()) == Unguided(
        "rule set 7 is not loaded"
    )

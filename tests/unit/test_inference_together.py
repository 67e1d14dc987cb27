"""Many requests at once: each gets the answer it would get alone, and the pool is whole afterwards."""

from __future__ import annotations

import random
import time

import msgspec
import numpy as np
import pytest

from gateway.core.errors import InferenceError
from gateway.core.guidance import Guidance, GuidanceCase, GuidanceLevel
from gateway.core.tag import TagId
from gateway.inference.bundle.manifest import load_bundle
from gateway.inference.messages import Answer, Cycle, Failed, NeedHistory, Propose
from gateway.inference.serving.costs import Costs
from gateway.inference.serving.engine import CANCELLED, Engine
from gateway.inference.serving.job import PREFILL_CHUNK, chunks
from gateway.inference.serving.scheduler import Policy
from tests.unit.inference_demo import BUFFER_TANK
from tests.unit.test_inference_engine import OUTPUTS, _cycles

BUNDLE = load_bundle(BUFFER_TANK)
NAMES = tuple(f"point-{n}" for n in range(6))


def asked(
    cycles: list[Cycle],
    at: int,
    name: str,
    *,
    rebuild: bool = False,
    aside: bool = False,
    due: float | None = None,
) -> Propose:
    return Propose(
        session=name,
        cycle=at,
        inputs=cycles[at].inputs,
        in_force=cycles[at - 1].in_force,
        history=tuple(cycles[:at]) if rebuild else None,
        aside=aside,
        due=due,
    )


def run(engine: Engine) -> dict[int, Answer | NeedHistory | Failed]:
    while engine.queued:
        engine.step()
    return dict(engine.drain())


def raws(reply: object) -> tuple[int, ...]:
    assert isinstance(reply, Answer), reply
    return reply.raws


def test_requests_together_are_answered_bit_by_bit_as_alone() -> None:
    histories = {name: _cycles(70, seed=n) for n, name in enumerate(NAMES)}
    together, alone = Engine(BUNDLE, OUTPUTS), Engine(BUNDLE, OUTPUTS, policy=Policy(widest=1))
    for at in range(60, 70):
        rebuild = at == 60
        for number, name in enumerate(NAMES):
            together.submit(number, asked(histories[name], at, name, rebuild=rebuild))
        replies = run(together)
        for number, name in enumerate(NAMES):
            single = alone.propose(asked(histories[name], at, name, rebuild=rebuild))
            assert raws(replies[number]) == raws(single)
            assert np.array_equal(together.first_logits(name), alone.first_logits(name))

    assert together.rows > 2 * together.forwards - 12 * 8  # they did share forwards


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_requests_cancels_and_steps_leaves_every_page_accounted_for(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - test data
    histories = {name: _cycles(40, seed=n) for n, name in enumerate(NAMES)}
    engine, at = Engine(BUNDLE, OUTPUTS, pages=96), dict.fromkeys(NAMES, 20)
    open_numbers: dict[int, str] = {}
    cancelled: set[int] = set()
    for number in range(120):
        name = dice.choice(NAMES)
        engine.submit(
            number,
            asked(histories[name], at[name], name, rebuild=dice.random() < 0.3, aside=dice.random() < 0.3),
        )
        open_numbers[number] = name
        at[name] = min(39, at[name] + dice.randrange(2))
        if dice.random() < 0.3:
            nobody_waits = dice.choice(list(open_numbers))
            engine.cancel(nobody_waits)
            cancelled.add(nobody_waits)
        for _ in range(dice.randrange(6)):
            engine.step()
    replies = run(engine)

    assert {number for number, reply in replies.items() if isinstance(reply, Failed)} <= cancelled
    assert len(replies) == 120  # also what nobody waits for leaves its number free
    assert engine.queued == 0
    for name in NAMES:
        engine.release(name)
    assert engine.sessions == 0
    pool = engine.pool_statistics()
    assert pool.free + pool.found_again == pool.pages
    assert pool.in_tables == pool.unfilled_slots == 0


def test_two_requests_of_one_session_keep_their_order() -> None:
    cycles = _cycles(40)
    engine, twin = Engine(BUNDLE, OUTPUTS), Engine(BUNDLE, OUTPUTS)
    for at in (30, 31, 32):
        engine.submit(at, asked(cycles, at, "a", rebuild=at == 30))
    replies = run(engine)

    expected = [twin.propose(asked(cycles, at, "a", rebuild=at == 30)) for at in (30, 31, 32)]
    assert [raws(replies[at]) for at in (30, 31, 32)] == [raws(reply) for reply in expected]


def test_a_decision_goes_between_the_chunks_of_a_long_prefill() -> None:
    cycles = _cycles(140)
    engine = Engine(BUNDLE, OUTPUTS)
    engine.propose(asked(cycles, 139, "held", rebuild=True))
    engine.submit(1, asked(cycles, 139, "long", rebuild=True))
    engine.step()
    engine.submit(2, asked(cycles, 139, "held"))
    order: list[int] = []
    while engine.queued:
        engine.step()
        order += [number for number, _ in engine.drain()]

    assert order == [2, 1]


def test_urgent_requests_without_end_hold_a_long_prefill_up_for_so_long_and_no_longer() -> None:
    cycles, patience = _cycles(200), 4
    engine = Engine(BUNDLE, OUTPUTS, policy=Policy(patience=patience, apart=patience))
    engine.propose(asked(cycles, 100, "urgent", rebuild=True))
    engine.submit(0, msgspec.structs.replace(asked(cycles, 100, "long", rebuild=True), urgency=2))
    at, answered = 101, False
    while not answered:
        if not engine.queued - 1:  # there is always an urgent one
            engine.submit(at, msgspec.structs.replace(asked(cycles, at, "urgent"), urgency=0))
            at += 1
        engine.step()
        answered = 0 in dict(engine.drain())

    own = -(-BUNDLE.history_cycles * BUNDLE.tokens_per_cycle // PREFILL_CHUNK) + len(OUTPUTS) + 1
    assert at > 110  # it did give way
    assert engine.forwards <= own * (patience + 1) + 2 * own  # its own twice: "urgent" was built, too


def test_many_long_prefills_hold_an_urgent_request_up_by_one_chunk() -> None:
    """All of them were passed over for long at once; each a turn first was 30 chunks before a decision."""
    cycles = _cycles(160)
    engine = Engine(BUNDLE, OUTPUTS, pages=1200)
    engine.propose(asked(cycles, 100, "urgent", rebuild=True))
    for number in range(30):
        request = asked(_cycles(140, seed=number), 139, f"long-{number}", rebuild=True)
        engine.submit(number, msgspec.structs.replace(request, urgency=2))
    took = []
    for at in range(101, 140):
        before = engine.forwards
        engine.submit(at, msgspec.structs.replace(asked(cycles, at, "urgent"), urgency=0))
        while at not in dict(engine.drain()):
            engine.step()
        took.append(engine.forwards - before)

    assert max(took) == len(OUTPUTS) + 1
    assert len(OUTPUTS) in took  # most of them are not held up at all


def test_who_waits_for_guidance_is_not_passed_over_meanwhile() -> None:
    """It could not have run: afterwards it has no claim to go before what is more urgent."""
    cycles = _cycles(60)
    engine = Engine(BUNDLE, OUTPUTS, policy=Policy(widest=1, patience=4))
    for name in ("guided", "urgent", "more urgent"):
        engine.propose(asked(cycles, 20, name, rebuild=True))
    request = asked(cycles, 21, "guided")
    held = msgspec.structs.replace(request, urgency=2, guided_until=time.monotonic() + 60.0)
    engine.submit(0, held)
    for at in range(21, 40):
        engine.submit(at, msgspec.structs.replace(asked(cycles, at, "urgent"), urgency=1))
        while at not in dict(engine.drain()):
            engine.step()
    level = GuidanceLevel(((0, 1000),), (GuidanceCase(((0, 1), (0, 1), (0, 3)), ()),))
    order = tuple(TagId(spec.tag) for spec in BUNDLE.manifest.outputs)
    engine.guide(
        0, msgspec.json.encode(Guidance(order=order, levels=(level,) * 3)), ""
    )  # another pump's value
    engine.submit(98, msgspec.structs.replace(asked(cycles, 40, "urgent"), urgency=0))
    engine.submit(99, msgspec.structs.replace(asked(cycles, 21, "more urgent"), urgency=0))
    order_of_answers: list[int] = []
    while engine.queued:
        engine.step()
        order_of_answers += [number for number, _ in engine.drain()]

    assert order_of_answers == [98, 99, 0]


def test_what_nobody_waits_for_any_more_comes_last_also_where_it_has_not_begun() -> None:
    cycles = _cycles(60)
    engine, until = Engine(BUNDLE, OUTPUTS, policy=Policy(widest=1)), time.monotonic() + 60.0
    for name in ("a", "b"):
        engine.propose(asked(cycles, 20, name, rebuild=True))
    engine.submit(1, msgspec.structs.replace(asked(cycles, 21, "a"), urgency=0))
    engine.submit(2, msgspec.structs.replace(asked(cycles, 22, "a"), urgency=0, guided_until=until))
    engine.cancel(2)
    engine.submit(3, asked(cycles, 21, "b"))
    found: list[int] = []
    while engine.queued:
        assert engine.held_until is None  # it waits for no guidance
        engine.step()
        found += [number for number, _ in engine.drain()]

    assert found == [1, 3, 2]


def test_a_session_that_is_forgotten_while_it_is_asked_fails_and_the_worker_goes_on() -> None:
    cycles = _cycles(40)
    engine = Engine(BUNDLE, OUTPUTS)
    engine.propose(asked(cycles, 30, "a", rebuild=True))
    engine.submit(1, asked(cycles, 31, "a"))
    engine.submit(2, asked(cycles, 32, "a"))
    engine.submit(3, asked(cycles, 32, "a", rebuild=True))
    engine.step()
    engine.release("a")

    replies = run(engine)
    assert isinstance(replies[1], Failed)
    assert isinstance(replies[2], NeedHistory)
    assert isinstance(replies[3], Answer)
    assert engine.sessions == 1
    engine.release("a")
    assert engine.pool_statistics().in_tables == 0


def test_a_what_if_holds_no_decision_of_its_point_up() -> None:
    """It decodes on a copy: that it waits for guidance is not the business of the decision."""
    cycles, until = _cycles(40), time.monotonic() + 60.0
    engine, twin = Engine(BUNDLE, OUTPUTS), Engine(BUNDLE, OUTPUTS)
    for each in (engine, twin):
        each.propose(asked(cycles, 30, "a", rebuild=True))
    for number in (1, 2):
        request = asked(cycles, 30, "a", aside=True)
        engine.submit(number, msgspec.structs.replace(request, urgency=2, guided_until=until))
    engine.submit(3, asked(cycles, 31, "a"))
    while 3 not in (replies := dict(engine.drain())):
        assert engine.busy
        engine.step()
    assert raws(replies[3]) == raws(twin.propose(asked(cycles, 31, "a")))
    assert engine.queued == 2

    for number in (1, 2):
        engine.guide(number, b"", "there is none")
    replies = run(engine)
    expected = raws(twin.propose(asked(cycles, 30, "b", rebuild=True)))
    assert raws(replies[1]) == raws(replies[2]) == expected
    assert engine.sessions == 1


def test_what_nobody_waits_for_any_more_comes_last() -> None:
    cycles = _cycles(100)
    for cancelled, order in ((None, [1, 2]), (1, [2, 1])):
        engine, found = Engine(BUNDLE, OUTPUTS), list[int]()
        for number, name in ((1, "first"), (2, "later")):
            request = asked(cycles, 90, name, rebuild=True)
            engine.submit(number, msgspec.structs.replace(request, urgency=number - 1))
        engine.step()
        if cancelled is not None:
            engine.cancel(cancelled)
        while engine.queued:
            engine.step()
            found += [number for number, _ in engine.drain()]
        assert found == order


def test_a_cancelled_what_if_is_dropped_and_a_cancelled_decision_still_counts() -> None:
    cycles = _cycles(40)
    engine, twin = Engine(BUNDLE, OUTPUTS), Engine(BUNDLE, OUTPUTS)
    for each in (engine, twin):
        each.propose(asked(cycles, 30, "a", rebuild=True))
    free = engine.pool_statistics().free
    engine.submit(1, asked(cycles, 30, "a", aside=True))
    engine.step()
    engine.cancel(1)
    assert engine.drain() == [(1, Failed(problem=CANCELLED))]
    assert engine.queued == 0
    assert engine.pool_statistics().free == free

    engine.submit(2, asked(cycles, 31, "a"))
    engine.cancel(2)
    assert set(run(engine)) == {2}
    twin.propose(asked(cycles, 31, "a"))
    assert raws(engine.propose(asked(cycles, 32, "a"))) == raws(twin.propose(asked(cycles, 32, "a")))


def test_what_cannot_end_in_time_is_refused_before_it_begins() -> None:
    cycles = _cycles(40)
    engine = Engine(BUNDLE, OUTPUTS)
    engine.propose(asked(cycles, 30, "a", rebuild=True))
    engine.costs = Costs(decision_ms=50.0, chunk_ms=10.0)
    forwards = engine.forwards

    with pytest.raises(InferenceError, match=r"ms are left and an answer takes about 50\.0 ms"):
        engine.propose(asked(cycles, 31, "a", due=time.monotonic() + 0.02))
    assert engine.forwards == forwards

    for number in range(3):  # what stands before it counts
        request = asked(cycles, 31, f"b{number}", rebuild=True, due=time.monotonic() + 0.01)
        engine.submit(number, msgspec.structs.replace(request, urgency=0))
    engine.submit(9, asked(cycles, 31, "a", due=time.monotonic() + 0.15))
    replies = run(engine)
    assert isinstance(replies[9], Failed)
    assert all(isinstance(replies[number], Answer) for number in range(3))  # rebuilt for the next decision


def test_a_history_that_a_decision_goes_before_does_not_refuse_it() -> None:
    cycles = _cycles(140)
    engine = Engine(BUNDLE, OUTPUTS)
    engine.propose(asked(cycles, 30, "a", rebuild=True))
    engine.costs = Costs(decision_ms=50.0, chunk_ms=10_000.0)
    engine.submit(1, asked(cycles, 139, "long", rebuild=True, due=time.monotonic() + 5.0))
    engine.submit(2, asked(cycles, 31, "a", due=time.monotonic() + 10.0))

    replies = run(engine)
    assert isinstance(replies[2], Answer)
    assert isinstance(replies[1], Answer)


def test_what_is_done_already_of_the_work_ahead_refuses_nobody() -> None:
    cycles = _cycles(140)
    engine = Engine(BUNDLE, OUTPUTS)
    engine.propose(asked(cycles, 30, "a", rebuild=True))
    engine.costs = Costs(decision_ms=300.0, chunk_ms=3_000.0)
    before = engine.forwards
    request = asked(cycles, 139, "long", rebuild=True, due=time.monotonic() + 5.0)
    engine.submit(1, msgspec.structs.replace(request, urgency=0))

    def refused(number: int) -> bool:
        engine.submit(number, asked(cycles, 31, "a", due=time.monotonic() + 5.0, aside=True))
        found = number in dict(engine.drain())
        engine.cancel(number)
        engine.drain()
        return found

    assert refused(2)  # a history and an answer
    while engine.forwards < before + chunks(BUNDLE.history_cycles * BUNDLE.tokens_per_cycle + 1):
        engine.step()
    assert not refused(3)  # an answer


def test_where_pages_lack_for_all_the_most_urgent_is_answered_and_the_least_urgent_gives_way() -> None:
    small, twin, cycles = Engine(BUNDLE, OUTPUTS, pages=40), Engine(BUNDLE, OUTPUTS), _cycles(140)
    for engine in (small, twin):
        for name in ("later", "first"):
            engine.propose(asked(cycles, 10, name, rebuild=True))
    failed = []
    for at in range(11, 130):
        for number, name in enumerate(("later", "first")):
            request = asked(cycles, at, name)
            small.submit(number, msgspec.structs.replace(request, urgency=2 if name == "later" else 0))
        replies = run(small)
        for number, name in enumerate(("later", "first")):
            reply = replies[number]
            failed += [(name, reply.problem)] if isinstance(reply, Failed) else []
            if not isinstance(reply, Answer):  # moved out for the other one, or given way
                reply = small.propose(asked(cycles, at, name, rebuild=True))
            assert raws(reply) == raws(twin.propose(asked(cycles, at, name))), at

    ((who, said),) = failed
    assert who == "later"
    assert said.startswith(
        "the KV pool has 0 free pages, 1 are needed: let fewer points ask this model at once"
    )

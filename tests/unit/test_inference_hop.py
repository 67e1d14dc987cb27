"""A `hop` window reads what plain recomputation would read, whatever was computed ahead."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gateway.inference.bundle.manifest import Bundle, Window, load_bundle
from gateway.inference.messages import Answer, Cycle, Propose
from gateway.inference.serving.engine import Engine
from tests.unit.inference_demo import BUFFER_TANK
from tests.unit.test_inference_engine import OUTPUTS, _cycles

LENGTH = 145  # tokens: twelve cycles in each half, and the begin token


def hopping(length: int = LENGTH) -> Bundle:
    """The demo's weights without a band: no hop window is as long as the band they were trained with."""
    bundle = load_bundle(BUFFER_TANK)
    manifest = msgspec.structs.replace(bundle.manifest, window=Window(mode="hop", length=length))
    return replace(bundle, manifest=manifest)


def ask(
    engine: Engine, cycles: list[Cycle], at: int, name: str, *, history: bool = False, aside: bool = False
) -> Answer:
    answer = engine.propose(
        Propose(
            session=name,
            cycle=at,
            inputs=cycles[at].inputs,
            in_force=cycles[at - 1].in_force,
            history=tuple(cycles[:at]) if history else None,
            aside=aside,
        )
    )
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize("idle", [True, False], ids=["with idle time", "always busy"])
def test_what_is_kept_answers_like_plain_recomputation_over_many_hops(*, idle: bool) -> None:
    bundle = hopping()
    kept, plain, cycles = Engine(bundle, OUTPUTS), Engine(bundle, OUTPUTS), _cycles(90)
    ask(kept, cycles, 1, "a", history=True)
    most = 0
    for at in range(2, 90):
        ask(kept, cycles, at, "a")
        while idle and kept.busy:
            kept.step()
        plain.release("a")
        ask(plain, cycles, at, "a", history=True)
        exact = plain.first_logits("a")
        assert np.linalg.norm(kept.first_logits("a") - exact) <= 1e-5 * np.linalg.norm(exact), at
        span = kept.backend.span(kept._sessions["a"].cache)
        most = max(most, span.end - span.first)

    assert bundle.hop_cycles == 12
    assert LENGTH - 6 <= most <= LENGTH


def test_with_idle_time_a_hop_costs_no_more_than_a_chunk() -> None:
    engine, cycles = Engine(hopping(), OUTPUTS), _cycles(40)
    ask(engine, cycles, 1, "a", history=True)
    costs = []
    for at in range(2, 40):
        forwards = engine.forwards
        ask(engine, cycles, at, "a")
        costs.append(engine.forwards - forwards)
        while engine.busy:
            engine.step()

    assert max(costs) <= min(costs) + 1


def test_a_session_that_was_lost_goes_on_where_it_would_have_been() -> None:
    bundle, cycles = hopping(), _cycles(60)
    kept = Engine(bundle, OUTPUTS)
    ask(kept, cycles, 1, "a", history=True)
    for at in range(2, 41):
        ask(kept, cycles, at, "a")
    again = Engine(bundle, OUTPUTS)
    ask(again, cycles, 40, "a", history=True)
    for at in range(41, 60):
        assert ask(again, cycles, at, "a").raws == ask(kept, cycles, at, "a").raws
        assert np.allclose(again.first_logits("a"), kept.first_logits("a"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("at", [23, 24, 25, 36])
def test_a_what_if_at_a_hop_leaves_the_session_as_it_was(at: int) -> None:
    cycles = _cycles(60)
    asked, twin = Engine(hopping(), OUTPUTS), Engine(hopping(), OUTPUTS)
    for engine in (asked, twin):
        ask(engine, cycles, at - 1, "a", history=True)
    ask(asked, cycles, at, "a", aside=True)
    for number in range(at, at + 14):
        assert ask(asked, cycles, number, "a").raws == ask(twin, cycles, number, "a").raws
    assert np.array_equal(asked.first_logits("a"), twin.first_logits("a"))
    assert asked.pool_statistics().in_tables == twin.pool_statistics().in_tables


def test_hopping_sessions_that_find_no_room_return_bit_for_bit() -> None:
    cycles, names = _cycles(60), ("a", "b", "c", "d")
    small = Engine(hopping(), OUTPUTS, pages=30, cold_pages=128)
    large = Engine(hopping(), OUTPUTS)
    for at in range(30, 60):
        for name in names:
            for engine in (small, large):
                ask(engine, cycles, at, name, history=at == 30)
                while engine.busy:
                    engine.step()
            assert np.array_equal(small.first_logits(name), large.first_logits(name))

    assert small.evicted == 0
    assert small.pool_statistics().returned > 0

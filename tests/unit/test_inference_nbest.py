"""The n best answers of one request: the first as without a list, the others ranked and without a trace."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gateway.core.spans import holds
from gateway.inference.bundle.manifest import OutputSpec, load_bundle
from gateway.inference.bundle.tokenizer import TagCodec, Token
from gateway.inference.decoding.decode import (
    LEAST_LISTED,
    LEAST_SHARE,
    DecodedOutput,
    Option,
    OutputMask,
    OutputRange,
)
from gateway.inference.decoding.nbest import MOST_PROPOSALS, Line, grown
from gateway.inference.kv.backend import CacheId, PoolExhaustedError
from gateway.inference.messages import Answer, Propose
from gateway.inference.serving.costs import Costs
from gateway.inference.serving.engine import Engine
from gateway.inference.serving.scheduler import Policy, Waiting
from tests.unit.inference_demo import RECKLESS
from tests.unit.test_inference_engine import OUTPUTS
from tests.unit.test_inference_guided import BUNDLE, FOREVER, MASK, _guidance, _request, _row, _run

SWITCH = OutputSpec(
    tag="H", unit="", knots=("0", "1"), first_token=0, trained=("0", "1"), decoding="most_probable"
)


def _options(mask: OutputMask, row: NDArray[np.float32], most: int) -> list[Option]:
    read = mask.read(row)
    return mask.options(read, mask.answer(read, None), None, most)


def test_others_of_an_expectation_are_around_other_bins_the_likeliest_first() -> None:
    first, *others = _options(MASK, _row(0.45, 0.04, 0.02, 0.04, 0.45), 5)
    assert first.output.raw == 200  # between two modes, where the model hardly ever is: what a list is for
    assert [other.output.raw for other in others] == [8, 392]  # 0 and 10, 30 and 40, each by its share
    assert [other.share for other in others] == pytest.approx([0.49, 0.49])


def test_others_of_a_switch_are_its_other_values() -> None:
    mask = OutputMask(TagCodec(SWITCH), OutputRange(Fraction(1), Fraction(0), 0, 1), "most_probable")
    off, on = _options(mask, _row(0.7, 0.3), 5)
    assert (off.output.raw, on.output.raw) == (0, 1)
    assert [off.share, on.share] == pytest.approx([0.7, 0.3])
    assert on.output.concentration == pytest.approx(0.3)  # so its confidence is not that of the first


def test_what_the_model_hardly_believes_is_no_proposal() -> None:
    mask = OutputMask(TagCodec(SWITCH), OutputRange(Fraction(1), Fraction(0), 0, 1), "most_probable")
    assert len(_options(mask, _row(1 - LEAST_LISTED / 2, LEAST_LISTED / 2), 5)) == 1


_WEIGHTS = st.lists(st.floats(0.001, 1.0), min_size=5, max_size=5)
_SPANS = st.lists(st.tuples(st.integers(0, 380), st.integers(0, 20)), min_size=1, max_size=3)


@given(_WEIGHTS, _SPANS, st.integers(1, 6))
def test_every_option_may_be_answered_and_no_two_are_the_same(
    weights: list[float], spans: list[tuple[int, int]], most: int
) -> None:
    permitted = tuple((low, low + wide) for low, wide in sorted(dict(spans).items()))
    read = MASK.read(_row(*weights))
    answer = MASK.answer(read, permitted)
    found = MASK.options(read, answer, permitted, most)
    assert found[0].output == answer
    assert len(found) <= most
    assert all(holds(permitted, option.output.raw) for option in found)
    assert len({option.output.raw for option in found}) == len(found)
    assert all(a.share >= b.share for a, b in pairwise(found[1:]))


def _option(raw: int, share: float) -> Option:
    return Option(DecodedOutput(raw, Fraction(raw), 0.0, share), share)


def test_the_first_line_stays_first_and_the_others_follow_by_what_is_near_all_of_them() -> None:
    level = grown([(Line(), [_option(1, 0.4), _option(2, 0.5), _option(3, 0.1)])], 3)
    assert [each.line.raws for each in level] == [[1], [2], [3]]
    lines = [each.line for each in level]
    options = [_option(7, 0.9), _option(8, 0.1)]
    level = grown([(line, options) for line in lines], 4)
    assert [(each.parent, each.line.raws) for each in level] == [
        (0, [1, 7]),
        (1, [2, 7]),
        (2, [3, 7]),
        (1, [2, 8]),
    ]
    assert [each.line.share for each in level] == pytest.approx([0.36, 0.45, 0.09, 0.05])


def _asked(most: int, **changes: object) -> Propose:
    return msgspec.structs.replace(_request(20, wait_s=None), most=most, **changes)


def _following(at: int, most: int = 1, name: str = "a") -> Propose:
    return msgspec.structs.replace(_request(at, wait_s=None, name=name, rebuild=False), most=most)


def _answer(engine: Engine, asked: Propose) -> Answer:
    answer = engine.propose(asked)
    assert isinstance(answer, Answer)
    return answer


@pytest.fixture
def engine() -> Engine:
    return Engine(BUNDLE, OUTPUTS, provider="cpu")


def test_the_first_is_the_answer_without_a_list_and_the_others_are_ranked(engine: Engine) -> None:
    alone = _answer(engine, _asked(1, session="alone"))
    listed = _answer(engine, _asked(5, session="listed"))

    assert alone.others == ()
    assert (listed.raws, listed.masked_out, listed.confidence, listed.concentration) == (
        alone.raws,
        alone.masked_out,
        alone.confidence,
        alone.concentration,
    )
    assert len(listed.others) == 4
    blocks = [listed.raws, *(other.raws for other in listed.others)]
    assert len(set(blocks)) == len(blocks)
    shares = [other.share for other in listed.others]
    assert shares == sorted(shares, reverse=True)
    assert all(share >= LEAST_LISTED for share in shares)
    assert all(len(other.masked_out) == len(other.raws) for other in listed.others)


def test_each_of_a_list_is_what_its_own_outputs_before_it_lead_to(engine: Engine) -> None:
    """Guided to the first two outputs of another line, the session answers that line's third."""
    listed = _answer(engine, _asked(MOST_PROPOSALS, session="listed"))
    checked = 0
    for number, other in enumerate(listed.others):
        before = (listed.raws, *(each.raws for each in listed.others[:number]))
        if other.raws[:2] in {raws[:2] for raws in before}:
            continue  # the third output is another than the first choice behind these two
        pump, heater, _ = other.raws
        engine.submit(1, msgspec.structs.replace(_request(20), session=f"guided {number}"))
        engine.guide(1, _guidance(pump=((pump, pump),), heater=((heater, heater),)), "")
        ((_, guided),) = _run(engine)
        assert guided.raws == other.raws
        checked += 1
    assert checked >= 2


def test_a_list_leaves_no_trace_in_its_session_or_in_the_pool(engine: Engine) -> None:
    for name, most in (("alone", 1), ("listed", 6)):
        _answer(engine, _asked(most, session=name))
    free = engine.pool_statistics().free
    for at in range(21, 27):
        alone, listed = (
            _answer(
                engine,
                msgspec.structs.replace(_request(at, wait_s=None, rebuild=False), session=name, most=most),
            )
            for name, most in (("alone", 1), ("listed", 6))
        )
        assert listed.raws == alone.raws
        assert listed.confidence == alone.confidence
    engine.release("alone")
    engine.release("listed")
    statistics = engine.pool_statistics()
    assert statistics.in_tables == 0
    assert statistics.free >= free


def test_a_list_takes_one_forward_an_output_more_for_all_its_rows(engine: Engine) -> None:
    _answer(engine, _asked(1))
    before = engine.forwards, engine.rows
    _answer(engine, _following(21))
    alone = engine.forwards - before[0]
    before = engine.forwards, engine.rows
    listed = _answer(engine, _following(22, 5))
    assert len(listed.others) == 4
    assert engine.forwards - before[0] <= alone + len(OUTPUTS) - 1
    assert engine.rows - before[1] > alone + len(OUTPUTS) - 1


def test_lists_are_the_same_alone_and_beside_others(engine: Engine) -> None:
    alone = _answer(engine, _asked(4, session="alone"))
    for number in range(3):
        engine.submit(number, _asked(4, session=f"s{number}"))
    together = dict(_run(engine))
    assert [together[n].others for n in range(3)] == [alone.others] * 3


def test_where_rows_may_not_share_a_forward_a_list_is_the_same_one_row_after_another(engine: Engine) -> None:
    engine.backend.even_out()
    together = _answer(engine, _asked(5))
    single = Engine(BUNDLE, OUTPUTS, provider="cpu", policy=Policy(widest=1))
    single.backend.even_out()
    apart = _answer(single, _asked(5))
    assert (apart.raws, apart.others) == (together.raws, together.others)


def test_a_list_keeps_to_guidance_and_to_the_most_change(engine: Engine) -> None:
    engine.submit(1, msgspec.structs.replace(_request(20), most=5))
    engine.guide(1, _guidance(pump=((300, 420), (800, 900)), mixer=((0, 1),)), "")
    ((_, guided),) = _run(engine)
    assert guided.guided
    assert guided.others
    for raws in (guided.raws, *(other.raws for other in guided.others)):
        assert holds(((300, 420), (800, 900)), raws[0])
        assert raws[2] in {0, 1}

    near = Engine(BUNDLE, (replace(OUTPUTS[0], most=50), *OUTPUTS[1:]), provider="cpu")
    asked = _asked(6)
    at = OUTPUTS[0].counts(Fraction(asked.in_force[0]))
    listed = _answer(near, asked)
    assert listed.others
    for raws in (listed.raws, *(other.raws for other in listed.others)):
        assert abs(raws[0] - at) <= 51


class _Full:
    """A pool that has no room for a fork, or for what is appended to one."""

    def __init__(self, engine: Engine, *, forks: int) -> None:
        self._backend, self._left = engine.backend, forks
        self._fork, self._forward = engine.backend.fork, engine.backend.forward
        self.forked: set[CacheId] = set()

    def fork(self, cache: CacheId) -> CacheId:
        if not self._left:
            raise PoolExhaustedError(1, 0)
        self._left -= 1
        made = self._fork(cache)
        self.forked.add(made)
        return made

    def forward(self, rows: Sequence[tuple[CacheId, Sequence[Token]]]) -> NDArray[np.float32]:
        if any(cache in self.forked for cache, _ in rows):
            raise PoolExhaustedError(1, 0)
        return self._forward(rows)


@pytest.mark.parametrize("forks", [0, 1, 100])
def test_a_list_that_finds_no_room_is_the_first_answer_alone(
    engine: Engine, forks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = _answer(engine, _asked(1, session="alone"))
    full = _Full(engine, forks=forks)
    monkeypatch.setattr(engine.backend, "fork", full.fork)
    monkeypatch.setattr(engine.backend, "forward", full.forward)
    listed = _answer(engine, _asked(5, session="listed"))
    assert (listed.raws, listed.others) == (alone.raws, ())
    assert len(full.forked) == min(forks, 4)
    monkeypatch.undo()
    engine.release("alone")
    engine.release("listed")
    assert engine.pool_statistics().in_tables == 0


def test_with_little_time_left_only_the_first_is_answered(engine: Engine) -> None:
    late = _answer(engine, _asked(5, due=time.monotonic() - 0.001))
    assert late.others == ()
    assert _answer(engine, _asked(5, session="b", due=time.monotonic() + FOREVER)).others


def test_the_rows_of_a_list_count_in_a_plan() -> None:
    policy = Policy(widest=4)
    jobs = [
        Waiting(n, urgency=1, due=float(n), tokens=1, prefill=False, passed_over=0, rows=rows)
        for n, rows in enumerate((2, 3, 2, 1))
    ]
    assert policy.plan(jobs) == (0, 2)
    assert policy.plan(jobs[1:]) == (1, 3)
    assert policy.plan([replace(jobs[0], rows=9), jobs[3]]) == (0,)  # alone, in parts


def test_what_a_list_takes_is_counted_ahead_of_others() -> None:
    costs = Costs(1.0, 1.0, ((1, 0.2), (2, 0.3), (4, 0.4)))
    assert costs.listed(0, 2) == 0.0
    assert costs.listed(2, 2) == pytest.approx(0.6e-3)
    assert costs.listed(6, 1) == pytest.approx(0.6e-3)


def test_a_model_that_is_sure_lists_fewer() -> None:
    engine = Engine(load_bundle(RECKLESS), OUTPUTS, provider="cpu")
    listed = _answer(engine, _asked(MOST_PROPOSALS))
    assert all(LEAST_LISTED <= other.share < LEAST_SHARE for other in listed.others)


def test_two_bins_with_one_that_outweighs_both_between_them_are_one_proposal() -> None:
    others = _options(MASK, _row(0.9, 0.00001, 0.00001, 0.099, 0.00098), 5)[1:]
    assert [other.output.raw for other in others] == [301]  # and not 300 again, around 20

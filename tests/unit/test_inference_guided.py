"""Decoding along guidance: masks, waiting for it, and what is left when it does not come."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction

import msgspec
import numpy as np
import pytest

from gateway.core.errors import InferenceError
from gateway.core.guidance import NOTHING, Guidance, GuidanceCase, GuidanceLevel
from gateway.core.spans import Span, Spans
from gateway.core.tag import TagId
from gateway.inference.bundle.manifest import OutputSpec, load_bundle
from gateway.inference.bundle.tokenizer import TagCodec
from gateway.inference.decoding.decode import LEAST_SHARE, OutputMask, OutputRange
from gateway.inference.decoding.guided import TOO_LATE
from gateway.inference.messages import Answer, Failed, Propose
from gateway.inference.serving.engine import Engine
from tests.unit.inference_demo import BUFFER_TANK
from tests.unit.test_inference_engine import OUTPUTS, _cycles

BUNDLE = load_bundle(BUFFER_TANK)
CYCLES = _cycles(30)
SPEC = OutputSpec(
    tag="P",
    unit="%",
    knots=("0", "10", "20", "30", "40"),
    first_token=0,
    trained=("0", "40"),
    decoding="expectation",
)
MASK = OutputMask(TagCodec(SPEC), OutputRange(Fraction(1, 10), Fraction(0), 0, 400), "expectation")
FOREVER, NOW = 3600.0, 0.0


def _row(*shares: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.log(np.array(shares, dtype=np.float32))


def test_the_expectation_is_over_permitted_bins_only() -> None:
    row = _row(0.1, 0.1, 0.2, 0.3, 0.3)
    assert MASK.decode(row).raw == 260
    found = MASK.decode(row, ((0, 200),))
    assert found.raw == 125  # (0.1 * 10 + 0.2 * 20) / 0.4
    assert found.masked_out == pytest.approx(0.6, abs=1e-6)
    assert found.concentration == pytest.approx(0.3, abs=1e-6)  # of the model's own probability


@pytest.mark.parametrize("row", [(1.0, np.inf, 0.0, 0.0, 0.0), (-np.inf,) * 5, (1.0, np.nan, 0.0, 0.0, 0.0)])
def test_logits_that_are_no_numbers_are_refused_and_not_warned_of(row: tuple[float, ...]) -> None:
    with pytest.raises(InferenceError, match="no usable probabilities"):
        MASK.decode(np.array(row, dtype=np.float32))


def test_a_bin_beyond_the_end_keeps_its_share_in_what_lies_before_it_and_the_end_is_exact() -> None:
    row = _row(0.01, 0.01, 0.01, 0.97, 1e-9)
    assert MASK.decode(row, ((0, 293),)).raw == 293
    assert MASK.decode(row, ((293, 293),)).raw == 293


def test_between_two_spans_the_nearest_end_is_taken_and_of_two_the_lower() -> None:
    row = _row(0.25, 0.25, 1e-9, 0.25, 0.25)
    assert MASK.decode(row, ((0, 100), (300, 400))).raw == 100  # 200 is as near to both
    assert MASK.decode(row, ((0, 100), (299, 400))).raw == 299


def test_where_next_to_nothing_is_permitted_the_nearest_to_what_was_wanted_is_taken() -> None:
    """The tail of a distribution says nothing of what is best within it."""
    tail = LEAST_SHARE / 10
    row = _row(tail, tail / 100, tail / 100, 0.5, 0.5)
    assert MASK.decode(row, ((0, 100),)).raw == 100


def _level(*spans: Span) -> GuidanceLevel:
    free: tuple[Span, ...] = ((0, 1000), (0, 1), (0, 3))
    return GuidanceLevel(spans, (GuidanceCase(free, ()),), "")


def _guidance(pump: Spans = ((0, 1000),), heater: Spans = ((0, 1),), mixer: Spans = ((0, 3),)) -> bytes:
    order = tuple(map(TagId, ("P", "H", "M")))
    return msgspec.json.encode(Guidance(order=order, levels=(_level(*pump), _level(*heater), _level(*mixer))))


def _request(at: int, *, wait_s: float | None = FOREVER, name: str = "a", rebuild: bool = True) -> Propose:
    return Propose(
        session=name,
        cycle=at,
        inputs=CYCLES[at].inputs,
        in_force=CYCLES[at - 1].in_force,
        history=tuple(CYCLES[:at]) if rebuild else None,
        guided_until=None if wait_s is None else time.monotonic() + wait_s,
    )


def _run(engine: Engine) -> list[tuple[int, Answer]]:
    found: list[tuple[int, Answer]] = []
    while engine.busy:
        engine.step()
        for number, reply in engine.drain():
            assert isinstance(reply, Answer)
            found.append((number, reply))
    return found


@pytest.fixture
def engine() -> Engine:
    return Engine(BUNDLE, OUTPUTS, provider="cpu")


def test_decoding_waits_for_guidance_and_keeps_to_it(engine: Engine) -> None:
    free = engine.propose(_request(20, wait_s=None, name="free"))
    assert isinstance(free, Answer)
    engine.submit(1, _request(20))
    assert _run(engine) == []
    assert engine.held_until is not None
    narrow: Sequence[Span] = ((free.raws[0] + 50, free.raws[0] + 60),)

    engine.guide(1, _guidance(pump=tuple(narrow)), "")
    ((_, answer),) = _run(engine)

    assert free.raws[0] + 50 <= answer.raws[0] <= free.raws[0] + 60
    assert (answer.guided, answer.because) == (True, "")
    assert answer.masked_out[0] > 0.0
    assert engine.held_until is None


def test_guidance_that_leaves_all_is_the_same_answer(engine: Engine) -> None:
    free = engine.propose(_request(20, wait_s=None, name="free"))
    assert isinstance(free, Answer)
    engine.submit(1, _request(20))
    engine.guide(1, _guidance(), "")
    ((_, answer),) = _run(engine)
    assert (answer.raws, answer.masked_out) == (free.raws, free.masked_out)
    assert answer.guided


def test_others_are_answered_while_one_waits(engine: Engine) -> None:
    engine.submit(1, _request(20))
    engine.submit(2, _request(21, wait_s=None, name="b"))
    ((number, _),) = _run(engine)
    assert number == 2
    engine.guide(1, b"", "nobody knows")
    ((number, answer),) = _run(engine)
    assert (number, answer.guided, answer.because) == (1, False, "nobody knows")


@pytest.mark.parametrize(
    ("packed", "told", "because"),
    [
        (None, "", TOO_LATE),
        (_guidance(pump=()), "", NOTHING),
        (b"not JSON", "", "guidance cannot be read"),
        (msgspec.json.encode(Guidance(order=(TagId("P"),), levels=())), "", "another number of outputs"),
        (b"", "rule set 1 is not loaded", "rule set 1 is not loaded"),
    ],
)
def test_without_usable_guidance_the_model_answers_as_ever_and_says_why(
    engine: Engine, packed: bytes | None, told: str, because: str
) -> None:
    free = engine.propose(_request(20, wait_s=None, name="free"))
    assert isinstance(free, Answer)
    engine.submit(1, _request(20, wait_s=NOW if packed is None else FOREVER))
    if packed is not None:
        engine.guide(1, packed, told)
    ((_, answer),) = _run(engine)
    assert answer.raws == free.raws
    assert not answer.guided
    assert because in answer.because
    engine.guide(1, _guidance(), "")  # too late: nobody is waiting


def test_a_session_goes_on_alike_whatever_guided_it(engine: Engine) -> None:
    engine.submit(1, _request(20))
    engine.guide(1, _guidance(pump=((0, 10),)), "")
    _run(engine)
    held = engine.propose(_request(21, wait_s=None, rebuild=False))
    fresh = engine.propose(_request(21, wait_s=None, name="fresh"))
    assert isinstance(held, Answer)
    assert isinstance(fresh, Answer)
    assert held.raws == fresh.raws


def test_what_nobody_waits_for_any_more_does_not_hold(engine: Engine) -> None:
    engine.submit(1, _request(20))
    assert _run(engine) == []
    engine.cancel(1)
    ((number, answer),) = _run(engine)
    assert (number, answer.guided) == (1, False)

    engine.submit(2, msgspec.structs.replace(_request(21, rebuild=False), aside=True))
    engine.cancel(2)
    ((_, reply),) = engine.drain()
    assert isinstance(reply, Failed)
    assert not engine.busy


@pytest.mark.parametrize(
    "packed",
    [
        _guidance(),
        _guidance(pump=((0, 100),)),
        _guidance(heater=((1, 1),)),
        _guidance(mixer=((0, 0), (3, 3))),
        _guidance(pump=((900, 1000),), mixer=((0, 0),)),
    ],
)
def test_when_guidance_comes_makes_no_difference_to_the_answer(engine: Engine, packed: bytes) -> None:
    """What is decoded ahead of it is kept as far as it agrees, and decoded again from there on."""
    engine.submit(1, _request(20, name="before"))
    engine.guide(1, packed, "")
    ((_, before),) = _run(engine)
    engine.submit(2, _request(20, name="after"))
    assert _run(engine) == []
    engine.guide(2, packed, "")
    ((_, after),) = _run(engine)

    assert (after.raws, after.masked_out, after.guided) == (before.raws, before.masked_out, True)
    following = [
        engine.propose(_request(21, wait_s=None, name=name, rebuild=False)) for name in ("before", "after")
    ]
    assert isinstance(following[0], Answer)
    assert isinstance(following[1], Answer)
    assert following[0].raws == following[1].raws
    assert following[0].concentration == following[1].concentration


def test_what_is_permitted_already_stays_as_it_is(engine: Engine) -> None:
    free = engine.propose(_request(20, wait_s=None, name="free"))
    assert isinstance(free, Answer)
    engine.submit(1, _request(20))
    engine.guide(1, _guidance(pump=((0, free.raws[0]),)), "")
    ((_, answer),) = _run(engine)
    assert answer.raws == free.raws
    assert answer.masked_out[0] > free.masked_out[0]

"""Lists over a model that is a plain function of its tokens: every line is what that function leads to."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gateway.core.guidance import Guidance, GuidanceCase, GuidanceLevel
from gateway.core.spans import holds
from gateway.core.tag import TagId
from gateway.inference.bundle.manifest import OutputSpec
from gateway.inference.bundle.tokenizer import TagCodec, Token
from gateway.inference.decoding.decode import LEAST_LISTED, OutputMask, OutputRange
from gateway.inference.decoding.guided import Awaited
from gateway.inference.decoding.nbest import Line
from gateway.inference.kv.backend import CacheId, PoolExhaustedError
from gateway.inference.serving.shortlist import Shortlist
from gateway.inference.serving.work import Row, Rows

VOCABULARY = 32
SPECS = (
    OutputSpec(
        tag="P",
        unit="%",
        knots=tuple(str(10 * at) for at in range(11)),
        first_token=1,
        trained=("0", "100"),
        decoding="expectation",
    ),
    OutputSpec(
        tag="H", unit="", knots=("0", "1"), first_token=12, trained=("0", "1"), decoding="most_probable"
    ),
    OutputSpec(
        tag="M",
        unit="",
        knots=("0", "1", "2", "3"),
        first_token=14,
        trained=("0", "3"),
        decoding="most_probable",
    ),
)
LIMITS = (
    OutputRange(Fraction(1, 10), Fraction(0), 0, 1000),
    OutputRange(Fraction(1), Fraction(0), 0, 1),
    OutputRange(Fraction(1), Fraction(0), 0, 3),
)
MASKS = tuple(
    OutputMask(TagCodec(spec), limits, spec.decoding) for spec, limits in zip(SPECS, LIMITS, strict=True)
)


class _Codecs:
    outputs = tuple(map(TagCodec, SPECS))


@dataclass
class _Function:
    """A backend without a model: logits are drawn by a digest of all tokens before them."""

    sharpness: float
    room: int = 10_000  # caches
    caches: dict[CacheId, list[Token]] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def open(self, tokens: Sequence[Token] = ()) -> CacheId:
        if len(self.caches) >= self.room:
            raise PoolExhaustedError(1, 0)
        number = CacheId(next(self.numbers))
        self.caches[number] = list(tokens)
        return number

    def fork(self, cache: CacheId) -> CacheId:
        return self.open(self.caches[cache])

    def close(self, cache: CacheId) -> None:
        del self.caches[cache]

    def truncate(self, cache: CacheId, end: int) -> None:
        del self.caches[cache][end:]

    def after(self, tokens: Sequence[Token]) -> NDArray[np.float32]:
        seed = zlib.crc32(repr([(t.id, round(t.fraction, 6)) for t in tokens]).encode())
        row = np.random.default_rng(seed).normal(size=VOCABULARY) * self.sharpness
        return row.astype(np.float32)


def _row(model: _Function, reach: list[tuple[tuple[int, int], ...] | None], awaited: Awaited | None) -> Row:
    """A row as a job leaves it: every output decoded, all tokens but the last in its cache."""
    cache = model.open([Token(20, 0.0), Token(21, 0.5)])
    row = Row(cache, len(model.caches[cache]), list(reach), [])
    for at, (mask, codec) in enumerate(zip(MASKS, _Codecs.outputs, strict=True)):
        row.logits.append(model.after(model.caches[cache]))
        row.read.append(mask.read(row.logits[-1]))
        permitted = row.reach[at]
        if awaited is not None:
            fixed = [output.raw for output in row.decoded]
            permitted = awaited.counts(fixed, mask.limits, len(MASKS), permitted)
        row.decoded.append(mask.answer(row.read[-1], permitted))
        if at + 1 < len(MASKS):
            model.caches[cache].append(codec.encode(float(row.decoded[-1].value)))
    return row


def _run(model: _Function, row: Row, awaited: Awaited | None, most: int) -> list[Line]:
    work = Shortlist(_Codecs(), MASKS, model).lines(row, awaited, most)  # type: ignore[arg-type]  # as far as it is asked
    try:
        asked: Rows = next(work)
        while True:
            for want in asked.wants:
                model.caches[want.cache] += want.tokens
            asked = work.send(np.stack([model.after(model.caches[want.cache]) for want in asked.wants]))
    except StopIteration as stop:
        found: list[Line] = stop.value
        return found


_SPANS = st.none() | st.tuples(st.integers(0, 900), st.integers(0, 300)).map(lambda t: ((t[0], t[0] + t[1]),))
_GUIDES = st.none() | st.tuples(
    st.lists(st.tuples(st.integers(0, 950), st.integers(0, 200)), min_size=1, max_size=2),
    st.integers(0, 1),
    st.integers(0, 130),
)


def _guidance(drawn: tuple[list[tuple[int, int]], int, int] | None) -> Awaited | None:
    """Some of the pump, one heater position or both, and a mixer that may run where the pump does not."""
    if drawn is None:
        return None
    pump, heater, budget = drawn
    spans = tuple(sorted({low: (low, min(1000, low + wide)) for low, wide in pump}.values()))
    disjoint = [spans[0]]
    for low, high in spans[1:]:
        if low > disjoint[-1][1] + 1:
            disjoint.append((low, high))
    box = ((0, 1000), (0, 1), (0, 3))
    line = (((0, 1), (2, 100)), 10 * budget)
    case = GuidanceCase(box, (line,))
    levels = (
        GuidanceLevel(tuple(disjoint), (GuidanceCase(box, ()),)),
        GuidanceLevel(((heater, 1),), (GuidanceCase(box, ()),)),
        GuidanceLevel(((0, 3),), (case,)),
    )
    return Awaited(float("inf"), Guidance(order=(TagId("P"), TagId("H"), TagId("M")), levels=levels))


@given(st.floats(0.1, 6.0), _SPANS, _GUIDES, st.integers(2, 8))
def test_every_line_is_decoded_on_its_own_outputs_and_may_be_answered(
    sharpness: float,
    pump: tuple[tuple[int, int], ...] | None,
    guide: tuple[list[tuple[int, int]], int, int] | None,
    most: int,
) -> None:
    model, awaited = _Function(sharpness), _guidance(guide)
    row = _row(model, [pump, None, None], awaited)
    before = list(model.caches[row.cache]), list(row.decoded), len(row.logits)

    lines = _run(model, row, awaited, most)

    assert (list(model.caches[row.cache]), list(row.decoded), len(row.logits)) == before
    assert set(model.caches) == {row.cache}
    assert lines[0].outputs == tuple(row.decoded)
    assert 1 <= len(lines) <= most
    assert len({tuple(line.raws) for line in lines}) == len(lines)
    assert all(a.share >= b.share >= LEAST_LISTED for a, b in itertools.pairwise(lines[1:]))
    for line in lines:
        tokens = list(before[0][: row.start])
        share = 1.0
        for at, (mask, codec, output) in enumerate(zip(MASKS, _Codecs.outputs, line.outputs, strict=True)):
            permitted = row.reach[at]
            if awaited is not None:
                permitted = awaited.left(line.raws[:at], mask.limits, permitted)
            assert permitted is None or holds(permitted, output.raw) or output is row.decoded[at]
            read = mask.read(model.after(tokens))
            own = (
                line.raws[:at] == lines[0].raws[:at]
            )  # guidance may have been given up behind what it led to
            answer = row.decoded[at] if own else mask.answer(read, permitted)
            options = mask.options(read, answer, permitted, most)
            (mine,) = (option for option in options if option.output.raw == output.raw)
            share *= mine.share
            tokens.append(codec.encode(float(output.value)))
        assert abs(line.share - share) <= 1e-9


@given(st.floats(0.1, 3.0), st.integers(1, 6), st.integers(2, 8))
def test_without_room_for_copies_there_is_the_first_line_or_the_whole_list(
    sharpness: float, room: int, most: int
) -> None:
    whole = _Function(sharpness)
    expected = _run(whole, _row(whole, [None] * 3, None), None, most)
    model = _Function(sharpness, room=room)
    row = _row(model, [None] * 3, None)
    lines = _run(model, row, None, most)
    assert set(model.caches) == {row.cache}
    assert [line.raws for line in lines] in ([line.raws for line in expected], [expected[0].raws])

"""A stateless model's outputs among what may be answered: guidance and a most change, output by output."""

from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gateway.core.guidance import NOTHING, Guidance, GuidanceCase, GuidanceLevel
from gateway.core.spans import Spans
from gateway.core.tag import TagId
from gateway.inference.bundle.stateless import StatelessOutput
from gateway.inference.decoding.decode import OutputRange
from gateway.inference.decoding.guided import TOO_LATE
from gateway.inference.decoding.stateless_decode import OutputReader
from gateway.inference.messages import Answer, Cycle, Failed, Propose
from gateway.inference.serving.stateless_engine import StatelessEngine
from tests.unit.inference_exports import CLASSIFIER, HEATER, REGRESSOR
from tests.unit.inference_graphs import INFLOW, LEVEL, as_is, bundle_in
from tests.unit.inference_graphs import PUMP as PUMP_OUTPUT
from tests.unit.test_inference_stateless import engine_of, replies, request, stateless

TENTHS = OutputRange(Fraction(1, 10), Fraction(0), 0, 1000)
STAGES = OutputRange(Fraction(1), Fraction(0), 0, 3)
FOREVER, NOW = 3600.0, 0.0


def _output(**changes: object) -> StatelessOutput:
    plain = {"tag": "P", "unit": "%", "trained": ["0", "100"], "tensor": "y", **changes}
    return msgspec.convert(plain, StatelessOutput)


def _classes(**changes: object) -> StatelessOutput:
    return _output(trained=["0", "3"], values=["0", "1", "2", "3"], **changes)


def test_a_number_that_may_be_answered_stays_and_any_other_becomes_the_nearest_that_may() -> None:
    reader = OutputReader(_output(), TENTHS)
    wanted = np.float32(27.04)
    assert reader.read(np.array(wanted), ((0, 270),)).raw == 270
    assert reader.read(np.array(wanted), ((0, 270),)).masked_out == 0.0
    near = reader.read(np.array(wanted), ((0, 100), (333, 900)))
    assert (near.raw, near.value, near.masked_out) == (333, Fraction(333, 10), 1.0)
    assert reader.read(np.array(27.0), ((0, 200), (340, 900))).raw == 200  # as near: the lower


def test_a_classifier_gives_the_most_probable_class_that_may_be_answered() -> None:
    reader = OutputReader(_classes(), STAGES)
    row = np.array([0.1, 0.2, 0.3, 0.4])
    assert reader.read(row).raw == 3
    found = reader.read(row, ((0, 0), (2, 2)))
    assert found.raw == 2
    assert found.concentration == pytest.approx(0.3)
    assert found.masked_out == pytest.approx(0.6)
    assert reader.read(row, ((3, 3),)).masked_out == pytest.approx(0.6)


def test_an_expectation_is_over_the_classes_that_may_be_answered() -> None:
    reader = OutputReader(_classes(decoding="expectation"), STAGES)
    row = np.array([0.2, 0.2, 0.0, 0.6])
    assert reader.read(row).raw == 2  # no class is likelier to be near
    assert reader.read(row, ((0, 1),)).raw in {0, 1}
    assert reader.read(np.array([0.1, 0.4, 0.0, 0.5]), ((0, 1),)).raw == 1


def test_a_class_that_the_model_gives_nothing_is_answered_where_no_other_may_be() -> None:
    reader = OutputReader(_classes(), STAGES)
    found = reader.read(np.array([1.0, 0.0, 0.0, 0.0]), ((2, 3),))
    assert (found.raw, found.masked_out) == (2, 1.0)


def test_a_label_becomes_the_nearest_value_of_another_label_where_one_may_be_answered() -> None:
    reader = OutputReader(_output(labels={"low": "20", "middle": "40", "high": "60"}), TENTHS)
    high = np.array("high")
    assert reader.read(high, ((0, 1000),)).raw == 600
    assert reader.read(high, ((0, 450),)).raw == 400
    assert reader.read(high, ((410, 450),)).raw == 450  # no label's value is among them


def _guidance(*allowed: Spans, wide: int = 1000) -> bytes:
    box = tuple((0, wide) for _ in allowed)
    levels = tuple(GuidanceLevel(spans, (GuidanceCase(box, ()),)) for spans in allowed)
    order = tuple(TagId(f"output {at}") for at in range(len(allowed)))
    return msgspec.json.encode(Guidance(order=order, levels=levels))


def _asked(wait_s: float, **changes: object) -> Propose:
    return msgspec.structs.replace(request(guided_until=time.monotonic() + wait_s), **changes)


def test_it_waits_for_guidance_and_keeps_to_it() -> None:
    engine = engine_of(REGRESSOR)
    free = engine.propose(request(session="free"))
    assert isinstance(free, Answer)
    engine.submit(1, _asked(FOREVER))
    assert replies(engine) == {}
    assert engine.held_until is not None
    assert engine.queued == 1

    low = free.raws[0] + 40
    engine.guide(1, _guidance(((low, 1000),)), "")
    found = replies(engine)[1]

    assert isinstance(found, Answer)
    assert (found.raws, found.guided, found.because) == ((low,), True, "")
    assert found.masked_out == (1.0,)
    assert engine.held_until is None
    assert engine.queued == 0


def test_guidance_that_leaves_all_is_the_same_answer_and_others_do_not_wait() -> None:
    engine = engine_of(REGRESSOR)
    engine.submit(1, _asked(FOREVER))
    engine.submit(2, request(session="b"))
    free = replies(engine)[2]
    assert isinstance(free, Answer)
    engine.guide(1, _guidance(((0, 1000),)), "")
    found = replies(engine)[1]
    assert isinstance(found, Answer)
    assert (found.raws, found.masked_out, found.guided) == (free.raws, free.masked_out, True)
    assert (free.guided, free.because) == (False, "")


@pytest.mark.parametrize(
    ("packed", "told", "because"),
    [
        (None, "", TOO_LATE),
        (_guidance(()), "", NOTHING),
        (_guidance(((0, 9),), ((0, 9),)), "", "another number of outputs"),
        (b"not JSON", "", "guidance cannot be read"),
        (b"", "rule set 1 is not loaded", "rule set 1 is not loaded"),
    ],
)
def test_without_usable_guidance_it_answers_as_ever_and_says_why(
    packed: bytes | None, told: str, because: str
) -> None:
    engine = engine_of(REGRESSOR)
    free = engine.propose(request(session="free"))
    assert isinstance(free, Answer)
    engine.submit(1, _asked(NOW if packed is None else FOREVER))
    if packed is not None:
        engine.guide(1, packed, told)
    found = replies(engine)[1]
    assert isinstance(found, Answer)
    assert (found.raws, found.guided) == (free.raws, False)
    assert because in found.because
    engine.guide(1, _guidance(((0, 0),)), "")  # too late: nobody is waiting


def test_what_nobody_waits_for_any_more_is_not_held() -> None:
    engine = engine_of(REGRESSOR)
    engine.submit(1, _asked(FOREVER))
    assert replies(engine) == {}
    engine.cancel(1)
    assert isinstance(replies(engine)[1], Failed)
    assert not engine.busy
    assert engine.held_until is None


def _two_outputs(tmp_path: Path, *limits: OutputRange) -> StatelessEngine:
    """Two outputs that are what is measured: level and inflow."""
    valve = {**PUMP_OUTPUT, "tag": "TK1.V101.SP", "index": [1]}
    folder = bundle_in(
        tmp_path / "two",
        as_is(2),
        inputs=[LEVEL, INFLOW],
        outputs=[PUMP_OUTPUT, valve],
        tensors=[{"name": "x", "tags": [LEVEL["tag"], INFLOW["tag"]]}],
    )
    return StatelessEngine(stateless(folder), limits)


def _of_two(level: str, inflow: str, in_force: tuple[str, str] = ("0", "0"), **changes: object) -> Propose:
    asked = Propose(
        session="a", cycle=0, inputs=(level, inflow), in_force=in_force, history=(Cycle((), in_force),)
    )
    return msgspec.structs.replace(asked, **changes)


def test_a_later_output_follows_what_an_earlier_one_became(tmp_path: Path) -> None:
    """Both together at most 30: 2 stays, and of 40 only 28 are left; a smaller first leaves more."""
    engine = _two_outputs(tmp_path, TENTHS, TENTHS)
    box = ((0, 1000), (0, 1000))
    both = (((0, 1), (1, 1)), 300)
    levels = (
        GuidanceLevel(((0, 300),), (GuidanceCase(box, ()),)),
        GuidanceLevel(((0, 1000),), (GuidanceCase(box, (both,)),)),
    )
    packed = msgspec.json.encode(Guidance(order=(TagId("p"), TagId("v")), levels=levels))
    for level, found in (("2", (20, 280)), ("0.5", (5, 295))):
        engine.submit(1, _of_two(level, "40", guided_until=time.monotonic() + FOREVER))
        engine.guide(1, packed, "")
        answer = replies(engine)[1]
        assert isinstance(answer, Answer)
        assert (answer.raws, answer.masked_out) == (found, (0.0, 1.0))


def test_a_most_change_holds_a_number_near_the_value_in_force(tmp_path: Path) -> None:
    engine = _two_outputs(tmp_path, TENTHS, OutputRange(Fraction(1, 10), Fraction(0), 0, 1000, most=50))
    for in_force, raw, masked in (("38", 400, 0.0), ("20", 250, 1.0), ("60", 550, 1.0), ("44.96", 400, 0.0)):
        answer = engine.propose(_of_two("2", "40", ("0", in_force)))
        assert isinstance(answer, Answer)
        assert (answer.raws, answer.masked_out) == ((20, raw), (0.0, masked))


def test_guidance_outside_the_most_change_guides_nothing_and_says_so(tmp_path: Path) -> None:
    near = OutputRange(Fraction(1, 10), Fraction(0), 0, 1000, most=50)
    engine = _two_outputs(tmp_path, TENTHS, near)
    engine.submit(1, _of_two("2", "40", ("0", "20"), guided_until=time.monotonic() + FOREVER))
    engine.guide(1, _guidance(((0, 1000),), ((500, 600),)), "")
    answer = replies(engine)[1]
    assert isinstance(answer, Answer)
    assert (answer.raws, answer.guided) == ((20, 250), False)
    assert "within the most change" in answer.because


def test_a_classifier_lists_its_other_classes_and_keeps_to_what_may_be_answered() -> None:
    reader = OutputReader(_classes(), STAGES)
    row = np.array([0.1, 0.2, 0.3, 0.4])
    assert [option.output.raw for option in reader.options(row, None, 9)] == [3, 2, 1, 0]
    assert [option.output.raw for option in reader.options(row, None, 2)] == [3, 2]
    found = reader.options(row, ((0, 0), (2, 2)), 9)
    assert [(option.output.raw, option.share) for option in found] == [(2, 0.3), (0, 0.1)]


def test_a_model_of_a_number_has_one_answer_however_many_are_wanted() -> None:
    engine = engine_of(REGRESSOR)
    found = engine.propose(request(most=5))
    assert isinstance(found, Answer)
    assert found.others == ()


def test_a_classifiers_list_is_ranked_by_the_probability_of_all_its_outputs() -> None:
    engine = engine_of(CLASSIFIER, HEATER)
    alone = engine.propose(request())
    listed = engine.propose(request(1, most=5))
    assert isinstance(alone, Answer)
    assert isinstance(listed, Answer)
    assert listed.raws == alone.raws
    (other,) = listed.others
    assert other.raws == (1 - alone.raws[0],)
    assert other.share == pytest.approx(1.0 - alone.concentration, abs=1e-6)

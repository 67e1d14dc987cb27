"""Models without a cache: the same requests, answers, order and refusals as a decoder's."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from gateway.core.errors import InferenceError
from gateway.inference.bundle.any_bundle import load_any
from gateway.inference.bundle.stateless import StatelessBundle
from gateway.inference.decision_model import DecisionModel
from gateway.inference.decoding.decode import OutputRange
from gateway.inference.messages import Answer, Cycle, Failed, NeedHistory, Propose
from gateway.inference.serving.costs import Costs
from gateway.inference.serving.scheduler import Policy
from gateway.inference.serving.serving import Size, start_engine
from gateway.inference.serving.stateless_engine import StatelessEngine
from gateway.inference.serving.stateless_selftest import self_test_stateless
from tests.unit.inference_exports import CLASSIFIER, FORECASTER, HEATER, PUMP, REGRESSOR
from tests.unit.inference_graphs import INFLOW, LEVEL, as_is, bundle_in, graph_of, logarithm, summing
from tests.unit.inference_graphs import PUMP as PUMP_OUTPUT

MEASURED = {"TK1.LT101": 2.0, "TK1.FT101": 12.0, "TK1.TT101": 40.0}
CLASSES = {"tag": "TK1.H101.CMD", "unit": "", "trained": ["0", "1"], "tensor": "y"}


def stateless(directory: Path) -> StatelessBundle:
    bundle = load_any(directory)
    assert isinstance(bundle, StatelessBundle)
    return bundle


def engine_of(directory: Path, *outputs: OutputRange, policy: Policy | None = None) -> StatelessEngine:
    bundle = stateless(directory)
    engine = StatelessEngine(bundle, outputs or (PUMP,), policy=policy)
    self_test_stateless(engine, bundle)
    return engine


def request(at: int = 0, level: float = 2.0, session: str = "a", **changes: Any) -> Propose:  # noqa: ANN401
    changes.setdefault("history", (Cycle((), ("27",)),) if at == 0 else None)
    inputs = changes.pop("inputs", (f"{level:.3f}", "12", "40"))
    return Propose(session=session, cycle=at, inputs=inputs, in_force=("27",), **changes)


def answer(engine: StatelessEngine, asked: Propose) -> Answer:
    reply = engine.propose(asked)
    assert isinstance(reply, Answer)
    return reply


def replies(engine: StatelessEngine) -> dict[int, Answer | NeedHistory | Failed]:
    found: dict[int, Answer | NeedHistory | Failed] = {}
    while engine.busy:
        engine.step()
        found.update(engine.drain())
    return found


def test_a_regressor_proposes_what_the_graph_says_rounded_to_the_register() -> None:
    plain = onnxruntime.InferenceSession(str(REGRESSOR / "model.onnx"))
    engine = engine_of(REGRESSOR)
    for at in range(20):
        level = 1.5 + at / 20
        (exact,) = plain.run(["variable"], {"X": np.array([[level, 12, 40]], dtype=np.float32)})

        assert answer(engine, request(at, level)).raws == (round(float(exact[0, 0]) * 10),)


def test_a_classifier_proposes_the_value_of_its_class_and_says_how_sure_it_is() -> None:
    engine = engine_of(CLASSIFIER, HEATER)

    cold = answer(engine, request(inputs=("2", "12", "30")))
    warm = answer(engine, request(inputs=("2", "12", "60")))

    assert (cold.raws, warm.raws) == ((1,), (0,))
    assert 0.5 < cold.concentration <= 1.0
    assert cold.confidence is None  # nobody has measured how often it is right


def test_probabilities_become_a_confidence_by_the_bundles_table(tmp_path: Path) -> None:
    table = {"edges": [0.6, 0.9], "hit_rate": [0.5, 0.8, 0.99]}
    bundle = bundle_in(
        tmp_path / "b",
        as_is(2),
        inputs=[LEVEL | {"trained": ["0.01", "1"]}, INFLOW | {"trained": ["0.01", "1"]}],
        tensors=[{"name": "x", "tags": ["TK1.LT101", "TK1.FT101"]}],
        outputs=[CLASSES | {"values": ["0", "1"]}],
        confidence=table,
    )
    engine = engine_of(bundle, HEATER)

    assert [
        answer(engine, request(inputs=inputs)).confidence
        for inputs in (("0.45", "0.55"), ("0.7", "0.3"), ("0.02", "0.98"), ("0.5", "1.5"))
    ] == [0.5, 0.8, 0.99, 0.0]  # the last one lies outside what training saw


def test_what_training_never_saw_is_taken_as_its_end_and_counted() -> None:
    engine = engine_of(REGRESSOR)

    beyond, end = answer(engine, request(level=4.8)), answer(engine, request(level=3.9))

    assert beyond.raws == end.raws
    assert (beyond.clamped, end.clamped) == (1, 0)
    assert (beyond.confidence, end.confidence) == (0.0, None)


def test_an_answer_outside_the_range_is_its_end_and_counts_as_masked_out(tmp_path: Path) -> None:
    scaled = PUMP_OUTPUT | {"scaling": {"mean": "0", "deviation": "50"}}
    engine = engine_of(bundle_in(tmp_path / "b", as_is(1), outputs=[scaled]))

    inside, outside = (answer(engine, request(inputs=(level,))) for level in ("1.5", "4"))

    assert (inside.raws, inside.masked_out) == ((750,), (0.0,))
    assert (outside.raws, outside.masked_out) == ((1000,), (1.0,))


def test_a_class_outside_the_range_is_never_answered(tmp_path: Path) -> None:
    bundle = bundle_in(
        tmp_path / "b",
        as_is(2),
        inputs=[LEVEL | {"trained": ["0.1", "5"]}, INFLOW],
        tensors=[{"name": "x", "tags": ["TK1.LT101", "TK1.FT101"]}],
        outputs=[CLASSES | {"values": ["0", "5"]}],
    )
    found = answer(engine_of(bundle, HEATER), request(inputs=("1", "3")))

    assert (found.raws, found.masked_out) == ((0,), (0.75,))


def test_scaling_holds_for_what_is_read_and_for_what_is_answered(tmp_path: Path) -> None:
    scaled = {"scaling": {"mean": "2", "deviation": "0.5"}}
    bundle = bundle_in(
        tmp_path / "b",
        summing(2),
        inputs=[LEVEL | scaled],
        outputs=[PUMP_OUTPUT | {"scaling": {"mean": "50", "deviation": "10"}}],
        tensors=[{"name": "x", "tags": ["TK1.LT101", "TK1.P101.SP"]}],
    )
    # level 3 is 2 deviations up, pump 27 is 2.3 down: the sum is -0.3, which is 47 %
    assert answer(engine_of(bundle), request(inputs=("3",))).raws == (470,)


def test_a_forecaster_reads_its_rows_oldest_first_and_waits_until_it_has_them() -> None:
    plain = onnxruntime.InferenceSession(str(FORECASTER / "model.onnx"))
    engine, rows = engine_of(FORECASTER), []
    for at in range(10):
        level = 2.0 + at / 10
        rows.append((level, 12.0, 40.0))
        reply: Answer | NeedHistory | str
        try:
            reply = engine.propose(request(at, level))
        except InferenceError as exc:
            reply = str(exc)
        if at < 3:
            assert reply == (
                f"the model reads 4 cycles in a row, {at + 1} have passed: "
                "it proposes when the others have, too"
            )
            continue
        assert isinstance(reply, Answer)
        (exact,) = plain.run(["variable"], {"X": np.array([np.ravel(rows[-4:])], dtype=np.float32)})
        assert reply.raws == (min(1000, max(0, round(float(exact[0, 0]) * 10))),)


def test_a_history_that_is_sent_answers_like_the_one_that_was_held() -> None:
    held, sent = engine_of(FORECASTER), engine_of(FORECASTER)
    cycles = [Cycle((f"{2 + at / 7:.3f}", "12", "40"), (f"{20 + at}",)) for at in range(12)]
    for at in range(12):
        begin = (Cycle((), ("19",)),)
        asked = Propose(
            session="a",
            cycle=at,
            inputs=cycles[at].inputs,
            in_force=cycles[at - 1].in_force if at else ("19",),
            history=begin if at == 0 else None,
        )
        whole = Propose(
            session="a",
            cycle=at,
            inputs=asked.inputs,
            in_force=asked.in_force,
            history=(*begin, *cycles[:at])[-4:],
        )
        if at >= 3:
            assert answer(held, asked).raws == answer(sent, whole).raws
        else:
            for engine, each in ((held, asked), (sent, whole)):
                with pytest.raises(InferenceError, match="reads 4 cycles in a row"):
                    engine.propose(each)


def test_an_outputs_tag_is_read_as_it_was_in_force_when_the_row_was_measured(tmp_path: Path) -> None:
    bundle = bundle_in(
        tmp_path / "b",
        as_is(4),
        inputs=[LEVEL],
        outputs=[PUMP_OUTPUT | {"index": [1]}],  # the pump in the oldest row
        tensors=[{"name": "x", "tags": ["TK1.LT101", "TK1.P101.SP"], "steps": 2}],
    )
    engine = engine_of(bundle)
    acting = ["10", "20", "30", "40"]
    history: tuple[Cycle, ...] | None = (Cycle((), ("10",)), Cycle(("1",), ("20",)))
    found = []
    for at in (1, 2, 2, 3):  # the second cycle's measurements are replaced once
        asked = Propose(session="a", cycle=at, inputs=("1",), in_force=(acting[at],), history=history)
        found.append(answer(engine, asked).raws)
        history = None

    assert found == [(100,), (200,), (200,), (300,)]


def test_a_session_that_is_not_held_asks_for_its_history() -> None:
    engine = engine_of(REGRESSOR)

    assert isinstance(engine.propose(request(3)), NeedHistory)
    answer(engine, request(0))
    assert isinstance(engine.propose(request(2)), NeedHistory)
    engine.release("a")
    assert isinstance(engine.propose(request(1)), NeedHistory)


def test_a_what_if_leaves_no_trace() -> None:
    engine, twin = engine_of(FORECASTER), engine_of(FORECASTER)
    for at in range(8):
        found = []
        for each in (engine, twin):
            each.submit(1, request(at, 2 + at / 9))
            found.append(replies(each)[1])
        if at >= 3:
            assert isinstance(found[0], Answer)
            assert isinstance(found[1], Answer)
            assert found[0].raws == found[1].raws
            aside = answer(engine, request(at, 3.5, aside=True))
            assert aside.raws != found[0].raws


def test_requests_that_wait_share_a_forward_and_answer_as_alone() -> None:
    together, alone = engine_of(REGRESSOR), engine_of(REGRESSOR)
    assert together.widest == 8
    for number in range(20):
        together.submit(number, request(0, 1 + number / 10, f"s{number}"))
    found = replies(together)

    assert (together.forwards, together.rows) == (3, 20)
    for number in range(20):
        reply, exact = found[number], answer(alone, request(0, 1 + number / 10, f"s{number}"))
        assert isinstance(reply, Answer)
        assert reply.raws == exact.raws


def test_a_graph_whose_rows_depend_on_their_companions_runs_them_one_by_one(tmp_path: Path) -> None:
    normalised = graph_of(
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=1),  # over the whole batch
        helper.make_node("Div", ["x", "most"], ["y"]),
        inputs={"x": ["n", 1]},
        outputs={"y": ["n", 1]},
    )
    bundle = bundle_in(tmp_path / "b", normalised, inputs=[LEVEL | {"trained": ["1", "5"]}])
    engine = engine_of(bundle)
    for number in range(5):
        engine.submit(number, request(0, session=f"s{number}", inputs=(f"{1 + number}",)))
    found = replies(engine)

    assert engine.widest == 1
    assert engine.forwards == 5
    assert {reply.raws for reply in found.values() if isinstance(reply, Answer)} == {(10,)}


def test_a_graph_for_one_row_is_asked_one_by_one(tmp_path: Path) -> None:
    fixed = as_is(1)
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    engine = engine_of(bundle_in(tmp_path / "b", fixed))

    assert engine.widest == 1
    assert answer(engine, request(inputs=("3",))).raws == (30,)


def test_the_urgent_one_is_answered_first_and_a_cancelled_one_never_runs() -> None:
    engine = engine_of(FORECASTER)  # its rows go one by one
    assert engine.widest == 1
    history = tuple(Cycle(("2", "12", "40"), ("27",)) for _ in range(4))
    for number, urgency in enumerate((2, 1, 0, 1)):
        engine.submit(number, request(9, session=f"s{number}", urgency=urgency, history=history))
    engine.cancel(1)
    order = []
    while engine.busy:
        order += [number for number, _ in engine.drain()]
        engine.step()

    assert order == [1, 2, 3, 0]
    assert engine.forwards == 3
    assert engine.queued == 0


def test_what_cannot_end_in_time_is_refused_before_it_begins() -> None:
    engine = engine_of(REGRESSOR)
    engine.costs = Costs(decision_ms=50.0, chunk_ms=0.0)
    engine.submit(1, request(0, due=time.monotonic() + 0.01))
    ((_, reply),) = engine.drain()

    assert isinstance(reply, Failed)
    assert "an answer takes about 50.0 ms" in reply.problem
    assert engine.forwards == 0


def test_no_number_in_the_output_is_a_sentence_and_no_proposal(tmp_path: Path) -> None:
    bundle = bundle_in(tmp_path / "b", logarithm(), inputs=[LEVEL | {"trained": ["1.1", "5"]}])
    engine = engine_of(bundle)
    assert answer(engine, request(inputs=("3",))).raws == (7,)
    engine._least = np.zeros(2)  # a value training never saw, which the clamp would keep away

    said = (
        r"`y` for `TK1\.P101\.SP` holds nan, which is no number: nothing is proposed, let another bundle take"
    )
    with pytest.raises(InferenceError, match=said):
        engine.propose(request(inputs=("0.5",)))
    assert answer(engine, request(inputs=("3",))).raws == (7,)


def test_one_bad_row_of_a_forward_spoils_no_other(tmp_path: Path) -> None:
    bundle = bundle_in(tmp_path / "b", logarithm(), inputs=[LEVEL | {"trained": ["1.1", "5"]}])
    engine = engine_of(bundle)
    engine._least = np.zeros(2)
    engine.merges(8)
    for number, level in enumerate(("3", "0.5", "3")):
        engine.submit(number, request(session=f"s{number}", inputs=(level,)))
    found = replies(engine)

    assert [isinstance(found[number], Answer) for number in range(3)] == [True, False, True]
    assert engine.forwards == 1


def test_labels_stand_for_values_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "model.onnx").write_bytes((CLASSIFIER / "model.onnx").read_bytes())
    manifest = json.loads((CLASSIFIER / "bundle.json").read_text())
    manifest["outputs"][0] |= {"tensor": "label", "labels": {"0": "0", "1": "1"}}
    del manifest["outputs"][0]["values"]
    (folder / "bundle.json").write_text(json.dumps(manifest))
    engine = engine_of(folder, HEATER)
    assert answer(engine, request(inputs=("2", "12", "30"))).raws == (1,)

    manifest["outputs"][0]["labels"] = {"0": "0"}
    (folder / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(InferenceError, match="answers with the label `1`, which `labels` does not name"):
        engine_of(folder, HEATER)


def test_a_worker_starts_it_like_a_decoder() -> None:
    bundle = stateless(REGRESSOR)
    engine, shown = start_engine(bundle, (PUMP,), Size())

    assert engine.costs is not None
    assert 0 < shown.decision_ms <= shown.slow_ms
    assert engine.pool_statistics().pages == 0
    assert not engine.busy


def test_an_engineer_asks_it_in_a_program_of_ones_own() -> None:
    model = DecisionModel.from_bundle(REGRESSOR, "cpu")
    wanted = model.propose(MEASURED, {"TK1.P101.SP": 27.0})

    assert set(wanted.values) == {"TK1.P101.SP"}
    assert abs(float(wanted.values["TK1.P101.SP"]) - 26.4) < 3  # what it learned: 2.2 times the inflow
    with pytest.raises(InferenceError, match="has no tokens: use propose"):
        model.generate([1], 1)


def test_a_forecaster_in_ones_own_program_answers_from_its_fourth_cycle() -> None:
    model = DecisionModel.from_bundle(FORECASTER, "cpu")
    for _ in range(3):
        with pytest.raises(InferenceError, match="reads 4 cycles in a row"):
            model.propose(MEASURED, {"TK1.P101.SP": 27.0})

    assert model.propose(MEASURED, {"TK1.P101.SP": 27.0}).values["TK1.P101.SP"] > Fraction(5)

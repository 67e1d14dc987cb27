"""Each recipe on the demo bundle: what it stores, what it loses, and what its description says."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from gateway.inference.bundle.manifest import GOLDEN_FILE, REFERENCE_FILE, load_bundle
from gateway.inference.decision_model import DecisionModel
from gateway.inference.golden import replay
from gateway.inference.kv.block_pool import BlockPool, Sequence
from gateway.inference.kv.rows import Row
from gateway.inference.quantize.figures import Figures, bars, measure
from gateway.inference.quantize.graphs import Graph
from gateway.inference.quantize.half import HALVES, to_half
from gateway.inference.quantize.kernels import not_on_cpu
from gateway.inference.quantize.matmul_nbits import in_blocks, keep_in_blocks
from gateway.inference.quantize.mixed import parts
from gateway.inference.quantize.passes import apply
from gateway.inference.quantize.recipes import RECIPES
from gateway.inference.seal import seal
from gateway.inference.training.graph import quantize_8bit
from gateway.inference.training.paired import Length, objective, plant_of
from tests.unit.inference_demo import BUFFER_TANK, RECKLESS
from tests.unit.quantize_demo import (
    DEMO,
    PAGES,
    SHORT,
    logits,
    made,
    needs_products_in_8_bits,
    off,
    session,
    tokens,
)

SOURCE = load_bundle(BUFFER_TANK)
REFERENCE = BUFFER_TANK / REFERENCE_FILE
MADE = [
    ("int8", ""),
    ("int8w", ""),
    ("int8a8", ""),
    ("int4", ""),
    ("mixed", ""),
    ("fp16", ""),
    ("bf16", ""),
    ("fp32", "int8"),
    ("int8", "int8"),
]


@pytest.mark.parametrize(("recipe", "kv"), MADE)
def test_a_recipe_passes_its_gates_and_says_how_it_was_made(recipe: str, kv: str) -> None:
    result = made(recipe, kv)
    manifest = load_bundle(result.bundle.directory).manifest
    figures = result.figures

    assert figures is not None
    assert figures.failures(result.gates, needs_loop=True) == []
    assert manifest.made is not None
    assert manifest.made.recipe == recipe
    assert manifest.made.source == load_bundle(DEMO).digest
    assert {"onnx", "onnxruntime", "numpy"} <= set(manifest.made.tools)
    assert manifest.made.gated == "CPUExecutionProvider"
    assert manifest.accuracy == figures.accuracy()
    assert set(manifest.accuracy) == {
        "relative_l2",
        "row_p99",
        "top1_delta",
        "expected_action_error_of_span",
    }
    assert manifest.closed_loop["objective_over_twin"] == pytest.approx(figures.objective_over_twin, abs=1e-6)
    assert manifest.gates == result.gates
    assert manifest.quantization.kv == (kv or RECIPES[recipe].kv)


@pytest.mark.parametrize(
    ("recipe", "at_least", "at_most"),
    [
        ("fp16", 1e-5, 0.005),
        ("bf16", 1e-4, 0.02),
        ("int8", 1e-4, 0.02),
        ("int4", 0.01, 0.1),
        ("mixed", 0.01, 0.1),
    ],
)
def test_fewer_bits_lose_something_and_not_more_than_the_bar(
    recipe: str, at_least: float, at_most: float
) -> None:
    figures = made(recipe).figures

    assert figures is not None
    assert at_least < figures.relative_l2 <= at_most


def test_a_smaller_recipe_is_a_smaller_file() -> None:
    def size(recipe: str) -> int:
        return made(recipe).bundle.manifest.files["model.onnx"].bytes

    whole = SOURCE.manifest.files[REFERENCE_FILE].bytes
    assert size("int4") < size("mixed") < size("int8") < size("fp16") < whole
    assert size("fp16") < 0.55 * whole
    assert size("int8") < size("int8w") < 0.4 * whole


def test_the_same_source_gives_the_same_bytes() -> None:
    first = made("int4").bundle.manifest.files["model.onnx"].sha256
    graph = Graph.read(REFERENCE)
    apply(graph, RECIPES["int4"], SOURCE.manifest.architecture, kv="float32", block=32, device="cpu")

    again = hashlib.sha256(graph.model.SerializeToString(deterministic=True)).hexdigest()
    assert again == first


@pytest.mark.parametrize(("recipe", "kv"), MADE)
def test_an_answer_does_not_depend_on_who_is_in_the_batch(recipe: str, kv: str) -> None:
    bundle = made(recipe, kv).bundle

    def last(others: int) -> NDArray[np.float32]:
        there, pool = session(bundle), BlockPool(PAGES - 1, bundle.manifest.block)
        rows = []
        for row in range(1 + others):
            sequence, new = Sequence(), tokens(20, seed=row)
            rows.append(Row(sequence, new, pool.append(sequence, len(new))))
        found: NDArray[np.float32] = there.run_rows(rows)[0]
        return found

    assert np.array_equal(last(0), last(5))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [64, 50])
def test_blocks_mean_what_the_runtime_reads(bits: int, rows: int) -> None:
    weight = np.random.default_rng(bits + rows).normal(size=(rows, 24)).astype(np.float32)
    packed, scales = in_blocks(weight, bits, 32)
    numbers = packed.astype(np.int32)
    if bits == 4:
        numbers = np.stack([packed & 15, packed >> 4], axis=3).reshape(24, -1, 32).astype(np.int32)
    back = ((numbers - (1 << (bits - 1))) * scales[:, :, None]).reshape(24, -1)[:, :rows].T

    step = np.repeat(scales, 32, axis=1)[:, :rows].T
    assert off(back.astype(np.float32), weight) < (0.12 if bits == 4 else 0.008)
    assert np.mean(np.abs(back - weight) <= 0.51 * step) > 0.97  # the others lie beyond a scale that was cut
    assert not np.any(back[:, 0] == 0) or bits == 4


def test_a_scale_that_is_searched_loses_less_than_the_one_of_the_peak() -> None:
    weight = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)
    packed, scales = in_blocks(weight, 8, 32)
    plain, plain_scales = quantize_8bit(weight, 32)

    def back(values: NDArray[np.uint8], by: NDArray[np.float32]) -> float:
        whole = ((values.astype(np.float32) - 128) * by[:, :, None]).reshape(64, -1).T
        return off(whole, weight)

    assert back(packed, scales) <= back(plain, plain_scales)


def test_zeros_and_a_last_block_that_is_not_full_stay_what_they_are() -> None:
    packed, scales = in_blocks(np.zeros((40, 3), dtype=np.float32), 4, 32)

    assert packed.shape == (3, 2, 16)
    assert np.all(packed == 0x88)
    assert np.all(scales == 0)


def test_products_in_8_bits_lose_more_than_products_in_float32_and_stay_within_the_same_bar() -> None:
    whole, rounded = made("int8").figures, made("int8a8").figures

    assert whole is not None
    assert rounded is not None
    assert rounded.relative_l2 <= 0.02
    needs_products_in_8_bits()
    assert whole.relative_l2 < rounded.relative_l2


def test_matrices_are_told_apart_by_how_the_graph_is_connected() -> None:
    found = parts(Graph.read(REFERENCE))

    for layer in range(2):
        for name in ("wq", "wk", "wv", "wo"):
            assert found[f"{name}_{layer}"] == "attention"
        for name in ("up", "down"):
            assert found[f"{name}_{layer}"] == "feed_forward"
    assert found["head"] == "head"
    assert len(found) == 13


def test_mixed_keeps_attention_in_float16_and_feeds_forward_in_4_bits() -> None:
    graph = Graph.read(made("mixed").bundle.model_path)
    stored = {name: onnx.TensorProto.DataType.Name(t.data_type) for name, t in graph.initializers.items()}

    for layer in range(2):
        assert stored[f"wq_{layer}_float16"] == "FLOAT16"
        assert stored[f"up_{layer}_q4"] == "UINT8"
    assert stored["head_float16"] == "FLOAT16"
    blocks = [node for node in graph.nodes if node.op_type == "MatMulNBits"]
    assert len(blocks) == 4
    assert {a.i for node in blocks for a in node.attribute if a.name == "bits"} == {4}


def test_what_the_cpu_has_in_no_half_type_is_found_and_listed() -> None:
    graph = Graph.read(REFERENCE)
    half, brain = (not_on_cpu(graph, graph.types(), HALVES[name]) for name in ("float16", "bfloat16"))

    assert "MatMul" in half
    assert "Gather" not in half
    assert "Attention" in brain
    listed = made("bf16").bundle.manifest.made
    assert listed is not None
    assert {"MatMul", "Attention"} <= set(listed.in_float32)
    assert set(listed.in_float32) <= brain


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_graph_for_a_device_with_every_operator_has_no_float32_left_inside(half: str) -> None:
    graph = Graph.read(REFERENCE)

    assert to_half(graph, HALVES[half], frozenset()) == []
    types = graph.types()
    products = [node.output[0] for node in graph.nodes if node.op_type in {"MatMul", "Attention"}]
    assert {types[name] for name in products} == {HALVES[half]}
    assert not any(t.data_type == onnx.TensorProto.FLOAT for t in graph.initializers.values())
    onnx.checker.check_model(graph.model, full_check=True)


def test_the_float16_graph_for_a_device_answers_as_float32_does(tmp_path: Path) -> None:
    graph, path = Graph.read(REFERENCE), tmp_path / "half.onnx"
    to_half(graph, HALVES["float16"], frozenset())
    graph.write(path)
    new = [tokens(200)]

    # the CPU provider puts conversions around what it lacks
    assert off(logits(SOURCE, new, path), logits(SOURCE, new, REFERENCE)) < 0.005


def test_blocks_of_another_size_are_as_good_as_their_size_lets_them_be() -> None:
    fine, coarse = (made("int4", "", block).figures for block in (16, 128))

    assert fine is not None
    assert coarse is not None
    assert fine.relative_l2 < coarse.relative_l2


def test_a_graph_without_matrices_is_left_as_it_is() -> None:
    graph = Graph.read(REFERENCE)

    assert keep_in_blocks(graph, {}, 32) == 0
    assert graph.operators() == Graph.read(REFERENCE).operators()


def test_golden_answers_are_answered_anew_by_what_was_made() -> None:
    bundle = made("int4").bundle

    assert replay(bundle).same
    assert (bundle.directory / GOLDEN_FILE).read_bytes() != (DEMO / GOLDEN_FILE).read_bytes()


def test_a_made_bundle_proposes_nearly_what_its_source_proposes() -> None:
    measured = {"TK1.LT101": 2.2, "TK1.FT101": 12.0, "TK1.TT101": 44.0}
    in_force = {"TK1.P101.SP": 27.0, "TK1.H101.CMD": 0.0, "TK1.M101.STAGE": 1.0}
    first = DecisionModel.from_bundle(BUFFER_TANK, "cpu").propose(measured, in_force)
    second = DecisionModel.from_bundle(made("int4").bundle.directory, "cpu").propose(measured, in_force)

    assert float(second.values["TK1.P101.SP"]) == pytest.approx(float(first.values["TK1.P101.SP"]), abs=1.0)


def test_a_damaged_model_misses_every_bar_and_the_loop_shows_it(tmp_path: Path) -> None:
    """Weights of a model that wants something else in the place of the twin's own."""
    damaged = Path(shutil.copytree(DEMO, tmp_path / "damaged"))
    shutil.copyfile(RECKLESS / "model.onnx", damaged / "model.onnx")
    seal(damaged)
    bundle = load_bundle(damaged)

    figures = measure(bundle, SHORT)

    gates, needs_loop = bars(bundle)
    missed = [sentence.split(" is ")[0] for sentence in figures.failures(gates, needs_loop=needs_loop)]
    assert sorted(missed) == sorted(gates)
    assert figures.twin_objective == pytest.approx(measure(SOURCE, SHORT).twin_objective)


def test_a_figure_that_is_no_number_misses_its_bar() -> None:
    result = made("int8")
    figures = result.figures
    assert figures is not None
    fields = {name: getattr(figures, name) for name in Figures.__dataclass_fields__}

    missed = Figures(**fields | {"relative_l2": float("nan")}).failures(result.gates, needs_loop=False)

    assert missed == ["relative_l2 is nan, over 0.02"]


def test_four_bits_are_not_accepted_where_no_closed_loop_can_be_run() -> None:
    figures = made("int4").figures
    assert figures is not None
    fields = {name: getattr(figures, name) for name in Figures.__dataclass_fields__}
    alone = Figures(**fields | {"objective": None, "twin_objective": None, "objective_over_twin": None})

    assert "no simulator" in alone.failures(RECIPES["int4"].gates("float32"), needs_loop=True)[0]
    assert alone.failures(RECIPES["int4"].gates("float32"), needs_loop=False) == []


def test_the_closed_loop_is_paired_the_same_model_twice_gives_the_same_number() -> None:
    kind = plant_of(SOURCE)
    assert kind is not None

    first, second = (objective(SOURCE, kind, Length(2, 60)) for _ in range(2))

    assert first == second
    assert objective(SOURCE, kind, Length(1, 60)) != first


def test_the_shipped_bundle_is_measured_by_the_same_bars() -> None:
    gates, needs_loop = bars(SOURCE)
    figures = measure(SOURCE, SHORT)

    assert gates["relative_l2"] == 0.02
    assert not needs_loop
    assert figures.failures(gates, needs_loop=needs_loop) == []
    assert figures.relative_l2 == pytest.approx(SOURCE.manifest.accuracy["relative_l2"], rel=0.05)


def test_no_plant_is_known_by_other_tags() -> None:
    spec = msgspec.structs.replace(SOURCE.manifest.inputs[0], tag="X.1")
    manifest = msgspec.structs.replace(SOURCE.manifest, inputs=(spec, *SOURCE.manifest.inputs[1:]))

    assert plant_of(type(SOURCE)(SOURCE.directory, manifest, "")) is None

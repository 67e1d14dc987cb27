"""Each way in which a bundle can be bad has its sentence, which says what to do; none gets an engine."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gateway.core.errors import InferenceError
from gateway.core.tag import TagId
from gateway.inference.bundle.any_bundle import check_any_tags, check_point, load_any
from gateway.inference.bundle.files import MOST_FILE_BYTES
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.decision_model import DecisionModel, ranges_of
from gateway.inference.seal import main, seal
from gateway.inference.serving.serving import Size, start_engine
from tests.unit.bad_bundles import BAD, Bad, refusal, sound
from tests.unit.inference_demo import BUFFER_TANK, demo_definitions
from tests.unit.inference_exports import DECODERS, GENAI_LLAMA, OPTIMUM_LLAMA, REGRESSOR, STATELESS
from tests.unit.inference_graphs import LEVEL, as_is, bundle_in, logarithm

each_kind = pytest.mark.parametrize(
    "directory", [BUFFER_TANK, OPTIMUM_LLAMA, GENAI_LLAMA, REGRESSOR], ids=lambda directory: directory.name
)


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda directory: Path(shutil.copytree(directory, tmp_path / directory.name))


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    manifest = json.loads((folder / "bundle.json").read_text())
    change(manifest)
    (folder / "bundle.json").write_text(json.dumps(manifest))
    return folder


def refused_at_load(folder: Path, said: str) -> None:
    with pytest.raises(InferenceError, match=said):
        load_any(folder)
    with pytest.raises(InferenceError, match=said):
        ModelEngine(folder, demo_definitions())


def refused_at_start(folder: Path, said: str) -> None:
    """The description is in order; the graph is not what it says."""
    bundle = load_any(folder)
    with pytest.raises(InferenceError, match=said):
        start_engine(bundle, tuple(ranges_of(bundle).values()), Size())


@pytest.mark.parametrize("stateless", [False, True])
def test_a_sound_bundle_is_not_refused(tmp_path: Path, stateless: bool) -> None:  # noqa: FBT001  a parameter
    assert not refusal(sound(tmp_path / "sound", stateless=stateless))


@pytest.mark.parametrize("bad", [each for each in BAD if "memory" not in each.name], ids=lambda bad: bad.name)
def test_a_bad_one_is_refused_in_a_sentence_that_says_what_to_do(tmp_path: Path, bad: Bad) -> None:
    """Those that ask for memory have a process of their own, with all of these, while a gateway runs."""
    assert re.search(bad.said, refusal(bad.made_in(tmp_path / bad.name)))


@pytest.mark.parametrize("directory", [*DECODERS, *STATELESS], ids=lambda directory: directory.name)
def test_what_is_committed_is_sealed_and_fits_the_demos_tags(directory: Path) -> None:
    check_any_tags(load_any(directory), demo_definitions())


@each_kind
def test_a_wrong_digest(directory: Path, copied: Callable[[Path], Path]) -> None:
    folder = copied(directory)
    content = bytearray((folder / "model.onnx").read_bytes())
    content[-1] ^= 1
    (folder / "model.onnx").write_bytes(content)

    refused_at_load(folder, r"model\.onnx has SHA-256 .* copy the bundle again")


@each_kind
def test_an_unknown_backend(directory: Path, copied: Callable[[Path], Path]) -> None:
    folder = edit(copied(directory), lambda m: m.update(backend="tensorrt"))

    refused_at_load(folder, "backend `tensorrt` is not known here: use one of `paged_graph`, .* `stateless`")


def test_an_unknown_quantization(copied: Callable[[Path], Path]) -> None:
    folder = edit(copied(OPTIMUM_LLAMA), lambda m: m["quantization"].update(kind="ternary"))

    refused_at_load(folder, "quantization `ternary` of 32 bits is not supported: export it as one of")


def test_no_json(copied: Callable[[Path], Path]) -> None:
    folder = copied(REGRESSOR)
    (folder / "bundle.json").write_text("{")

    refused_at_load(folder, r"bundle\.json is no bundle description .*: correct it")


@each_kind
def test_a_graph_that_was_cut_short(directory: Path, copied: Callable[[Path], Path]) -> None:
    folder = copied(directory)
    content = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(content[: len(content) // 2])

    refused_at_load(
        folder, r"model\.onnx ends after \d+ of \d+ bytes: it was cut short, copy the bundle again"
    )


@each_kind
def test_a_graph_that_was_cut_short_before_it_was_sealed(
    directory: Path, copied: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(directory)
    content = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(content[: len(content) // 2])

    assert main([str(folder)]) == 1
    assert "cannot be loaded" in (said := capsys.readouterr().err)
    assert "export it again, or copy the whole bundle" in said
    refused_at_start(folder, "export it again, or copy the whole bundle")


@each_kind
def test_a_file_beyond_the_limit_is_not_even_read(directory: Path, copied: Callable[[Path], Path]) -> None:
    folder = copied(directory)
    with (folder / "model.onnx").open("r+b") as file:
        file.truncate(MOST_FILE_BYTES + 1)  # a hole, which takes no room

    refused_at_load(
        folder,
        rf"has {MOST_FILE_BYTES + 1} bytes, a file of a bundle at most {MOST_FILE_BYTES}: use a smaller",
    )


@pytest.mark.parametrize("directory", [OPTIMUM_LLAMA, GENAI_LLAMA, REGRESSOR], ids=lambda each: each.name)
def test_a_missing_tensor(directory: Path, copied: Callable[[Path], Path]) -> None:
    folder = copied(directory)
    if directory == REGRESSOR:
        edit(folder, lambda m: m["outputs"][0].update(tensor="setpoint"))
        said = r"has no tensor `setpoint` \(it has `X`, `variable`\): correct bundle\.json"
    else:
        edit(folder, lambda m: m["architecture"].update(layers=3))
        said = r"has no tensor `past_key_values\.2\.key`: correct bundle\.json or export the model again"
    refused_at_start(folder, said)


def test_a_tensor_that_nobody_can_give(copied: Callable[[Path], Path]) -> None:
    folder = edit(copied(OPTIMUM_LLAMA), lambda m: m["architecture"].update(layers=1))

    refused_at_start(folder, r"asks for a tensor `past_key_values\.1\.key` that nobody here can give")


@pytest.mark.parametrize(
    ("directory", "change", "said"),
    [
        (OPTIMUM_LLAMA, lambda m: m["architecture"].update(heads=4), "for 2 heads of 16, the bundle says 4"),
        (
            GENAI_LLAMA,
            lambda m: m["architecture"].update(head_dim=8),
            r"does not run as bundle\.json says .*got 8 expected 16",
        ),
        (
            OPTIMUM_LLAMA,
            lambda m: m["architecture"].update(vocabulary=300),
            "answers over 256 tokens, the bundle says 300",
        ),
        (
            REGRESSOR,
            lambda m: m["tensors"][0].update(steps=2),
            r"wants shape \[None, 3\] in `X`, the bundle gives \['batch', 6\] \(2 steps of 3 tags\)",
        ),
        (
            REGRESSOR,
            lambda m: m["tensors"][0].update(layout="steps_tags"),
            r"wants shape \[None, 3\] in `X`, the bundle gives \['batch', 1, 3\]",
        ),
        (
            REGRESSOR,
            lambda m: m["outputs"][0].update(index=[1]),
            r"has shape \[1\] for a row, `index` is \[1\]",
        ),
        (
            REGRESSOR,
            lambda m: m["outputs"][0].update(index=[]),
            r"holds \[1\] values where one is wanted: let `index` lead to it",
        ),
    ],
)
def test_shapes_that_disagree(
    copied: Callable[[Path], Path], directory: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    refused_at_start(edit(copied(directory), change), said)


def test_bins_that_do_not_cover_a_tags_range() -> None:
    definitions = demo_definitions()
    level = TagId("TK1.LT101")
    wide = {**definitions, level: replace(definitions[level], eu_range=(Fraction(0), Fraction(6)))}

    with pytest.raises(
        InferenceError, match=r"bins cover -0\.1 to 5: narrow the range or train with wider bins"
    ):
        ModelEngine(OPTIMUM_LLAMA, wide)


def test_a_class_beyond_a_tags_range(copied: Callable[[Path], Path]) -> None:
    folder = edit(copied(STATELESS[1]), lambda m: m["outputs"][0].update(values=["0", "2"]))

    with pytest.raises(InferenceError, match="ranges from 0 to 1 but a class of the model stands for 2"):
        ModelEngine(folder, demo_definitions())


def test_no_number_in_every_answer(copied: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = copied(OPTIMUM_LLAMA)
    model = onnx.load(folder / "model.onnx")
    for node in model.graph.node:
        node.output[:] = ["before" if name == "logits" else name for name in node.output]
    model.graph.initializer.append(numpy_helper.from_array(np.array([np.nan], dtype=np.float32), "nan"))
    model.graph.node.append(helper.make_node("Mul", ["before", "nan"], ["logits"]))
    onnx.save(model, folder / "model.onnx")
    seal(folder)
    refused_at_start(folder, "no usable probabilities: nothing is proposed")

    below_one = bundle_in(tmp_path / "log", logarithm(), inputs=[LEVEL | {"trained": ["0", "0.9"]}])
    refused_at_start(below_one, "holds nan, which is no number: nothing is proposed")


def test_no_number_in_one_answer_leaves_the_next_ones_as_they_were(copied: Callable[[Path], Path]) -> None:
    """One token's weights are no numbers; the self-test does not meet it."""
    folder = copied(OPTIMUM_LLAMA)
    spoiled = spoil_level_5(folder)
    assert spoiled.read_bytes() != (OPTIMUM_LLAMA / "model.onnx").read_bytes()
    bundle = load_any(folder)
    start_engine(bundle, tuple(ranges_of(bundle).values()), Size())
    model, whole = DecisionModel.from_bundle(folder, "cpu"), DecisionModel.from_bundle(OPTIMUM_LLAMA, "cpu")
    acting = {"TK1.P101.SP": 27.0, "TK1.H101.CMD": 0.0, "TK1.M101.STAGE": 1.0}
    measured = {"TK1.LT101": 2.0, "TK1.FT101": 12.0, "TK1.TT101": 40.0}
    assert model.propose(measured, acting).values == whole.propose(measured, acting).values

    with pytest.raises(InferenceError, match="no usable probabilities: nothing is proposed"):
        model.propose(measured | {"TK1.LT101": 5.0}, acting)
    assert DecisionModel.from_bundle(folder, "cpu").propose(measured, acting).values


def spoil_level_5(folder: Path) -> Path:
    """A level of 5 m has no numbers for weights any more."""
    model = onnx.load(folder / "model.onnx")
    (weights,) = (each for each in model.graph.initializer if each.name == "model.embed_tokens.weight")
    values = numpy_helper.to_array(weights).copy()
    values[42] = np.nan
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    onnx.save(model, folder / "model.onnx")
    seal(folder)
    return folder / "model.onnx"


def test_a_list_of_maps_for_an_answer(copied: Callable[[Path], Path]) -> None:
    """What skl2onnx makes of a classifier unless it is told otherwise."""
    folder = copied(STATELESS[1])
    model = onnx.load(folder / "model.onnx")
    for node in model.graph.node:
        node.output[:] = ["rows" if name == "probabilities" else name for name in node.output]
    model.graph.node.append(
        helper.make_node(
            "ZipMap", ["rows"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
        )
    )
    (output,) = (each for each in model.graph.output if each.name == "probabilities")
    output.type.Clear()
    output.type.sequence_type.elem_type.map_type.key_type = onnx.TensorProto.INT64
    output.type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(model, folder / "model.onnx")
    seal(folder)

    refused_at_start(
        folder, r"answers with a list in `probabilities` \(for scikit-learn: export with zipmap=False\)"
    )


def test_sealing_says_what_it_found_or_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = bundle_in(tmp_path / "own", as_is(1))
    assert main([str(folder)]) == 0
    said = capsys.readouterr().out
    assert "sealed as" in said
    assert "8 requests in a forward" in said

    (folder / "model.onnx").unlink()
    assert main([str(folder)]) == 1
    assert "model.onnx cannot be read (No such file or directory): put it there" in capsys.readouterr().err
    (folder / "bundle.json").write_text("[]")
    assert main([str(folder)]) == 1
    assert "begin with one from the manual" in capsys.readouterr().err


def test_a_decision_point_that_does_not_fit() -> None:
    level, pump, heater = "TK1.LT101", "TK1.P101.SP", "TK1.H101.CMD"
    bundle, inputs = load_any(REGRESSOR), (level, "TK1.FT101", "TK1.TT101")
    check_point(bundle, "tank", inputs, (pump,))

    with pytest.raises(
        InferenceError, match=r"reads `TK1\.FT101`, which is no input of decision point `tank`"
    ):
        check_point(bundle, "tank", (level,), (pump,))
    with pytest.raises(InferenceError, match=r"proposes TK1\.P101\.SP, but .* give both the same outputs"):
        check_point(bundle, "tank", inputs, (pump, heater))


@each_kind
@pytest.mark.parametrize("cycle_s", ["0", "-1", "soon"])
def test_a_cycle_that_takes_no_time(directory: Path, cycle_s: str, copied: Callable[[Path], Path]) -> None:
    folder = edit(copied(directory), lambda m: m.update(cycle_s=cycle_s))

    refused_at_load(folder, f"`cycle_s` is `{cycle_s}`: write the seconds of a cycle as a decimal above 0")


@each_kind
@pytest.mark.parametrize("trained", [["3", "3"], ["low", "high"]])
def test_a_trained_range_that_is_none(
    directory: Path, trained: list[str], copied: Callable[[Path], Path]
) -> None:
    folder = edit(copied(directory), lambda m: m["inputs"][0].update(trained=trained))

    refused_at_load(folder, "`trained` is .*: write least and greatest value as decimals")


@pytest.mark.parametrize("directory", [BUFFER_TANK, OPTIMUM_LLAMA], ids=lambda directory: directory.name)
def test_a_decoder_of_no_tags(directory: Path, copied: Callable[[Path], Path]) -> None:
    folder = edit(copied(directory), lambda m: m.update(inputs=[], outputs=[]))

    refused_at_load(folder, "there is no input or no output tag")

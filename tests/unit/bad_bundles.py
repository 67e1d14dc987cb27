"""Bundles for the demo's tags, each bad in one way, and what is said of it: at a start and during a swap."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gateway.core.errors import InferenceError
from gateway.inference.bundle.files import MOST_FILE_BYTES
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.decision_model import ranges_of
from gateway.inference.seal import seal
from gateway.inference.serving.serving import Size, start_engine
from tests.unit.inference_demo import BUFFER_TANK, demo_definitions
from tests.unit.inference_graphs import INFLOW, LEVEL, PUMP, as_is, bundle_in

TEMPERATURE = {"tag": "TK1.TT101", "unit": "degC", "trained": ["0", "100"]}
HEATER = {"tag": "TK1.H101.CMD", "unit": "", "trained": ["0", "1"], "tensor": "y", "index": [1]}
STAGE = {"tag": "TK1.M101.STAGE", "unit": "", "trained": ["0", "3"], "tensor": "y", "index": [2]}
_MEASURED = [LEVEL, INFLOW, TEMPERATURE]

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bad:
    """How a sound bundle's folder is spoiled, and the sentence that then refuses it."""

    name: str
    spoil: Callable[[Path], object]
    said: str
    stateless: bool = False

    def made_in(self, folder: Path) -> Path:
        """A new folder with the bundle."""
        sound(folder, stateless=self.stateless)
        self.spoil(folder)
        return folder


def sound(folder: Path, *, stateless: bool) -> Path:
    """A bundle that the demo's point can be served with."""
    if not stateless:
        return Path(shutil.copytree(BUFFER_TANK, folder))
    return bundle_in(
        folder,
        as_is(3),
        inputs=_MEASURED,
        outputs=[PUMP, HEATER, STAGE],
        tensors=[{"name": "x", "tags": [spec["tag"] for spec in _MEASURED]}],
    )


def refusal(folder: Path) -> str:
    """Why the bundle gets no engine; empty where it gets one."""
    try:
        bundle = ModelEngine(folder, demo_definitions()).bundle
        start_engine(bundle, tuple(ranges_of(bundle).values()), Size())
    except InferenceError as exc:
        return " ".join(str(exc).split())
    return ""


def edit(folder: Path, change: Callable[[Manifest], object]) -> None:
    """Change the description; the files stay sealed."""
    manifest = json.loads((folder / "bundle.json").read_text())
    change(manifest)
    (folder / "bundle.json").write_text(json.dumps(manifest))


def regraph(folder: Path, change: Callable[[onnx.GraphProto], object]) -> None:
    """Change the graph and seal it: the description is in order, the graph is not what it says."""
    model = onnx.load(folder / "model.onnx")
    change(model.graph)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    seal(folder)


def _flip(folder: Path) -> None:
    content = bytearray((folder / "model.onnx").read_bytes())
    content[-1] ^= 1
    (folder / "model.onnx").write_bytes(content)


def _cut(folder: Path) -> None:
    os.truncate(folder / "model.onnx", (folder / "model.onnx").stat().st_size // 2)


def _cut_and_sealed(folder: Path) -> None:
    _cut(folder)
    seal(folder)


def _oversized(folder: Path) -> None:
    os.truncate(folder / "model.onnx", MOST_FILE_BYTES + 1)  # a hole, which takes no room


def _linked(folder: Path) -> None:
    (folder / "model.onnx").rename(folder.with_suffix(".elsewhere"))
    (folder / "model.onnx").symlink_to(folder.with_suffix(".elsewhere"))


def _through(graph: onnx.GraphProto, *nodes: onnx.NodeProto) -> None:
    """The first answer passes `nodes`, from `before`, on its way out."""
    answer = graph.output[0].name
    for node in graph.node:
        node.output[:] = ["before" if name == answer else name for name in node.output]
    for node in nodes:
        node.output[:] = [answer if name == "after" else name for name in node.output]
    graph.node.extend(nodes)


def _no_number(graph: onnx.GraphProto) -> None:
    graph.initializer.append(numpy_helper.from_array(np.array(np.nan, dtype=np.float32), "nan"))
    _through(graph, helper.make_node("Mul", ["before", "nan"], ["after"]))


def _own_operator(graph: onnx.GraphProto) -> None:
    _through(graph, helper.make_node("Shell", ["before"], ["after"], domain="com.example", command="true"))


def _renamed(graph: onnx.GraphProto) -> None:
    """The answer has another name."""
    _through(graph, helper.make_node("Identity", ["before"], ["after"]))
    graph.node[-1].output[:] = ["another"]
    graph.output[0].name = "another"


def _more_than_there_is(graph: onnx.GraphProto) -> None:
    """4 GiB in one tensor."""
    graph.initializer.append(numpy_helper.from_array(np.array([1 << 30], dtype=np.int64), "many"))
    _through(
        graph,
        helper.make_node("ReduceMax", ["before"], ["largest"], keepdims=0),
        helper.make_node("Expand", ["largest", "many"], ["large"]),
        helper.make_node("ReduceMax", ["large"], ["one"], keepdims=0),
        helper.make_node("Add", ["before", "one"], ["after"]),
    )


def _endless(graph: onnx.GraphProto) -> None:
    shape = [None] * len(graph.output[0].type.tensor_type.shape.dim)
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["go"]), helper.make_node("Neg", ["it"], ["next"])],
        "body",
        [
            value("round", TensorProto.INT64, []),
            value("on", TensorProto.BOOL, []),
            value("it", TensorProto.FLOAT, shape),
        ],
        [value("go", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, shape)],
    )
    graph.initializer.append(numpy_helper.from_array(np.array(1, dtype=np.bool_), "yes"))
    _through(graph, helper.make_node("Loop", ["", "yes", "before"], ["after"], body=body))


def _narrow(manifest: Manifest) -> None:
    level = manifest["inputs"][0]
    level["knots"] = level["knots"][:-1]


_EXPORT = "export it again, or copy the whole bundle"
_OWN = r"com\.example.*, if it is your own, export it again without it"
_DIGEST = r"model\.onnx has SHA-256 .* but bundle\.json says .* copy the bundle again"
_SHORT = r"model\.onnx ends after \d+ of \d+ bytes: it was cut short, copy the bundle again"
_LARGE = rf"model\.onnx has {MOST_FILE_BYTES + 1} bytes, .* at most {MOST_FILE_BYTES}: use a smaller"
_LINK = r"model\.onnx is a link: put the file itself into the folder"
_BACKEND = "backend `tensorrt` is not known here: use one of `paged_graph`"
_MEMORY = r"Failed to allocate memory .* export the model again|alloc.* export the model again"

BAD = (
    Bad("digest", _flip, _DIGEST),
    Bad("cut", _cut, _SHORT),
    Bad("cut-and-sealed", _cut_and_sealed, _EXPORT),
    Bad("oversized", _oversized, _LARGE),
    Bad("linked", _linked, _LINK),
    Bad("backend", lambda f: edit(f, lambda m: m.update(backend="tensorrt")), _BACKEND),
    Bad(
        "quantization",
        lambda f: edit(f, lambda m: m["quantization"].update(kind="ternary")),
        "quantization `ternary` of .* bits is not supported: export it as one of",
    ),
    Bad("bins", lambda f: edit(f, _narrow), "bins cover .*: narrow the range or train with wider bins"),
    Bad(
        "shapes",
        lambda f: edit(f, lambda m: m["architecture"].update(head_dim=64)),
        r"does not run as bundle\.json says .*: correct bundle\.json or export the model again",
    ),
    Bad("missing-tensor", lambda f: regraph(f, _renamed), "logits.* or export"),
    Bad(
        "no-number",
        lambda f: regraph(f, _no_number),
        r"no usable probabilities: .*; train the model again, or export it again",
    ),
    Bad("own-operator", lambda f: regraph(f, _own_operator), _OWN),
    Bad("memory", lambda f: regraph(f, _more_than_there_is), _MEMORY),
    Bad(
        "unit",
        lambda f: edit(f, lambda m: m["inputs"][0].update(unit="ft")),
        "is configured in `m` but the model was trained in `ft`: correct the unit or train again",
    ),
    Bad("digest-2", _flip, _DIGEST, stateless=True),
    Bad("cut-2", _cut, _SHORT, stateless=True),
    Bad("cut-and-sealed-2", _cut_and_sealed, _EXPORT, stateless=True),
    Bad("oversized-2", _oversized, _LARGE, stateless=True),
    Bad("linked-2", _linked, _LINK, stateless=True),
    Bad("backend-2", lambda f: edit(f, lambda m: m.update(backend="tensorrt")), _BACKEND, stateless=True),
    Bad(
        "shapes-2",
        lambda f: edit(f, lambda m: m["tensors"][0].update(steps=2)),
        "wants shape .* in `x`, the bundle gives .*: correct bundle.json or export the model again",
        stateless=True,
    ),
    Bad(
        "missing-tensor-2",
        lambda f: regraph(f, _renamed),
        r"has no tensor `y` \(it has `x`, `another`\): correct bundle\.json or export the model again",
        stateless=True,
    ),
    Bad(
        "no-number-2",
        lambda f: regraph(f, _no_number),
        "holds nan, which is no number: .*; train the model again, or export it again",
        stateless=True,
    ),
    Bad("own-operator-2", lambda f: regraph(f, _own_operator), _OWN, stateless=True),
    Bad("memory-2", lambda f: regraph(f, _more_than_there_is), _MEMORY, stateless=True),
    Bad(
        "tag-2",
        lambda f: edit(f, lambda m: m["outputs"][0].update(tag="TK9.P999.SP")),
        "tag `TK9.P999.SP` is not configured: add it, or use a bundle made for these tags",
        stateless=True,
    ),
    Bad(
        "class-2",
        lambda f: edit(f, lambda m: m["outputs"][0].update(values=["0", "700"])),
        "ranges from 0 to 100 but a class of the model stands for 700: correct the value or the range",
        stateless=True,
    ),
)

# It gets ready never: refused when its time is over.
ENDLESS = Bad(
    "endless",
    lambda f: regraph(f, _endless),
    "gave no answer within .* ms and was killed, while it loaded and tested the model: its graph may not end",
    stateless=True,
)


def blind_between(folder: Path, low: float, high: float) -> Path:
    """A sound bundle whose answer is no number while the level is between."""
    sound(folder, stateless=True)

    def blind(graph: onnx.GraphProto) -> None:
        half, middle = (high - low) / 2, (high + low) / 2
        constants = {"first": np.array([0], np.int64), "half": half, "middle": middle, "zero": 0.0}
        graph.initializer.extend(
            numpy_helper.from_array(
                value if isinstance(value, np.ndarray) else np.array(value, np.float32), name
            )
            for name, value in constants.items()
        )
        _through(
            graph,
            helper.make_node("Gather", ["x", "first"], ["level"], axis=1),
            helper.make_node("Sub", ["level", "middle"], ["off"]),
            helper.make_node("Abs", ["off"], ["away"]),
            helper.make_node("Sub", ["away", "half"], ["outside"]),
            helper.make_node("Sqrt", ["outside"], ["root"]),
            helper.make_node("Mul", ["root", "zero"], ["nothing"]),
            helper.make_node("Add", ["before", "nothing"], ["after"]),
        )

    edit(
        folder, lambda m: m["inputs"][0].update(trained=["0", "3"])
    )  # then no probe of its self-test is there
    regraph(folder, blind)
    return folder

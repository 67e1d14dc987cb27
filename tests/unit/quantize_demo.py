"""Bundles made of the demo's, each once for all tests of a process, with a short closed loop."""

from __future__ import annotations

import functools
import json
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedHere

from gateway.inference.bundle.manifest import Bundle
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.block_pool import BlockPool, Sequence
from gateway.inference.kv.ort_session import PagedSession
from gateway.inference.quantize.graphs import Graph
from gateway.inference.quantize.making import Result
from gateway.inference.quantize.matmul_nbits import keep_in_blocks
from gateway.inference.quantize.quantizing import Wish, quantize
from gateway.inference.seal import seal
from gateway.inference.training.paired import Length
from tests.unit.inference_demo import BUFFER_TANK

SHORT = Length(seeds=1, cycles=40, fitted=0)
_KEPT = tempfile.TemporaryDirectory(prefix="o3-made-")
PAGES = 40


def _shortened() -> Path:
    """The demo bundle with fewer golden questions: everything else as it is shipped."""
    there = Path(_KEPT.name) / "source"
    shutil.copytree(BUFFER_TANK, there)
    golden = there / "golden.json"
    if golden.exists():
        told = json.loads(golden.read_text())
        golden.write_text(json.dumps(told | {"runs": [told["runs"][0][:8]]}))
    seal(there)
    return there


DEMO = _shortened()


def made(recipe: str, kv: str = "", block: int = 32) -> Result:
    """The demo bundle after a recipe."""
    return _made(recipe, kv, block)


@functools.cache
def _made(recipe: str, kv: str, block: int) -> Result:
    output = Path(_KEPT.name) / f"{recipe}-{kv}-{block}"
    return quantize(Wish(source=DEMO, output=output, recipe=recipe, kv=kv, block=block, length=SHORT))


def tokens(count: int, seed: int = 0) -> list[Token]:
    dice = random.Random(seed)  # noqa: S311 - the same tokens at each run
    return [Token(1 + dice.randrange(140), 0.25) for _ in range(count)]


def session(bundle: Bundle, graph: Path | None = None) -> PagedSession:
    manifest = bundle.manifest
    path = graph or bundle.model_path
    return PagedSession(path, manifest.architecture, pages=PAGES, block=manifest.block, provider="cpu")


def logits(bundle: Bundle, parts: list[list[Token]], graph: Path | None = None) -> NDArray[np.float32]:
    """Logits of tokens read part by part."""
    pool, sequence, there = BlockPool(PAGES - 1, bundle.manifest.block), Sequence(), session(bundle, graph)
    return np.concatenate([there.run(sequence, part, pool.append(sequence, len(part))) for part in parts])


def off(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@functools.cache
def products_in_8_bits() -> bool:
    """Whether the runtime has a kernel for them on this processor; else it does not heed the wish."""
    rng = np.random.default_rng(0)
    weight, x = rng.normal(size=(64, 32)).astype(np.float32), rng.normal(size=(1, 64)).astype(np.float32)
    answers = []
    for products in ("float32", "in_8"):
        one = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
            "one",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 32])],
            initializer=[numpy_helper.from_array(weight, "w")],
        )
        graph = Graph(helper.make_model(one, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
        keep_in_blocks(graph, {"w": 8}, 32, products="in_8" if products == "in_8" else "float32")
        content = graph.model.SerializeToString()
        try:
            session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        except NotImplementedHere:
            return False
        answers.append(session.run(None, {"x": x})[0])
    return off(answers[1], answers[0]) > 1e-4  # rounding alone is 1e-6


def needs_products_in_8_bits() -> None:
    """Skips the test on a processor whose runtime multiplies in float32 whatever is asked for."""
    if not products_in_8_bits():
        pytest.skip(
            "the runtime has no kernel on this processor for products in 8 bits (AVX-512 VNNI or alike)"
        )

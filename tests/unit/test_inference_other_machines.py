"""Golden answers where sums are made in another order: what can be varied of the runtime on one machine.

Fusions, threads, packing of matrices, parallel operators, and numpy without vector instructions. Instruction
sets of the runtime itself cannot be chosen: `docs/quantization.md` says on which processors answers were
compared.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnxruntime import SessionOptions as Options

from gateway.inference.bundle.manifest import load_bundle
from gateway.inference.golden import replay
from gateway.inference.kv.ort_session import PagedSession
from tests.unit.inference_demo import BUNDLES

SHIPPED = ["buffer-tank", "four-tank"]  # the longest band and the most bins; the others are of the same kinds


def level(wanted: onnxruntime.GraphOptimizationLevel) -> Callable[[Options], None]:
    return lambda options: setattr(options, "graph_optimization_level", wanted)


def threads(count: int) -> Callable[[Options], None]:
    return lambda options: setattr(options, "intra_op_num_threads", count)


def entry(name: str) -> Callable[[Options], None]:
    def add(options: Options) -> None:
        options.add_session_config_entry(name, "1")

    return add


def parallel(options: Options) -> None:
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 2


VARIED: dict[str, Callable[[Options], None]] = {
    "nothing fused": level(onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL),
    "basic fusions": level(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC),
    "extended fusions": level(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED),
    "two threads": threads(2),
    "four threads": threads(4),
    "operators side by side": parallel,
    "matrices not packed": entry("session.disable_prepacking"),
    "no tiny numbers": entry("session.set_denormal_as_zero"),
}


@pytest.mark.parametrize("varied", VARIED)
@pytest.mark.parametrize("name", SHIPPED)
def test_golden_answers_are_the_same_however_the_runtime_sums(
    name: str, varied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, made = onnxruntime.InferenceSession, list[str]()

    def other(model: str, options: Options, providers: object) -> object:
        VARIED[varied](options)
        made.append(model)
        return session(model, options, providers=providers)

    monkeypatch.setattr(onnxruntime, "InferenceSession", other)
    found = replay(load_bundle(BUNDLES / name))

    assert made
    assert found.same
    assert found.worst_action_error_of_span <= 1e-5, "a hundredth of what is tolerated"


def test_golden_answers_are_the_same_where_numpy_has_no_vectors() -> None:
    found = np.show_config(mode="dicts")
    assert isinstance(found, dict)
    without = " ".join(found["SIMD Extensions"].get("found", []))
    done = subprocess.run(  # noqa: S603  our own interpreter
        (sys.executable, "-m", "gateway.inference.golden", str(BUNDLES / "four-tank")),
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": without},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=360,
    )

    assert done.returncode == 0, done.stderr
    assert "0 with other counts" in done.stdout


def test_a_machine_whose_logits_are_off_by_more_than_sums_ever_are_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of sums in another order logits move by 1e-6 of their size; with 1e-4 answers still are the same."""
    exact, dice = PagedSession.run_rows, np.random.default_rng(0)
    noise = 0.0

    def off(self: PagedSession, rows: object) -> NDArray[np.float32]:
        logits = exact(self, rows)  # type: ignore[arg-type]  # rows as they are
        size = np.sqrt((logits**2).mean(axis=-1, keepdims=True))
        moved: NDArray[np.float32] = (logits + noise * size * dice.normal(size=logits.shape)).astype(
            np.float32
        )
        return moved

    monkeypatch.setattr(PagedSession, "run_rows", off)
    bundle = load_bundle(BUNDLES / "four-tank")
    noise = 1e-4
    little = replay(bundle)
    noise = 1e-2
    much = replay(bundle)

    assert little.same
    assert little.worst_action_error_of_span > 1e-6, "it was noisy"
    assert not much.same
    assert much.wrong_counts > 0

"""Writes a bundle: graphs, calibration record and `bundle.json`."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import msgspec

from gateway.inference.bundle import (
    BUNDLE_FILE,
    FORMAT,
    GATE_FILE,
    MODEL_FILE,
    REFERENCE_FILE,
    Confidence,
    FileSpec,
    Manifest,
    Quantization,
    Training,
)
from gateway.inference.training import vocabulary
from gateway.inference.training.dataset import Runs
from gateway.inference.training.graph import Weights, write_graph

GATES = {
    "int8_relative_l2": 0.02,
    "int8_row_p99": 0.05,
    "expected_action_error_of_span": 0.01,
    "iae_over_expert": 1.05,
    "iae_over_pi": 1.0,
}
RECIPE = "gateway/inference/training/README.md"


def draft(
    name: str, revision: int, description: str, trained: tuple[tuple[str, str], ...], training: Training
) -> Manifest:
    """A manifest that still lacks files and figures."""
    inputs, outputs, size = vocabulary.specs(trained)
    return Manifest(
        format=FORMAT,
        id=name,
        revision=revision,
        description=description,
        cycle_s=vocabulary.CYCLE_S,
        inputs=inputs,
        outputs=outputs,
        window=vocabulary.WINDOW,
        block=vocabulary.BLOCK,
        architecture=vocabulary.architecture(vocabulary.shape(size)),
        quantization=Quantization(kind="matmul_nbits", bits=8, block=vocabulary.QUANTIZED_BLOCK),
        files={},
        training=training,
        gates=GATES,
        accuracy={},
        closed_loop={},
        confidence=Confidence(edges=(), hit_rate=(0.0,)),
    )


def write_model(directory: Path, manifest: Manifest, weights: Weights) -> Manifest:
    """Both graphs, into `directory`; the manifest that names them."""
    directory.mkdir(parents=True, exist_ok=True)
    size = vocabulary.shape(manifest.architecture.vocabulary)
    write_graph(directory / MODEL_FILE, size, weights, manifest.quantization.block)
    write_graph(directory / REFERENCE_FILE, size, weights, None)
    return write_manifest(directory, manifest)


def write_gate_record(directory: Path, runs: Runs) -> None:
    """Held-out cycles for the accuracy gate, as exact decimals."""
    rows = [
        [
            [[f"{value:g}" for value in measured], [f"{value:g}" for value in applied]]
            for measured, applied in zip(run_measured[1:], run_applied[1:], strict=True)
        ]
        for run_measured, run_applied in zip(runs.measured, runs.in_force, strict=True)
    ]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / GATE_FILE).write_bytes(msgspec.json.encode(rows))


def write_manifest(directory: Path, manifest: Manifest) -> Manifest:
    """`bundle.json` with the digests of the files that are there."""
    files = {}
    for name in (MODEL_FILE, REFERENCE_FILE, GATE_FILE):
        path = directory / name
        if path.exists():
            content = path.read_bytes()
            files[name] = FileSpec(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
    manifest = msgspec.structs.replace(manifest, files=files)
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (directory / BUNDLE_FILE).write_bytes(text + b"\n")
    return manifest


_HERE = Path(__file__).parent
_PLANT = _HERE.parents[1] / "plantsim"
_DECIDING = (
    *(_HERE / f"{name}.py" for name in ("build", "dataset", "expert", "model", "train", "vocabulary")),
    *(_PLANT / f"{name}.py" for name in ("controllers", "tank")),
)


def recipe_digest() -> str:
    """SHA-256 over what decides the weights: these modules' syntax trees, so not their comments or layout."""
    digest = hashlib.sha256()
    for path in _DECIDING:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                node.body = node.body[1:] or [ast.Pass()]
        digest.update(f"{path.stem}\0{ast.dump(tree)}\0".encode())
    return digest.hexdigest()

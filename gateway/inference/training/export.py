"""Writes a bundle: graphs, calibration record and `bundle.json`."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
from pathlib import Path

import msgspec

from gateway.inference.bundle.described import FORMAT, Confidence
from gateway.inference.bundle.files import BUNDLE_FILE, MODEL_FILE, FileSpec
from gateway.inference.bundle.gate_record import written_gate_record
from gateway.inference.bundle.manifest import (
    GATE_FILE,
    GOLDEN_FILE,
    REFERENCE_FILE,
    Manifest,
    Quantization,
    Training,
)
from gateway.inference.training import vocabulary
from gateway.inference.training.dataset import Runs
from gateway.inference.training.graph import Weights, write_graph
from gateway.inference.training.recipes import RECIPES, Recipe
from gateway.inference.training.reliability import RELIABILITY_FILE

GATES = {
    "relative_l2": 0.02,
    "row_p99": 0.05,
    "expected_action_error_of_span": 0.01,
    "objective_over_twin": 1.02,
    "iae_over_expert": 1.05,
    "iae_over_pi": 1.0,
    "unlike_iae_over_expert": 1.15,
    "unlike_iae_over_pi": 1.0,
}
RECIPE = "gateway/inference/training/README.md"


def draft(name: str, recipe: Recipe, trained: tuple[tuple[str, str], ...], training: Training) -> Manifest:
    """A manifest that still lacks files and figures."""
    inputs, outputs, size = vocabulary.specs(recipe.plant, trained)
    return Manifest(
        format=FORMAT,
        id=name,
        revision=recipe.revision,
        description=recipe.description,
        cycle_s=recipe.plant.cycle_s,
        inputs=inputs,
        outputs=outputs,
        window=recipe.window,
        block=vocabulary.BLOCK,
        architecture=vocabulary.architecture(vocabulary.shape(recipe, size)),
        quantization=Quantization(kind="unfolded", bits=8, block=vocabulary.QUANTIZED_BLOCK),
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
    size = vocabulary.shape(RECIPES[manifest.id], manifest.architecture.vocabulary)
    write_graph(directory / MODEL_FILE, size, weights, manifest.quantization.block, unfold=True)
    write_graph(directory / REFERENCE_FILE, size, weights, None)
    return write_manifest(directory, manifest)


def write_gate_record(directory: Path, runs: Runs) -> None:
    """Held-out cycles for the accuracy gate, as exact decimals."""
    rows = [
        [
            (tuple(f"{value:g}" for value in measured), tuple(f"{value:g}" for value in applied))
            for measured, applied in zip(run_measured[1:], run_applied[1:], strict=True)
        ]
        for run_measured, run_applied in zip(runs.measured, runs.in_force, strict=True)
    ]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / GATE_FILE).write_bytes(written_gate_record(rows))


def write_manifest(directory: Path, manifest: Manifest) -> Manifest:
    """`bundle.json` with the digests of the files that are there."""
    files = {}
    for name in (MODEL_FILE, REFERENCE_FILE, GATE_FILE, GOLDEN_FILE, RELIABILITY_FILE):
        path = directory / name
        if path.exists():
            content = path.read_bytes()
            files[name] = FileSpec(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
    manifest = msgspec.structs.replace(manifest, files=files)
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (directory / BUNDLE_FILE).write_bytes(text + b"\n")
    return manifest


_PACKAGE = Path(__file__).parents[2]
_ALWAYS = ("build", "dataset", "model", "plant", "train", "vocabulary")


def recipe_digest(name: str) -> str:
    """SHA-256 over what decides the weights: the recipe's words, and syntax trees of the modules that run it.

    Not comments or layout, nor where a name is imported from; of the recipes only this one, so that another
    changes nothing.
    """
    recipe = RECIPES[name]
    words = {
        field.name: getattr(recipe, field.name)
        for field in dataclasses.fields(recipe)
        if field.name not in {"plant", "description"}
    }
    digest = hashlib.sha256(repr(sorted(words.items())).encode())
    modules = (*(f"inference/training/{module}" for module in _ALWAYS), *recipe.plant.modules)
    for module in modules:
        tree = ast.parse((_PACKAGE / f"{module}.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                node.module = ""
            elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                node.body = node.body[1:] or [ast.Pass()]
        digest.update(f"{module}\0{ast.dump(tree)}\0".encode())
    if recipe.first:
        digest.update(recipe_digest(recipe.first).encode())
    return digest.hexdigest()

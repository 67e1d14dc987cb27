"""A new bundle beside an old one: built in its own folder, measured there, in place whole or not at all."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime

from gateway.core.durable import sync_folder
from gateway.core.errors import InferenceError
from gateway.inference.bundle.files import BUNDLE_FILE, MODEL_FILE
from gateway.inference.bundle.gate_record import read_gate_record
from gateway.inference.bundle.manifest import GOLDEN_FILE, REFERENCE_FILE, Bundle, Manifest
from gateway.inference.bundle.twin import files_of, load_decoder
from gateway.inference.decision_model import ranges_of
from gateway.inference.golden import Golden, ranged, written
from gateway.inference.kv.ort_session import Provider
from gateway.inference.quantize.figures import Figures, Progress, bars, measure
from gateway.inference.quantize.trust import fitted_again
from gateway.inference.serving.serving import Size, start_engine
from gateway.inference.training.paired import Length


class GateRefusedError(InferenceError):
    """What was made misses a bar and was thrown away; `figures` says by how much."""

    def __init__(self, recipe: str, figures: Figures, gates: dict[str, float], failures: list[str]) -> None:
        super().__init__(f"`{recipe}` is refused, nothing was written: {'; '.join(failures)}")
        self.figures, self.gates, self.failures = figures, gates, failures


@dataclass(frozen=True, slots=True)
class Result:
    """A bundle in its place, and its figures; None where this machine cannot run it to measure them."""

    bundle: Bundle
    figures: Figures | None
    gates: dict[str, float]


@contextmanager
def beside(output: Path) -> Iterator[Path]:
    """An empty folder next to `output` that goes away; raises `InferenceError` where that cannot be."""
    if output.exists():
        raise InferenceError(f"`{output}` exists already: name another folder, or remove that one")
    staging = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        staging.mkdir()
    except OSError as exc:
        raise InferenceError(f"`{staging}` cannot be made ({exc.strerror}): name another folder") from exc
    try:
        yield staging
    except OSError as exc:
        raise InferenceError(f"`{output}` cannot be written: {exc.strerror or exc}") from exc
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def finish(
    staging: Path,
    output: Path,
    manifest: Manifest,
    length: Length,
    progress: Progress,
    provider: Provider | None,
) -> Result:
    """Describe, measure and gate what stands in `staging`, then move it to `output`.

    Raises `GateRefusedError`, or what an engine says that does not start with it, and `output` does not exist
    then. Without a `provider` that it can run on nothing is gated, and the description says so.
    """
    manifest = _described(staging, manifest)
    bundle = load_decoder(staging)
    gates, needs_loop = bars(bundle)
    figures = None
    if provider is not None:
        start_engine(bundle, tuple(ranges_of(bundle).values()), Size(provider))
        _answer_again(bundle)
        figures = measure(bundle, length, provider, progress)
        if failures := figures.failures(gates, needs_loop=needs_loop):
            assert manifest.made is not None, "it is being made"  # noqa: S101 - an invariant
            raise GateRefusedError(manifest.made.recipe, figures, gates, failures)
        manifest = msgspec.structs.replace(
            manifest,
            accuracy=figures.accuracy(),
            closed_loop=figures.closed_loop() | _length(length, figures),
        )
        manifest = fitted_again(replace(bundle, manifest=manifest), length.fitted, provider, progress)
    else:
        (staging / GOLDEN_FILE).unlink(missing_ok=True)  # the source's answers, not this model's
    _described(staging, msgspec.structs.replace(manifest, gates=gates))
    load_decoder(staging)
    for path in (*staging.iterdir(), staging):
        _sync(path)
    if output.exists():
        raise InferenceError(f"`{output}` exists by now: name another folder, or remove that one")
    staging.rename(output)
    sync_folder(output.parent)
    return Result(load_decoder(output), figures, gates)


def take_along(source: Bundle, staging: Path, reference: Path) -> None:
    """Copy what a bundle needs beside its graph: the float32 one, the held-out cycles, golden questions.

    Raises `BundleError` where there are no held-out cycles.
    """
    shutil.copyfile(reference, staging / REFERENCE_FILE)
    read_gate_record(source)
    for name in source.manifest.files:
        if name not in {MODEL_FILE, REFERENCE_FILE}:
            shutil.copyfile(source.directory / name, staging / name)


def _answer_again(bundle: Bundle) -> None:
    """Golden answers are those of the very model: the same questions, answered anew."""
    if GOLDEN_FILE not in bundle.manifest.files:
        return
    path = bundle.directory / GOLDEN_FILE
    old = msgspec.json.decode(path.read_bytes(), type=Golden)
    asked = [[(cycle.inputs, cycle.in_force) for cycle in run] for run in old.runs]
    new = written(bundle, [ranged(limits) for limits in old.outputs], asked)
    path.write_bytes(msgspec.json.encode(new) + b"\n")


def tools() -> dict[str, str]:
    """Versions of what decides the bytes of a result."""
    versions = {"onnxruntime": onnxruntime.__version__, "numpy": np.__version__}
    try:
        import onnx  # noqa: PLC0415 - an extra
    except ImportError:
        return versions
    return versions | {"onnx": onnx.__version__, "python": platform.python_version()}


def _length(length: Length, figures: Figures) -> dict[str, float]:
    if figures.objective is None:
        return {}
    return {"seeds": float(length.seeds), "cycles": float(length.cycles)}


def _described(staging: Path, manifest: Manifest) -> Manifest:
    names = sorted(path.name for path in staging.iterdir() if path.name != BUNDLE_FILE)
    manifest = msgspec.structs.replace(manifest, files=files_of(staging, names))
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (staging / BUNDLE_FILE).write_bytes(text + b"\n")
    return manifest


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

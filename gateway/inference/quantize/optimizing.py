"""A bundle whose graph ONNX Runtime has fused for this machine, as at each start else, and what it fused."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec
import onnxruntime

from gateway.core.errors import InferenceError
from gateway.inference.bundle.files import MODEL_FILE, BundleError
from gateway.inference.bundle.made import Fused, Made
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.bundle.target import check_target
from gateway.inference.bundle.twin import float32_graph, load_decoder
from gateway.inference.kv.ort_session import Provider, providers_for
from gateway.inference.quantize.figures import Progress
from gateway.inference.quantize.graphs import Graph
from gateway.inference.quantize.making import Result, beside, finish, take_along, tools
from gateway.inference.training.paired import Length

Level = Literal["basic", "extended", "all"]
_LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def optimize(
    directory: Path,
    output: Path,
    level: str = "extended",
    *,
    device: str = "cpu",
    length: Length,
    progress: Progress = lambda _, __: None,
) -> Result:
    """Fuse, measure, gate, put into place. Raises `InferenceError`; `output` does not exist then."""
    if level not in _LEVELS:
        raise InferenceError(f"level `{level}` is not known: use one of {', '.join(_LEVELS)}")
    wanted: dict[str, Provider] = {"cpu": "cpu", "cuda": "cuda"}
    if device not in wanted:
        raise InferenceError(f"device `{device}` is not known: use `cpu` or `cuda`")
    providers = providers_for(wanted[device])
    source = load_decoder(directory)
    check_target(source, providers[0], onnxruntime.__version__)
    if source.manifest.made is not None and source.manifest.made.fused is not None:
        problem = "its graph is fused already: give the bundle it was made of"
        raise BundleError(directory, problem)
    with beside(output) as staging:
        take_along(source, staging, float32_graph(source))
        progress("fusing", 0.0)
        _fuse(source.model_path, staging / MODEL_FILE, level, providers)
        progress("fusing", 1.0)
        fused = _told(source, staging / MODEL_FILE, level, providers[0])
        manifest = msgspec.structs.replace(source.manifest, made=_made(source, fused, providers[0]))
        length = replace(length, fitted=0)  # the same numbers, less their last bits: as sure as before
        return finish(staging, output, manifest, length, progress, wanted[device])


def _fuse(model: Path, fused: Path, level: str, providers: list[str]) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns that the result is for one machine: the description says so
    options.graph_optimization_level = _LEVELS[level]
    options.optimized_model_filepath = str(fused)
    try:
        onnxruntime.InferenceSession(str(model), options, providers=providers)
    except Exception as exc:  # the runtime raises its own types, some private, for a bad model
        raise InferenceError(f"`{model}` cannot be fused: {exc}") from exc


def _told(source: Bundle, fused: Path, level: str, provider: str) -> Fused:
    before, after = Graph.read(source.model_path).operators(), Graph.read(fused).operators()
    return Fused(
        level=level,
        provider=provider,
        runtime=onnxruntime.__version__,
        machine=platform.machine(),
        operators=after,
        gone={
            name: count - after.get(name, 0) for name, count in before.items() if count > after.get(name, 0)
        },
        new={
            name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)
        },
    )


def _made(source: Bundle, fused: Fused, provider: str) -> Made:
    before = source.manifest.made
    if before is None:
        return Made(recipe="optimized", source=source.digest, tools=tools(), gated=provider, fused=fused)
    return msgspec.structs.replace(before, source=source.digest, tools=tools(), gated=provider, fused=fused)

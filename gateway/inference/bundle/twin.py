"""The float32 model that a bundle is measured against, as a bundle of its own in a folder for a while."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from gateway.inference.bundle.any_bundle import load_any
from gateway.inference.bundle.files import BUNDLE_FILE, MODEL_FILE, BundleError, FileSpec, measured
from gateway.inference.bundle.manifest import REFERENCE_FILE, Bundle, Quantization

WHOLE = Quantization(kind="none", bits=32, block=0)


def load_decoder(directory: Path) -> Bundle:
    """The bundle in `directory`; raises `BundleError`, also for a model that keeps no history of tokens."""
    bundle = load_any(directory)
    if not isinstance(bundle, Bundle):
        problem = (
            "it is a stateless model, and these tools are for decoders: they keep matrices, keys and values "
            "smaller and are held to a decoder's tokens; make a stateless model smaller where it is exported "
            "(such as by onnxruntime.quantization), measure it there, and seal it again"
        )
        raise BundleError(directory, problem)
    return bundle


def float32_graph(bundle: Bundle) -> Path:
    """The graph as it was trained; raises `BundleError` where the bundle lacks it."""
    if REFERENCE_FILE in bundle.manifest.files:
        return bundle.directory / REFERENCE_FILE
    quantization = bundle.manifest.quantization
    if (quantization.kind, quantization.kv) == ("none", "float32") and _as_exported(bundle):
        return bundle.model_path
    problem = (
        f"it has no {REFERENCE_FILE} and its model is `{quantization.kind}`: put the float32 graph beside it "
        f"as {REFERENCE_FILE} and seal the bundle, or use the bundle it was made of"
    )
    raise BundleError(bundle.directory, problem)


@contextmanager
def twin_of(bundle: Bundle) -> Iterator[Bundle]:
    """The float32 model as a bundle with the same tags, window and held-out cycles."""
    graph = float32_graph(bundle)
    with TemporaryDirectory(prefix="o3-twin-") as folder:
        there = Path(folder)
        shutil.copyfile(graph, there / MODEL_FILE)
        beside = [name for name in bundle.manifest.files if name not in {MODEL_FILE, REFERENCE_FILE}]
        for name in beside:
            shutil.copyfile(bundle.directory / name, there / name)
        manifest = msgspec.structs.replace(
            bundle.manifest, quantization=WHOLE, made=None, files=files_of(there, [MODEL_FILE, *beside])
        )
        (there / BUNDLE_FILE).write_bytes(msgspec.json.encode(manifest))
        yield load_decoder(there)


def files_of(directory: Path, names: list[str]) -> dict[str, FileSpec]:
    """Digest and size of files."""
    return {name: measured(directory, name) for name in names}


def _as_exported(bundle: Bundle) -> bool:
    return bundle.manifest.made is None or bundle.manifest.made.fused is None

"""A bundle of fewer bits from a bundle with its float32 graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gateway.core.errors import InferenceError
from gateway.inference.bundle.files import MODEL_FILE
from gateway.inference.bundle.made import KV_TYPES, KvType, Made
from gateway.inference.bundle.manifest import PAGED, Quantization
from gateway.inference.bundle.twin import float32_graph, load_decoder
from gateway.inference.kv.ort_session import Provider, providers_for
from gateway.inference.quantize.figures import Progress
from gateway.inference.quantize.graphs import Graph
from gateway.inference.quantize.making import Result, beside, finish, take_along, tools
from gateway.inference.quantize.passes import apply, matrices
from gateway.inference.quantize.recipes import recipe_named
from gateway.inference.training.paired import Length

_LEAST_BLOCK, _MOST_BLOCK = 16, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be made of `source`, and where. `kv` may be left to the recipe."""

    source: Path
    output: Path
    recipe: str
    kv: str = ""
    block: int = 32
    device: str = "cpu"
    length: Length = field(default_factory=Length)


def quantize(wish: Wish, progress: Progress = lambda _, __: None) -> Result:
    """Make, measure, gate, put into place. Raises `InferenceError`; `output` does not exist then."""
    recipe = recipe_named(wish.recipe)
    if wish.device not in {"cpu", "cuda"}:
        raise InferenceError(f"device `{wish.device}` is not known: use `cpu` or `cuda`")
    if wish.block & (wish.block - 1) or not _LEAST_BLOCK <= wish.block <= _MOST_BLOCK:
        raise InferenceError(f"a block has 16, 32, 64, 128 or 256 numbers, not {wish.block}")
    source = load_decoder(wish.source)
    own = recipe.kv if source.manifest.backend in PAGED else "float32"  # exports bring their own
    kv = _kv(wish.kv or own)
    if (recipe.kind, kv) == ("none", "float32"):
        raise InferenceError("recipe `fp32` changes nothing by itself: add --kv float16 or --kv int8")
    reference = float32_graph(source)
    with beside(wish.output) as staging:
        take_along(source, staging, reference)
        graph = Graph.read(reference)
        total, done = max(1, matrices(graph)), 0

        def advance() -> None:
            nonlocal done
            done += 1
            progress("matrices", done / total)

        made_of = apply(
            graph,
            recipe,
            source.manifest.architecture,
            kv=kv,
            block=wish.block,
            device=wish.device,
            advance=advance,
        )
        progress("matrices", 1.0)
        graph.write(staging / MODEL_FILE)
        only = wish.device if recipe.half and wish.device == "cuda" else ""
        provider = _provider(only)
        manifest = msgspec.structs.replace(
            source.manifest,
            quantization=Quantization(kind=recipe.kind, bits=recipe.bits, block=wish.block, kv=kv),
            accuracy={},
            closed_loop={},
            made=Made(
                recipe=recipe.name,
                source=source.digest,
                tools=tools(),
                gated="" if provider is None else providers_for(provider)[0],
                device=only,
                in_float32=made_of.in_float32,
                steps=made_of.steps,
            ),
        )
        return finish(staging, wish.output, manifest, wish.length, progress, provider)


def _kv(name: str) -> KvType:
    for known in KV_TYPES:
        if name == known:
            return known
    raise InferenceError(f"keys and values cannot be kept in `{name}`: use one of {', '.join(KV_TYPES)}")


def _provider(only: str) -> Provider | None:
    """Where a bundle for one device, or for any, is measured; None where that device is absent."""
    if only != "cuda":
        return "cpu"
    try:
        providers_for("cuda")
    except InferenceError:
        return None
    return "cuda"

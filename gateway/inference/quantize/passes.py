"""The passes of a recipe over a graph, in their order."""

from __future__ import annotations

from collections.abc import Callable

from gateway.inference.bundle.made import KvType
from gateway.inference.bundle.manifest import Architecture
from gateway.inference.quantize.gemm import as_matmuls, gemms
from gateway.inference.quantize.graphs import Graph
from gateway.inference.quantize.half import HALVES, to_half
from gateway.inference.quantize.kernels import not_on_cpu
from gateway.inference.quantize.kv import keep_kv
from gateway.inference.quantize.matmul_nbits import keep_in_blocks
from gateway.inference.quantize.mixed import bits_of
from gateway.inference.quantize.recipes import Done, Recipe


def apply(
    graph: Graph,
    recipe: Recipe,
    architecture: Architecture,
    *,
    kv: KvType,
    block: int,
    device: str,
    advance: Callable[[], None] = lambda: None,
) -> Done:
    """Change `graph` as `recipe` says, keys and values as `kv`; `advance` is called for each matrix.

    With `device` `cpu` what the CPU provider cannot run in a half type stays in float32; else nothing does.
    """
    keep_kv(graph, architecture, kv)
    if recipe.kind != "none":
        as_matmuls(graph)
    wanted = bits_of(graph, recipe)
    steps: dict[str, int] = {}
    for bits in wanted.values():
        steps[f"{bits} bit"] = steps.get(f"{bits} bit", 0) + 1
    whole = len({node.input[1] for node in graph.matmuls()}) - len(wanted)
    if whole:
        steps[recipe.half or "float32"] = whole
    if wanted:
        keep_in_blocks(graph, wanted, block, advance, products=recipe.products)
    if not recipe.half:
        return Done(steps)
    half = HALVES[recipe.half]
    kept = not_on_cpu(graph, graph.types(), half) if device == "cpu" else set()
    return Done(steps, tuple(to_half(graph, half, kept)))


def matrices(graph: Graph) -> int:
    """How often `apply` may call `advance`."""
    return len({node.input[1] for node in (*graph.matmuls(), *gemms(graph))})

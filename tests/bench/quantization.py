"""What each recipe saves and loses: ms a decode step, MB, logits, actions and the closed loop.

First the demo's model, with every figure of its gates. It is small: its steps cost what it costs to call
their operators. Then a decoder of 25 million random weights, where the weights decide; it says nothing of
plants. CPU time of this process' one thread, so that other work on the machine counts little.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import gateway.inference
from gateway.inference.bundle.kv_bytes import predicted
from gateway.inference.bundle.made import KvType
from gateway.inference.bundle.manifest import Architecture, Bundle, load_bundle
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.golden import Replayed, replay
from gateway.inference.kv.paged_graph import PagedGraph
from gateway.inference.quantize.figures import Figures
from gateway.inference.seal import seal
from gateway.inference.training.paired import Length
from tests.bench.report import Figure, percentile

BUNDLE = Path(gateway.inference.__file__).parent / "bundles" / "buffer-tank"
RECIPES: tuple[tuple[str, KvType], ...] = (
    ("fp32", "float32"),
    ("int8", "float32"),
    ("int8w", "float32"),
    ("int8a8", "float32"),
    ("int4", "float32"),
    ("mixed", "float16"),
    ("fp16", "float16"),
    ("bf16", "float32"),
    ("fp32", "int8"),
    ("int8", "int8"),
)
LENGTH = Length(seeds=4, fitted=0)
STEPS = 150
HELD = 256  # tokens
LARGE = Architecture(layers=8, heads=8, head_dim=64, rotary_base=10_000.0, vocabulary=1024, begin_token=0)
_LARGE_HIDDEN = 2048


@dataclass(frozen=True, slots=True)
class Row:
    """One recipe on one model."""

    name: str
    step_ms: dict[int, float]  # by batch
    model_mb: float
    kv_bytes: int  # a token
    figures: Figures | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A shipped model's golden answers on a machine without the kernel; None where it cannot be made."""

    name: str
    found: Replayed | None
    refused: str = ""


def run(console: Console) -> list[Figure]:
    """Both tables."""
    if importlib.util.find_spec("onnx") is None:
        console.print("[yellow]not measured: recipes need `onnx`: pip install 'o3-gateway\\[models]'[/]")
        return []
    with tempfile.TemporaryDirectory() as folder:
        demo = list(_demo(Path(folder)))
        _show(console, "the demo's model", demo)
        large = list(_large(Path(folder)))
        _show(console, "25 million random weights", large)
        kernels = list(_kernels(Path(folder)))
        _show_kernels(console, kernels)
    return [*_figures(demo), *_speeds(large), *_portability(kernels)]


def _kernels(folder: Path) -> Iterator[Kernel]:
    """Golden answers of a shipped model by `int8a8`, and by the same graph where products are float32's.

    A runtime without products in 8 bits for a processor ignores that they are asked for: so this is what
    another machine would answer.
    """
    from gateway.inference.quantize.graphs import Graph  # noqa: PLC0415  onnx
    from gateway.inference.quantize.making import GateRefusedError  # noqa: PLC0415
    from gateway.inference.quantize.quantizing import Wish, quantize  # noqa: PLC0415

    for source in sorted(path.parent for path in BUNDLE.parent.glob("*/golden.json")):
        there = folder / f"kernel-{source.name}"
        try:
            made = quantize(Wish(source=source, output=there, recipe="int8a8", length=LENGTH)).bundle
        except GateRefusedError as exc:
            yield Kernel(source.name, None, "; ".join(exc.failures))
            continue
        graph = Graph.read(made.model_path)
        for node in graph.nodes:
            kept = [one for one in node.attribute if one.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend(kept)
        graph.write(made.model_path)
        yield Kernel(source.name, replay(cast("Bundle", seal(there))))


def _show_kernels(console: Console, rows: list[Kernel]) -> None:
    table = Table(
        "model by int8a8", "answers", "other counts", "action off by", title="without products in 8 bits"
    )
    for row in rows:
        found = row.found
        if found is None:
            table.add_row(row.name, f"not made: {row.refused}")
        else:
            worst = f"{found.worst_action_error_of_span:.2g}"
            table.add_row(row.name, str(found.answers), str(found.wrong_counts), worst)
    console.print(table)


def _portability(rows: list[Kernel]) -> Iterator[Figure]:
    for row in rows:
        if row.found is not None:
            share = row.found.wrong_counts / row.found.answers
            yield Figure("quantization", f"int8a8_{row.name}_other_counts_elsewhere", share)


def _figures(rows: list[Row]) -> Iterator[Figure]:
    for row in rows:
        if row.figures is not None:
            told = {**row.figures.accuracy(), **row.figures.closed_loop()}
            for name in ("relative_l2", "expected_action_error_of_span", "objective_over_twin"):
                yield Figure("quantization", f"{row.name}_{name}", told[name])


def _speeds(rows: list[Row]) -> Iterator[Figure]:
    whole = next(row for row in rows if row.name == "fp32")
    for row in rows:
        if row is not whole:
            faster = whole.step_ms[1] / row.step_ms[1]
            yield Figure("quantization", f"{row.name}_large_step_speedup", faster)
            yield Figure("quantization", f"{row.name}_large_size", row.model_mb / whole.model_mb)


def _demo(folder: Path) -> Iterator[Row]:
    from gateway.inference.bundle.twin import twin_of  # noqa: PLC0415
    from gateway.inference.quantize.quantizing import Wish, quantize  # noqa: PLC0415  onnx

    source = load_bundle(BUNDLE)
    for recipe, kv in RECIPES:
        name = _name(recipe, kv)
        if (recipe, kv) == ("fp32", "float32"):
            with twin_of(source) as twin:
                size = twin.model_path.stat().st_size / 1e6
                steps = _steps(twin.model_path, twin.manifest.architecture, twin.manifest.block)
                yield Row(name, steps, size, predicted(twin, 1).token, None)
            continue
        made = quantize(Wish(source=BUNDLE, output=folder / name, recipe=recipe, kv=kv, length=LENGTH))
        path, manifest = made.bundle.model_path, made.bundle.manifest
        steps = _steps(path, manifest.architecture, manifest.block)
        yield Row(name, steps, path.stat().st_size / 1e6, predicted(made.bundle, 1).token, made.figures)


def _large(folder: Path) -> Iterator[Row]:
    from gateway.inference.quantize.graphs import Graph  # noqa: PLC0415  onnx
    from gateway.inference.quantize.passes import apply  # noqa: PLC0415
    from gateway.inference.quantize.recipes import RECIPES as KNOWN  # noqa: PLC0415
    from gateway.inference.training.graph import Shape, write_graph  # noqa: PLC0415

    shape = Shape(
        vocabulary=LARGE.vocabulary,
        layers=LARGE.layers,
        heads=LARGE.heads,
        head_dim=LARGE.head_dim,
        hidden=_LARGE_HIDDEN,
        window=512,
        block=16,
    )
    write_graph(folder / "large.onnx", shape, _random_weights(shape.width), None)
    for recipe, kv in RECIPES:
        graph, path = Graph.read(folder / "large.onnx"), folder / "recipe.onnx"
        apply(graph, KNOWN[recipe], LARGE, kv=kv, block=32, device="cpu")
        graph.write(path)
        head = LARGE.head_dim * {"float32": 4, "float16": 2, "int8": 1}[kv] + 2 * (kv == "int8")
        size = path.stat().st_size / 1e6
        yield Row(
            _name(recipe, kv), _steps(path, LARGE, 16), size, 2 * LARGE.layers * LARGE.heads * head, None
        )


def _random_weights(width: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(1)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        found: NDArray[np.float32] = (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)
        return found

    ones = np.ones(width, dtype=np.float32)
    weights = {"embedding": matrix(LARGE.vocabulary + 1, width), "norm": ones}
    weights["head"] = matrix(width, LARGE.vocabulary)
    for layer in range(LARGE.layers):
        weights |= {f"{name}_{layer}": matrix(width, width) for name in ("wq", "wk", "wv", "wo")}
        weights |= {
            f"up_{layer}": matrix(width, _LARGE_HIDDEN),
            f"down_{layer}": matrix(_LARGE_HIDDEN, width),
        }
        weights |= {f"norm_attention_{layer}": ones, f"norm_feed_{layer}": ones}
    return weights


def _steps(model: Path, architecture: Architecture, block: int) -> dict[int, float]:
    """Median CPU ms of a decode step behind `HELD` tokens, at batch 1 and 8."""
    pages = 8 * (HELD // block + 2) + 1
    backend = PagedGraph(model, architecture, pages=pages, block=block, provider="cpu")
    found = {}
    for batch in (1, 8):
        caches = [backend.open() for _ in range(batch)]
        for at, cache in enumerate(caches):
            backend.forward([(cache, [Token((7 * n + at) % 100, 0.0) for n in range(HELD)])])
        took = []
        for at in range(STEPS):
            began = time.thread_time()
            backend.forward([(cache, [Token(at % 100, 0.0)]) for cache in caches])
            took.append((time.thread_time() - began) * 1e3)
            for cache in caches:
                backend.truncate(cache, HELD)
        found[batch] = percentile(took[5:], 0.5)
        for cache in caches:
            backend.close(cache)
    return found


def _name(recipe: str, kv: KvType) -> str:
    return recipe if kv != "int8" else f"{recipe}_kv8"


def _show(console: Console, title: str, rows: list[Row]) -> None:
    names = (
        "recipe",
        "step, batch 1 [ms]",
        "batch 8",
        "model [MB]",
        "KV [B/token]",
        "L2",
        "action",
        "objective",
    )
    table = Table(*names, title=title)
    for row in rows:
        figures = row.figures
        told = {} if figures is None else {**figures.accuracy(), **figures.closed_loop()}
        wanted = ("relative_l2", "expected_action_error_of_span", "objective_over_twin")
        shown = [f"{told[name]:.4f}" if name in told else "-" for name in wanted]
        steps = [f"{row.step_ms[batch]:.3f}" for batch in (1, 8)]
        table.add_row(row.name, *steps, f"{row.model_mb:.3f}", str(row.kv_bytes), *shown)
    console.print(table)

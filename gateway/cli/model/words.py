"""What the verbs on model bundles print for people, and the same for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Column, Table

from gateway.inference.quantize.recipes import RECIPES

if TYPE_CHECKING:  # some of these need the package `onnx`, which gate and bench do without
    from gateway.inference.bundle.manifest import Bundle
    from gateway.inference.quantize.benching import Bench
    from gateway.inference.quantize.figures import Figures
    from gateway.inference.quantize.inspecting import Inspected
    from gateway.inference.quantize.making import Result

_SAYS = {
    "relative_l2": "logits off, L2 over L2",
    "row_p99": "the same of one row, 99th percentile",
    "top1_delta": "likeliest value differs, share of rows",
    "expected_action_error_of_span": "expected action off, of its span, 99th percentile",
    "objective_over_twin": "closed-loop objective over the twin's, same seeds",
}


def result_plain(found: Result) -> dict[str, Any]:
    """A bundle that was made."""
    return {
        **_told(found.bundle),
        "figures": None if found.figures is None else asdict(found.figures),
        "gates": found.gates,
        "gated": found.figures is not None,
    }


def result(found: Result) -> None:
    """A bundle that was made."""
    manifest = found.bundle.manifest
    if found.figures is None:
        device = manifest.made.device if manifest.made is not None else ""
        print(
            f"not measured: it runs on `{device}` only, and there is none here; "
            "it is refused everywhere until it is made on a machine that can measure it"
        )
    else:
        figures(found.figures, found.gates, [])
    made = manifest.made
    if made is not None:
        if made.steps:
            print("matrices: " + ", ".join(f"{count} in {how}" for how, count in made.steps.items()))
        if made.in_float32:
            print("in float32, since the device has nothing else: " + ", ".join(made.in_float32))
        if made.kept_error is not None and made.fitted_error is not None:
            taken = "fitted on it" if made.confidence == "fitted" else "its source's"
            print(
                f"confidence off by {made.fitted_error:.4f} with a temperature fitted on it, by "
                f"{made.kept_error:.4f} with its source's: {taken} is taken"
            )
        if made.fused is not None:
            print(f"fused: {_counts(made.fused.gone)} gone, {_counts(made.fused.new)} new")
    size = sum(spec.bytes for name, spec in manifest.files.items() if name == "model.onnx")
    print(f"{found.bundle.directory}: {manifest.id}/{manifest.revision}, {size / 1e6:.3f} MB of model")


def figures_plain(found: Figures, gates: dict[str, float], failures: list[str]) -> dict[str, Any]:
    """Figures, bars and what is missed."""
    return {"figures": asdict(found), "gates": gates, "failures": failures, "accepted": not failures}


def figures(found: Figures, gates: dict[str, float], failures: list[str]) -> None:
    """Figures with their bars, and the verdict."""
    table = Table(
        "figure", Column("value", justify="right"), Column("bar", justify="right"), "", box=box.SIMPLE
    )
    for name, says in _SAYS.items():
        value, limit = getattr(found, name), gates.get(name)
        shown = "not known" if value is None else f"{value:.5f}"
        missed = any(failure.startswith(f"{name} ") for failure in failures)
        verdict = "missed" if missed else "" if limit is None or value is None else "met"
        table.add_row(says, shown, "-" if limit is None else f"<= {limit:g}", verdict)
    Console().print(table)
    if found.objective is None:
        print("closed loop: not run, no simulator here has this bundle's tags")
    print("refused" if failures else "accepted")


def inspected(found: Inspected, *, tensors: bool) -> None:
    """A bundle, looked at."""
    bundle, manifest = found.bundle, found.bundle.manifest
    shape, kv = manifest.architecture, found.kv
    print(f"{manifest.id}/{manifest.revision}, digest {bundle.digest[:12]}…: {manifest.description}")
    rows = {
        **bundle.facts,
        "keys, values": manifest.quantization.kv,
        "decoder": f"{shape.layers} layers, {shape.heads} heads of {shape.head_dim}, "
        f"{shape.vocabulary} tokens",
        "weights": ", ".join(f"{size_text(size)} {name}" for name, size in found.weight_bytes.items()),
        "operators": _counts(found.operators),
        "made": _origin(bundle),
        "KV of a token": f"{kv.token} B",
        "KV of a session": f"{size_text(kv.session)} at the most, in {kv.session_pages} pages of "
        f"{manifest.block} tokens",
        "KV pool": f"{size_text(kv.pool)} calculated for {kv.pages} pages, room for {kv.sessions} sessions; "
        + (
            "not allocated here"
            if found.pool_allocated is None
            else f"{size_text(found.pool_allocated)} allocated"
        ),
    }
    table = Table(show_header=False, box=box.SIMPLE)
    for name, text in rows.items():
        table.add_row(name, text)
    tags = Table("tag", "unit", Column("bins", justify="right"), "", box=box.SIMPLE)
    for role, specs in (("input", manifest.inputs), ("output", manifest.outputs)):
        for spec in specs:
            tags.add_row(spec.tag, spec.unit or "-", str(len(spec.knots)), role)
    console = Console()
    console.print(table)
    console.print(tags)
    console.print(_on_record(bundle))
    if tensors:
        weights = Table("weight", "type", "shape", box=box.SIMPLE)
        for tensor in found.tensors:
            weights.add_row(tensor.name, tensor.type, " x ".join(map(str, tensor.shape)) or "scalar")
        console.print(weights)


def _on_record(bundle: Bundle) -> Table:
    """What the description says of the float32 twin: every figure of a gate, with its bar."""
    manifest = bundle.manifest
    known = manifest.accuracy | manifest.closed_loop
    table = Table(
        "on record", Column("value", justify="right"), Column("bar", justify="right"), box=box.SIMPLE
    )
    for name, says in _SAYS.items():
        value, limit = known.get(name), manifest.gates.get(name)
        shown = "not known" if value is None else f"{value:.5f}"
        table.add_row(says, shown, "-" if limit is None else f"<= {limit:g}")
    return table


def benched(found: Bench) -> None:
    """A bundle's speed and size."""
    right = [Column(name, justify="right") for name in ("batch", "tokens", "p50 ms", "p99 ms", "tokens/s")]
    table = Table("forward", *right, box=box.SIMPLE)
    for one in found.timed:
        figures_of = (f"{one.p50_ms:.3f}", f"{one.p99_ms:.3f}", f"{one.tokens_per_s:.0f}")
        table.add_row(one.forward, str(one.batch), str(one.tokens), *figures_of)
    Console().print(table)
    context = max((one.context for one in found.timed), default=0)
    print(
        f"{found.provider}, {context} tokens held; model {size_text(found.model_bytes)}, "
        f"KV pool {size_text(found.kv_pool_bytes)}, process grew by {size_text(found.resident_bytes)}"
    )


def _told(bundle: Bundle) -> dict[str, Any]:
    manifest = bundle.manifest
    return {
        "bundle": str(bundle.directory),
        "id": manifest.id,
        "revision": manifest.revision,
        "digest": bundle.digest,
        "model_bytes": manifest.files["model.onnx"].bytes,
        "facts": bundle.facts,
    }


def _origin(bundle: Bundle) -> str:
    made = bundle.manifest.made
    if made is None:
        return "as it was trained or exported"
    tools = ", ".join(f"{name} {version}" for name, version in made.tools.items())
    gated = f"gated on {made.gated}" if made.gated else f"NOT gated: only on {made.device}"
    says = f" ({RECIPES[made.recipe].says})" if made.recipe in RECIPES else ""
    fused = "" if made.fused is None else f", fused ({made.fused.level}) for {made.fused.provider}"
    return f"{made.recipe}{says} of {made.source[:12]}… with {tools}; {gated}{fused}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def size_text(count: int) -> str:
    """Bytes as people read them."""
    if count < 10_000:  # noqa: PLR2004 - bytes are read easily up to here
        return f"{count} B"
    return f"{count / 1e6:.2f} MB" if count >= 1_000_000 else f"{count / 1e3:.1f} kB"  # noqa: PLR2004

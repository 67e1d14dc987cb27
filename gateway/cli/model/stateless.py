"""What `o3ctl model inspect` and `bench` print of a model without tokens or a cache."""

from __future__ import annotations

import json

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from gateway.cli.model.words import size_text
from gateway.inference.bundle.stateless import StatelessBundle
from gateway.inference.quantize.stateless import BenchStateless, InspectedStateless, inspect_stateless


def inspect(bundle: StatelessBundle, *, as_json: bool) -> None:
    """Look at a bundle; raises `InferenceError`."""
    found = inspect_stateless(bundle)
    if as_json:
        print(json.dumps(found.plain(), indent=2, ensure_ascii=False))
    else:
        _inspected(found)


def bench(found: BenchStateless, *, as_json: bool) -> None:
    """What was timed."""
    if as_json:
        print(json.dumps(found.plain(), indent=2, ensure_ascii=False))
    else:
        _benched(found)


def _inspected(found: InspectedStateless) -> None:
    """A bundle, looked at."""
    bundle, manifest = found.bundle, found.bundle.manifest
    print(f"{manifest.id}/{manifest.revision}, digest {bundle.digest[:12]}…: {manifest.description}")
    facts = Table(show_header=False, box=box.SIMPLE)
    for name, text in {
        **bundle.facts,
        "a cycle": f"{bundle.cycle_s:g} s",
        "model": size_text(found.model_bytes),
    }.items():
        facts.add_row(name, text)
    tags = Table("tag", "unit", "trained", "", "answer", box=box.SIMPLE)
    for role, spec, says in found.tags():
        tags.add_row(spec.tag, spec.unit or "-", " to ".join(spec.trained), role, says)
    tensors = Table("tensor", "", "type", "shape", "holds", box=box.SIMPLE)
    for each in found.tensors:
        shape = " x ".join(map(str, each.shape)) or "scalar"
        tensors.add_row(
            escape(each.name), each.role, each.type, escape(shape), escape(each.holds) or "not asked for"
        )
    console = Console()
    for table in (facts, tags, tensors):
        console.print(table)


def _benched(found: BenchStateless) -> None:
    """A bundle's speed and size."""
    right = [Column(name, justify="right") for name in ("at once", "p50 ms", "p99 ms", "answers/s")]
    table = Table(*right, box=box.SIMPLE)
    for one in found.timed:
        table.add_row(str(one.batch), f"{one.p50_ms:.3f}", f"{one.p99_ms:.3f}", f"{one.answers_per_s:.0f}")
    Console().print(table)
    print(
        f"{found.provider}; model {size_text(found.model_bytes)}, "
        f"process grew by {size_text(found.resident_bytes)}"
    )

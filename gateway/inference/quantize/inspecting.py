"""What a bundle is, before it runs: tags, window, sizes, operators, the type of every weight, its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.inference.bundle.kv_bytes import KvBytes, predicted
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.quantize.graphs import Graph, type_name
from gateway.inference.quantize.kv_bytes import allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A weight."""

    name: str
    type: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """A bundle, looked at."""

    bundle: Bundle
    operators: dict[str, int]
    weight_bytes: dict[str, int]
    tensors: tuple[Tensor, ...]
    kv: KvBytes
    pool_allocated: int | None  # bytes; None where the model brings its own caches, or cannot run here

    def plain(self) -> dict[str, Any]:
        """For programs."""
        manifest = self.bundle.manifest
        tags = [
            {"tag": spec.tag, "unit": spec.unit, "bins": len(spec.knots), "role": role}
            for role, specs in (("input", manifest.inputs), ("output", manifest.outputs))
            for spec in specs
        ]
        kept = ("id", "revision", "cycle_s", "backend", "block", "window", "architecture", "quantization")
        described: dict[str, Any] = msgspec.to_builtins(manifest)
        return {
            **{name: described[name] for name in kept},
            "digest": self.bundle.digest,
            "tags": tags,
            "files": described["files"],
            "made": described["made"],
            "gates": manifest.gates,
            "accuracy": manifest.accuracy,
            "closed_loop": manifest.closed_loop,
            "operators": self.operators,
            "weight_bytes": self.weight_bytes,
            "tensors": [{"name": t.name, "type": t.type, "shape": list(t.shape)} for t in self.tensors],
            "kv": {
                "token_bytes": self.kv.token,
                "page_bytes": self.kv.page,
                "session_pages": self.kv.session_pages,
                "session_bytes": self.kv.session,
                "pages": self.kv.pages,
                "pool_bytes": self.kv.pool,
                "pool_bytes_allocated": self.pool_allocated,
                "sessions": self.kv.sessions,
            },
        }


def inspect(bundle: Bundle, pages: int, *, allocate: bool) -> Inspected:
    """Look at a bundle; with `allocate` a session is made to see what its pool of `pages` really takes."""
    graph = Graph.read(bundle.model_path)
    tensors = (
        Tensor(name=tensor.name, type=type_name(tensor.data_type), shape=tuple(tensor.dims))
        for tensor in graph.model.graph.initializer
    )
    return Inspected(
        bundle=bundle,
        operators=graph.operators(),
        weight_bytes=graph.weight_bytes(),
        tensors=tuple(tensors),
        kv=predicted(bundle, pages),
        pool_allocated=allocated(bundle, pages) if allocate else None,
    )

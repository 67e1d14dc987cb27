"""How a bundle was made of another one: recorded in `bundle.json`, and where such a bundle may run."""

from __future__ import annotations

from typing import Literal, get_args

from gateway.inference.bundle.files import Strict

KvType = Literal["float32", "float16", "int8"]
KV_TYPES: tuple[KvType, ...] = get_args(KvType)
# (kind, bits) a description may name: how most matrices are kept
STORED = (
    ("matmul_nbits", 8),
    ("matmul_nbits", 4),
    ("unfolded", 8),  # blocks on disk, float32 when the graph is loaded
    ("matmul_nbits_a8", 8),  # what is multiplied by them is rounded to 8 bits, too, row by row
    ("mixed", 4),
    ("float16", 16),
    ("bfloat16", 16),
    ("none", 32),
)


class Fused(Strict, frozen=True):
    """A graph that a runtime has fused for one target; it means something else, or nothing, elsewhere."""

    level: str
    provider: str  # as ONNX Runtime names it
    runtime: str
    machine: str  # processor architecture
    operators: dict[str, int]  # in the graph now
    gone: dict[str, int]  # operators that were there and are not
    new: dict[str, int]


class Made(Strict, frozen=True):
    """The recipe, what it was applied to, and with what; `gated` is empty until the gates were passed."""

    recipe: str
    source: str  # the source bundle's digest
    tools: dict[str, str]
    gated: str = ""  # the provider on which the bundle passed its gates
    device: str = ""  # the only one it runs on; empty: any
    in_float32: tuple[str, ...] = ()  # operators the target cannot run in the type asked for
    steps: dict[str, int] | None = None  # matrices by how they are kept
    fused: Fused | None = None
    # By whose temperature: the source's as it was, or one fitted on this model; and the calibration errors
    # of this model's answers by either, where they were measured.
    confidence: Literal["source", "fitted"] = "source"
    kept_error: float | None = None
    fitted_error: float | None = None

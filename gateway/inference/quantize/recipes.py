"""What can be made of a model, and the bars that each result has to pass. Needs nothing but this package."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from gateway.core.errors import InferenceError
from gateway.inference.bundle.made import KvType

# How rows meet a matrix in blocks: as they are; in 8 bits, each by itself; the matrix made float32 at load.
Products = Literal["float32", "in_8", "unfolded"]
OBJECTIVE = 1.02  # of the twin's on the same seeds
EXPECTED_ACTION = 0.01  # of an output's span, 99th percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How matrices and the rest of a graph are kept, and what may be lost by it."""

    name: str
    says: str
    kind: str  # as `Quantization.kind`
    bits: int
    relative_l2: float
    row_p99: float | None = None
    kv: KvType = "float32"  # without a wish
    needs_loop: bool = False  # not accepted without a closed loop
    feed_forward_bits: int | None = None
    attention_bits: int | None = None
    head_bits: int | None = None
    products: Products = "float32"  # with what is in blocks
    half: str = ""  # float16 or bfloat16, for what is not in blocks

    def gates(self, kv: KvType) -> dict[str, float]:
        """The bars, by figure; 8-bit keys and values are judged as 8-bit matrices are."""
        l2, row = self.relative_l2, self.row_p99
        if kv == "int8":
            l2, row = max(l2, _INT8_L2), max(row or 0.0, _INT8_ROW)
        if self.needs_loop:
            row = None
        bars = {"relative_l2": l2, "expected_action_error_of_span": EXPECTED_ACTION}
        if row is not None:
            bars["row_p99"] = row
        return bars | {"objective_over_twin": OBJECTIVE}


_INT8_L2, _INT8_ROW = 0.02, 0.05
_INT8 = Recipe(
    name="int8",
    says="every matrix in 8-bit blocks",
    kind="matmul_nbits",
    bits=8,
    relative_l2=_INT8_L2,
    row_p99=_INT8_ROW,
    feed_forward_bits=8,
    attention_bits=8,
    head_bits=8,
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="fp32",
            says="matrices as they are: for 8-bit keys and values alone",
            kind="none",
            bits=32,
            relative_l2=1e-5,
        ),
        _INT8,
        replace(
            _INT8,
            name="int8w",
            says="as int8, unfolded to float32 when the model is loaded: as fast as float32, small on disk",
            kind="unfolded",
            products="unfolded",
        ),
        replace(
            _INT8,
            name="int8a8",
            says="as int8, and what is multiplied by them in 8 bits, row by row: faster, less exact",
            kind="matmul_nbits_a8",
            products="in_8",
        ),
        Recipe(
            name="int4",
            says="every matrix in 4-bit blocks, the last one in 8-bit blocks",
            kind="matmul_nbits",
            bits=4,
            relative_l2=0.10,
            needs_loop=True,
            feed_forward_bits=4,
            attention_bits=4,
            head_bits=8,
        ),
        Recipe(
            name="mixed",
            says="feed-forward matrices in 4-bit blocks, attention and the last matrix in float16",
            kind="mixed",
            bits=4,
            relative_l2=0.10,
            needs_loop=True,
            kv="float16",
            feed_forward_bits=4,
            half="float16",
        ),
        Recipe(
            name="fp16",
            says="everything in float16",
            kind="float16",
            bits=16,
            relative_l2=0.005,
            kv="float16",
            half="float16",
        ),
        Recipe(
            name="bf16",
            says="everything in bfloat16",
            kind="bfloat16",
            bits=16,
            relative_l2=_INT8_L2,
            row_p99=_INT8_ROW,
            half="bfloat16",
        ),
    )
}


def recipe_named(name: str) -> Recipe:
    """Raises `InferenceError` with the names there are."""
    if name not in RECIPES:
        known = ", ".join(f"`{one}`" for one in RECIPES)
        raise InferenceError(f"recipe `{name}` is not known: use one of {known}")
    return RECIPES[name]


@dataclass(frozen=True, slots=True)
class Done:
    """What the passes did to a graph."""

    steps: dict[str, int]  # matrices by how they are kept
    in_float32: tuple[str, ...] = ()  # operators

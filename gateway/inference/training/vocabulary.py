"""Tags, tokens and sizes of a recipe's bundle: what training and export must agree on."""

from __future__ import annotations

from gateway.inference.bundle.manifest import Architecture, OutputSpec, TagSpec
from gateway.inference.training.graph import Shape
from gateway.inference.training.plant import PlantKind
from gateway.inference.training.recipes import Recipe

BLOCK = 16
QUANTIZED_BLOCK = 32
ROTARY_BASE = 1000.0
BEGIN = 0


def specs(
    kind: PlantKind, trained: tuple[tuple[str, str], ...]
) -> tuple[tuple[TagSpec, ...], tuple[OutputSpec, ...], int]:
    """Inputs, outputs and the size of the vocabulary; `trained` ranges are for the inputs, in order."""
    token = BEGIN + 1
    inputs: list[TagSpec] = []
    for row, seen in zip(kind.inputs, trained, strict=True):
        knots = tuple(row.knots.split())
        inputs.append(TagSpec(tag=row.tag, unit=row.unit, knots=knots, first_token=token, trained=seen))
        token += len(knots)
    outputs: list[OutputSpec] = []
    for row in kind.outputs:
        knots = tuple(row.knots.split())
        ends = (knots[0], knots[-1])
        outputs.append(
            OutputSpec(
                tag=row.tag,
                unit=row.unit,
                knots=knots,
                first_token=token,
                trained=ends,
                decoding=row.decoding,
            )
        )
        token += len(knots)
    return tuple(inputs), tuple(outputs), token


def shape(recipe: Recipe, vocabulary: int) -> Shape:
    """The recipe's decoder: about 0.1 M parameters."""
    return Shape(
        vocabulary=vocabulary,
        layers=2,
        heads=4,
        head_dim=16,
        hidden=192,
        window=recipe.window.length,
        block=BLOCK,
    )


def architecture(size: Shape) -> Architecture:
    """As `bundle.json` says it."""
    return Architecture(
        layers=size.layers,
        heads=size.heads,
        head_dim=size.head_dim,
        rotary_base=ROTARY_BASE,
        vocabulary=size.vocabulary,
        begin_token=BEGIN,
    )

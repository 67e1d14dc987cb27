"""Tags, knots and sizes of the demo bundles: what training and export must agree on."""

from __future__ import annotations

from gateway.inference.bundle import Architecture, OutputSpec, TagSpec, Window
from gateway.inference.training.graph import Shape

CYCLE_S = "1"
# 61 cycles and no more: the expert's heater stays off for 61 s at least, and the band shows when they end.
WINDOW = Window(mode="swa", length=366)
BLOCK = 16
QUANTIZED_BLOCK = 32
ROTARY_BASE = 1000.0
BEGIN = 0

_LEVEL = (
    "-0.1 0 0.2 0.3 0.4 0.5 0.6 0.7 0.8 1 1.2 1.4 1.5 1.6 1.7 1.8 1.85 1.9 1.95 2 2.05 2.1 2.15 2.2 2.3 2.4 "
    "2.5 2.6 2.8 3 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4 4.5 5"
)
_INFLOW = "-1 0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30 32 34 36 38 40"
_TEMPERATURE = (
    "0 10 18 25 30 35 38 40 41 42 43 43.5 44 44.2 44.4 44.6 44.8 45 45.2 45.4 45.6 45.8 46 46.5 47 48 50 55 "
    "60 65 70 72 74 75 76 80 90 100"
)
_PUMP = " ".join(str(2.5 * at) for at in range(41))


def specs(
    trained: tuple[tuple[str, str], ...],
) -> tuple[tuple[TagSpec, ...], tuple[OutputSpec, ...], int]:
    """Inputs, outputs and the size of the vocabulary; `trained` ranges are for the inputs, in order."""
    token = BEGIN + 1
    inputs: list[TagSpec] = []
    rows = (("TK1.LT101", "m", _LEVEL), ("TK1.FT101", "m3/h", _INFLOW), ("TK1.TT101", "degC", _TEMPERATURE))
    for (tag, unit, text), seen in zip(rows, trained, strict=True):
        knots = tuple(text.split())
        inputs.append(TagSpec(tag=tag, unit=unit, knots=knots, first_token=token, trained=seen))
        token += len(knots)
    outputs: list[OutputSpec] = []
    for tag, unit, text, decoding in (
        ("TK1.P101.SP", "%", _PUMP, "expectation"),
        ("TK1.H101.CMD", "", "0 1", "most_probable"),
        ("TK1.M101.STAGE", "", "0 1 2 3", "most_probable"),
    ):
        knots = tuple(text.split())
        ends = (knots[0], knots[-1])
        outputs.append(
            OutputSpec(tag=tag, unit=unit, knots=knots, first_token=token, trained=ends, decoding=decoding)  # type: ignore[arg-type]  # literals above
        )
        token += len(knots)
    return tuple(inputs), tuple(outputs), token


def shape(vocabulary: int) -> Shape:
    """The demo decoder: about 0.1 M parameters."""
    return Shape(
        vocabulary=vocabulary, layers=2, heads=4, head_dim=16, hidden=192, window=WINDOW.length, block=BLOCK
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

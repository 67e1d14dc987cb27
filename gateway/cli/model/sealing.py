"""`o3ctl model seal`: digests of a bundle's files into its description, then all that a gateway asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from gateway.cli.model.files import refusals
from gateway.cli.options import AsJson


def model_seal(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="A bundle's folder; its `bundle.json` is changed.")
    ],
    device: Annotated[
        Literal["cpu", "cuda"], typer.Option("--device", help="What its model shows itself on.")
    ] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Write the digests of a bundle's files into it, load its model, let it answer all over its ranges."""
    with refusals(as_json=as_json):
        from gateway.inference.seal import sealed_and_shown  # noqa: PLC0415  # onnxruntime

        shown = sealed_and_shown(bundle, device)
    if as_json:
        print(json.dumps(shown.plain(), indent=2, ensure_ascii=False))
    else:
        print("\n".join(shown.lines()))


def register(app: typer.Typer) -> None:
    """Put this verb into the group `model`."""
    app.command("seal")(model_seal)

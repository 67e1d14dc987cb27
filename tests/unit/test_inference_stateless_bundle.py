"""A stateless bundle's description that contradicts itself is refused, with the place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import InferenceError
from gateway.inference.bundle.any_bundle import load_any
from tests.unit.inference_graphs import INFLOW, as_is, bundle_in


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(tensors=[]), "no input, no output or no tensor"),
        (lambda m: m["tensors"][0].update(tags=["TK1.XX"]), "holds `TK1.XX`, which is no input"),
        (lambda m: m["inputs"].append(m["inputs"][0]), "is named twice"),
        (lambda m: m["inputs"].append(INFLOW), "no tensor holds the input `TK1.FT101`"),
        (lambda m: m["inputs"][0].update(trained=["5", "0"]), "write least and greatest value"),
        (lambda m: m["inputs"][0].update(scaling={"mean": "0", "deviation": "0"}), "deviation other than 0"),
        (lambda m: m["outputs"][0].update(decoding="expectation"), "an expectation needs probabilities"),
        (lambda m: m["outputs"][0].update(values=["0"], labels={"a": "0"}), "name one of them"),
        (lambda m: m["outputs"][0].update(values=["low"]), "the value of a class is no decimal"),
        (lambda m: m.update(confidence={"edges": [], "hit_rate": [1.0]}), "no output with probabilities"),
        (lambda m: m.update(cycle_s="0"), "seconds of a cycle as a decimal above 0"),
        (lambda m: m.update(format=9), "format 9 is not known"),
        (lambda m: m.update(window={}), "unknown field `window`"),
    ],
)
def test_a_description_that_contradicts_itself_says_where(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    folder = bundle_in(tmp_path / "b", as_is(1))
    manifest = json.loads((folder / "bundle.json").read_text())
    change(manifest)
    (folder / "bundle.json").write_text(json.dumps(manifest))

    with pytest.raises(InferenceError, match=said):
        load_any(folder)

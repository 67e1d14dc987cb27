"""What is calculated for keys and values of other tools' decoders is what their sessions take, within 5 %."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.inference.bundle.files import BundleError
from gateway.inference.bundle.kv_bytes import predicted
from gateway.inference.bundle.manifest import Bundle, load_bundle
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.decision_model import ranges_of
from gateway.inference.kv.backend import CacheId
from gateway.inference.kv.concat_past import ConcatPast
from gateway.inference.kv.dense_gqa import DenseGqa
from gateway.inference.messages import Cycle, Propose
from gateway.inference.seal import seal
from gateway.inference.serving.backends import make_backend
from gateway.inference.serving.engine import Engine
from tests.unit.inference_exports import DECODERS, OPTIMUM_LLAMA

Rows = Sequence[tuple[CacheId, Sequence[Token]]]
INPUTS, IN_FORCE = ("2.000", "12.00", "40.00"), ("27", "0", "1")


def most_held(bundle: Bundle, cycles: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The most that one session took over so many cycles, looked at behind each forward."""
    engine = Engine(bundle, tuple(ranges_of(bundle).values()))
    backend = engine.backend
    assert isinstance(backend, ConcatPast | DenseGqa)
    most, forward = 0, backend.forward

    def watched(rows: Rows) -> NDArray[np.float32]:
        nonlocal most
        found = forward(rows)
        most = max(most, backend.held_bytes)
        return found

    monkeypatch.setattr(backend, "forward", watched)
    for at in range(cycles):
        history = (Cycle((), IN_FORCE),) if at == 0 else None
        engine.submit(at, Propose(session="s", cycle=at, inputs=INPUTS, in_force=IN_FORCE, history=history))
        while engine.busy:
            engine.step()
            engine.drain()
    return most


@pytest.mark.parametrize("directory", DECODERS, ids=lambda directory: directory.name)
def test_a_session_takes_what_is_calculated(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = load_bundle(directory)

    most = most_held(bundle, 3 * bundle.history_cycles, monkeypatch)

    assert most == pytest.approx(predicted(bundle, 256).session, rel=0.05)


def test_keys_and_values_of_another_type_than_described_are_refused_with_what_to_write(
    tmp_path: Path,
) -> None:
    folder = Path(shutil.copytree(OPTIMUM_LLAMA, tmp_path / "half"))
    told = json.loads((folder / "bundle.json").read_text())
    told["quantization"]["kv"] = "float16"
    (folder / "bundle.json").write_text(json.dumps(told))
    seal(folder)

    with pytest.raises(
        BundleError, match=r'values are float32 and bundle\.json says float16.*"kv": "float32"'
    ):
        make_backend(load_bundle(folder), provider="cpu", pages=8)

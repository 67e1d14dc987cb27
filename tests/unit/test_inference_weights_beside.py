"""Weights in files beside a graph: whole, listed, in the bundle's own folder, however a graph names them."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from gateway.core.errors import InferenceError
from gateway.inference.bundle.any_bundle import load_any
from gateway.inference.bundle.beside import external_files
from gateway.inference.decision_model import ranges_of
from gateway.inference.seal import seal
from gateway.inference.serving.serving import Size, start_engine
from tests.unit.bad_bundles import edit
from tests.unit.inference_exports import GENAI_LLAMA


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda directory: Path(shutil.copytree(directory, tmp_path / directory.name))


def refused_at_load(folder: Path, said: str) -> None:
    with pytest.raises(InferenceError, match=said):
        load_any(folder)


def test_weights_beside_the_graph_that_are_missing(copied: Callable[[Path], Path]) -> None:
    folder = copied(GENAI_LLAMA)
    (folder / "model.onnx.data").unlink()

    refused_at_load(folder, r"model\.onnx\.data cannot be read .*: copy the whole bundle folder")


def test_weights_beside_the_graph_that_nobody_vouches_for(copied: Callable[[Path], Path]) -> None:
    folder = copied(GENAI_LLAMA)
    edit(folder, lambda m: m["files"].pop("model.onnx.data"))

    refused_at_load(folder, r"keeps weights in `model\.onnx\.data`, which bundle\.json does not list")
    seal(folder)
    assert "model.onnx.data" in load_any(folder).manifest.files


@pytest.mark.parametrize("name", ["n" * 200, "../secret", "/etc/hostname", "*/_ORT_MEM_ADDR_/*"])
def test_weights_beside_the_graph_under_a_name_that_leads_elsewhere(
    copied: Callable[[Path], Path], name: str
) -> None:
    """A long name takes two bytes for its length; the last one makes the runtime read its own memory."""
    folder = copied(GENAI_LLAMA)
    content = with_weights_in(name, folder)
    (folder / "model.onnx").write_bytes(content)

    with pytest.raises(InferenceError, match=r"cannot be read .*: put it there|leaves the bundle"):
        seal(folder)
    digest = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    edit(folder, lambda m: m["files"].update({"model.onnx": digest}))
    refused_at_load(folder, f"keeps weights in `{re.escape(name)}`, which bundle.json does not list")


def test_weights_beside_any_graph_of_the_bundle_are_listed(copied: Callable[[Path], Path]) -> None:
    folder = copied(GENAI_LLAMA)
    content = with_weights_in("../secret", folder)
    (folder / "reference.onnx").write_bytes(content)
    digest = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    edit(folder, lambda m: m["files"].update({"reference.onnx": digest}))
    refused_at_load(
        folder, r"reference\.onnx keeps weights in `\.\./secret`, which bundle\.json does not list"
    )


def test_weights_beside_the_graph_are_found_however_their_name_is_written(
    copied: Callable[[Path], Path],
) -> None:
    """The name before its key, and a length in more bytes than it needs: a graph's reader takes both."""
    folder = copied(GENAI_LLAMA)
    content = (folder / "model.onnx").read_bytes()
    key, value = b"\x0a\x08location", b"\x12\x0fmodel.onnx.data"
    assert (count := content.count(key + value))
    (folder / "model.onnx").write_bytes(content.replace(key + value, value + key))
    edit(folder, lambda m: m.update(files={}))
    assert "model.onnx.data" in seal(folder).manifest.files
    start_engine(load_any(folder), tuple(ranges_of(load_any(folder)).values()), Size())

    entry = onnx.StringStringEntryProto(key="location", value="a").SerializeToString()
    longer = b"\x0a\x88\x00location" + entry[-3:]
    assert onnx.StringStringEntryProto.FromString(longer).key == "location"
    tensor = b"\x6a" + bytes([len(longer)]) + longer
    attribute = b"\x2a" + bytes([len(tensor)]) + tensor
    node = b"\x2a" + bytes([len(attribute)]) + attribute
    graph = b"\x0a" + bytes([len(node)]) + node
    model = b"\x3a" + bytes([len(graph)]) + graph
    parsed = onnx.ModelProto.FromString(model)
    assert parsed.graph.node[0].attribute[0].t.external_data[0].value == "a"
    assert external_files(io.BytesIO(model)) == ["a"]
    assert count


def with_weights_in(name: str, folder: Path) -> bytes:
    """The graph of a folder with all its weights in a file of that name."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for weights in model.graph.initializer:
        for entry in weights.external_data:
            entry.value = name if entry.key == "location" else entry.value
    return bytes(model.SerializeToString())


def test_weights_beside_the_graph_that_were_exchanged(copied: Callable[[Path], Path]) -> None:
    folder = copied(GENAI_LLAMA)
    data = folder / "model.onnx.data"
    data.write_bytes(bytes(len(data.read_bytes())))

    refused_at_load(folder, r"model\.onnx\.data has SHA-256")

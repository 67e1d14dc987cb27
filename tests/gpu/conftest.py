"""Every test here needs a CUDA device; without one each is skipped, and says so."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import pytest

from gateway.inference.bundle.manifest import Window
from gateway.inference.kv.ort_session import open_session
from tests.unit.random_decoder import MINUTE, write_decoder

RECORD = Path(os.environ.get("GPU_RECORD", Path(__file__).with_name("record.json")))


def device_missing() -> str:
    """Why nothing can run here; empty where something can."""
    found = {device.ep_name for device in onnxruntime.get_ep_devices()}
    return "" if "CUDAExecutionProvider" in found else "no CUDA device is present"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = device_missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, float]]:
    """What is measured, written down with the machine it was measured on when all has passed through."""
    measured: dict[str, float] = {}
    yield measured
    folder = tmp_path_factory.mktemp("truth")
    bundle = write_decoder(folder, MINUTE, inputs=1, outputs=1, window=Window("swa", 64), quantized=None)
    _, truth = open_session(bundle.model_path, "cuda")
    device = next(d for d in onnxruntime.get_ep_devices() if d.ep_name == "CUDAExecutionProvider")
    RECORD.write_text(
        json.dumps(
            {
                "device": {"vendor": device.device.vendor, **dict(device.device.metadata)},
                "driver": _driver(),
                "provider": truth.actual,
                "onnxruntime": truth.runtime,
                "python": platform.python_version(),
                "figures": measured,
            },
            indent=1,
        )
        + "\n"
    )


def _driver() -> str:
    told = Path("/proc/driver/nvidia/version")
    return told.read_text().splitlines()[0] if told.exists() else "unknown"

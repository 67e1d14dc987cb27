"""Every test here needs a CUDA device; without one each is skipped, and says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import pytest

from gateway.inference.bundle.manifest import Window
from gateway.inference.kv.ort_session import open_session
from tests.gpu.device import asked, versions
from tests.gpu.table import RECORD
from tests.unit.random_decoder import MINUTE, write_decoder


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
def figures(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, float]]:
    """What is measured, as `ROW: COLUMN`; written down with device, driver and versions at the end."""
    measured: dict[str, float] = {}
    yield measured
    folder = tmp_path_factory.mktemp("truth")
    bundle = write_decoder(folder, MINUTE, inputs=1, outputs=1, window=Window("swa", 64), quantized=None)
    _, truth = open_session(bundle.model_path, "cuda")
    device = asked()
    told = {
        "device": f"{device.name}, {device.total_mib} MiB",
        "driver": device.driver,
        "provider": truth.actual,
        "versions": versions(),
        "tests": request.session.testscollected,
        "failed": request.session.testsfailed,
        "figures": measured,
    }
    RECORD.write_text(json.dumps(told, indent=1) + "\n")

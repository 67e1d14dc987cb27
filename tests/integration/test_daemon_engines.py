"""A model is refused at load where it cannot answer in the time its decision point leaves it."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnxruntime
import pytest

from gateway.config.load import load
from gateway.config.model import GatewayConfig
from gateway.config.tags import tag_definitions
from gateway.core.clock import SystemClock
from gateway.core.errors import ConfigError
from gateway.core.tagstore import TagStore
from gateway.daemon.engines import make_engines, slowest_ms, start_engine
from gateway.daemon.model_book import ModelBook

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
CUDA_IS_HERE = any(device.ep_name == "CUDAExecutionProvider" for device in onnxruntime.get_ep_devices())


def configured(folder: Path, inference: str) -> GatewayConfig:
    """The demo's configuration with an `[inference]` of its own."""
    for source in (ROOT / "packaging" / "demo").iterdir():
        shutil.copy(source, folder)
    (folder / "bundles").symlink_to(ROOT / "gateway" / "inference" / "bundles")
    file = folder / "gateway.toml"
    file.write_text(f"{file.read_text()}\n[inference]\n{inference}\n")
    return load(file)


@pytest.mark.parametrize(
    ("inference", "why"),
    [
        ('provider = "cuda:9"', "provider `cuda:9` was asked for but"),
        pytest.param(
            "require_cuda = true",
            "CUDA is required but the session runs on CPUExecutionProvider: add a GPU",
            marks=pytest.mark.skipif(CUDA_IS_HERE, reason="a CUDA device is present"),
        ),
        pytest.param(
            'max_wait = "2 ms"',
            "requests are to wait 2 ms for others and the model runs on CPUExecutionProvider",
            marks=pytest.mark.skipif(CUDA_IS_HERE, reason="a CUDA device is present"),
        ),
    ],
)
async def test_what_cannot_be_had_here_is_refused_at_the_start_by_the_point_that_needs_it(
    tmp_path: Path, inference: str, why: str
) -> None:
    config, clock = configured(tmp_path, inference), SystemClock()
    book = ModelBook(tmp_path / "models.json")
    engines = make_engines(config, TagStore(tag_definitions(config), clock), clock, book)

    with pytest.raises(ConfigError) as caught:
        await start_engine(config, "buffer-tank", engines["buffer-tank"])

    assert "decision point `buffer-tank`: model `buffer-tank` cannot be used: " in str(caught.value)
    assert why in str(caught.value)


async def test_a_model_too_slow_for_its_decision_point_is_refused_with_the_figures(tmp_path: Path) -> None:
    for source in (ROOT / "packaging" / "demo").iterdir():
        shutil.copy(source, tmp_path)
    (tmp_path / "bundles").symlink_to(ROOT / "gateway" / "inference" / "bundles")
    file = tmp_path / "gateway.toml"
    file.write_text(file.read_text().replace('deadline = "100 ms"', 'deadline = "0.01 ms"'))
    config, clock = load(file), SystemClock()
    book = ModelBook(tmp_path / "models.json")
    engines = make_engines(config, TagStore(tag_definitions(config), clock), clock, book)
    assert slowest_ms(config.decision_point[0]) == pytest.approx(0.006)
    with pytest.raises(ConfigError) as caught:
        await start_engine(config, "buffer-tank", engines["buffer-tank"])
    said = str(caught.value)
    assert "decision point `buffer-tank`: model `buffer-tank` cannot be used: a decision takes up to" in said
    assert "over the 0.006 ms allowed: use a smaller model or a longer deadline" in said
    assert "(of the deadline of 0.01 ms the model has 0.006 ms)" in said

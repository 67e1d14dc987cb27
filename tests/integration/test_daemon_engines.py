"""A model is refused at load where it cannot answer in the time its decision point leaves it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.config.tags import tag_definitions
from gateway.core.clock import SystemClock
from gateway.core.errors import ConfigError
from gateway.core.tagstore import TagStore
from gateway.daemon.engines import make_engines, slowest_ms, start_engine
from gateway.daemon.model_book import ModelBook

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]


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

"""`docs/models.md` as a newcomer types it, and its model in the demo.

The Python block runs where scikit-learn is; its result is among the exports, and made again by night.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from gateway.link.messages import DecisionView
from tests.integration.environments import python_with
from tests.integration.house import ROOT, SLOWEST, House, tell
from tests.unit.inference_exports import EXPORTS

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "models.md"
_BLOCK = re.compile(r"^```(python|json|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MADE = EXPORTS / "sklearn_page" / "model.onnx"
_DECISIONS = 18


def blocks(kind: str) -> list[str]:
    return [text for each, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")) if each == kind]


def typed(text: str, folder: Path) -> str:
    """What a block prints, typed in the checkout; each of its commands must succeed."""
    done = subprocess.run(  # noqa: S603  our own page
        ("bash", "-euo", "pipefail", "-c", text),  # noqa: S607
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SLOWEST * 60,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    assert "onnxruntime" not in done.stderr, "a newcomer is not to wonder about the runtime's own words"
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder that looks like the checkout, with the exported model and the page's description in it."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "own").mkdir()
    shutil.copyfile(MADE, tmp_path / "own" / "model.onnx")
    (description,) = blocks("json")
    (tmp_path / "own" / "bundle.json").write_text(description)
    return tmp_path


@pytest.mark.timeout(600)
def test_the_page_brings_both_kinds_to_an_answer(checkout: Path) -> None:
    started = time.monotonic()
    sealed, asked, decoder = (typed(text, checkout) for text in blocks("sh"))
    tell(f"the page's commands: {time.monotonic() - started:.1f} s")

    assert "backend       stateless" in sealed
    wanted = json.loads(asked.replace("'", '"'))
    assert 20 <= wanted["TK1.P101.SP"] <= 33  # the formula says 26.4
    assert (wanted["TK1.H101.CMD"], wanted["TK1.M101.STAGE"]) == (1.0, 1.0)
    assert "backend       concat_past" in decoder
    tokens = json.loads(decoder.splitlines()[-1])
    assert len(tokens) == 6


@pytest.mark.timeout(600)
async def test_the_pages_model_takes_over_in_the_demo_and_is_checked_like_any_other(
    checkout: Path, tmp_path: Path
) -> None:
    typed(blocks("sh")[0], checkout)
    (tmp_path / "house").mkdir()
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    (bundles / "buffer-tank").symlink_to(ROOT / "gateway" / "inference" / "bundles" / "buffer-tank")
    shutil.copytree(checkout / "own", bundles / "own")
    async with House(tmp_path / "house", bundles=bundles) as house:
        answer = await house.ask("model.load", {"bundle": "own"})
        assert answer.ok, answer.error
        at = time.monotonic()
        await house.until(
            lambda p: len(_judged(p.since(at))) >= _DECISIONS, 60, f"{_DECISIONS} decisions on its proposals"
        )
        views = house.picture.since(at)
        digest = hashlib.sha256((checkout / "own" / "bundle.json").read_bytes()).hexdigest()
    verdicts = Counter(view.outcome for view in views)
    tell(f"verdicts: {dict(verdicts)}")

    judged = _judged(views)
    assert verdicts["refused"] <= _DECISIONS / 9
    assert {view.model_digest for view in judged} == {digest}
    # What the page says of it: it knows neither the heater's minimum times nor the pump's ramp.
    missed = {rule for view in judged for rule in view.violated}
    assert missed <= {f"buffer-tank/{rule}" for rule in ("heater.min_off", "heater.min_on", "pump-ramp")}


def _judged(views: list[DecisionView]) -> list[DecisionView]:
    return [view for view in views if view.outcome in {"permitted", "repaired"}]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_pages_python_block_makes_the_model_that_the_tests_use(tmp_path: Path) -> None:
    (block,) = blocks("python")
    with python_with("sklearn", tmp_path / "env") as python:
        subprocess.run((python, "-W", "ignore", "-c", block), cwd=tmp_path, check=True)  # noqa: S603

    assert (tmp_path / "own" / "model.onnx").read_bytes() == MADE.read_bytes()

"""Every recipe made for a device and run there: its gates, answers and speed, and what it takes of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.golden import compared, read_golden, replays
from gateway.inference.quantize.quantizing import Wish, quantize
from gateway.inference.quantize.recipes import EXPECTED_ACTION, RECIPES
from tests.gpu.device import asked
from tests.gpu.measuring import speed
from tests.unit.inference_demo import demo_definitions
from tests.unit.quantize_demo import DEMO, SHORT

# `fp32` alone changes nothing: it stands for 8-bit keys and values
MADE = [(name, "int8" if name == "fp32" else "") for name in RECIPES]


@pytest.mark.parametrize(("recipe", "kv"), MADE, ids=[name for name, _ in MADE])
async def test_a_recipe_passes_its_gates_answers_alike_and_is_put_on_record(
    tmp_path: Path, figures: dict[str, float], recipe: str, kv: str
) -> None:
    """A gate that is missed raises; so does a recipe that the device has no kernel for.

    Its golden answers were made by the recipe, too: on the processor, or here where it is for CUDA alone.
    """
    wish = Wish(source=DEMO, output=tmp_path / recipe, recipe=recipe, kv=kv, device="cuda", length=SHORT)
    bundle = quantize(wish).bundle
    golden = read_golden(bundle)
    here, again = (compared(golden, replays(bundle, golden, "cuda")) for _ in range(2))
    figures |= speed(recipe, bundle, "cuda")
    figures[f"{recipe}: action off by share of span"] = here.worst_action_error_of_span
    figures[f"{recipe}: device MiB"] = await _worker_mib(bundle.directory)

    assert here == again
    if recipe != "int8a8":  # answers otherwise wherever products in 8 bits are made otherwise
        assert here.same
    assert here.worst_action_error_of_span <= EXPECTED_ACTION
    assert figures[f"{recipe}: device MiB"] > 0


async def _worker_mib(directory: Path) -> float:
    """What a worker takes of the device, context included; nobody else is to use it meanwhile."""
    before = asked().used_mib
    engine = ModelEngine(directory, demo_definitions(), "cuda", require_cuda=True)
    await engine.start()
    try:
        return float(asked().used_mib - before)
    finally:
        await engine.aclose()

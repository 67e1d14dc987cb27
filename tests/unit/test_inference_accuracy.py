from pathlib import Path

import pytest

from gateway.inference.accuracy_gate import Accuracy, main, measure
from gateway.inference.bundle.manifest import load_bundle
from gateway.inference.training.clone import Clone, engine_of
from gateway.inference.training.evaluate import Shuffled, mean_errors
from gateway.inference.training.export import recipe_digest
from gateway.inference.training.tank import TANK
from tests.unit.inference_demo import BUFFER_TANK, RECKLESS

HELD_OUT = range(900, 904)


@pytest.mark.parametrize("directory", [BUFFER_TANK, RECKLESS])
def test_the_shipped_int8_graph_passes_its_gates(directory: Path) -> None:
    assert main([str(directory)]) == 0


def test_the_accuracy_report_is_what_is_measured() -> None:
    bundle = load_bundle(BUFFER_TANK)

    measured = measure(bundle)

    for name, value in bundle.manifest.accuracy.items():
        assert getattr(measured, name) == pytest.approx(value, rel=0.05, abs=1e-4)


def test_a_missed_bar_is_named() -> None:
    bad = Accuracy(
        relative_l2=0.5,
        row_p99=0.01,
        top1_delta=0.2,
        expected_action_error_of_span=0.001,
        choice_disagreement=0.0,
    )

    assert bad.failures({"relative_l2": 0.02, "row_p99": 0.05}) == ["relative_l2 is 0.5, over 0.02"]


def test_the_shipped_model_runs_the_tank_like_its_expert_and_better_than_pi() -> None:
    engine = engine_of(BUFFER_TANK)

    clone = sum(mean_errors(TANK, lambda _: Clone(engine, TANK), HELD_OUT))
    expert = sum(mean_errors(TANK, lambda _: TANK.controllers["constraint-aware"](), HELD_OUT))
    pi = sum(mean_errors(TANK, lambda _: TANK.controllers["pi"](), HELD_OUT))

    assert clone <= 1.05 * expert
    assert clone < pi


def test_a_shuffled_input_is_measurably_worse() -> None:
    engine = engine_of(BUFFER_TANK)

    right = sum(mean_errors(TANK, lambda _: Clone(engine, TANK), HELD_OUT))
    wrong = sum(mean_errors(TANK, lambda seed: Shuffled(Clone(engine, TANK), 2, seed), HELD_OUT))

    assert wrong > 1.5 * right


def test_the_report_keeps_the_bars() -> None:
    manifest = load_bundle(BUFFER_TANK).manifest
    figures = manifest.accuracy | manifest.closed_loop

    assert manifest.gates["iae_over_expert"] == 1.05
    assert all(figures[name] <= limit for name, limit in manifest.gates.items())
    for row in TANK.inputs:
        assert figures[f"shuffled_{row.tag}_iae"] > 1.02 * figures["clone_iae"]


@pytest.mark.parametrize("directory", [BUFFER_TANK, RECKLESS])
def test_the_recipe_in_the_tree_is_the_one_that_made_the_bundle(directory: Path) -> None:
    bundle = load_bundle(directory)

    assert bundle.manifest.training is not None
    assert bundle.manifest.training.recipe_digest == recipe_digest(bundle.manifest.id)

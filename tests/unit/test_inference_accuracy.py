from pathlib import Path

import pytest

from gateway.inference.accuracy_gate import Accuracy, main, measure
from gateway.inference.bundle import load_bundle
from gateway.inference.training.clone import Clone, engine_of
from gateway.inference.training.evaluate import Shuffled, mean_score
from gateway.inference.training.export import recipe_digest
from gateway.plantsim.controllers import ExpertController, PiController
from tests.unit.inference_demo import BUFFER_TANK, RECKLESS

HELD_OUT = range(900, 904)
SECONDS = 900


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
        int8_relative_l2=0.5, int8_row_p99=0.01, expected_action_error_of_span=0.001, choice_disagreement=0.0
    )

    assert bad.failures({"int8_relative_l2": 0.02, "int8_row_p99": 0.05}) == [
        "int8_relative_l2 is 0.5, over 0.02"
    ]


def test_the_shipped_model_runs_the_tank_like_its_expert_and_better_than_pi() -> None:
    engine = engine_of(BUFFER_TANK)

    clone = mean_score(lambda _: Clone(engine), HELD_OUT, SECONDS)
    expert = mean_score(lambda _: ExpertController(), HELD_OUT, SECONDS)
    pi = mean_score(lambda _: PiController(), HELD_OUT, SECONDS)

    assert clone.iae <= 1.05 * expert.iae
    assert clone.iae < pi.iae


def test_a_shuffled_input_is_measurably_worse() -> None:
    engine = engine_of(BUFFER_TANK)

    right = mean_score(lambda _: Clone(engine), HELD_OUT, SECONDS)
    wrong = mean_score(lambda seed: Shuffled(Clone(engine), "temperature_c", seed), HELD_OUT, SECONDS)

    assert wrong.iae > 1.5 * right.iae


def test_the_report_keeps_the_bars() -> None:
    manifest = load_bundle(BUFFER_TANK).manifest
    figures = manifest.accuracy | manifest.closed_loop

    assert manifest.gates["iae_over_expert"] == 1.05
    assert all(figures[name] <= limit for name, limit in manifest.gates.items())
    for name in ("level_m", "inflow_m3h", "temperature_c"):
        assert figures[f"shuffled_{name}_iae"] > 1.02 * figures["clone_iae"]


@pytest.mark.parametrize("directory", [BUFFER_TANK, RECKLESS])
def test_the_recipe_in_the_tree_is_the_one_that_made_the_bundle(directory: Path) -> None:
    bundle = load_bundle(directory)

    assert bundle.manifest.training.recipe_digest == recipe_digest()

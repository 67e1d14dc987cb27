"""Every shipped bundle: its bars, its golden answers, its confidence, what it takes for strange, its card."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gateway.inference.bundle.files import BundleError
from gateway.inference.bundle.manifest import GOLDEN_FILE, Manifest, load_bundle
from gateway.inference.golden import ACTION_TOLERANCE, Golden, main, replay
from gateway.inference.quantize.recipes import OBJECTIVE
from gateway.inference.training.clone import Clone, engine_of
from gateway.inference.training.dataset import record
from gateway.inference.training.evaluate import mean_errors
from gateway.inference.training.export import recipe_digest, write_manifest
from gateway.inference.training.recipes import RECIPES
from tests.unit.inference_demo import BUNDLES

SHIPPED = sorted(path.parent for path in BUNDLES.glob("*/bundle.json"))
TUNED = [path for path in SHIPPED if path.name != "reckless"]
MOST_BYTES = 1_000_000


def name(directory: Path) -> str:
    return directory.name


def manifest_of(directory: Path) -> Manifest:
    return load_bundle(directory).manifest


@pytest.mark.parametrize("directory", SHIPPED, ids=name)
def test_this_machine_gives_the_golden_answers(directory: Path) -> None:
    found = replay(load_bundle(directory))

    assert found.answers >= 100
    assert found.wrong_counts == 0
    assert found.worst_action_error_of_span <= ACTION_TOLERANCE


@pytest.mark.parametrize("directory", SHIPPED, ids=name)
def test_the_recipe_in_the_tree_made_the_bundle_and_its_bars_are_kept(directory: Path) -> None:
    manifest = manifest_of(directory)
    figures = manifest.accuracy | manifest.closed_loop

    assert manifest.training is not None
    assert manifest.training.recipe_digest == recipe_digest(manifest.id)
    assert {"relative_l2", "expected_action_error_of_span"} <= manifest.gates.keys()
    assert all(figures[bar] <= limit for bar, limit in manifest.gates.items())
    assert sum(path.stat().st_size for path in directory.iterdir()) < MOST_BYTES


@pytest.mark.parametrize("directory", SHIPPED, ids=name)
def test_every_shipped_bundle_carries_what_every_result_of_a_recipe_does(directory: Path) -> None:
    manifest = manifest_of(directory)

    assert {"relative_l2", "row_p99", "top1_delta", "expected_action_error_of_span"} <= set(manifest.accuracy)
    assert {"objective", "twin_objective", "objective_over_twin"} <= set(manifest.closed_loop)
    assert manifest.gates["objective_over_twin"] == OBJECTIVE
    assert 0 <= manifest.accuracy["top1_delta"] <= 0.05


@pytest.mark.parametrize("directory", TUNED, ids=name)
def test_a_tuned_bundle_is_near_its_expert_and_better_than_pi(directory: Path) -> None:
    manifest = manifest_of(directory)
    kind = RECIPES[manifest.id].plant
    engine, seeds, cycles = engine_of(directory), range(904, 906), 240

    clone = sum(mean_errors(kind, lambda _: Clone(engine, kind), seeds, cycles))
    expert = sum(mean_errors(kind, lambda _: kind.controllers["constraint-aware"](), seeds, cycles))

    assert manifest.gates["iae_over_pi"] == 1.0
    assert clone <= 1.1 * expert


@pytest.mark.parametrize("directory", TUNED, ids=name)
def test_every_input_matters_to_a_tuned_bundle(directory: Path) -> None:
    manifest = manifest_of(directory)

    for spec in manifest.inputs:
        assert manifest.closed_loop[f"shuffled_{spec.tag}_iae"] > manifest.closed_loop["clone_iae"], spec.tag


@pytest.mark.parametrize("directory", SHIPPED, ids=name)
def test_calibration_does_not_make_confidence_worse(directory: Path) -> None:
    confidence = manifest_of(directory).confidence

    assert confidence is not None
    assert confidence.calibration is not None
    assert confidence.calibration.error_after <= max(confidence.calibration.error_before, 0.01)
    assert confidence.calibration.error_after <= 0.05
    most, agreed, _ = confidence.calibration.reliability[-1]
    least, agreed_least, _ = confidence.calibration.reliability[0]
    assert most - agreed <= 0.01, "the surest tenth"
    assert least - agreed_least <= 0.05, "the least sure tenth"
    sure = [group[0] for group in confidence.calibration.reliability]
    assert sure == sorted(sure)


@pytest.mark.parametrize("directory", SHIPPED, ids=name)
def test_confidence_is_nothing_where_a_reading_jumps_as_none_ever_did(directory: Path) -> None:
    manifest = manifest_of(directory)
    kind, engine = RECIPES[manifest.id].plant, engine_of(directory)
    clone = Clone(engine, kind)
    plant = kind.start(960, random.Random(960), "plain")  # noqa: S311 - reproducible, not a secret
    before = plant.in_force
    for _ in range(40):
        before = clone.decide(plant.measure(), before)
        plant.advance(before)
    usual = [answer.confidence for answer in clone.answers]
    seen = list(plant.measure())
    ends = [float(end) for end in manifest.inputs[0].trained]
    seen[0] += 0.3 * (ends[1] - ends[0]) * (1 if seen[0] < np.mean(ends) else -1)
    assert ends[0] < seen[0] < ends[1], "no trained range tells it"
    clone.decide(tuple(seen), before)

    assert min(confidence or 0.0 for confidence in usual) > 0.0
    assert clone.answers[-1].confidence == 0.0


@pytest.mark.parametrize("directory", SHIPPED, ids=name)
def test_what_training_was_like_is_seldom_strange(directory: Path) -> None:
    manifest = manifest_of(directory)
    recipe = RECIPES[manifest.id]
    runs = record(recipe.plant, recipe.expert, range(970, 976), 200, noise=False)
    known = manifest.familiarity

    assert known is not None
    assert known.figures["false_alarms"] <= 0.005
    strange = [
        not known.knows(tuple(measured[at]), tuple(acting[at - 1]), tuple(measured[at - 1]))
        for measured, acting in zip(runs.measured, runs.in_force, strict=True)
        for at in range(2, 200)
    ]
    assert np.mean(strange) <= 0.005


@pytest.mark.parametrize("directory", SHIPPED, ids=name)
def test_its_card_says_what_is_in_bundle_json(directory: Path) -> None:
    manifest = manifest_of(directory)
    card = (directory / "README.md").read_text()

    for figure, value in (manifest.accuracy | manifest.closed_loop).items():
        assert f"| {figure} | {value:g} |" in card
    assert manifest.confidence is not None
    assert manifest.confidence.calibration is not None
    assert f"{manifest.confidence.calibration.error_after:g}" in card
    assert "reliability.svg" in card


def test_a_machine_that_answers_otherwise_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = BUNDLES / "two-heater"
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    golden = msgspec.json.decode((source / GOLDEN_FILE).read_bytes(), type=Golden)
    moved = [
        tuple(
            msgspec.structs.replace(cycle, actions=(cycle.actions[0] + 0.2, cycle.actions[1]))
            if cycle.counts
            else cycle
            for cycle in run
        )
        for run in golden.runs
    ]
    (tmp_path / GOLDEN_FILE).write_bytes(msgspec.json.encode(Golden(golden.outputs, tuple(moved))))
    write_manifest(tmp_path, manifest_of(source))

    assert main([str(tmp_path)]) == 1
    assert "not the same" in capsys.readouterr().out


def test_a_bundle_without_golden_answers_says_so(tmp_path: Path) -> None:
    source = BUNDLES / "two-heater"
    for path in source.iterdir():
        if path.name != GOLDEN_FILE:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    write_manifest(tmp_path, manifest_of(source))

    with pytest.raises(BundleError, match="nobody wrote golden answers"):
        replay(load_bundle(tmp_path))
    assert main([str(tmp_path)]) == 2

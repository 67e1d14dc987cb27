"""Confidence of a made model: fitted on it where that is nearer, and both errors are on record."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.inference.bundle.manifest import load_bundle
from gateway.inference.quantize.quantizing import Wish, quantize
from gateway.inference.seal import seal
from gateway.inference.training.calibrate import Answers, calibration, measured
from gateway.inference.training.paired import Length
from tests.unit.quantize_demo import DEMO

FITTED = Length(seeds=1, cycles=40, fitted=1)


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    shutil.copytree(DEMO, folder)
    told = json.loads((folder / "bundle.json").read_text())
    change(told)
    (folder / "bundle.json").write_text(json.dumps(told))
    seal(folder)
    return folder


def with_offset(offset: float) -> Callable[[dict[str, Any]], object]:
    return lambda told: told["confidence"]["calibration"].update(offset=offset)


def test_a_temperature_that_is_wrong_for_the_model_is_fitted_anew_and_drawn(tmp_path: Path) -> None:
    source = changed(tmp_path / "source", with_offset(-6.0))
    told: list[str] = []

    made = quantize(
        Wish(source=source, output=tmp_path / "made", recipe="int8", length=FITTED),
        lambda stage, _: told.append(stage),
    ).bundle

    confidence, record = made.manifest.confidence, made.manifest.made
    assert confidence is not None
    assert confidence.calibration is not None
    assert record is not None
    assert record.confidence == "fitted"
    assert record.kept_error is not None
    assert record.fitted_error == confidence.calibration.error_after
    assert record.fitted_error < 0.1 < record.kept_error
    assert told.count("confidence") == 2
    drawn = (made.directory / "reliability.svg").read_text()
    assert f"{record.fitted_error:.3f} after" in drawn
    assert load_bundle(tmp_path / "made").digest == made.digest


def test_a_temperature_that_is_right_stays_and_both_errors_are_on_record(tmp_path: Path) -> None:
    made = quantize(Wish(source=DEMO, output=tmp_path / "made", recipe="int8", length=FITTED)).bundle

    record, source = made.manifest.made, load_bundle(DEMO).manifest.confidence
    assert record is not None
    assert record.kept_error is not None
    assert record.fitted_error is not None
    assert made.manifest.confidence is not None
    assert source is not None
    ours, theirs = made.manifest.confidence.calibration, source.calibration
    assert ours is not None
    assert theirs is not None
    same = (ours.temperature, ours.offset) == (theirs.temperature, theirs.offset)
    assert same == (record.confidence == "source") == (record.kept_error <= record.fitted_error)


@pytest.mark.parametrize(
    ("change", "fitted"),
    [
        (lambda told: told.update(confidence=None), 1),
        (lambda told: told.update(training=None), 1),
        (lambda told: told["training"].update(expert="nobody"), 1),
        (lambda told: told["outputs"][0].update(tag="TK9.P1.SP"), 1),
        (lambda _: None, 0),
    ],
    ids=["no confidence", "unknown training", "unknown expert", "unknown plant", "not wanted"],
)
def test_where_nothing_can_be_fitted_the_source_speaks_and_that_is_on_record(
    change: Callable[[dict[str, Any]], object], fitted: int, tmp_path: Path
) -> None:
    source = changed(tmp_path / "source", change)
    length = Length(seeds=1, cycles=40, fitted=fitted)

    made = quantize(Wish(source=source, output=tmp_path / "made", recipe="int8", length=length)).bundle

    assert made.manifest.confidence == load_bundle(source).manifest.confidence
    assert made.manifest.made is not None
    assert made.manifest.made.confidence == "source"
    assert made.manifest.made.kept_error is None


def test_the_error_of_a_temperature_is_that_of_the_answers_it_is_used_on() -> None:
    rng = np.random.default_rng(3)
    sure = rng.uniform(0.05, 0.95, 4000)
    found = Answers(sure, rng.random(4000) < sure)

    right, wrong = measured(found, 1.0, 0.0), measured(found, 1.0, 2.0)

    assert right.error_after == pytest.approx(right.error_before, abs=1e-5)
    assert right.error_after < 0.02
    assert wrong.error_after > 0.2
    assert calibration(found, found).temperature == pytest.approx(1.0, abs=0.1)

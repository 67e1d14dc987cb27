"""A most change: no model proposes further from the value in force, and the check judges all the same."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import InferenceError
from gateway.core.spans import holds
from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.inference.bundle.files import BundleError
from gateway.inference.bundle.manifest import load_bundle
from gateway.inference.bundle.tokenizer import TagCodec
from gateway.inference.client.values import limits_of
from gateway.inference.decision_model import DecisionModel
from gateway.inference.decoding.decode import OutputMask, OutputRange
from gateway.inference.messages import Answer
from gateway.inference.serving.engine import Engine
from tests.unit.inference_demo import BUFFER_TANK
from tests.unit.test_inference_engine import OUTPUTS
from tests.unit.test_inference_guided import BUNDLE, CYCLES, SPEC, _guidance, _request, _row, _run

PUMP = TagDefinition(
    id=TagId("P"),
    kind=TagKind.REAL,
    scale=Fraction(1, 10),
    raw_range=(0, 65535),
    eu_range=(Fraction(0), Fraction(100)),
    writable=True,
)


@given(
    st.integers(-1200, 1200).map(lambda n: Fraction(n, 7)),
    st.integers(0, 300),
    st.sampled_from([Fraction(1, 10), Fraction(-1, 10), Fraction(1), Fraction(3, 7)]),
)
def test_what_is_in_reach_lies_in_range_and_within_the_change_or_is_the_nearest_there_is(
    in_force: Fraction, most: int, scale: Fraction
) -> None:
    limits = OutputRange(scale, Fraction(2), -200, 300, most)
    found = limits.reach(in_force)
    assert found
    at = limits.counts(in_force)
    inside = {raw for raw in range(-200, 301) if abs(raw - at) <= most}
    if inside:
        assert {raw for raw in range(-200, 301) if holds(found, raw)} == inside
    else:
        ((low, high),) = found
        assert low == high
        assert abs(low - at) == min(abs(raw - at) for raw in range(-200, 301))


def test_without_a_most_change_anything_is_in_reach() -> None:
    assert OutputRange(Fraction(1), Fraction(0), 0, 9).reach(Fraction(3)) is None


def test_what_the_model_wants_within_the_change_stays_and_the_mass_beyond_it_is_told() -> None:
    limits = OutputRange(Fraction(1, 10), Fraction(0), 0, 400, most=50)
    mask = OutputMask(TagCodec(SPEC), limits, "expectation")
    row = _row(0.0001, 0.1, 0.6, 0.2, 0.1)
    free = mask.decode(row)
    near = mask.decode(row, limits.reach(Fraction(20)))
    assert near.raw == free.raw
    assert near.masked_out == pytest.approx(
        0.1001, abs=1e-4
    )  # the first bin and the last: no share in 15 to 25
    far = mask.decode(row, limits.reach(Fraction(0)))
    assert far.raw <= 50


def test_the_narrower_of_the_tags_and_the_bundles_change_holds() -> None:
    assert limits_of(PUMP).most is None
    assert limits_of(PUMP, "2.55").most == 25
    own = replace(PUMP, max_change=Fraction(5))
    assert limits_of(own).most == 50
    assert limits_of(own, "2").most == 20
    assert limits_of(own, "20").most == 50


def test_a_change_of_less_than_a_count_is_refused() -> None:
    with pytest.raises(InferenceError, match="less than one register count"):
        limits_of(PUMP, "0.05")


def _engine(most: int) -> Engine:
    return Engine(BUNDLE, (replace(OUTPUTS[0], most=most), *OUTPUTS[1:]), provider="cpu")


def _counts_in_force(at: int) -> Fraction:
    return OUTPUTS[0].counts(Fraction(CYCLES[at - 1].in_force[0]))


@pytest.mark.parametrize("most", [0, 5, 40])
def test_no_answer_is_further_from_the_value_in_force(most: int) -> None:
    engine = _engine(most)
    for at in range(20, 26):
        answer = engine.propose(_request(at, wait_s=None, rebuild=at == 20))
        assert isinstance(answer, Answer)
        assert abs(answer.raws[0] - _counts_in_force(at)) <= max(most, 1)


def test_a_wide_change_is_the_same_answer() -> None:
    free = Engine(BUNDLE, OUTPUTS, provider="cpu").propose(_request(20, wait_s=None))
    wide = _engine(10_000).propose(_request(20, wait_s=None))
    assert isinstance(free, Answer)
    assert isinstance(wide, Answer)
    assert (wide.raws, wide.masked_out) == (free.raws, free.masked_out)


def test_guidance_is_kept_to_within_the_change_and_given_up_outside_it() -> None:
    engine = _engine(30)
    at = int(_counts_in_force(20))
    engine.submit(1, _request(20))
    engine.guide(1, _guidance(pump=((at + 20, at + 500),)), "")
    ((_, near),) = _run(engine)
    assert near.guided
    assert at + 20 <= near.raws[0] <= at + 30

    engine.submit(2, _request(20))
    engine.guide(2, _guidance(pump=((at + 400, at + 500),)), "")
    ((_, far),) = _run(engine)
    assert not far.guided
    assert "within the most change" in far.because
    assert abs(far.raws[0] - at) <= 31


def _stating(folder: Path, change: object) -> Path:
    shutil.copytree(BUFFER_TANK, folder)
    text = json.loads((folder / "bundle.json").read_text())
    text["outputs"][0]["max_change"] = change
    (folder / "bundle.json").write_text(json.dumps(text))
    return folder


def test_a_bundle_that_states_a_change_keeps_to_it_in_a_program_of_ones_own(tmp_path: Path) -> None:
    model = DecisionModel.from_bundle(_stating(tmp_path / "near", "2"), device="cpu")
    inputs = {spec.tag: float(spec.trained[1]) for spec in model.bundle.manifest.inputs}
    in_force = {spec.tag: float(spec.trained[0]) for spec in model.bundle.manifest.outputs}
    pump = model.bundle.manifest.outputs[0].tag
    wanted = model.propose(inputs, in_force)
    assert abs(float(wanted.values[pump]) - in_force[pump]) <= 2
    assert wanted.masked_out[pump] > 0.1  # it wants more


@pytest.mark.parametrize("change", ["0", "-1", "much"])
def test_a_change_that_is_none_is_refused_with_the_bundle(tmp_path: Path, change: str) -> None:
    with pytest.raises(BundleError, match="max_change"):
        load_bundle(_stating(tmp_path / "bad", change))

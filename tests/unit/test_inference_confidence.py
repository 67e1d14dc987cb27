"""Confidence by temperature, and the detector of what is unlike training."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import numpy as np
import pytest

from gateway.inference.bundle.described import Calibration, Confidence
from gateway.inference.bundle.files import BUNDLE_FILE, BundleError
from gateway.inference.bundle.manifest import TagSpec, load_bundle
from gateway.inference.bundle.tokenizer import TagCodec
from gateway.inference.decoding.confidence import (
    concentration,
    like_training,
    log_odds,
    looked_up,
    scaled,
)
from gateway.inference.decoding.decode import DecodedOutput, OutputMask, OutputRange
from gateway.inference.messages import Answer, Cycle, Propose
from gateway.inference.serving.engine import Engine
from gateway.inference.training.calibrate import Answers, alarms, answers, calibration, familiarity
from gateway.inference.training.clone import engine_of
from gateway.inference.training.dataset import Runs, record
from gateway.inference.training.recipes import RECIPES
from gateway.inference.training.two_heater import TWO_HEATER
from tests.unit.inference_demo import BUNDLES

TWO = BUNDLES / "two-heater"


def overconfident(seed: int, count: int = 4000) -> Answers:
    """Answers whose true log odds are half of what they say, less 0.4."""
    rng = np.random.default_rng(seed)
    said = rng.uniform(0.05, 0.995, count)
    true = [scaled(log_odds(float(sure)), 2.0, -0.4) for sure in said]
    return Answers(said, rng.uniform(size=count) < true)


def test_an_answer_is_as_sure_as_its_least_sure_output_less_what_was_masked_out() -> None:
    sure = DecodedOutput(raw=1, value=Fraction(1), masked_out=0.0, concentration=0.75)
    masked = DecodedOutput(raw=1, value=Fraction(1), masked_out=0.5, concentration=0.9)

    assert concentration([sure]) == pytest.approx(0.75)
    assert concentration([sure, masked]) == concentration([masked, sure]) == pytest.approx(0.45)


def test_the_ends_of_what_training_saw_are_like_it_and_what_lies_beyond_is_not() -> None:
    manifest = msgspec.structs.replace(load_bundle(TWO).manifest, familiarity=None)
    ends = [tuple(map(float, spec.trained)) for spec in manifest.inputs]
    acting = [float(spec.trained[0]) for spec in manifest.outputs]

    for at, (low, high) in enumerate(ends):
        values = [first for first, _ in ends]
        for value, like in ((low, True), (high, True), (low - 1e-3, False), (high + 1e-3, False)):
            values[at] = value
            assert like_training(manifest, values, acting, None) is like


def test_the_temperature_that_answers_were_drawn_with_is_found() -> None:
    found = calibration(overconfident(1), overconfident(2))

    assert found.temperature == pytest.approx(2.0, rel=0.15)
    assert found.offset == pytest.approx(-0.4, abs=0.1)
    assert found.error_before > 0.1
    assert found.error_after < 0.03
    assert sum(count for _, _, count in found.reliability) == 4000


def test_a_model_that_nearly_always_agrees_is_fitted_too() -> None:
    rng = np.random.default_rng(4)
    said = rng.uniform(0.9992, 0.9998, 19_000)
    agreed = np.ones(19_000, dtype=np.bool_)
    agreed[np.argsort(said)[:3]] = False

    found = calibration(Answers(said, agreed), Answers(said, agreed))

    assert found.error_after < 0.001
    assert found.reliability[0][1] == pytest.approx(1 - 3 / 1900, abs=1e-4)
    assert found.reliability[0][0] == pytest.approx(found.reliability[0][1], abs=0.002)


def test_a_surer_answer_is_never_trusted_less() -> None:
    rng = np.random.default_rng(3)
    backwards = Answers(said := rng.uniform(0.1, 0.9, 2000), rng.uniform(size=2000) > said)

    found = calibration(backwards, backwards)

    assert found.temperature > 0
    assert scaled(log_odds(0.9), found.temperature, found.offset) >= scaled(
        log_odds(0.1), found.temperature, found.offset
    )


def test_a_calibration_takes_the_place_of_the_table() -> None:
    table = Confidence(edges=(0.5,), hit_rate=(0.1, 0.9))
    fitted = Calibration(temperature=1.0, offset=0.0, error_before=0.0, error_after=0.0, reliability=())

    assert looked_up(table, 0.7) == 0.9
    assert looked_up(msgspec.structs.replace(table, calibration=fitted), 0.7) == pytest.approx(0.7)
    assert looked_up(msgspec.structs.replace(table, calibration=fitted), 1.0) == pytest.approx(1.0, abs=1e-5)
    assert looked_up(None, 0.7) is None


@pytest.mark.parametrize("value", [0, 1])
def test_a_value_is_as_sure_as_it_is_likely_itself(value: int) -> None:
    heater = TagSpec(tag="H", unit="", trained=("0", "1"), knots=("0", "1"), first_token=0)
    mask = OutputMask(TagCodec(heater), OutputRange(Fraction(1), Fraction(0), 0, 1), "most_probable")
    logits = np.log(np.array([0.6, 0.4] if value == 0 else [0.3, 0.7], dtype=np.float32))

    found = mask.decode(logits)

    assert found.raw == value
    assert found.concentration == pytest.approx(max(np.exp(logits)), abs=1e-6)


def test_answers_to_what_is_unlike_training_have_no_part_in_a_temperature() -> None:
    manifest, kind, engine = load_bundle(TWO).manifest, RECIPES["two-heater"].plant, engine_of(TWO)
    assert manifest.familiarity is not None
    nothing = msgspec.structs.replace(manifest.familiarity.state, limit=1e-9)
    blind = msgspec.structs.replace(
        manifest, familiarity=msgspec.structs.replace(manifest.familiarity, state=nothing)
    )

    every = answers(kind, engine, manifest, "constraint-aware", range(3000, 3001))
    none = answers(kind, engine, blind, "constraint-aware", range(3000, 3001))

    assert len(every.agreed) == len(every.concentration) > 150
    assert len(none.agreed) == len(none.concentration) == 0


def runs(seeds: range) -> Runs:
    return record(TWO_HEATER, "constraint-aware", seeds, 60, noise=True)


def test_a_jump_is_strange_and_other_runs_of_the_same_kind_are_not() -> None:
    found = familiarity(runs(range(40)), TWO_HEATER)
    figures = alarms(found, runs(range(100, 110)), TWO_HEATER)

    assert figures["false_alarms"] <= 0.01
    assert figures["finds_jump_TCL.T1"] >= 0.9


def test_an_aim_may_jump_because_nothing_predicts_it() -> None:
    found = familiarity(runs(range(40)), TWO_HEATER)

    assert found.predicted == (0, 1)
    assert found.knows((40.0, 35.0, 40.0, 35.0), (30.0, 30.0), (40.0, 35.0, 40.0, 35.0))
    assert found.knows((40.0, 35.0, 56.0, 35.0), (30.0, 30.0), (40.0, 35.0, 40.0, 35.0))
    assert not found.knows((45.0, 35.0, 40.0, 35.0), (30.0, 30.0), (40.0, 35.0, 40.0, 35.0))


@pytest.mark.parametrize("again", ["kept", "rebuilt", "asked aside", "asked twice"])
def test_the_engine_knows_the_cycle_before_however_it_came_by_it(again: str) -> None:
    bundle = load_bundle(TWO)
    engine = Engine(bundle, RECIPES["two-heater"].plant.ranges)
    steady, jumped = ("40", "35", "40", "35"), ("52", "35", "40", "35")
    first = Cycle((), ("30", "30"))

    def ask(
        cycle: int, inputs: tuple[str, ...], history: tuple[Cycle, ...] | None, *, aside: bool = False
    ) -> Answer:
        answer = engine.propose(
            Propose(
                session="a", cycle=cycle, inputs=inputs, in_force=("30", "30"), history=history, aside=aside
            )
        )
        assert isinstance(answer, Answer)
        return answer

    assert ask(0, steady, (first,)).confidence
    if again == "asked twice":
        assert ask(1, steady, None).confidence
    rebuilt = (first, Cycle(steady, ("30", "30"))) if again == "rebuilt" else None

    assert ask(1, jumped, rebuilt, aside=again == "asked aside").confidence == 0.0


def test_a_detector_whose_rows_do_not_fit_the_tags_is_known() -> None:
    manifest = load_bundle(TWO).manifest
    known = manifest.familiarity
    assert known is not None
    assert known.fits(4, 2)
    assert not known.fits(3, 2)
    assert not msgspec.structs.replace(known, predicted=(0, 9)).fits(4, 2)


def test_a_bundle_with_such_a_detector_says_what_to_do(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bundle")
    for path in TWO.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    manifest = load_bundle(TWO).manifest
    assert manifest.familiarity is not None
    wrong = msgspec.structs.replace(
        manifest, familiarity=msgspec.structs.replace(manifest.familiarity, predicted=(0, 9))
    )
    (folder / BUNDLE_FILE).write_bytes(msgspec.json.encode(wrong))

    with pytest.raises(BundleError, match="do not fit the tags: export it again"):
        load_bundle(folder)

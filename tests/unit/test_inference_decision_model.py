"""The model in a program of one's own."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from gateway.core.errors import InferenceError
from gateway.inference.decision_model import DecisionModel
from gateway.inference.kv.ort_session import open_session
from gateway.inference.serving.engine import Engine
from gateway.inference.training.clone import TankClone, engine_of
from gateway.inference.training.tank import TANK
from gateway.plantsim.tank import Measurement, Outputs
from tests.unit.inference_demo import BUFFER_TANK
from tests.unit.inference_exports import REGRESSOR

TAGS = ("TK1.P101.SP", "TK1.H101.CMD", "TK1.M101.STAGE")
IN_FORCE = {"TK1.P101.SP": 27.0, "TK1.H101.CMD": 1.0, "TK1.M101.STAGE": 1.0}

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
Providers = list[tuple[str, dict[str, str]]]


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[Providers]:
    """A runtime with three CUDA devices whose sessions run on the processor: what each was made with."""
    made: list[Providers] = []
    session = onnxruntime.InferenceSession

    def recorded(path: str, options: onnxruntime.SessionOptions, providers: Providers) -> object:
        made.append(providers)
        return session(path, options, providers=[CPU])

    present = [SimpleNamespace(ep_name=name) for name in (CPU, CUDA, CUDA, CUDA)]
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: present)
    monkeypatch.setattr(onnxruntime, "InferenceSession", recorded)
    return made


def inputs(level: float = 2.0, inflow: float = 12.0, temperature: float = 45.0) -> dict[str, float]:
    return {"TK1.LT101": level, "TK1.FT101": inflow, "TK1.TT101": temperature}


def test_it_proposes_what_the_engine_of_the_gateway_proposes() -> None:
    model = DecisionModel.from_bundle(BUFFER_TANK, "cpu", dict(zip(TAGS, TANK.ranges, strict=True)))
    clone, in_force = TankClone(engine_of(BUFFER_TANK)), dict(IN_FORCE)
    for at in range(30):
        level, temperature = 2.0 + at / 100, 45.0 - at / 50
        before = Outputs(in_force[TAGS[0]], bool(in_force[TAGS[1]]), int(in_force[TAGS[2]]))
        expected = clone.act(Measurement(level, 12.0, temperature), before)
        wanted = model.propose(inputs(level, 12.0, temperature), in_force)

        assert wanted.values[TAGS[0]] == Fraction(str(expected.pump_pct))
        assert wanted.values[TAGS[1]] == int(expected.heater)
        assert wanted.values[TAGS[2]] == expected.mixer
        in_force = {tag: float(value) for tag, value in wanted.values.items()}
    assert wanted.reused_tokens > 100
    assert wanted.computed_tokens < 10


def test_without_ranges_an_output_may_take_what_its_bins_span() -> None:
    wanted = DecisionModel.from_bundle(BUFFER_TANK, "cpu").propose(inputs(), IN_FORCE)

    assert 0 <= wanted.values["TK1.P101.SP"] <= 100
    assert wanted.values["TK1.P101.SP"] % Fraction(1, 10) == 0
    assert wanted.values["TK1.H101.CMD"] in {0, 1}
    assert wanted.values["TK1.M101.STAGE"] in {0, 1, 2, 3}


def test_n_best_are_distinct_ranked_and_the_first_is_what_it_is_alone() -> None:
    alone = DecisionModel.from_bundle(BUFFER_TANK, "cpu").propose(inputs(), IN_FORCE)
    listed = DecisionModel.from_bundle(BUFFER_TANK, "cpu").propose(inputs(), IN_FORCE, n=4)

    assert (listed.values, listed.confidence, alone.others) == (alone.values, alone.confidence, ())
    assert len(listed.others) == 3
    blocks = [listed.values, *(other.values for other in listed.others)]
    assert all(blocks.count(block) == 1 for block in blocks)
    shares = [other.share for other in listed.others]
    assert shares == sorted(shares, reverse=True)
    for other in listed.others:
        assert set(other.values) == set(other.masked_out) == set(TAGS)
        assert other.confidence is None or other.confidence <= 1.0


@pytest.mark.parametrize("n", [0, 9])
def test_a_number_of_proposals_out_of_range_is_refused(n: int) -> None:
    model = DecisionModel.from_bundle(BUFFER_TANK, "cpu")
    with pytest.raises(InferenceError, match=f"from 1 to 8 proposals can be asked for, not {n}"):
        model.propose(inputs(), IN_FORCE, n=n)


def test_it_says_where_it_runs_and_refuses_a_device_that_is_not_there() -> None:
    model = DecisionModel.from_bundle(BUFFER_TANK)
    assert model.truth.actual in {"CPUExecutionProvider", "CUDAExecutionProvider"}
    if model.truth.actual == "CPUExecutionProvider":
        with pytest.raises(InferenceError, match="no CUDA device is present"):
            DecisionModel.from_bundle(BUFFER_TANK, "cuda:0")


@pytest.mark.parametrize("device", ["gpu", "cuda", "cuda:", "cuda:-1", "cuda:one", "CUDA:0", ""])
def test_a_device_that_is_none_is_refused_with_those_there_are(device: str) -> None:
    with pytest.raises(
        InferenceError, match=f"device `{device}` is not known: use `auto`, `cpu`, or `cuda:0`"
    ):
        DecisionModel.from_bundle(BUFFER_TANK, device)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_number_of_a_device_reaches_the_provider(number: int, devices: list[Providers]) -> None:
    """On a machine whose runtime knows three devices, and cannot use them."""
    with pytest.raises(
        InferenceError,
        match=f"device `cuda:{number}` was asked for and the model runs on CPUExecutionProvider: look at",
    ):
        DecisionModel.from_bundle(BUFFER_TANK, f"cuda:{number}")

    assert devices == [[(CUDA, {"device_id": str(number)}), (CPU, {})]]


def test_a_stateless_model_is_asked_for_the_same_device(devices: list[Providers]) -> None:
    with pytest.raises(InferenceError, match="device `cuda:2` was asked for"):
        DecisionModel.from_bundle(REGRESSOR, "cuda:2")

    assert devices == [[(CUDA, {"device_id": "2"}), (CPU, {})]]


def test_captured_graphs_are_asked_of_the_same_device(devices: list[Providers]) -> None:
    open_session(BUFFER_TANK / "model.onnx", "cuda:1", {"enable_cuda_graph": "1"})

    assert devices == [[(CUDA, {"device_id": "1", "enable_cuda_graph": "1"}), (CPU, {})]]


def test_auto_takes_the_first_device_and_says_where_it_runs(devices: list[Providers]) -> None:
    truth = DecisionModel.from_bundle(BUFFER_TANK, "auto").truth

    assert devices == [[(CUDA, {"device_id": "0"}), (CPU, {})]]
    assert (truth.expected, truth.actual) == (CUDA, CPU)


def test_a_device_beyond_the_last_is_refused_before_a_session_is_made(devices: list[Providers]) -> None:
    with pytest.raises(
        InferenceError, match=r"`cuda:3` was asked for but the devices present end with `cuda:2`"
    ):
        DecisionModel.from_bundle(BUFFER_TANK, "cuda:3")

    assert devices == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_tag_without_a_number_is_named(value: float | None) -> None:
    model = DecisionModel.from_bundle(BUFFER_TANK, "cpu")
    broken = {**inputs(), "TK1.FT101": value}
    if value is None:
        del broken["TK1.FT101"]

    with pytest.raises(InferenceError, match=r"tag `TK1\.FT101` has no number"):
        model.propose(broken, IN_FORCE)  # type: ignore[arg-type]
    assert model.propose(inputs(), IN_FORCE).values


def test_generation_is_greedy_at_zero_and_repeatable_above_it() -> None:
    model = DecisionModel.from_bundle(BUFFER_TANK, "cpu")
    start = [0, 20, 50, 80]

    assert model.generate(start, 12) == model.generate(start, 12)
    assert model.generate(start, 12)[:1] == model.generate(start, 1)
    drawn = {tuple(model.generate(start, 12, temperature=3.0, seed=seed)) for seed in range(4)}
    assert len(drawn) > 1
    assert model.generate(start, 12, temperature=3.0, seed=1) == model.generate(
        start, 12, temperature=3.0, seed=1
    )
    assert model.generate(start, 0) == []


@pytest.mark.parametrize(
    ("tokens", "temperature", "said"),
    [
        ([], 0.0, "one or more whole numbers from 0 to 149"),
        ([150], 0.0, "from 0 to 149"),
        ([1, 20.5], 0.0, "whole numbers"),
        ([1], -1.0, "0 or above"),
    ],
)
def test_what_cannot_be_generated_from_is_refused(tokens: list[int], temperature: float, said: str) -> None:
    model = DecisionModel.from_bundle(BUFFER_TANK, "cpu")
    with pytest.raises(InferenceError, match=said):
        model.generate(tokens, 3, temperature)


@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1.0])
@pytest.mark.parametrize("answered", [float("nan"), float("inf")])
def test_a_token_is_not_drawn_from_what_is_no_number(
    monkeypatch: pytest.MonkeyPatch, temperature: float, answered: float
) -> None:
    model = DecisionModel.from_bundle(BUFFER_TANK, "cpu")
    assert isinstance(model._engine, Engine)
    logits = np.zeros((1, 150), dtype=np.float32)
    monkeypatch.setattr(model._engine.backend, "forward", lambda _rows: logits)
    assert len(model.generate([1], 2, temperature)) == 2
    logits[0, 7] = answered

    with pytest.raises(InferenceError, match="no usable probabilities"):
        model.generate([1], 2, temperature)


def test_a_window_that_slides_goes_on_for_longer_than_the_pool_has_slots() -> None:
    model = DecisionModel.from_bundle(BUFFER_TANK, "cpu")
    whole = model.generate([0, 20, 50, 80], 4_200)

    assert len(whole) == 4_200  # of 255 pages of 16
    cut = 1_000  # more than a chunk, and more than all the bands of its layers reach
    assert model.generate([0, 20, 50, 80, *whole[:cut]], 20) == whole[cut : cut + 20]
    with pytest.raises(InferenceError, match="or none, not -1"):
        model.generate([0], -1)


# A row of a data frame is made of these.
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.array, int])
def test_numbers_of_numpy_are_numbers(kind: Callable[[float], float]) -> None:
    model, twin = (DecisionModel.from_bundle(str(BUFFER_TANK), "cpu") for _ in range(2))
    plain, acting = inputs(2.0, 12.0, 45.0), dict(IN_FORCE)
    like = {tag: kind(value) for tag, value in plain.items()}

    wanted = model.propose(like, {tag: kind(value) for tag, value in acting.items()})
    assert wanted.values == twin.propose(plain, acting).values
    with pytest.raises(InferenceError, match=r"tag `TK1\.LT101` has no number"):
        model.propose({**plain, "TK1.LT101": "2"}, acting)  # type: ignore[dict-item]
    with pytest.raises(InferenceError, match=r"tag `TK1\.LT101` has no number"):
        model.propose({**plain, "TK1.LT101": np.zeros(2)}, acting)  # type: ignore[dict-item]


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match=r"bundle\.json cannot be read"):
        DecisionModel.from_bundle(tmp_path)

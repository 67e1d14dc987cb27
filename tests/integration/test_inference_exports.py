"""Models that other tools exported, each behind `ModelEngine` in a worker process; made again by night."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import Proposal
from gateway.core.errors import InferenceError, WorkerLostError
from gateway.core.tag import TagId
from gateway.inference.client.model_engine import ModelEngine
from tests.integration.environments import python_with
from tests.integration.worker_asking import at_once
from tests.unit.inference_demo import demo_definitions, in_force, snapshot
from tests.unit.inference_exports import (
    DECODERS,
    EXPORTS,
    FORECASTER,
    GENAI_LLAMA,
    OPTIMUM_LLAMA,
    REGRESSOR,
    STATELESS,
)
from tests.unit.test_inference_bad_bundles import spoil_level_5

pytestmark = pytest.mark.integration
CLOCK = SystemClock()
PUMP = TagId("TK1.P101.SP")
each_export = pytest.mark.parametrize(
    "directory", [*DECODERS, *STATELESS], ids=lambda directory: directory.name
)


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[ModelEngine]:
    engine = ModelEngine(directory, demo_definitions(), "cpu")
    await engine.start()
    try:
        yield engine
    finally:
        await engine.aclose()


async def propose(engine: ModelEngine, at: int, point: str = "") -> Proposal:
    taken = snapshot(float(at), level=2 + at / 40, temperature=44 + at / 20)
    return await engine.propose_for(point, taken, in_force(), Deadline.after(60.0, CLOCK))


async def rows_before(engine: ModelEngine, rows: int) -> None:
    """A forecaster waits until it has its rows."""
    for at in range(rows):
        with pytest.raises(InferenceError, match="it proposes when the others have, too"):
            await propose(engine, at)


@each_export
async def test_a_worker_serves_it_and_says_what_it_is(directory: Path) -> None:
    manifest = json.loads((directory / "bundle.json").read_text())
    first = 3 if directory == FORECASTER else 0
    async with serving(directory) as engine:
        await rows_before(engine, first)
        before = (await engine.refresh()).worker
        proposals = [await propose(engine, at) for at in range(first, first + 30)]
        told, counted = engine.describe(), (await engine.refresh()).worker

    for proposal in proposals:
        assert [value.tag for value in proposal.values] == [spec["tag"] for spec in manifest["outputs"]]
        for value in proposal.values:
            low, high = demo_definitions()[value.tag].eu_range or (value.value, value.value)
            assert low <= value.value <= high
        assert proposal.model_digest == engine.bundle.digest
    assert told["backend"] == manifest["backend"]
    assert told["state"] == "ready"
    assert float(told["incremental_error"]) <= 1e-5
    assert before is not None
    assert counted is not None
    assert counted.decisions - before.decisions == 30


@each_export
async def test_a_killed_worker_is_replaced_and_goes_on_as_the_lost_one_would_have(directory: Path) -> None:
    first = 3 if directory == FORECASTER else 0
    async with serving(directory) as engine, serving(directory) as twin:
        for each in (engine, twin):
            await rows_before(each, first)
        for at in range(first, 30):
            await propose(engine, at)
            await propose(twin, at)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        while engine.statistics().lost == 0:
            with pytest.raises((InferenceError, WorkerLostError)):
                await propose(engine, 0, "other")
            await asyncio.sleep(0)  # the loop has to see the end of the process
        await engine.wait_ready(60.0)

        assert (await propose(engine, 30)).values == (await propose(twin, 30)).values


async def test_points_that_ask_a_stateless_model_at_once_share_forwards() -> None:
    async with serving(REGRESSOR) as engine, serving(REGRESSOR) as twin:
        for at in range(20):
            together = await at_once(engine, (propose(engine, at, f"p{n}") for n in range(8)))
            alone = [await propose(twin, at, f"p{n}") for n in range(8)]
            assert [each.values for each in together] == [each.values for each in alone]
        counted = (await engine.refresh()).worker

    assert counted is not None
    assert counted.rows == 160
    assert counted.rows > 2 * counted.forwards


async def test_a_bad_bundle_beside_it_changes_nothing_in_service(tmp_path: Path) -> None:
    bad = Path(shutil.copytree(GENAI_LLAMA, tmp_path / "bad"))
    (bad / "model.onnx.data").write_bytes(b"")
    async with serving(GENAI_LLAMA) as engine:
        pid, before = engine.pid, await propose(engine, 0)
        with pytest.raises(InferenceError, match="it was cut short, copy the bundle again"):
            ModelEngine(bad, demo_definitions(), "cpu")

        assert (await propose(engine, 0)).values == before.values
        assert engine.pid == pid


async def test_a_bundle_exchanged_under_a_worker_is_not_taken_by_its_replacement(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OPTIMUM_LLAMA, tmp_path / "model"))
    async with serving(folder) as engine:
        await propose(engine, 0)
        (folder / "model.onnx").write_bytes(b"another")
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            while "was cut short" not in engine.describe()["state"]:
                with pytest.raises((InferenceError, WorkerLostError)):
                    await propose(engine, 1)
                await asyncio.sleep(0.01)


async def test_no_number_in_an_answer_is_told_and_the_worker_goes_on(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OPTIMUM_LLAMA, tmp_path / "model"))
    spoil_level_5(folder)
    async with serving(folder) as engine:
        before, pid = await propose(engine, 0), engine.pid
        with pytest.raises(
            InferenceError, match="no usable probabilities: nothing is proposed, let another bundle"
        ):
            deadline = Deadline.after(60.0, CLOCK)
            await engine.propose_for("other", snapshot(0.0, level=5.0), in_force(), deadline)

        assert (await propose(engine, 0)).values == before.values
        assert engine.pid == pid


_ENVIRONMENTS = {
    "optimum": ("optimum_llama", "optimum_gpt2"),
    "genai": ("genai_llama",),
    "sklearn": ("sklearn_regressor", "sklearn_classifier", "sklearn_forecaster"),
}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", _ENVIRONMENTS)
def test_the_scripts_make_the_committed_files_again(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with python_with(name, tmp_path / "env") as python:
        made = subprocess.run(  # noqa: S603  our own script
            (python, "-W", "ignore", EXPORTS / f"make_{name}.py", out),
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert made.returncode == 0, made.stderr
    for folder in _ENVIRONMENTS[name]:
        files = json.loads((EXPORTS / folder / "bundle.json").read_text())["files"]
        exported = {file: spec["sha256"] for file, spec in files.items() if file != "gate.json"}
        found = {file: hashlib.sha256((out / folder / file).read_bytes()).hexdigest() for file in exported}
        assert found == exported

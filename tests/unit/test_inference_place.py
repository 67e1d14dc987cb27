"""On which provider workers are started, and what becomes of one that cannot be had there (no GPU needed)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest

from gateway.core.errors import InferenceError
from gateway.inference.bundle.any_bundle import load_any
from gateway.inference.client import engine_worker
from gateway.inference.client.engine_worker import EngineWorker
from gateway.inference.client.place import CPU, CUDA, Place
from gateway.inference.kv.ort_session import number_of, providers_for
from gateway.inference.messages import Failed, Ready, encode
from tests.unit.inference_exports import REGRESSOR

BUNDLE = load_any(REGRESSOR)
_OFTEN = 6


class Machine:
    """Workers that are no processes, on a machine whose device is there, cannot be used, or is gone."""

    def __init__(self) -> None:
        self.device = "works"  # or: silent, gone
        self.asked: list[str] = []
        self.windows: list[bool] = []  # by worker: whether its requests wait for company
        self.tried_often = asyncio.Event()
        self.up: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()  # the end of each, once it is kept

    def worker(self, _module: str, arguments: Sequence[str], *, name: str) -> Any:  # noqa: ANN401  # a twin
        del name
        self.windows.append("--max-wait-ms" in arguments)
        return _Worker(self, arguments[list(arguments).index("--provider") + 1])


class _Worker:
    pid, in_flight = 1, 0

    def __init__(self, machine: Machine, provider: str) -> None:
        self._machine, self._provider = machine, provider
        self._ended = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        self._machine.asked.append(self._provider)
        if len(self._machine.asked) == _OFTEN:
            self._machine.tried_often.set()

    async def ask(self, _body: bytes, _timeout_s: float) -> bytes:
        device, wants_cuda = self._machine.device, self._provider != "cpu"
        if device == "gone" and self._provider.startswith("cuda"):
            return encode(Failed(problem="no CUDA device is present"))
        expected = CUDA if wants_cuda and device != "gone" else CPU
        return encode(
            Ready(
                digest=BUNDLE.digest,
                ep_requested=self._provider,
                ep_expected=expected,
                ep_actual=expected if device == "works" else CPU,
                runtime="1",
                cpu="",
                aliased=True,
                incremental_error=0.0,
                decision_ms=1.0,
                slow_ms=1.0,
                prefill_ms=1.0,
                chunk_ms=1.0,
                widest=1,
                batch_independent=True,
            )
        )

    def post(self, _body: bytes) -> tuple[int, asyncio.Future[bytes]]:
        return 1, asyncio.get_running_loop().create_future()  # it is busy, and never answers

    async def wait(self) -> int:
        self._machine.up.put_nowait(self._ended)
        return int(await self._ended)

    def kill(self) -> None:
        if not self._ended.done():
            self._ended.set_result(-9)

    async def aclose(self, _grace_s: float = 1.0) -> None:
        self.kill()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(engine_worker, "NumberedWorker", made.worker)
    monkeypatch.setattr(engine_worker, "_BACK_OFF_S", (0.0,))
    return made


def worker_on(provider: str, *, require_cuda: bool = False) -> EngineWorker:
    return EngineWorker(
        BUNDLE,
        (),
        provider=provider,
        require_cuda=require_cuda,
        slowest_ms=None,
        max_wait_s=0.002,
        warm=lambda: (),
        warmed=lambda _: None,
    )


async def lose(machine: Machine) -> None:
    """End the process of the worker that is up."""
    async with asyncio.timeout(60):
        (await machine.up.get()).set_result(1)


@pytest.mark.parametrize("provider", ["auto", "cuda:0"])
async def test_a_device_that_cannot_be_used_is_told_and_where_cuda_is_required_refused(
    machine: Machine, provider: str
) -> None:
    machine.device = "silent"
    worker = worker_on(provider)
    await worker.start()
    assert worker.place == Place(provider, CUDA, CPU)
    assert worker.place.fell_back(ran_on_cuda=False)
    await worker.aclose()

    with pytest.raises(InferenceError, match=f"CUDA is required but the session runs on {CPU}: add a GPU"):
        await worker_on(provider, require_cuda=True).start()


async def test_a_named_device_that_is_not_there_is_refused_at_the_start(machine: Machine) -> None:
    machine.device = "gone"
    with pytest.raises(InferenceError, match="no CUDA device is present"):
        await worker_on("cuda:0").start()


async def test_a_device_that_goes_while_the_gateway_runs_is_replaced_by_the_processor_and_missed(
    machine: Machine,
) -> None:
    worker = worker_on("cuda:0")
    await worker.start()
    assert worker.place == Place("cuda:0", CUDA, CUDA)

    machine.device = "gone"
    await lose(machine)
    back = await machine.up.get()
    assert machine.asked == ["cuda:0", "cuda:0", "cpu"]
    assert machine.windows == [True, True, False]
    assert worker.place == Place("cuda:0", CPU, CPU)
    assert worker.place.fell_back(ran_on_cuda=True) == f"`cuda:0` was asked for and the model runs on {CPU}"

    machine.device = "works"
    back.set_result(1)
    async with asyncio.timeout(60):
        await machine.up.get()
    assert worker.place == Place("cuda:0", CUDA, CUDA)
    await worker.aclose()


async def test_where_cuda_is_required_no_worker_on_the_processor_follows(machine: Machine) -> None:
    worker = worker_on("cuda:0", require_cuda=True)
    await worker.start()
    machine.device = "gone"
    await lose(machine)
    async with asyncio.timeout(60):
        await machine.tried_often.wait()

    assert set(machine.asked) == {"cuda:0"}
    assert not worker.up
    assert "no CUDA device is present" in worker.problem
    await worker.aclose()


async def test_a_worker_too_busy_to_count_is_left_alone(machine: Machine) -> None:
    worker = worker_on("cpu")
    await worker.start()
    kept = await machine.up.get()

    assert await worker.counted(0.0) is None
    assert not kept.done()
    assert worker.up
    await worker.aclose()


def test_a_device_is_taken_by_its_number_if_there_are_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [SimpleNamespace(ep_name=name) for name in (CPU, CUDA, CUDA)]
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: two)

    assert [number_of(name) for name in ("auto", "cpu", "cuda", "cuda:0", "cuda:1")] == [0, 0, 0, 0, 1]
    assert providers_for("cuda:1") == [CUDA, CPU]
    with pytest.raises(
        InferenceError, match=r"`cuda:2` was asked for but the devices present end with `cuda:1`"
    ):
        providers_for("cuda:2")

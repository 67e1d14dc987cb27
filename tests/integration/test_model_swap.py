"""A bundle takes over from another while decisions run: real workers, real bundles."""

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import Proposal
from gateway.core.errors import InferenceError
from gateway.inference.client import engine_worker
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.served import ServedModel
from tests.model_load import Load, agreed, swap
from tests.unit.inference_demo import BUFFER_TANK, RECKLESS, demo_definitions, in_force, snapshot
from tests.unit.inference_exports import FORECASTER

pytestmark = pytest.mark.integration
CLOCK = SystemClock()


def _make(folder: Path, on_lost: Callable[[], None]) -> ModelEngine:
    return ModelEngine(folder, demo_definitions(), "cpu", on_lost=on_lost)


@pytest_asyncio.fixture
async def served() -> AsyncIterator[ServedModel]:
    made = ServedModel("buffer-tank", [BUFFER_TANK], _make)
    await made.start()
    yield made
    await made.aclose()


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Another folder with the demo's bundle."""
    return Path(shutil.copytree(BUFFER_TANK, tmp_path / "second"))


async def _propose(served: ServedModel, at: float, temperature: float = 45.0, point: str = "a") -> Proposal:
    deadline = Deadline.after(60.0, CLOCK)
    asked = snapshot(at, temperature=temperature), in_force(), deadline
    return await served.for_point(point).propose(*asked)


def _alike(ours: Proposal, theirs: Proposal) -> bool:
    """The same registers; a history computed at once or cycle by cycle differs in the last bits only."""
    return ours.values == theirs.values and ours.confidence == pytest.approx(theirs.confidence, rel=1e-5)


async def test_after_a_swap_the_answers_are_those_of_a_fresh_engine_with_the_same_history(
    served: ServedModel,
) -> None:
    twin = ServedModel("twin", [RECKLESS], _make)
    await twin.start()
    try:
        for at in range(30):
            await _propose(served, float(at), 40.0 + at / 5)
            await _propose(twin, float(at), 40.0 + at / 5)
        await served.take(RECKLESS, agreed)
        sent = served.engine.statistics().histories_sent
        for at in range(30, 40):
            ours, theirs = await _propose(served, float(at), 46.0), await _propose(twin, float(at), 46.0)
            assert _alike(ours, theirs)
            assert ours.model_digest == twin.bundle.digest
    finally:
        await twin.aclose()

    assert served.engine.statistics().histories_sent == sent == 0  # it was warm before it took over
    assert served.statistics().proposals == 40


async def test_a_model_of_another_kind_takes_its_own_history_from_the_same_past(served: ServedModel) -> None:
    twin = ServedModel("twin", [FORECASTER], _make)
    await twin.start()
    try:
        for at in range(20):
            await _propose(served, float(at), 40.0 + at)
            with contextlib.suppress(InferenceError):  # it reads several cycles in a row
                await _propose(twin, float(at), 40.0 + at)
        for folder in (FORECASTER, BUFFER_TANK, FORECASTER):
            await served.take(folder, agreed)
        ours, theirs = await _propose(served, 20.0, 46.0), await _propose(twin, 20.0, 46.0)
        assert ours.values == theirs.values
        assert len(ours.values) < 3
        assert served.engine.statistics().histories_sent == 0
    finally:
        await twin.aclose()


async def test_what_is_measured_while_a_swap_is_agreed_to_is_in_the_history(served: ServedModel) -> None:
    twin = ServedModel("twin", [RECKLESS], _make)
    await twin.start()
    try:
        for at in (float(second) for second in range(12)):
            await _propose(served, at, 40.0 + at)
            await _propose(twin, at, 40.0 + at)

        async def meanwhile(_fresh: ModelEngine) -> None:
            for at, temperature in ((11.2, 70.0), (11.4, 30.0)):  # still in the cycle of the newest
                await _propose(served, at, temperature)
                await _propose(twin, at, temperature)

        await served.take(RECKLESS, meanwhile)
        for at in (12.0, 13.0, 14.0):
            ours, theirs = await _propose(served, at, 46.0), await _propose(twin, at, 46.0)
            assert _alike(ours, theirs)
        assert served.engine.statistics().histories_sent == 0

        async def on_to_the_next_cycle(_fresh: ModelEngine) -> None:
            for at, temperature in ((14.5, 60.0), (15.0, 61.0)):
                await _propose(served, at, temperature)

        await served.take(RECKLESS, on_to_the_next_cycle)
        for at, temperature in ((14.5, 60.0), (15.0, 61.0)):
            await _propose(twin, at, temperature)
        ours, theirs = await _propose(served, 16.0, 46.0), await _propose(twin, 16.0, 46.0)
        assert _alike(ours, theirs)
        assert served.engine.statistics().histories_sent == 1  # it could not be sent ahead
    finally:
        await twin.aclose()


async def test_requests_under_way_end_on_the_old_worker_and_then_it_is_gone(
    served: ServedModel, second: Path
) -> None:
    old = served.engine
    assert old.pid is not None
    process = psutil.Process(old.pid)
    under_way: list[asyncio.Task[Proposal]] = []

    async def asked_meanwhile(_fresh: ModelEngine) -> None:
        under_way.extend(
            asyncio.create_task(_propose(served, 0.0, point=f"p{number}")) for number in range(8)
        )
        await asyncio.sleep(0)  # they are with the old worker now

    await served.take(second, asked_meanwhile)
    proposals = await asyncio.gather(*under_way)

    assert len(proposals) == 8
    assert old.statistics().proposals == 8
    assert served.engine is not old
    await asyncio.to_thread(process.wait, 60)
    assert (await _propose(served, 1.0)).model_digest == served.bundle.digest


async def test_an_engine_that_was_replaced_is_freed_although_nobody_looks_for_garbage(
    served: ServedModel, second: Path
) -> None:
    """A look for it took main 4 to 13 ms of its loop at each swap."""
    await _propose(served, 0.0)
    old = weakref.ref(served.engine)
    gc.disable()
    try:
        await served.take(second, agreed)
        async with asyncio.timeout(60):
            while served.swap_statistics().draining:  # noqa: ASYNC110  # a count gives no event
                await asyncio.sleep(0.01)
        assert old() is None
    finally:
        gc.enable()


async def test_a_successor_gives_way_until_it_is_ready_and_then_no_more(
    second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_worker, "_GIVE_WAY_S", 600.0)  # else a slow machine's is raised on its way
    gave_way: list[bool] = []

    class Watched(ModelEngine):
        async def serve(self) -> None:
            assert self.pid is not None
            gave_way.append(any(_lowered(int(thread.name)) for thread in _threads(self.pid)))
            await super().serve()

    served = ServedModel("buffer-tank", [BUFFER_TANK], lambda *made: Watched(made[0], demo_definitions()))
    await served.start()
    try:
        await served.take(second, agreed)
        pid = served.engine.pid
        assert pid is not None
        assert gave_way == [True]
        assert not _lowered(pid)  # its first thread, which serves
    finally:
        await served.aclose()


def _threads(pid: int) -> Iterator[Path]:
    return Path(f"/proc/{pid}/task").iterdir()


def _lowered(thread: int) -> bool:
    nice = os.getpriority(os.PRIO_PROCESS, thread) > os.getpriority(os.PRIO_PROCESS, 0)
    return os.sched_getscheduler(thread) == os.SCHED_IDLE or nice


async def _killed(engine: ModelEngine) -> None:
    """Returns when the loop has seen the end of the worker."""
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while engine.ready:  # noqa: ASYNC110  # there is no event for the end of readiness
            await asyncio.sleep(0)


async def test_swaps_under_load_lose_nothing(served: ServedModel, second: Path) -> None:
    load, until = Load(served, per_s=50.0, deadline_s=20.0), asyncio.Event()
    loading = asyncio.create_task(load.run(until))
    try:
        await swap(served, (RECKLESS, second), 8)
        async with asyncio.timeout(60):  # however fast the swaps were
            while load.asked <= 50:  # noqa: ASYNC110  a count gives no event
                await asyncio.sleep(0.01)
    finally:
        until.set()
        await loading

    assert load.lost == []
    assert load.asked > 50
    assert len(load.digests) == 2
    assert served.statistics().proposals == len(load.answered_ms)
    assert served.swap_statistics().swaps == 8


def _broken(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"no model")


def _no_description(folder: Path) -> None:
    (folder / "bundle.json").write_text("{")


def _wrong_tag(folder: Path) -> None:
    text = (folder / "bundle.json").read_text()
    (folder / "bundle.json").write_text(text.replace("TK1.LT101", "TK9.LT999"))


@pytest.mark.parametrize("spoil", [_broken, _no_description, _wrong_tag])
async def test_a_bundle_that_cannot_be_served_changes_nothing(
    served: ServedModel, second: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(second)
    old, pid = served.engine, served.engine.pid
    await _propose(served, 0.0)

    with pytest.raises(InferenceError, match=r"second|bundle"):
        await served.take(second, agreed)

    assert (served.engine, served.engine.pid) == (old, pid)
    assert await _propose(served, 1.0)
    assert served.swap_statistics().swaps_failed == 1
    assert old.statistics().histories_sent == 1


async def test_a_bundle_too_slow_for_the_deadline_changes_nothing(second: Path) -> None:
    slow = ServedModel(
        "slow",
        [BUFFER_TANK],
        lambda folder, _lost: ModelEngine(
            folder, demo_definitions(), "cpu", slowest_ms=0.001 if folder == second else None
        ),
    )
    await slow.start()
    try:
        with pytest.raises(InferenceError, match="use a smaller model or a longer deadline"):
            await slow.take(second, agreed)
        assert slow.bundle.directory == BUFFER_TANK
        assert await _propose(slow, 0.0)
    finally:
        await slow.aclose()


async def test_what_nobody_agrees_to_does_not_take_over(served: ServedModel, second: Path) -> None:
    successors: list[ModelEngine] = []

    async def refused(fresh: ModelEngine) -> None:
        successors.append(fresh)
        message = "not now"
        raise InferenceError(message)

    with pytest.raises(InferenceError, match="not now"):
        await served.take(second, refused)

    assert served.bundle.directory == BUFFER_TANK
    assert successors[0].pid is None  # its worker is ended


async def test_a_successor_killed_before_it_takes_over_never_does(served: ServedModel, second: Path) -> None:
    async def killed(fresh: ModelEngine) -> None:
        await _killed(fresh)

    with pytest.raises(InferenceError, match="was lost before it took over"):
        await served.take(second, killed)

    assert served.bundle.directory == BUFFER_TANK
    assert await _propose(served, 0.0)


async def test_the_old_worker_may_be_killed_while_its_successor_gets_ready(
    served: ServedModel, second: Path
) -> None:
    for at in range(10):
        await _propose(served, float(at), 40.0 + at)

    async def killed(_fresh: ModelEngine) -> None:
        assert served.engine.pid is not None
        os.kill(served.engine.pid, signal.SIGKILL)

    await served.take(second, killed)

    assert await _propose(served, 10.0)
    assert served.engine.statistics().histories_sent == 0


async def test_only_losses_of_the_engine_in_service_are_told(second: Path) -> None:
    heard: list[str] = []
    lost = asyncio.Event()

    def on_lost() -> None:
        heard.append("lost")
        lost.set()

    served = ServedModel("buffer-tank", [BUFFER_TANK], _make)
    served.on_lost = on_lost
    await served.start()
    try:

        async def killed_before(fresh: ModelEngine) -> None:
            await _killed(fresh)

        with pytest.raises(InferenceError):
            await served.take(second, killed_before)
        await served.take(second, agreed)
        assert heard == []
        assert served.engine.pid is not None
        os.kill(served.engine.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            await lost.wait()
    finally:
        await served.aclose()


@pytest.mark.parametrize("late", [False, True], ids=["while it loads", "when it has loaded"])
async def test_histories_from_before_the_start_are_warm_when_it_is_ready(
    served: ServedModel, *, late: bool
) -> None:
    for at in range(20):
        await _propose(served, float(at), 40.0 + at / 2)
    again = ServedModel("buffer-tank", [BUFFER_TANK], _make)
    if not late:
        again.recall(served.engine.pasts())
    await again.start()
    try:
        if late:
            again.recall(served.engine.pasts())
        await again.warm()
        counted = (await again.engine.refresh()).worker
        assert counted is not None
        assert counted.warmed == 1
        ours, theirs = await _propose(again, 20.0, 51.0), await _propose(served, 20.0, 51.0)
        assert _alike(ours, theirs)
        assert again.statistics().histories_sent == 0
    finally:
        await again.aclose()


async def test_the_first_folder_that_can_be_served_is(second: Path) -> None:
    _broken(second)
    served = ServedModel("buffer-tank", [second, BUFFER_TANK], _make)
    await served.start()
    try:
        assert served.bundle.directory == BUFFER_TANK
        assert "second" in served.describe()["passed_over"]
    finally:
        await served.aclose()

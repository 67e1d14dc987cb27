import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from fractions import Fraction

import pytest
import pytest_asyncio

from gateway.core.clock import Deadline, FakeClock, SystemClock
from gateway.core.decision import Proposal
from gateway.core.errors import InferenceError, WorkerLostError
from gateway.core.tag import TagId
from gateway.inference.client import engine_worker
from gateway.inference.client.model_engine import ModelEngine
from tests.integration.worker_asking import at_once
from tests.unit.inference_demo import BUFFER_TANK, RECKLESS, demo_definitions, in_force, snapshot

pytestmark = pytest.mark.integration
CLOCK = SystemClock()


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[ModelEngine]:
    made = ModelEngine(BUFFER_TANK, demo_definitions())
    await made.start()
    yield made
    await made.aclose()


async def _propose(engine: ModelEngine, at: float, temperature: float = 45.0) -> Proposal:
    deadline = Deadline.after(60.0, CLOCK)
    return await engine.propose(snapshot(at, temperature=temperature), in_force(), deadline)


async def test_a_proposal_is_made_of_register_values(engine: ModelEngine) -> None:
    proposal = await _propose(engine, 0.0)

    assert [value.tag for value in proposal.values] == ["TK1.P101.SP", "TK1.H101.CMD", "TK1.M101.STAGE"]
    assert proposal.values[0].value == Fraction(proposal.values[0].raw, 10)
    assert proposal.model_digest == engine.bundle.digest
    assert proposal.confidence is not None
    assert 0.0 <= proposal.confidence <= 1.0


async def test_the_engine_says_what_really_runs(engine: ModelEngine) -> None:
    told = engine.describe()

    assert told["ep_requested"] == "auto"
    assert told["ep_actual"] in {"CPUExecutionProvider", "CUDAExecutionProvider"}
    assert told["state"] == "ready"
    assert float(told["incremental_error"]) <= 1e-5
    assert told["batch_independent"] == "yes"
    assert told["rows_a_forward"] == "8"


@pytest.mark.parametrize(("gap", "sent"), [(2, 1), (5, 1), (6, 2)])
async def test_after_a_gap_of_up_to_five_cycles_the_history_stays_where_it_is(
    engine: ModelEngine, gap: int, sent: int
) -> None:
    """The first history is the empty one. Answers are those of an engine that was given all of it at once."""
    for at in range(20):
        await _propose(engine, float(at), 44.0 + at / 10)
    twin = ModelEngine(BUFFER_TANK, demo_definitions())
    for _ in twin.adopt(engine.pasts()):
        pass
    await twin.start()
    try:
        for at in (19 + gap, 20 + gap):
            ours, theirs = await _propose(engine, float(at), 46.0), await _propose(twin, float(at), 46.0)
            assert ours.values == theirs.values
            assert ours.confidence == pytest.approx(theirs.confidence, rel=1e-4)
    finally:
        await twin.aclose()

    assert engine.statistics().histories_sent == sent
    assert twin.statistics().histories_sent == sent - 1  # it was warmed with the first


async def test_a_killed_worker_is_replaced_and_answers_as_the_lost_one_would_have(
    engine: ModelEngine,
) -> None:
    twin = ModelEngine(BUFFER_TANK, demo_definitions())
    await twin.start()
    try:
        for at in range(20):
            await _propose(engine, float(at), 44.0 + at / 10)
            await _propose(twin, float(at), 44.0 + at / 10)
        lost = engine.pid
        assert lost is not None
        os.kill(lost, signal.SIGKILL)
        while engine.ready:
            with pytest.raises(WorkerLostError):
                await _propose(engine, 20.0, 46.0)
            await asyncio.sleep(0)  # the loop has to see the end of the process
        await engine.wait_ready(60.0)

        assert engine.pid != lost
        assert (await _propose(engine, 20.0, 46.0)).values == (await _propose(twin, 20.0, 46.0)).values
        assert engine.statistics().lost == 1
    finally:
        await twin.aclose()


async def test_a_cancelled_request_disturbs_nobody(engine: ModelEngine) -> None:
    pid = engine.pid
    asking = asyncio.create_task(_propose(engine, 0.0))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    await _propose(engine, 1.0)

    assert engine.pid == pid


async def test_a_request_without_time_left_is_refused_and_the_worker_lives(engine: ModelEngine) -> None:
    pid = engine.pid
    with pytest.raises(InferenceError):
        await engine.propose(snapshot(0.0), in_force(), Deadline(CLOCK.monotonic() - 1.0))

    await _propose(engine, 1.0)

    assert engine.pid == pid


async def test_two_points_have_two_histories(engine: ModelEngine) -> None:
    for at in range(10):
        await engine.for_point("a").propose(snapshot(float(at)), in_force(), Deadline.after(60.0, CLOCK))
        await engine.for_point("b").propose(snapshot(float(at), 3.5), in_force(), Deadline.after(60.0, CLOCK))

    report = await engine.refresh()

    assert report.worker is not None
    assert report.worker.sessions == 2
    assert engine.idle
    assert engine.memory()["sessions"] == 2.0
    assert engine.memory()["pages_free"] == report.worker.pages_free
    assert report.histories_sent == 2


async def test_what_the_model_cannot_see_is_refused_by_name(engine: ModelEngine) -> None:
    deadline = Deadline.after(60.0, CLOCK)
    missing = {tag: value for tag, value in in_force().items() if tag != "TK1.H101.CMD"}
    with pytest.raises(InferenceError, match=r"TK1\.H101\.CMD"):
        await engine.propose(snapshot(0.0), missing, deadline)
    with pytest.raises(InferenceError, match=r"TK1\.LT101"):
        await engine.propose(snapshot(0.0, level=float("inf")), in_force(), deadline)


async def test_a_cpu_session_does_not_satisfy_require_cuda() -> None:
    engine = ModelEngine(BUFFER_TANK, demo_definitions(), "cpu", require_cuda=True)
    with pytest.raises(InferenceError, match="CUDA is required"):
        await engine.start()
    assert engine.pid is None


async def test_a_model_too_slow_for_its_deadline_is_refused_at_load() -> None:
    engine = ModelEngine(BUFFER_TANK, demo_definitions(), slowest_ms=0.001)
    with pytest.raises(InferenceError, match="use a smaller model"):
        await engine.start()


async def test_a_worker_gets_no_more_memory_than_its_model_explains(engine: ModelEngine) -> None:
    assert engine.pid is not None
    soft, _ = resource.prlimit(engine.pid, resource.RLIMIT_DATA)
    assert 2**29 < soft < 4 * 2**30


async def test_a_worker_that_ends_while_it_loads_is_told_in_a_sentence_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_worker, "_LOAD_S", 0.001)
    engine = ModelEngine(BUFFER_TANK, demo_definitions(), "cpu")
    said = r"gave no answer within 1 ms .*: its graph may not end, .* use a smaller model, or export it"
    with pytest.raises(InferenceError, match=said):
        await engine.start()
    assert engine.pid is None


async def test_time_is_the_clock_that_was_given() -> None:
    clock = FakeClock()
    engine = ModelEngine(BUFFER_TANK, demo_definitions(), "cpu", clock=clock)
    await engine.start()
    try:
        with pytest.raises(InferenceError):
            await engine.propose(snapshot(0.0), in_force(), Deadline(clock.monotonic() - 1.0))
        await engine.propose(snapshot(0.0), in_force(), Deadline.after(60.0, clock))
    finally:
        await engine.aclose()


async def test_the_reckless_bundle_wants_what_must_be_refused() -> None:
    engine = ModelEngine(RECKLESS, demo_definitions())
    await engine.start()
    try:
        wanted = (await _propose(engine, 0.0)).engineering()
    finally:
        await engine.aclose()

    assert wanted[TagId("TK1.P101.SP")] <= 5  # no pump, against the ramp
    assert wanted[TagId("TK1.H101.CMD")] == 1  # heater on
    assert wanted[TagId("TK1.M101.STAGE")] == 0  # without mixing


def test_main_never_loads_the_runtime() -> None:
    code = (
        "import sys; import gateway.inference.client.model_engine; "
        "sys.exit(any(name in sys.modules for name in ('onnxruntime', 'onnx', 'torch')))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0  # noqa: S603


async def test_a_what_if_leaves_no_trace_in_the_history(engine: ModelEngine) -> None:
    twin = ModelEngine(BUFFER_TANK, demo_definitions())
    await twin.start()
    try:
        for at in range(6):
            await _propose(engine, float(at))
            await _propose(twin, float(at))
            strange = snapshot(at + 0.5, 4.0, 39.0, 90.0)
            aside = await engine.propose_aside("", strange, in_force(), Deadline.after(60.0, CLOCK))
        own = await _propose(engine, 6.0)

        assert own.values == (await _propose(twin, 6.0)).values
        assert aside.values != own.values
    finally:
        await twin.aclose()


async def test_points_that_ask_at_once_are_answered_as_alone_and_share_forwards(engine: ModelEngine) -> None:
    levels = {f"point-{n}": 1.5 + n / 10 for n in range(8)}
    before = (await engine.refresh()).worker
    twin = ModelEngine(BUFFER_TANK, demo_definitions())
    await twin.start()
    try:
        for at in range(12):
            together = await at_once(
                engine,
                (
                    engine.propose_for(
                        name, snapshot(float(at), level), in_force(), Deadline.after(60.0, CLOCK)
                    )
                    for name, level in levels.items()
                ),
            )
            for (name, level), proposal in zip(levels.items(), together, strict=True):
                asked = snapshot(float(at), level), in_force(), Deadline.after(60.0, CLOCK)
                assert proposal.values == (await twin.propose_for(name, *asked)).values
    finally:
        await twin.aclose()
    report = (await engine.refresh()).worker

    assert before is not None
    assert report is not None
    assert report.decisions - before.decisions == 12 * len(levels)
    assert report.rows - before.rows > 2 * (report.forwards - before.forwards)


async def test_a_worker_that_answers_nobody_is_replaced_and_everybody_is_told(engine: ModelEngine) -> None:
    await _propose(engine, 0.0)
    stopped = engine.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    deadline = Deadline.after(0.3, CLOCK)
    told = await asyncio.gather(
        *(engine.propose_for(name, snapshot(1.0), in_force(), deadline) for name in "abc"),
        return_exceptions=True,
    )

    assert [type(answer) for answer in told] == [InferenceError] * 3
    while engine.statistics().lost == 0:
        with pytest.raises((InferenceError, WorkerLostError)):
            await engine.propose_for("d", snapshot(1.0), in_force(), Deadline.after(0.1, CLOCK))
        await asyncio.sleep(0)  # the loop has to see the end of the process
    await engine.wait_ready(60.0)
    assert await engine.propose_for("a", snapshot(2.0), in_force(), Deadline.after(60.0, CLOCK))


async def test_more_requests_than_there_are_places_are_refused_at_once(engine: ModelEngine) -> None:
    asked = [
        asyncio.create_task(
            engine.propose_for(f"p{n}", snapshot(0.0), in_force(), Deadline.after(60.0, CLOCK))
        )
        for n in range(80)
    ]
    told = await asyncio.gather(*asked, return_exceptions=True)

    refused = [answer for answer in told if isinstance(answer, InferenceError)]
    assert len(refused) == 16
    assert all("64 requests are with the model already" in str(answer) for answer in refused)


async def test_cycles_whose_requests_were_refused_are_made_up_for_without_the_history(
    engine: ModelEngine,
) -> None:
    twin = ModelEngine(BUFFER_TANK, demo_definitions())
    await twin.start()
    try:
        for at in range(8):
            await _propose(engine, float(at), 44.0 + at)
            await _propose(twin, float(at), 44.0 + at)
        told = await asyncio.gather(
            *(_propose(engine, float(at), 44.0 + at) for at in range(8, 16)), return_exceptions=True
        )
        for at in range(8, 16):
            await _propose(twin, float(at), 44.0 + at)
        answered = [at for at, answer in enumerate(told) if isinstance(answer, Proposal)]

        assert answered == [0, 1, 2, 3]  # and four were refused
        assert (await _propose(engine, 16.0)).values == (await _propose(twin, 16.0)).values
        assert engine.statistics().histories_sent == 1
    finally:
        await twin.aclose()


async def test_a_replaced_worker_is_warm_before_it_is_ready(engine: ModelEngine) -> None:
    twin = ModelEngine(BUFFER_TANK, demo_definitions())
    await twin.start()
    try:
        for at in range(20):
            await _propose(engine, float(at), 44.0 + at / 10)
            await _propose(twin, float(at), 44.0 + at / 10)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        while engine.statistics().lost == 0:
            with pytest.raises((InferenceError, WorkerLostError)):
                await engine.propose_for("other", snapshot(0.0), in_force(), Deadline.after(0.1, CLOCK))
            await asyncio.sleep(0)  # the loop has to see the end of the process
        await engine.wait_ready(60.0)
        before = engine.statistics().histories_sent

        assert (await _propose(engine, 20.0, 46.0)).values == (await _propose(twin, 20.0, 46.0)).values
        assert engine.statistics().histories_sent == before
        report = (await engine.refresh()).worker
        assert report is not None
        assert report.warmed >= 1
    finally:
        await twin.aclose()

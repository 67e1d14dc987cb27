"""Lists, most changes and guidance over real engine workers, and a list in a gateway of real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import Proposal
from gateway.core.errors import WorkerLostError
from gateway.core.guidance import Guidance, GuidanceCase, GuidanceLevel, PackedGuidance, Unguided
from gateway.core.ports import Guide
from gateway.core.spans import Spans
from gateway.core.tag import TagDefinition, TagId
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.served import ServedModel
from gateway.link.messages import DecisionView
from tests.integration.house import ROOT, House, tell
from tests.unit.inference_demo import BUFFER_TANK, BUNDLES, RECKLESS, demo_definitions, in_force, snapshot
from tests.unit.inference_exports import CLASSIFIER, GENAI_LLAMA, OPTIMUM_LLAMA, REGRESSOR
from tests.unit.test_inference_standing import HEADER, with_header

pytestmark = pytest.mark.integration
CLOCK = SystemClock()
PUMP = TagId("TK1.P101.SP")
MOST = 5


@asynccontextmanager
async def serving(
    directory: Path,
    definitions: Mapping[TagId, TagDefinition] | None = None,
    on_lost: Callable[[], None] | None = None,
) -> AsyncIterator[ModelEngine]:
    engine = ModelEngine(directory, definitions or demo_definitions(), "cpu", on_lost=on_lost)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.aclose()


async def propose(
    engine: ModelEngine, at: int, point: str = "", *, most: int = 1, guide: Guide | None = None
) -> Proposal:
    taken = snapshot(float(at), level=2 + at / 40, temperature=44 + at / 20)
    deadline = Deadline.after(60.0, CLOCK)
    return await engine.propose_for(point, taken, in_force(), deadline, most=most, guide=guide)


def blocks(proposal: Proposal) -> list[tuple[int, ...]]:
    return [tuple(value.raw for value in each.values) for each in (proposal, *proposal.others)]


@pytest.mark.parametrize("directory", [BUFFER_TANK, OPTIMUM_LLAMA, GENAI_LLAMA], ids=lambda path: path.name)
async def test_a_worker_lists_and_the_first_is_what_it_is_alone(directory: Path) -> None:
    async with serving(directory) as engine:
        for at in range(12):
            alone = await propose(engine, at, "alone")
            listed = await propose(engine, at, "listed", most=MOST)
            assert alone.others == ()
            assert (listed.values, listed.confidence) == (alone.values, alone.confidence)
            assert 1 < len(blocks(listed)) <= MOST
            assert len(set(blocks(listed))) == len(blocks(listed))
            for other in listed.others:
                assert (other.by, other.model_digest) == (alone.by, alone.model_digest)
                for value in other.values:
                    definition = demo_definitions()[value.tag]
                    assert value.value == definition.engineering(value.raw)
                    low, high = definition.eu_range or (value.value, value.value)
                    assert low <= value.value <= high


async def test_a_replaced_worker_lists_what_the_lost_one_would_have() -> None:
    async with serving(BUFFER_TANK) as engine, serving(BUFFER_TANK) as twin:
        for at in range(15):
            await propose(engine, at, most=MOST)
            await propose(twin, at, most=MOST)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        while engine.ready:
            with pytest.raises(WorkerLostError):
                await propose(engine, 15)
            await asyncio.sleep(0)
        await engine.wait_ready(60.0)
        assert blocks(await propose(engine, 15, most=MOST)) == blocks(await propose(twin, 15, most=MOST))


async def test_a_list_asked_for_after_its_first_is_the_list_that_would_have_come_at_once() -> None:
    async with serving(BUFFER_TANK) as engine, serving(BUFFER_TANK) as twin:
        for at in range(12):
            first, expected = await propose(engine, at), await propose(twin, at, most=MOST)
            assert first.others == ()
            assert blocks(first) == blocks(expected)[:1]
            listed = await propose(engine, at, most=MOST)
            assert blocks(listed) == blocks(expected)
        assert engine.statistics().histories_sent <= 1, "no history went along with a list"


async def test_a_what_if_lists_and_leaves_no_trace() -> None:
    async with serving(BUFFER_TANK) as engine, serving(BUFFER_TANK) as twin:
        for at in range(10):
            expected = await propose(twin, at, most=MOST)
            assert blocks(await propose(engine, at, most=MOST)) == blocks(expected)
            aside = await engine.propose_aside(
                "", snapshot(at + 0.1, level=3.0), in_force(), Deadline.after(60.0, CLOCK), most=MOST
            )
            assert len(blocks(aside)) == MOST


async def test_a_tags_most_change_holds_for_every_proposal_of_a_worker() -> None:
    definitions = demo_definitions()
    definitions[PUMP] = replace(definitions[PUMP], max_change=Fraction(2))
    async with serving(RECKLESS, definitions) as engine:
        for at in range(8):
            listed = await propose(engine, at, most=MOST)
            for each in (listed, *listed.others):
                assert abs(each.engineering()[PUMP] - in_force()[PUMP]) <= 2
            assert listed.masked_out[PUMP] > 0.5  # it wants to be far away


def guiding(*allowed: Spans) -> Guide:
    levels = tuple(
        GuidanceLevel(spans, (GuidanceCase(tuple((0, 65535) for _ in allowed), ()),)) for spans in allowed
    )

    async def guide(order: tuple[TagId, ...]) -> PackedGuidance | Unguided:
        return PackedGuidance(msgspec.json.encode(Guidance(order=order, levels=levels)))

    return guide


@pytest.mark.parametrize(("directory", "spans"), [(REGRESSOR, ((111, 111),)), (CLASSIFIER, ((1, 1),))])
async def test_a_worker_guides_a_stateless_model(directory: Path, spans: Spans) -> None:
    async with serving(directory) as engine:
        free = await propose(engine, 0)
        guided = await propose(engine, 1, guide=guiding(spans), most=MOST)
    assert free.decoding is None
    assert blocks(guided) == [(spans[0][0],)]
    assert guided.decoding is not None
    assert (guided.decoding.guided, guided.decoding.because) == (True, "")


async def test_a_stateless_model_whose_guidance_does_not_come_answers_in_time() -> None:
    async def never(_order: tuple[TagId, ...]) -> PackedGuidance | Unguided:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(REGRESSOR) as engine:
        taken = snapshot(0.0)
        late = await engine.propose_for("", taken, in_force(), Deadline.after(4.0, CLOCK), guide=never)
    assert late.decoding is not None
    assert late.decoding.guided is False
    assert "too late" in late.decoding.because


@pytest.mark.parametrize("source", [BUNDLES / "buffer-tank-hop", OPTIMUM_LLAMA], ids=lambda path: path.name)
async def test_a_worker_is_ready_with_its_bundles_header_and_so_is_its_replacement(
    source: Path, tmp_path: Path
) -> None:
    bundle, lost = with_header(source, tmp_path / "own"), asyncio.Event()
    async with serving(bundle.directory, on_lost=lost.set) as engine:
        for number in (1, 2):
            worker = (await engine.refresh()).worker
            assert worker is not None
            assert worker.standing_tokens == 1 + len(HEADER)
            await propose(engine, number, f"new {number}")
            assert engine.statistics().reused_tokens >= 1 + len(HEADER)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            async with asyncio.timeout(60):
                await lost.wait()
            lost.clear()
            await engine.wait_ready(60.0)
    assert engine.describe()["header"] == f"{len(HEADER)} tokens"


async def test_a_successor_with_another_header_answers_as_if_it_had_always_served(tmp_path: Path) -> None:
    """Nothing computed behind one header is used behind another."""
    folders = [
        with_header(BUNDLES / "buffer-tank-hop", tmp_path / name, header).directory
        for name, header in (("one", HEADER), ("two", HEADER[::-1]))
    ]

    async def agreed(_fresh: ModelEngine) -> None:
        """Nobody minds."""

    def made(folder: Path, on_lost: Callable[[], None]) -> ModelEngine:
        return ModelEngine(folder, demo_definitions(), "cpu", on_lost=on_lost)

    served = ServedModel("tank", [folders[0]], made)
    await served.start()
    try:
        async with serving(folders[1]) as twin:
            for at in range(20):
                await propose(served.engine, at, "a", most=MOST)
                expected = await propose(twin, at, "a", most=MOST)
            await served.take(folders[1], agreed)
            expected = await propose(twin, 20, "a", most=MOST)
            assert blocks(await propose(served.engine, 20, "a", most=MOST)) == blocks(expected)
            worker = (await served.engine.refresh()).worker
        assert worker is not None
        assert worker.standing_tokens == 1 + len(HEADER)
        assert worker.warmed >= 1
    finally:
        await served.aclose()


@pytest.mark.timeout(900)
async def test_a_gateway_takes_another_of_the_list_where_the_first_is_not_permitted(tmp_path: Path) -> None:
    """Rules come, one after another, that forbid what the model wanted last: a neighbour is permitted."""
    async with House(tmp_path, n_best=8) as house:
        await house.arm()
        at = time.monotonic()
        for number in range(20):  # the plant moves on, and the model's wish with it
            seen = len(house.picture.decisions)
            await house.until(lambda p, n=seen: len(p.decisions) > n + 2, 30, "three decisions")  # type: ignore[misc]
            if _taken(house.picture.since(at)):
                break
            assert house.picture.last is not None
            gap = json.dumps(_gap(number, _pump(house.picture.last)))
            (house.watched / f"gap{number}.json").write_text(gap)
            await house.until(lambda p, n=number: p.module(f"gap{n}") == "active", 30, "the gap in force")  # type: ignore[misc]
        views = list(house.picture.since(at))
        counters = (await house.asked("status"))["gateway"]["counters"]
        await house.close()
        assert house.violations() == []
    taken = _taken(views)
    told = {name: counters[f"point_buffer-tank_n_best_{name}"] for name in ("lists", "checked", "used")}
    assert taken, f"no other proposal was taken: {told}"
    tell(f"another proposal of a list was taken {len(taken)} times: {told}, {taken[0].shortlist}")
    assert told["lists"] >= told["used"] >= len(taken)
    assert told["checked"] >= told["used"]
    for view in taken:
        assert view.outcome == "permitted"
        assert "not permitted: 1 by `gap" in view.shortlist


def _pump(view: DecisionView) -> float:
    return float(view.proposal.get(PUMP, "0"))


def _taken(views: Iterable[DecisionView]) -> list[DecisionView]:
    return [view for view in views if view.shortlist and not view.shortlist.startswith("proposal 1 ")]


def _gap(number: int, wanted: float) -> dict[str, object]:
    """A module that keeps the pump away from one value, by less than a model's list reaches."""
    demo = json.loads((ROOT / "constraints" / "buffer-tank.json").read_text())
    pump = {"pump": demo["variables"]["pump"]}
    low, high = max(wanted - 1.5, 0.0), min(wanted + 1.5, 100.0)
    rule = {"id": "away", "kind": "standard", "require": f"pump <= {low:.1f} or pump >= {high:.1f}"}
    head = {"id": f"gap{number}", "revision": 1, "language": 1, "step": "1 s"}
    return {**head, "variables": pump, "constraints": [rule]}

"""Models while the gateway runs: who serves, what is on record, and what an armed point does (S23, S27)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.core.clock import FakeClock
from gateway.core.decision import Mode, PointId
from gateway.core.errors import GatewayError, InferenceError, StorageError
from gateway.daemon.model_book import ModelBook, ServedBundle
from gateway.daemon.models import LOST_TIMES, LOST_WITHIN_S, Models
from gateway.inference.client.place import CPU, Place
from gateway.inference.client.served import SwapStatistics
from gateway.pipeline.point import Point
from tests.fakes.pipeline import House

MODEL = "model-1"


class FakeModel:
    """A served model whose bundles have their folder's name as digest, unless a file says another."""

    def __init__(self, folder: Path) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.passed_over: list[str] = []
        self.ready, self.swapping, self.swaps, self.refused = True, False, 0, 0
        self.place: Place | None = Place("auto", CPU, CPU)
        self.engine = self._engine(folder)
        self.refuses = ""
        self.breaks_after_agreement = ""

    @property
    def bundle(self) -> Any:  # noqa: ANN401  # a bundle's twin
        return self.engine.bundle

    async def take(self, folder: Path, agreed: Callable[[Any], Awaitable[None]]) -> None:
        if self.refuses:
            self.refused += 1
            raise InferenceError(self.refuses)
        fresh = self._engine(folder)
        await agreed(fresh)
        if self.breaks_after_agreement:
            raise InferenceError(self.breaks_after_agreement)
        self.engine = fresh
        self.swaps += 1

    def _engine(self, folder: Path) -> Any:  # noqa: ANN401  # an engine's twin
        digest = json.loads((folder / "bundle.json").read_text())["digest"]
        manifest = SimpleNamespace(id=folder.name, revision=1)
        bundle = SimpleNamespace(directory=folder, digest=digest, manifest=manifest)
        return SimpleNamespace(
            bundle=bundle, costs_ms=lambda: {"decision": 1.5}, place=self.place, memory=dict
        )

    def swap_statistics(self) -> SwapStatistics:
        return SwapStatistics(self.swaps, self.refused, 0)


class FakeModes:
    """Modes that only change the point, and remember who did it."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, Mode, str]] = []
        self.armed_again_under: list[str] = []

    async def set_mode(self, point: Point, mode: Mode, who: str) -> str:
        point.mode = mode
        self.changes.append((point.settings.id, mode, who))
        return ""

    async def armed_under(self, point: Point) -> None:
        self.armed_again_under.append(point.settings.id)


@dataclass
class Rig:
    models: Models
    model: FakeModel
    modes: FakeModes
    point: Point
    book: ModelBook
    bundles: Path
    clock: FakeClock
    records: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    alarms: list[dict[str, Any]] = field(default_factory=list)

    def serving(self) -> str:
        return str(self.model.bundle.directory.name)


def bundle(bundles: Path, name: str, digest: str = "") -> None:
    folder = bundles / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bundle.json").write_text(json.dumps({"digest": digest or f"digest of {name}"}))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return make_rig(tmp_path)


def make_rig(tmp_path: Path, *, may_keep_armed: bool = False) -> Rig:
    bundles = tmp_path / "bundles"
    for name in (MODEL, "second", "third"):
        bundle(bundles, name)
    house, clock, modes = House(), FakeClock(), FakeModes()
    point = house.point
    object.__setattr__(point.settings, "model", MODEL)
    model, book = FakeModel(bundles / MODEL), ModelBook(tmp_path / "models.json")
    records: list[tuple[str, str, dict[str, str]]] = []
    alarms: list[dict[str, Any]] = []

    async def record(kind: str, who: str, what: Mapping[str, str]) -> None:
        records.append((kind, who, dict(what)))

    def raise_alarm(source: str, **facts: Any) -> None:  # noqa: ANN401  # an alarm's facts
        alarms.append({"source": source, **facts})

    models = Models(
        served=cast("Any", {MODEL: model}),
        bundles_dir=bundles,
        points={PointId(point.settings.id): point},
        modes=modes,
        record=record,
        raise_alarm=cast("Any", raise_alarm),
        book=book,
        clock=clock,
        may_keep_armed=may_keep_armed,
    )
    return Rig(models, model, modes, point, book, bundles, clock, records, alarms)


async def test_a_load_is_on_record_and_kept_before_it_counts(rig: Rig) -> None:
    await rig.models.load("", "second", "anna")

    assert rig.serving() == "second"
    kept = ModelBook(rig.book._path).of(MODEL)
    assert kept is not None
    assert (kept.bundle, kept.previous, kept.by) == ("second", MODEL, "anna")
    ((kind, who, facts),) = rig.records
    assert (kind, who) == ("model", "anna")
    assert facts["from_digest"] == f"digest of {MODEL}"
    assert facts["to_digest"] == "digest of second"


async def test_a_bundle_that_cannot_serve_leaves_everything_and_is_told(rig: Rig) -> None:
    rig.model.refuses = "tag `TK9` is not known"
    with pytest.raises(GatewayError) as told:
        await rig.models.load(MODEL, "second", "anna")

    assert str(told.value) == (
        f"`second` did not take over: tag `TK9` is not known; `{MODEL}` still serves `{MODEL}`"
    )
    assert rig.serving() == MODEL
    assert rig.book.of(MODEL) is None
    assert [kind for kind, _, _ in rig.records] == ["model-refused"]


async def test_a_model_that_fell_back_to_the_processor_is_an_alarm_and_part_of_its_state(rig: Rig) -> None:
    rig.model.place = rig.model.engine.place = Place("cuda:0", CPU, CPU)
    rig.models.places.tell()

    (alarm,) = rig.alarms
    (state,) = rig.models.states()
    assert (alarm["source"], alarm["active"]) == (f"provider:{MODEL}", True)
    assert (state.provider, state.asked_provider) == (CPU, "cuda:0")
    assert state.fell_back == alarm["cause"]
    assert [(part.part, part.ok) for part in rig.models.health()][1:] == [(f"provider of {MODEL}", False)]


async def test_the_newest_refusal_stands_until_another_bundle_takes_over(rig: Rig) -> None:
    rig.model.refuses = "tag `TK9` is not known"
    with pytest.raises(GatewayError):
        await rig.models.load(MODEL, "second", "anna")
    (state,) = rig.models.states()
    assert (state.swaps, state.refused, state.bundle) == (0, 1, MODEL)
    assert state.last_refusal == "`second`: tag `TK9` is not known"
    assert state.costs_ms == {"decision": 1.5}

    rig.model.refuses = ""
    await rig.models.load(MODEL, "third", "anna")
    (state,) = rig.models.states()
    assert (state.swaps, state.refused, state.last_refusal) == (1, 1, "")


async def test_a_worker_lost_after_the_act_was_recorded_is_taken_back(rig: Rig) -> None:
    rig.model.breaks_after_agreement = "its worker was lost"
    with pytest.raises(GatewayError, match="still serves"):
        await rig.models.load(MODEL, "second", "anna")

    assert rig.book.of(MODEL) is None
    assert ModelBook(rig.book._path).of(MODEL) is None
    assert [kind for kind, _, _ in rig.records] == ["model", "model-refused"]


async def test_whoever_leaves_in_the_middle_leaves_the_book_as_it_was(rig: Rig) -> None:
    rig.point.mode = Mode.ARMED
    left = asyncio.Event()

    async def slow(point: Point, mode: Mode, who: str) -> str:
        del point, mode, who
        left.set()
        await asyncio.Event().wait()
        return ""

    rig.modes.set_mode = slow  # type: ignore[method-assign]
    loading = asyncio.create_task(rig.models.load(MODEL, "second", "anna"))
    await left.wait()
    assert rig.book.of(MODEL) is not None
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading

    assert rig.book.of(MODEL) is None
    assert ModelBook(rig.book._path).of(MODEL) is None
    assert rig.serving() == MODEL


async def test_what_cannot_be_recorded_does_not_take_over(rig: Rig) -> None:
    async def broken(_kind: str, _who: str, _what: Mapping[str, str]) -> None:
        message = "the audit log is full"
        raise StorageError(message)

    rig.models._record = broken
    with pytest.raises(GatewayError, match="the audit log is full"):
        await rig.models.load(MODEL, "second", "anna")
    assert rig.serving() == MODEL


async def test_s27_an_armed_point_leaves_armed_before_another_model_decides(rig: Rig) -> None:
    rig.point.mode = Mode.ARMED
    await rig.models.load(MODEL, "second", "anna")

    assert rig.modes.changes == [(rig.point.settings.id, Mode.SHADOW, "anna")]
    assert rig.modes.armed_again_under == []
    facts = rig.records[0][2]
    assert (facts["armed"], facts["armed_stays"]) == (rig.point.settings.id, "false")


async def test_s27_a_refused_bundle_does_not_take_a_point_out_of_armed(rig: Rig) -> None:
    rig.point.mode = Mode.ARMED
    rig.model.refuses = "too slow"
    with pytest.raises(GatewayError):
        await rig.models.load(MODEL, "second", "anna")
    assert rig.point.mode is Mode.ARMED


async def test_s27_nobody_keeps_a_point_armed_where_the_house_rules_do_not_say_so(rig: Rig) -> None:
    rig.point.mode = Mode.ARMED
    with pytest.raises(GatewayError, match=r'model_change = "keep"'):
        await rig.models.load(MODEL, "second", "anna", keep_armed=True)
    assert rig.serving() == MODEL
    assert rig.records == []


@pytest.mark.parametrize("keep_armed", [True, False])
async def test_s23_s27_where_they_do_it_takes_the_persons_word_too(tmp_path: Path, keep_armed: bool) -> None:  # noqa: FBT001
    rig = make_rig(tmp_path, may_keep_armed=True)
    rig.point.mode = Mode.ARMED
    await rig.models.load(MODEL, "second", "anna", keep_armed=keep_armed)

    assert (rig.point.mode is Mode.ARMED) == keep_armed
    assert rig.modes.armed_again_under == ([rig.point.settings.id] if keep_armed else [])
    assert rig.records[0][2]["armed_stays"] == str(keep_armed).lower()


async def test_rollback_goes_back_once_and_then_has_nothing_to_go_back_to(rig: Rig) -> None:
    await rig.models.load(MODEL, "second", "anna")
    await rig.models.roll_back("", "anna")
    assert rig.serving() == MODEL
    with pytest.raises(GatewayError, match="there is nothing to go back to"):
        await rig.models.roll_back(MODEL, "anna")


async def test_rollback_to_files_that_changed_meanwhile_is_refused(rig: Rig) -> None:
    await rig.models.load(MODEL, "second", "anna")
    bundle(rig.bundles, MODEL, "another digest")
    with pytest.raises(GatewayError, match="changed on disk since it served"):
        await rig.models.roll_back(MODEL, "anna")
    assert rig.serving() == "second"


async def test_unload_goes_to_the_configured_bundle_and_not_further(rig: Rig) -> None:
    await rig.models.load(MODEL, "second", "anna")
    await rig.models.load(MODEL, "third", "anna")
    await rig.models.unload(MODEL, "anna")
    assert rig.serving() == MODEL
    with pytest.raises(GatewayError, match="nothing is loaded"):
        await rig.models.unload(MODEL, "anna")


@pytest.mark.parametrize("name", ["secnd", "", "../second", ".", "/etc"])
async def test_what_is_no_bundle_by_name_is_refused(rig: Rig, name: str) -> None:
    with pytest.raises(GatewayError, match="no bundle"):
        await rig.models.load(MODEL, name, "anna")


async def test_an_unknown_model_names_the_known_ones(rig: Rig) -> None:
    with pytest.raises(GatewayError, match=f"known: `{MODEL}`"):
        await rig.models.load("nobody", "second", "anna")


async def test_one_bundle_at_a_time_is_on_its_way(rig: Rig) -> None:
    rig.model.swapping = True
    with pytest.raises(GatewayError, match="wait until it does"):
        await rig.models.load(MODEL, "second", "anna")


async def _lost(rig: Rig, times: int, apart_s: float) -> None:
    for _ in range(times):
        assert rig.model.on_lost is not None
        rig.model.on_lost()
        rig.clock.advance(apart_s)


async def _alarm(rig: Rig) -> dict[str, Any]:
    running = asyncio.create_task(rig.models.run())
    try:
        async with asyncio.timeout(60):
            while not rig.alarms:  # noqa: ASYNC110  # the fake has no event
                await asyncio.sleep(0)
    finally:
        running.cancel()
        await asyncio.wait({running})
    return rig.alarms[0]


@pytest.mark.parametrize("may_keep_armed", [True, False])
async def test_s27_a_bundle_lost_again_and_again_is_left_by_itself_and_an_alarm_says_so(
    tmp_path: Path,
    may_keep_armed: bool,  # noqa: FBT001
) -> None:
    rig = make_rig(tmp_path, may_keep_armed=may_keep_armed)
    await rig.models.load(MODEL, "second", "anna")
    rig.point.mode = Mode.ARMED
    await _lost(rig, LOST_TIMES, LOST_WITHIN_S / LOST_TIMES)
    alarm = await _alarm(rig)

    assert rig.serving() == MODEL
    assert alarm["source"] == f"model:{MODEL}"
    assert "`second` was lost 3 times within 60 s" in alarm["cause"]
    assert rig.records[-1][1:] == ("gateway", rig.records[-1][2])
    assert (rig.point.mode is Mode.ARMED) == may_keep_armed


async def test_losses_far_apart_or_of_another_bundle_than_serves_change_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig.models, "roll_back", roll_back := AsyncMock())
    await _lost(rig, 2 * LOST_TIMES - 1, 1.0)  # of the configured bundle: there is nothing before it
    await rig.models.load(MODEL, "second", "anna")
    await _lost(rig, 1, 2 * LOST_WITHIN_S)  # the losses before it were another's
    await _lost(rig, 2 * LOST_TIMES, LOST_WITHIN_S)
    running = asyncio.create_task(rig.models.run())
    for times in (0, 1):
        await _lost(rig, times * LOST_TIMES, 1.0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert roll_back.await_count == times
    running.cancel()
    await asyncio.wait({running})


def test_after_a_start_the_bundles_are_tried_newest_first(tmp_path: Path) -> None:
    book = ModelBook(tmp_path / "models.json")
    assert book.names(MODEL) == [MODEL]
    served = ServedBundle(bundle="third", digest="3", previous="second", previous_digest="2")
    asyncio.run(book.keep(MODEL, served))
    assert ModelBook(tmp_path / "models.json").names(MODEL) == ["third", "second", MODEL]


@pytest.mark.parametrize("body", ["{", "[]", '{"format": 2}'])
def test_s23_a_book_that_cannot_be_read_lets_the_configured_bundle_serve_and_says_so(
    tmp_path: Path, body: str
) -> None:
    (tmp_path / "models.json").write_text(body)
    book = ModelBook(tmp_path / "models.json")
    assert book.names(MODEL) == [MODEL]
    assert "the configured bundles serve" in book.problem


async def test_s23_what_was_passed_over_at_the_start_is_on_record_and_not_healthy(rig: Rig) -> None:
    await rig.models.tell_passed_over()
    assert rig.records == []
    rig.model.passed_over.append("`second` cannot be served: it is gone")
    await rig.models.tell_passed_over()

    assert rig.records[0][:2] == ("model-passed-over", "gateway")
    assert rig.records[0][2]["serves"] == MODEL
    assert [part.text for part in rig.models.health() if not part.ok] == rig.model.passed_over

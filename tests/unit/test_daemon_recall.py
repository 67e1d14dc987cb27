"""After a start a point's history comes from the recorded decisions, where their times can be trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.clock import FakeClock
from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    DecisionId,
    DecisionRecord,
    Examination,
    InForce,
    Mode,
    PointId,
    Proposal,
    Undetermined,
)
from gateway.core.errors import StorageError
from gateway.core.tag import TagId
from gateway.daemon.recall import moment_of, recalled
from gateway.inference.client.past import MOST_MOMENTS
from gateway.storage.reading import AuditedDecision
from tests.fakes.pipeline import PUMP, House, pump

S = 1_000_000_000
HISTORY: Mapping[TagId, tuple[InForce, ...]] = {
    PUMP: (InForce(Fraction(30), 0.0), InForce(Fraction(20), 4.0))
}


def record(number: int, taken_at: float, utc_ns: int, *, model_digest: str = "d1") -> DecisionRecord:
    proposal = Proposal(values=(pump(30),), by="model", model_digest=model_digest)
    request = CheckRequest(
        decision=DecisionId(f"d-{number}"),
        point=PointId("tank"),
        generation=1,
        inputs={},
        taken_at=taken_at,
        history=HISTORY,
        held_s={},
        proposal=proposal,
        carried=None,
        hold_s=1.0,
        effect_delay_s=0.1,
    )
    result = CheckResult(verdict=Undetermined("whatever"), findings=(), generation=1, rule_set_digest="r")
    return DecisionRecord(
        id=DecisionId(f"d-{number}"),
        point=PointId("tank"),
        mode=Mode.SHADOW,
        requested_by="period",
        received_utc_ns=utc_ns,
        outcome=result.verdict,
        proposal=proposal,
        written=(),
        written_by="",
        findings=(),
        inputs={},
        generation=1,
        rule_set_digest="r",
        model_digest=model_digest,
        timings_ms={},
        examined=Examination(request=request, result=result),
    )


def test_a_moment_is_what_the_model_was_asked() -> None:
    moment = moment_of(record(1, 100.0, 1000 * S), 110.0, 1010 * S)
    assert moment is not None
    assert (moment.at, moment.previous) == (100.0, {PUMP: Fraction(30)})


@pytest.mark.parametrize(
    ("why", "told", "monotonic", "utc_ns"),
    [
        ("the machine started anew: its clock began again", record(1, 5000.0, 1000 * S), 10.0, 1010 * S),
        ("the wall clock was set meanwhile", record(1, 100.0, 1000 * S), 110.0, 4610 * S),
        ("it was a what-if", replace(record(1, 100.0, 1000 * S), what_if=True), 110.0, 1010 * S),
        ("nothing was examined", replace(record(1, 100.0, 1000 * S), examined=None), 110.0, 1010 * S),
        ("no model was asked", record(1, 100.0, 1000 * S, model_digest=""), 110.0, 1010 * S),
    ],
)
def test_a_record_that_says_nothing_certain_is_no_moment(
    why: str, told: DecisionRecord, monotonic: float, utc_ns: int
) -> None:
    assert moment_of(told, monotonic, utc_ns) is None, why


class Log:
    """So many decisions, a second apart, the newest first."""

    def __init__(self, clock: FakeClock, count: int) -> None:
        now, utc = clock.monotonic(), clock.utc_ns()
        self.rows = [record(n, now - n - 1, utc - (n + 1) * S) for n in range(count)]
        self.pages = 0
        self.broken = ""

    async def recent(
        self, limit: int, point: PointId | None = None, before: DecisionId | None = None
    ) -> list[AuditedDecision]:
        assert point == "tank"
        if self.broken:
            raise StorageError(self.broken)
        self.pages += 1
        start = next((n + 1 for n, row in enumerate(self.rows) if row.id == before), 0)
        page = self.rows[start : start + limit]
        return [AuditedDecision(sequence=0, digest="", record=row, write_reason="") for row in page]


async def test_the_newest_moments_come_back_oldest_first() -> None:
    house, clock = House(), FakeClock()
    clock.advance(10_000.0)
    pasts = await recalled(Log(clock, 150), [house.point], clock)
    moments, _ = pasts[house.point.settings.id]
    assert len(moments) == 150
    assert [m.at for m in moments] == sorted(m.at for m in moments)


async def test_no_more_is_read_than_a_bounded_time_and_number() -> None:
    house, clock = House(), FakeClock()
    clock.advance(10_000.0)
    log = Log(clock, 3000)
    moments, _ = (await recalled(log, [house.point], clock))[house.point.settings.id]
    assert len(moments) <= MOST_MOMENTS
    assert log.pages <= 16


async def test_a_log_that_cannot_be_read_leaves_points_without_history() -> None:
    house, clock = House(), FakeClock()
    log = Log(clock, 3)
    log.broken = "no such table"
    assert await recalled(log, [house.point], clock) == {}


async def test_a_log_that_does_not_answer_does_not_hold_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(Log):
        async def recent(
            self, limit: int, point: PointId | None = None, before: DecisionId | None = None
        ) -> list[AuditedDecision]:
            await asyncio.Event().wait()
            return await super().recent(limit, point, before)

    monkeypatch.setattr("gateway.daemon.recall._WITHIN_S", 0.01)
    house, clock = House(), FakeClock()
    assert await recalled(Stuck(clock, 1), [house.point], clock) == {}

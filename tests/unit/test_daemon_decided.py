"""Pages of the decisions on record."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.cli.live.asking import newest
from gateway.core.clock import FakeClock
from gateway.core.decision import DecisionId, DecisionRecord
from gateway.daemon.decided import Decided
from gateway.daemon.views import decision_view
from gateway.link.messages import DECISIONS_PAGE, Answer
from gateway.storage.audit import AuditLog
from tests.unit.backtest_log import record
from tests.unit.solver_demo import Situation, proposal

RECORDS = [record(n, Situation(level=2.0, pump="40"), proposal("45")) for n in range(250)]
IDS = [str(found.id) for found in reversed(RECORDS)]


class Remembered:
    """The log with all of them, and a reporter that remembers the newest few."""

    def __init__(self, audit: AuditLog, count: int) -> None:
        self.reads: list[str | None] = []
        self._audit = audit
        recent = OrderedDict((found.id, decision_view(found, "", {})) for found in RECORDS[-count:])
        self.decided = Decided(cast("Any", SimpleNamespace(recent=recent)), cast("Any", self), {})

    async def recent(self, limit: int, point: Any, before: DecisionId | None) -> Any:  # noqa: ANN401
        self.reads.append(before)
        return await self._audit.recent(limit, point, before)

    async def ask(self, _verb: str, args: dict[str, Any], **_more: Any) -> Answer:  # noqa: ANN401
        """As a client of the internal port asks."""
        views = await self.decided.page(args["limit"], args["point"] or "", args.get("before", ""))
        return Answer(id=1, ok=True, result=[{"id": view.id} for view in views])


async def written(folder: Path, records: list[DecisionRecord]) -> AuditLog:
    audit = AuditLog(folder / "audit.sqlite", FakeClock())
    await audit.start()
    for found in records:
        await audit.append(found)
    return audit


@pytest.mark.parametrize("remembered", [0, 30, 100, 130, 250])
async def test_every_decision_comes_once_newest_first_wherever_it_is_kept(
    tmp_path: Path, remembered: int
) -> None:
    audit = await written(tmp_path, RECORDS)
    gateway = Remembered(audit, remembered) if remembered else Remembered(audit, 1)
    for wanted in (1, 99, DECISIONS_PAGE, 101, 249, 250, 10_000):
        found = await newest(cast("Any", gateway), wanted, None)
        assert [view["id"] for view in found] == IDS[:wanted]
    await audit.aclose()


async def test_what_is_remembered_is_not_read_from_the_log(tmp_path: Path) -> None:
    audit = await written(tmp_path, RECORDS)
    gateway = Remembered(audit, 250)
    await newest(cast("Any", gateway), 200, None)
    assert gateway.reads == []
    await audit.aclose()


# A thousand views made in one step kept the loop from deciding for a third of a second.
async def test_the_loop_has_its_turn_between_the_views_of_a_page(tmp_path: Path) -> None:
    audit = await written(tmp_path, RECORDS[:DECISIONS_PAGE])
    gateway = Remembered(audit, 0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    answered = asyncio.Event()

    class Recent:
        async def recent(self, limit: int, point: Any, before: Any) -> Any:  # noqa: ANN401
            found = await gateway.recent(limit, point, before)
            nonlocal turns
            turns = 0
            answered.set()
            return found

    decided = Decided(cast("Any", SimpleNamespace(recent={})), cast("Any", Recent()), {})
    views = await decided.page(DECISIONS_PAGE, "", "")
    assert len(views) == DECISIONS_PAGE
    assert turns >= DECISIONS_PAGE // 10 - 1
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    await audit.aclose()


# The plant's configuration changes; what was decided before stays readable.
def test_a_decision_on_a_tag_that_is_no_longer_configured_is_shown() -> None:
    view = decision_view(RECORDS[0], "", {})
    assert view.setpoints["TK1.P101.SP"] == "45"

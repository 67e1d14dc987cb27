"""Before a point may decide for writing: what its PLC really works with, asked for explicitly (S18, S22).

At a start and after every break the values in force are unknown. Polls would tell them in their own time;
here they are asked for at once, in one request with the owner and epoch that the PLC obeys (S21). Until one
of both has told, every decision of the point is undetermined, so nothing is written. Before a point is armed,
by a person or by itself (S23), the PLC is asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import NoReturn, Protocol

import structlog

from gateway.core.clock import Clock, Deadline
from gateway.core.decision import PointId
from gateway.core.errors import LinkError
from gateway.daemon.readback import ReadBack
from gateway.pipeline.point import Point
from gateway.protocols.modbus.handover import WorkingState

log = structlog.get_logger().bind(component="takeover")

_LOOK_S = 0.1
_ANSWER_S = 0.5


class WorkingSource(Protocol):
    """A device's hand-over block, as far as it is asked here."""

    owner: int
    epoch: int

    async def read_working(self, deadline: Deadline) -> WorkingState:
        """What the PLC works with now; raises LinkError."""
        ...


class TakeOver:
    """Asks for the working values of every point whose values in force are not known."""

    def __init__(
        self,
        points: Mapping[PointId, Point],
        sources: Mapping[PointId, WorkingSource],
        read_back: ReadBack,
        clock: Clock,
    ) -> None:
        self._points, self._sources, self._read_back, self._clock = points, sources, read_back, clock

    async def run(self) -> NoReturn:
        """Never ends by itself."""
        while True:
            for point in self._points.values():
                if not known(point):
                    with contextlib.suppress(LinkError):  # the channel tells its own troubles, once
                        await self.ask(point)
            await asyncio.sleep(_LOOK_S)

    async def ask(self, point: Point) -> WorkingState:
        """The PLC's word on a point's outputs, taken over as the values in force; raises `LinkError`."""
        was_known, asked_at = known(point), self._clock.monotonic()
        deadline = Deadline.after(_ANSWER_S, self._clock)
        working = await self._sources[point.settings.id].read_working(deadline)
        self._read_back.working(point, working.values.values(), asked_at, in_control=working.in_control)
        if not was_known and known(point):
            log.info(
                "values_in_force_read",
                point=point.settings.id,
                counts={tag: value.raw for tag, value in working.values.items()},
                in_control=working.in_control,
                fallback=working.fallback,
            )
        return working

    async def why_not(self, point: Point) -> str:
        """Why the PLC would not take over from us now, by its own word; empty when it would."""
        try:
            working = await self.ask(point)
        except LinkError as exc:
            return f"the PLC's working values cannot be read: {exc}"
        return self.foreign(point, working)

    def foreign(self, point: Point, working: WorkingState) -> str:
        """Whether the PLC obeys another gateway than this one, in words; empty when it does not (S21)."""
        ours = self._sources[point.settings.id]
        if (working.owner, working.epoch) == (ours.owner, ours.epoch):
            return ""
        return (
            f"the PLC obeys owner {working.owner} in epoch {working.epoch}, and this gateway is owner "
            f"{ours.owner} in epoch {ours.epoch}: grant it at the PLC, or mend `owner` and `epoch`"
        )


def known(point: Point) -> bool:
    """Whether the value in force of every output is known."""
    return all(history.known for history in point.histories.values())

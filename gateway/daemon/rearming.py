"""After a start: back to armed by itself, where the start rules allow it (S23)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import structlog

from gateway.config.model import GatewayConfig
from gateway.core.clock import Clock
from gateway.core.decision import DecisionRecord, Mode, PointId, WriteOutcome
from gateway.core.errors import LinkError, StorageError
from gateway.core.tag import TagId, TagValue
from gateway.core.tagstore import TagStore
from gateway.daemon.binding import Bindings
from gateway.daemon.modes import Modes
from gateway.daemon.takeover import TakeOver
from gateway.pipeline.point import Point
from gateway.pipeline.rearm import ArmedBefore, not_armable, not_rearmable
from gateway.pipeline.rules import RulesHolder
from gateway.pipeline.writer import SetpointWriter
from gateway.protocols.modbus.handover import WorkingState
from gateway.storage.audit import AuditLog
from gateway.storage.state import DurableState

log = structlog.get_logger().bind(component="rearm")

_LOOK_S = 0.2
_GIVE_UP_S = 600.0  # beside `rearm_after`
_HOUR_S = 3600.0
_SURELY_NOT_CARRIED_OUT = (WriteOutcome.REFUSED, WriteOutcome.FAILED)
_NEWEST = 50  # decisions; what is confirmed is remembered well within a second


async def _until_next_look() -> None:
    await asyncio.sleep(_LOOK_S)


class Rearming:
    """Looks after every point that was armed before the start until it is armed again or may not be."""

    def __init__(
        self,
        *,
        config: GatewayConfig,
        clock: Clock,
        points: Mapping[PointId, Point],
        rules: RulesHolder,
        store: TagStore,
        writer: SetpointWriter,
        state: DurableState,
        modes: Modes,
        model_digest: Callable[[Point], str],
        bindings: Bindings,
        take_over: TakeOver,
        audit: AuditLog,
        pause: Callable[[], Awaitable[None]] = _until_next_look,
    ) -> None:
        """`pause` ends when it is time to look at a point again."""
        self._config, self._clock, self._points, self._rules = config, clock, points, rules
        self._store, self._writer, self._state, self._modes = store, writer, state, modes
        self._model_digest, self._bindings, self._take_over = model_digest, bindings, take_over
        self._audit, self._pause = audit, pause
        self._good_since: dict[PointId, float] = {}  # since when nothing spoke against it
        store.observe(self._seen)

    async def run(self) -> None:
        """Never ends by itself: a point that may not be armed again waits for a person."""
        async with asyncio.TaskGroup() as tasks:
            for point in self._points.values():
                if self._state.point(point.settings.id).armed_before:
                    tasks.create_task(self._look_after(point), name=f"rearm-{point.settings.id}")
            await asyncio.Event().wait()

    def _seen(self, tag: TagId, value: TagValue) -> None:
        """An input that is not Good, if only between two looks, begins `rearm_after` anew."""
        if self._good_since and not value.status.is_plain_good:
            for point in self._points.values():
                if tag in point.settings.inputs:
                    self._good_since.pop(point.settings.id, None)

    def _due(self, point: Point) -> bool:
        """Whether it still waits: no person decided otherwise, and nobody had changed the outputs."""
        return point.mode is Mode.SHADOW and self._state.point(point.settings.id).armed_before

    async def _look_after(self, point: Point) -> None:
        name, told = point.settings.id, ""
        give_up = self._clock.monotonic() + _GIVE_UP_S + point.settings.rearm_after_s
        while self._due(point):
            if self._clock.monotonic() >= give_up:
                log.warning("not_rearmed", point=name, why=told)
                break
            await self._pause()
            why = self._why_not(point) or await self._asked_plc(point) or await self._tried(point)
            if why and self._due(point):
                self._good_since.pop(name, None)
                if why != told:
                    log.info("not_rearmed_yet", point=name, why=why)
                told = why
        self._good_since.pop(name, None)

    async def _tried(self, point: Point) -> str:
        """Arm it where nothing spoke against it for long enough; what did at last, or ""."""
        now = self._clock.monotonic()
        since = self._good_since.setdefault(point.settings.id, now)
        if now - since < point.settings.rearm_after_s:
            return ""
        try:
            return await self._modes.rearm(point, lambda: self._why_no_longer(point))
        except StorageError as exc:  # what cannot be recorded does not count: later, perhaps
            return str(exc)

    def _why_no_longer(self, point: Point) -> str:
        broken = point.settings.id not in self._good_since
        return self._why_not(point) or ("an input was not Good for a moment" if broken else "")

    async def _asked_plc(self, point: Point) -> str:
        """What the PLC itself says against it. Outputs that somebody changed while we were away end it (S19).

        What its own fallback has moved is its right: then the first write is what it left in force.
        """
        try:
            working = await self._take_over.ask(point)
        except LinkError as exc:
            return f"the PLC's working values cannot be read: {exc}"
        last_confirmed = self._state.point(point.settings.id).last_confirmed
        moved = moved_since(working, last_confirmed)
        unknown = never_confirmed(point.settings.outputs, last_confirmed)
        if (moved or unknown) and await self._wrote_it(point, working, last_confirmed):
            moved = unknown = ""
        if moved and self._due(point):  # a person who armed it meanwhile takes what is in force
            await self._modes.unrequested(point, moved)
        if not working.remote:
            return "the PLC is in local: switch it to remote"
        return moved or unknown or self._take_over.foreign(point, working)

    async def _wrote_it(
        self, point: Point, working: WorkingState, last_confirmed: Mapping[TagId, int]
    ) -> bool:
        try:
            newest = await self._audit.recent(_NEWEST, point.settings.id)
        except StorageError as exc:  # then nobody can say that it was us
            log.warning("audit_unread", point=point.settings.id, problem=str(exc))
            return False
        return written_since((entry.record for entry in newest), working, last_confirmed)

    def _why_not(self, point: Point) -> str:
        if not self._due(point):
            return "it no longer waits to be armed again"
        memory = self._state.point(point.settings.id)
        starts = self._state.starts_within(_HOUR_S, self._clock.utc_ns())
        limit = self._config.gateway.starts_per_hour
        before = ArmedBefore(
            armed=memory.armed_before,
            rule_set_digest=memory.digests.get("rule_set"),
            model_digest=memory.digests.get("model"),
            starts_last_hour=starts,
            starts_limit=limit if isinstance(limit, int) else None,
        )
        if memory.digests.get("binding") != self._bindings.digest(point.settings.id):
            return "another binding sheet was signed since it was armed"
        return (
            self._modes.unarmable(point)
            or not_armable(
                point,
                self._rules.current,
                self._store,
                self._writer,
                writes_stopped=self._state.writes_stopped,
            )
            or not_rearmable(self._rules.current, before, self._model_digest(point))
        )


def moved_since(working: WorkingState, last_confirmed: Mapping[TagId, int]) -> str:
    """Which outputs are no longer what the PLC last confirmed, in words; empty when all are (S23)."""
    if working.fallback:
        return ""
    return "; ".join(
        f"`{tag}` is at {value.raw} counts, and {last_confirmed[tag]} were the last ones confirmed"
        for tag, value in working.values.items()
        if tag in last_confirmed and value.raw != last_confirmed[tag]
    )


def never_confirmed(outputs: Iterable[TagId], last_confirmed: Mapping[TagId, int]) -> str:
    """Which output the PLC never confirmed a value of, in words: an unknown history is the worst (S23)."""
    unknown = next((tag for tag in outputs if tag not in last_confirmed), None)
    return f"no value of `{unknown}` was ever confirmed: only a person may arm it" if unknown else ""


def written_since(
    newest_first: Iterable[DecisionRecord], working: WorkingState, last_confirmed: Mapping[TagId, int]
) -> bool:
    """Whether in force is the whole block of an armed decision recorded since the last one confirmed.

    A daemon killed after the bytes and before it remembered them left an unconfirmed write: its own (S18).
    """
    in_force = {tag: value.raw for tag, value in working.values.items()}
    for record in newest_first:
        block = {value.tag: value.raw for value in record.written}
        if record.mode is not Mode.ARMED or record.what_if or not block:
            continue
        if record.write_outcome in _SURELY_NOT_CARRIED_OUT:
            continue
        if block == in_force:
            return True
        if block == last_confirmed or record.write_outcome is WriteOutcome.CONFIRMED:
            return False
    return False

"""Changing modes, stopping writes, acknowledging: people's acts, recorded before they count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import structlog

from gateway.core.clock import Clock, Deadline
from gateway.core.decision import Mode, PointId
from gateway.core.errors import LinkError, StorageError
from gateway.core.tagstore import TagStore
from gateway.daemon.binding import Bindings
from gateway.daemon.reporting import Reporter
from gateway.pipeline.point import Point
from gateway.pipeline.rearm import not_armable
from gateway.pipeline.rules import RulesHolder
from gateway.pipeline.writer import SetpointWriter
from gateway.storage.audit import AuditLog
from gateway.storage.state import DurableState

log = structlog.get_logger().bind(component="modes")

_RELEASE_S = 0.5


class Modes:
    """The one place where a mode changes or writes are stopped."""

    def __init__(
        self,
        *,
        clock: Clock,
        points: Mapping[PointId, Point],
        rules: RulesHolder,
        store: TagStore,
        writer: SetpointWriter,
        audit: AuditLog,
        state: DurableState,
        reporter: Reporter,
        changed: Callable[[Point], None],
        model_digest: Callable[[Point], str],
        bindings: Bindings,
        taken_over: Callable[[Point], Awaitable[str]],
    ) -> None:
        self._clock, self._points, self._rules, self._store = clock, points, rules, store
        self._writer, self._audit, self._state = writer, audit, state
        self._reporter, self._changed, self._model_digest = reporter, changed, model_digest
        self._bindings, self._taken_over = bindings, taken_over
        self._stops = 0  # how often a person stopped writes
        self._left: Counter[PointId] = Counter()  # how often each was set to another mode than armed

    def unarmable(self, point: Point) -> str:
        """What no decision mends and only a person can, before the point may be armed; empty when nothing."""
        if latched := self.latched(point):
            source = f"point:{point.settings.id}"
            return f"{latched}; find the cause, then an engineer acknowledges it with `o3ctl ack {source}`"
        return self._bindings.why_not(point.settings.id)

    def cannot(self, point: Point) -> str:
        """What keeps a point from writing or arming beside its mode and its last decision; empty: nothing."""
        found = []
        if point.mode is Mode.ARMED and self._state.writes_stopped and "kill switch" not in point.blocked:
            found.append("writes are stopped; resume with `o3ctl stop-writes --resume`")
        if point.mode is Mode.ARMED and not (audit := self._audit.health()).ok:
            found.append(audit.text)
        if why := self.unarmable(point):
            found.append(f"cannot be armed: {why}")
        return "; ".join(found)

    def latched(self, point: Point) -> str:
        """Why the point may not be armed before an engineer acknowledged that; empty when nothing."""
        return self._state.point(point.settings.id).latched

    def holds(self, source: str) -> str:
        """Why the alarm of a source keeps its point from being armed; empty where it does not."""
        point = self._points.get(PointId(source.removeprefix("point:")))
        return self.latched(point) if point is not None else ""

    async def set_mode(self, point: Point, mode: Mode, who: str) -> str:
        """Change a mode; why not, or "". Arming is recorded durably before it counts, disarming at once.

        Raises `StorageError` where it cannot be recorded: not armed then, or disarmed all the same.
        """
        if mode is not Mode.ARMED:
            await self._leave_armed(point, mode, who)
            return ""
        name, before, left = point.settings.id, point.mode, self._left[point.settings.id]
        why = self.unarmable(point) or await self._taken_over(point) or self._overtaken(point, left)
        if why:
            return f"`{name}` cannot be armed: {why}"
        facts = {"point": name, "from": before.value, "to": mode.value}
        await self._audit.append_event("mode", who, facts)
        why = self._overtaken(point, left)
        if not why:
            why = await self._kept_armed(point, left)
        if why:
            await self._not_after_all(point, why)
            return f"`{name}` cannot be armed: {why}"
        point.first_write_due = True
        point.repairs.forget()
        point.mode, point.blocked = mode, ""
        log.info("mode_changed", point=name, mode=mode.value, was=before.value, by=who)
        self._changed(point)
        return ""

    def _overtaken(self, point: Point, left: int) -> str:
        """What forbids arming since it began to be recorded: any path may disarm, and disarming wins."""
        if self._left[point.settings.id] != left:
            return f"it was set to {point.mode.value} meanwhile"
        return self.unarmable(point) or self._not_armable(point)

    async def _kept_armed(self, point: Point, left: int) -> str:
        """Make durable that the point is armed, or why not; where that fails no start may arm it (S23)."""
        name = point.settings.id
        self._state.set_mode(name, Mode.ARMED, self._digests(point))
        kept = False
        try:
            await self._state.flush()
            why = self._overtaken(point, left)
            kept = not why
        finally:
            if not kept:
                self._state.set_mode(name, point.mode, self._digests(point))
        if why:
            await self._state.flush()
        return why

    async def _not_after_all(self, point: Point, why: str) -> None:
        facts = {"point": point.settings.id, "to": point.mode.value, "why": why}
        await self._audit.append_event("mode", "gateway", facts)

    async def _leave_armed(self, point: Point, mode: Mode, who: str) -> None:
        before, name = point.mode, point.settings.id
        self._left[name] += 1
        point.mode, point.blocked = mode, f"mode is {mode.value}"
        self._state.set_mode(name, mode)
        await self._release(point, before)
        log.info("mode_changed", point=name, mode=mode.value, was=before.value, by=who)
        self._changed(point)
        facts = {"point": name, "from": before.value, "to": mode.value}
        await self._recorded("mode", who, facts, f"`{name}` is {mode.value}")

    async def _recorded(self, act: str, who: str, facts: dict[str, str], stands: str) -> None:
        """Record what is in force already: in the audit log, and in the state whatever becomes of that.

        Raises `StorageError` that says what stands and where it is not recorded.
        """
        missing = []
        try:
            await self._audit.append_event(act, who, facts)
        except StorageError as exc:
            missing.append(f"the audit log does not have it ({exc})")
        try:
            await self._state.flush()
        except StorageError as exc:
            missing.append(f"a restart would not know it ({exc})")
        if missing:
            raise StorageError(f"{stands}, but {' and '.join(missing)}")

    async def armed_under(self, point: Point) -> None:
        """An engineer agreed that the point stays armed with another model: that one counts now (S23)."""
        if point.mode is Mode.ARMED:
            self._state.set_mode(point.settings.id, Mode.ARMED, self._digests(point))
            await self._state.flush()

    async def rearm(self, point: Point, why_not: Callable[[], str]) -> str:
        """Back to armed by itself after a start, where the start rules allow it (S23); why not, or "".

        `why_not` says what those rules have against it now. It is asked again once arming is recorded.
        """
        if why := why_not():
            return why
        await self._audit.append_event(
            "mode", "gateway", {"point": point.settings.id, "to": "armed", "why": "armed before the start"}
        )
        if why := why_not():
            await self._not_after_all(point, why)
            return why
        point.first_write_due = True
        point.mode = Mode.ARMED
        point.blocked = ""
        log.info("point_rearmed", point=point.settings.id)
        self._changed(point)
        return ""

    async def disarm(self, point: Point, why: str) -> None:
        """Armed may not go on, as after a change nobody requested (S19): advisory, with an alarm at once."""
        if point.mode is not Mode.ARMED:
            return
        point.alarm.trip(why, self._clock.monotonic())
        self._reporter.alarm_changed(point)
        await self._by_itself(point, Mode.ADVISORY)

    async def limit_repairs(self) -> None:
        """Points whose proposals are repaired, or by repairs reversed, too often: advisory (S12)."""
        for point in self._points.values():
            if why := point.repairs.too_many:
                await self.disarm(point, why)

    async def unrequested(self, point: Point, why: str) -> None:
        """Somebody changed the outputs while we were away: no going back to armed by itself (S19, S23)."""
        log.warning("unrequested", point=point.settings.id, why=why)
        point.alarm.trip(f"unrequested: {why}", self._clock.monotonic())
        self._reporter.alarm_changed(point)
        try:
            await self._audit.append_event("unrequested", "gateway", {"point": point.settings.id, "why": why})
        except StorageError as exc:
            log.exception("unrequested_not_recorded", point=point.settings.id, problem=str(exc))
        await self._by_itself(point, Mode.SHADOW)

    async def latch(self, point: Point, why: str) -> None:
        """Armed may not go on, and not come back before a person acknowledged `why`, restarts included."""
        self._state.latch(point.settings.id, why)
        point.alarm.latch(why, self._clock.monotonic())
        self._reporter.alarm_changed(point)
        if point.mode is Mode.ARMED:
            await self._by_itself(point, Mode.ADVISORY)
        else:
            try:
                await self._state.flush()
            except StorageError as exc:
                log.exception("latch_not_recorded", point=point.settings.id, problem=str(exc))
        self._changed(point)

    async def _by_itself(self, point: Point, mode: Mode) -> None:
        """Disarm without a person: a full disk neither keeps it armed nor ends the part that found why."""
        try:
            await self.set_mode(point, mode, "gateway")
        except StorageError as exc:
            log.exception("disarming_not_recorded", point=point.settings.id, problem=str(exc))

    def recall(self) -> None:
        """After a start: what was latched stands as an alarm again."""
        for point in self._points.values():
            if why := self._state.point(point.settings.id).latched:
                point.alarm.latch(why, self._clock.monotonic())
                self._reporter.alarm_changed(point)

    async def stop_writes(self, who: str, *, resume: bool) -> str:
        """The kill switch: in force at once, then durable; every point gives the plant back to its PLC.

        Why not, or "". Raises `StorageError` where it cannot be recorded: not resumed then, or stopped all
        the same. Whoever stops while another resumes wins.
        """
        if resume:
            if why := await self._resumed(who):
                return why
        else:
            self._stops += 1
            self._state.stop_writes()
            for point in self._points.values():
                await self._release(point, point.mode)
        log.warning("writes_resumed" if resume else "writes_stopped", by=who)
        for point in self._points.values():
            self._changed(point)
        if not resume:
            await self._recorded("stop-writes", who, {"resume": "false"}, "writes are stopped")
        return ""

    async def _resumed(self, who: str) -> str:
        """Take the kill switch off, durably; why not, or ""."""
        stops, problem, kept = self._stops, self._state.problem, False
        await self._audit.append_event("stop-writes", who, {"resume": "true"})
        if self._stops == stops:
            self._state.resume_writes()
            try:
                await self._state.flush()
                kept = True
            finally:
                if not kept:
                    self._state.stop_writes()
                    self._state.problem = problem
        return "" if self._stops == stops else "writes were stopped meanwhile, and stay stopped"

    async def acknowledge(self, source: str, who: str) -> str:
        """A person has seen an alarm; why not, or ""."""
        alarm = self._reporter.alarms.get(source)
        if alarm is None:
            standing = ", ".join(f"`{name}`" for name in sorted(self._reporter.alarms)) or "none"
            return f"no alarm stands for `{source}`; standing: {standing}"
        held = self.holds(source)
        await self._audit.append_event("acknowledge", who, {"source": source, "cause": alarm.cause})
        point = self._points.get(PointId(source.removeprefix("point:")))
        if point is not None:
            if why := await self._let_go(point, held):
                return f"`{source}` has another cause by now, look at it first: {why}"
            point.alarm.acknowledge()
            self._reporter.alarm_changed(point)
        else:
            self._reporter.raise_alarm(
                source,
                active=alarm.active,
                acknowledged=True,
                cause=alarm.cause,
                consequence=alarm.consequence,
                action=alarm.action,
            )
        return ""

    async def _let_go(self, point: Point, seen: str) -> str:
        """Let the latch go that a person has seen, durably; what latched meanwhile and stays, or ""."""
        name, kept = point.settings.id, False
        if (now := self.latched(point)) != seen:
            return now
        self._state.latch(name, "")
        try:
            await self._state.flush()
            kept = True
        finally:
            if not kept and not self.latched(point):
                self._state.latch(name, seen)
        return self.latched(point)

    async def release_all(self) -> None:
        """On stop: control-valid is cleared first, before anything else ends."""
        for point in self._points.values():
            mode, point.mode = point.mode, Mode.SHADOW
            await self._release(point, mode)

    def _digests(self, point: Point) -> dict[str, str]:
        return {
            "rule_set": self._rules.current.digest,
            "model": self._model_digest(point),
            "binding": self._bindings.digest(point.settings.id),
        }

    def _not_armable(self, point: Point) -> str:
        stopped = self._state.writes_stopped
        return not_armable(point, self._rules.current, self._store, self._writer, writes_stopped=stopped)

    async def _release(self, point: Point, before: Mode) -> None:
        if before is not Mode.ARMED:
            return
        try:
            await point.sink.release(Deadline.after(_RELEASE_S, self._clock))
        except LinkError as exc:
            log.warning("release_failed", point=point.settings.id, problem=str(exc), then="the lease ends it")

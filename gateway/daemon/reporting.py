"""Hop 13: tells everyone what was decided and how things stand."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

import structlog

from gateway.core.clock import Clock
from gateway.core.decision import DecisionRecord, Mode, Refused, Undetermined, Violated, WriteOutcome
from gateway.core.errors import StorageError
from gateway.core.tag import TagDefinition, TagId
from gateway.daemon.views import decision_view
from gateway.link.messages import Alarm, DecisionView
from gateway.pipeline.point import Point
from gateway.storage.audit import AuditLog
from gateway.storage.state import DurableState

log = structlog.get_logger().bind(component="reporting")

_RECENT = 2_000
_ALARM_SEVERITY = 700  # OPC 10000-9: high
_NOT_WRITTEN = "the PLC keeps or takes control; the model's setpoints are not written as proposed"
_WATCHED_ONLY = "none for what is written: the rule refuses nothing, it is only watched"


class Reporter:
    """Receives every decision twice at most: when its record is durable and when its write has an outcome."""

    def __init__(
        self,
        *,
        clock: Clock,
        definitions: dict[TagId, TagDefinition],
        audit: AuditLog,
        state: DurableState,
        publish_decision: Callable[[DecisionView], None],
        publish_alarm: Callable[[Alarm], None],
        publish_point: Callable[[Point], None],
    ) -> None:
        self._clock, self._definitions = clock, definitions
        self._audit, self._state = audit, state
        self._publish_decision, self._publish_alarm = publish_decision, publish_alarm
        self._publish_point = publish_point
        self._late: asyncio.Queue[Callable[[], object]] = asyncio.Queue(1_000)
        self.late_dropped = 0
        self.recent: OrderedDict[str, DecisionView] = OrderedDict()
        self.alarms: dict[str, Alarm] = {}

    def decided(self, point: Point, record: DecisionRecord, why: str) -> None:
        """Called by the lane, synchronously."""
        view = decision_view(record, why, self._definitions)
        self.recent[record.id] = view
        self.recent.move_to_end(record.id)
        while len(self.recent) > _RECENT:
            self.recent.popitem(last=False)
        self._publish_decision(view)
        if not (record.what_if or _denied_wish(record)):  # an answer is no state of the point
            point.blocked = _blocked(point, record, why)
            if record.write_outcome is not None:
                self._wrote(point, record, record.write_outcome, why)
            if self._judge_alarm(point, record):
                self.alarm_changed(point)
            self._publish_point(point)
        log.info(
            _event(record.write_outcome),
            decision=record.id,
            point=record.point,
            outcome=view.outcome,
            by=view.written_by,
            write=view.write_outcome,
            reason=view.reason or view.counterexample,
        )

    def unrecorded(self, point: Point, why: str) -> None:
        """Called by the lane where no record of a decision could be kept: nothing of it is written."""
        cause = f"decisions cannot be recorded: {why}"
        if point.mode is Mode.ARMED:
            point.blocked = cause
        suppressed = point.mode in (Mode.SHADOW, Mode.OFF)
        if point.alarm.judge(cause, self._clock.monotonic(), suppressed=suppressed, watched=None):
            self.alarm_changed(point)
            log.error("decisions_not_recorded", point=point.settings.id, reason=why)
        self._publish_point(point)

    def alarm_changed(self, point: Point) -> None:
        """Publish the point's one standing alarm."""
        state = point.alarm.state
        latched = self._state.point(point.settings.id).latched
        source = f"point:{point.settings.id}"
        self.raise_alarm(
            source,
            active=state.active,
            acknowledged=state.acknowledged,
            cause=state.cause,
            consequence=(_WATCHED_ONLY if point.alarm.only_watched else _NOT_WRITTEN)
            + ("; the point cannot be armed before an engineer acknowledges this" if latched else ""),
            action=f"read `o3ctl explain {point.last_decision}`, mend the cause, then `o3ctl ack {source}`",
        )

    def raise_alarm(
        self, source: str, *, active: bool, acknowledged: bool, cause: str, consequence: str, action: str
    ) -> None:
        """Set the one alarm of a source; ended and acknowledged removes it."""
        alarm = Alarm(
            source=source,
            active=active,
            acknowledged=acknowledged,
            severity=_ALARM_SEVERITY,
            cause=cause,
            consequence=consequence,
            action=action,
            since_ns=self._clock.utc_ns(),
        )
        if active or not acknowledged:
            self.alarms[source] = alarm
        else:
            self.alarms.pop(source, None)
        self._publish_alarm(alarm)

    async def run(self) -> None:
        """Makes durable, off the decision path, what may follow a write by milliseconds."""
        while True:
            job = await self._late.get()
            try:
                result = job()
                if asyncio.iscoroutine(result):
                    await result
            except StorageError as exc:
                log.exception("late_record_failed", problem=str(exc))

    def later(self, job: Callable[[], object]) -> None:
        """Queue a durable follow-up; when the queue is full the newest is dropped and counted."""
        try:
            self._late.put_nowait(job)
        except asyncio.QueueFull:
            self.late_dropped += 1

    def _wrote(self, point: Point, record: DecisionRecord, outcome: WriteOutcome, why: str) -> None:
        self.later(lambda: self._audit.append_outcome(record.id, outcome, why))
        if outcome is WriteOutcome.CONFIRMED:
            raw = {v.tag: v.raw for v in record.written}
            if raw != self._state.point(point.settings.id).last_confirmed:
                self._state.confirm(point.settings.id, raw, self._clock.utc_ns())
                self.later(self._state.flush)

    def _judge_alarm(self, point: Point, record: DecisionRecord) -> bool:
        if record.write_outcome is None and point.mode is Mode.ARMED and record.written:
            return False  # judged when the write has its outcome
        cause = ""
        match record.outcome:
            case Undetermined(reason):
                cause = f"decisions are undetermined: {reason}"
            case Refused(counterexample) if not record.written:
                cause = f"nothing is permitted: {counterexample.text}"
            case _:
                pass
        if record.write_outcome not in (None, WriteOutcome.CONFIRMED, WriteOutcome.REFUSED):
            cause = f"writes to the PLC end as {record.write_outcome.value}"
        suppressed = point.mode in (Mode.SHADOW, Mode.OFF)
        watched = _watched(record)
        return point.alarm.judge(cause, self._clock.monotonic(), suppressed=suppressed, watched=watched)


def _watched(record: DecisionRecord) -> dict[str, str]:
    """By name, what no action can influence and is violated: reported, and nothing refused for it (S5)."""
    return {
        f"{f.module}/{f.constraint}": f"{f.module}/{f.constraint} is violated, and no action can influence it"
        + (f": {f.message}" if f.message else "")
        for f in record.findings
        if isinstance(f, Violated) and f.kind == "monitor"
    }


def _denied_wish(record: DecisionRecord) -> bool:
    """Whether somebody's own setpoints were not permitted."""
    by = record.proposal.by if record.proposal is not None else ""
    return by.startswith("request:") and not record.written


def _blocked(point: Point, record: DecisionRecord, why: str) -> str:
    """Why the point does not write now, for people; empty when it does."""
    if point.mode is not Mode.ARMED:
        return f"mode is {point.mode.value}"
    if record.write_outcome not in (None, WriteOutcome.CONFIRMED):
        return f"{record.write_outcome.value}: {why}"
    if record.written:
        return ""
    if isinstance(record.outcome, Undetermined):
        return f"undetermined: {record.outcome.reason}"
    return "nothing is permitted"


def _event(outcome: WriteOutcome | None) -> str:
    """The log's name for what is reported: a decision, a write that was confirmed, or one that was not."""
    if outcome is None:
        return "decision_made"
    return "setpoints_written" if outcome is WriteOutcome.CONFIRMED else "write_not_confirmed"

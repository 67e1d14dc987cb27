"""Carries out what a durable record lets out: through the last gate, once, then read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.core.clock import Clock, Deadline
from gateway.core.decision import DecisionRecord, Mode, WriteOutcome
from gateway.core.tag import TagId, TagValue
from gateway.core.tagstore import TagStore
from gateway.pipeline.gate import GateFacts, gate
from gateway.pipeline.point import Point
from gateway.pipeline.proved import outside_proof
from gateway.pipeline.rules import Overdue, RulesHolder, nothing_overdue
from gateway.pipeline.working import Decided, Working

_RELEASE_S = 0.5  # of its own: a decision ends without anything to write mostly because its time is over


class SetpointWriter:
    """The only caller of `SetpointSink.write`."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: TagStore,
        rules: RulesHolder,
        link_session: Callable[[], int],
        writes_stopped: Callable[[], bool],
        not_live: Callable[[Point], str],
        overdue: Overdue = nothing_overdue,
    ) -> None:
        """`not_live` says why a point's devices cannot be known to run their programs now, or "" (S14).

        `overdue` says which override of a rule set has ended, or "" (S25).
        """
        self._clock, self._store, self._rules = clock, store, rules
        self._link_session, self._writes_stopped = link_session, writes_stopped
        self._not_live, self._overdue = not_live, overdue

    async def carry_out(self, decided: Decided) -> tuple[WriteOutcome | None, str]:
        """Outcome and reason; outcome None where nothing was to be written.

        Armed without anything to write clears control-valid: the PLC owns the plant (S10). A request that had
        less time than the point grants, or none left when its turn came, does not, nor does a denied wish:
        nobody may take the plant from the gateway by asking, and the lease ends by itself without decisions.
        """
        work, record = decided.work, decided.record
        point = work.point
        if work.request.what_if is not None or point.mode is not Mode.ARMED:
            return None, ""
        deadline = work.request.deadline
        if not record.written:
            if not work.examined or _hurried(work) or work.is_question:
                return None, ""
            if self.status_bit(point, point.settings.in_control_bit):
                await point.sink.release(Deadline.after(_RELEASE_S, self._clock))
            return None, "nothing permitted to write: control-valid cleared"
        outcome, why = await point.sink.write(record.written, lambda: self._gate(work, record), deadline)
        match outcome:
            case WriteOutcome.CONFIRMED:
                point.confirm(record.written, self._clock.monotonic())
                point.first_write_due = False
            case WriteOutcome.FAILED | WriteOutcome.REFUSED:
                for history in point.histories.values():
                    history.cancel()
            case _:
                now = self._clock.monotonic()
                for history in point.histories.values():
                    history.ended(now)  # {before, after} stands until the next read-back
        return outcome, why

    def status_bit(self, point: Point, bit: int) -> bool:
        """A bit of the PLC's status word; False while the word is not Good, True where none is configured."""
        if point.settings.status_tag is None:
            return True
        value = self._store[point.settings.status_tag]
        return value.status.is_plain_good and bool(int(value.value or 0) >> bit & 1)

    def not_live(self, point: Point) -> str:
        """Why the point's devices cannot be known to run their programs now, in words, or ""."""
        return self._not_live(point)

    def _gate(self, work: Working, record: DecisionRecord) -> str:
        """The last gate with the facts of this instant; an open gate marks the outputs {before, after}."""
        now = self._clock.monotonic()
        point = work.point
        newest = {tag: self._store[tag] for tag in point.settings.inputs}
        facts = GateFacts(
            writes_stopped=self._writes_stopped(),
            mode=point.mode,
            deadline_passed=work.request.deadline.passed(self._clock),
            remote=self.status_bit(point, point.settings.remote_bit),
            session_used=work.session,
            session_now=self._link_session(),
            generation_used=record.generation,
            generation_now=self._rules.current.generation,
            override_over=self._overdue(work.rules),
            unusable_input=_unusable_input(work, newest),
            outside_proof=outside_proof(
                work.checks[-1],
                {tag: value for tag, value in newest.items() if not _known_bad(work, tag)},
                self._store.definitions,
            ),
            not_live=self._not_live(point),
            previous_used=work.previous,
            previous_now=point.values_in_force(),
        )
        why = gate(facts)
        if not why:
            point.unconfirmed(record.written, now)
        return why


def _unusable_input(work: Working, newest: Mapping[TagId, TagValue]) -> str:
    """An input that must not be used now; one that was as bad when it was checked is no premise."""
    rules = work.rules
    for tag, value in newest.items():
        if not _known_bad(work, tag) and not rules.usable(tag, value.status):
            return tag
    return ""


def _known_bad(work: Working, tag: TagId) -> bool:
    """Whether the check went on without this input, so that nothing of it is a premise."""
    rules = work.rules
    return tag in rules.tolerated and not rules.usable(tag, work.snapshot.values[tag].status)


def _hurried(work: Working) -> bool:
    """Whether the requester gave less time than the point's own deadline."""
    return work.request.deadline.at < work.request.received_at + work.point.settings.deadline_s

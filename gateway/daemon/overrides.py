"""Overrides as people see them: their verbs, what the Feed tells, and the one alarm while any is in force."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gateway.core.decision import Mode
from gateway.core.override import utc_text
from gateway.link.messages import OverrideState
from gateway.pipeline.point import Point
from gateway.solver.in_force.overriding import OverrideStatus, Overriding
from gateway.solver.rules.ruleset import RuleSet

SOURCE = "overrides"


class OverrideVerbs(Overriding[RuleSet]):
    """People's verbs over overrides, and how these stand."""

    def states(self) -> list[OverrideState]:
        """What is asked for and what is in force."""
        return [override_state(status) for status in self.statuses()]

    def counts(self) -> dict[str, int]:
        """How many there are of each."""
        states = [status.state for status in self.statuses()]
        return {"active": states.count("active"), "requested": states.count("requested")}


class _Raise(Protocol):
    def __call__(
        self, source: str, *, active: bool, acknowledged: bool, cause: str, consequence: str, action: str
    ) -> None:
        """See `gateway.daemon.reporting.Reporter.raise_alarm`."""
        ...


class OverrideNews:
    """Tells what changed since it told last, and raises the one alarm; none while all is in shadow (S28)."""

    def __init__(
        self, points: Iterable[Point], raise_alarm: _Raise, publish: Callable[[OverrideState], None]
    ) -> None:
        self._points, self._raise, self._publish = tuple(points), raise_alarm, publish
        self._told: dict[str, OverrideState] = {}
        self._cause = ""  # of the alarm that stands

    def tell(self, states: Sequence[OverrideState]) -> None:
        """Publish what is new, gone or otherwise; raise, change or end the alarm. Cheap where nothing is."""
        now = {state.id: state for state in states}
        for name, state in now.items():
            if self._told.get(name) != state:
                self._publish(state)
        for name in self._told.keys() - now.keys():
            self._publish(ended(self._told[name]))
        self._told = now
        self._alarm([state for state in states if state.state == "active"])

    def _alarm(self, active: Sequence[OverrideState]) -> None:
        effective = any(point.mode in (Mode.ARMED, Mode.ADVISORY) for point in self._points)
        cause = "; ".join(map(_in_force, active)) if effective else ""
        if cause == self._cause:
            return
        first = next((state.id for state in active), "MODULE/CONSTRAINT")
        self._raise(
            SOURCE,
            active=bool(cause),
            acknowledged=not cause,  # that it ended needs nobody's acknowledgement
            cause=cause or self._cause,
            consequence="these constraints are reported only: no decision is refused or repaired for them",
            action=f"end it as soon as it is not needed: o3ctl override release {first}",
        )
        self._cause = cause


def override_state(status: OverrideStatus) -> OverrideState:
    """An override for the Feed."""
    return OverrideState(
        id=status.id,
        state=status.state,
        reason=status.reason,
        requested_by=status.requested_by,
        confirmed_by=status.confirmed_by,
        since_ns=status.since_ns,
        until_ns=status.until_ns,
    )


def ended(state: OverrideState) -> OverrideState:
    """The same, that is no more."""
    return OverrideState(
        id=state.id,
        state="ended",
        reason=state.reason,
        requested_by=state.requested_by,
        confirmed_by=state.confirmed_by,
        since_ns=state.since_ns,
        until_ns=state.until_ns,
    )


def _in_force(state: OverrideState) -> str:
    return (
        f"`{state.id}` is overridden until {utc_text(state.until_ns)} by {state.requested_by}, confirmed by "
        f"{state.confirmed_by}: {state.reason}"
    )

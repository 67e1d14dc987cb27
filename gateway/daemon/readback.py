"""Watches the PLC's working values: what each output really is, and changes nobody requested (S19, S22)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.core.clock import Clock
from gateway.core.decision import Mode, PointId, RegisterValue
from gateway.core.tag import TagId, TagValue, decimal_text, exact
from gateway.core.tagstore import TagStore
from gateway.pipeline.point import Point
from gateway.pipeline.writer import SetpointWriter


@dataclass(slots=True)
class ReadBack:
    """Feeds output histories from the tag store. `take` observes every change, `settle` judges at leisure."""

    points: Mapping[PointId, Point]
    store: TagStore
    writer: SetpointWriter
    clock: Clock
    _outputs: dict[TagId, list[tuple[Point, TagId]]] = field(default_factory=dict)
    _unrequested: dict[PointId, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for point in self.points.values():
            for output, tag in point.settings.read_back.items():
                self._outputs.setdefault(tag, []).append((point, output))

    def take(self, tag: TagId, value: TagValue) -> None:
        """One sample of any tag; those that are not a working value are nothing to us."""
        for point, output in self._outputs.get(tag, ()):
            self._observe(point, output, value)

    def settle(self) -> list[tuple[Point, str]]:
        """Points whose outputs were changed by somebody while we were in control, and how.

        While the PLC is not under our control its own fallback moves them, which is its right: then only the
        history is taken over, and the next write is again the value in force (S23).
        """
        found: list[tuple[Point, str]] = []
        for tag, outputs in self._outputs.items():
            for point, output in outputs:  # a value that stayed as it was settles an unconfirmed write too
                self._observe(point, output, self.store[tag])
        for point in self.points.values():
            in_control = self._in_control(point)
            why = self._unrequested.pop(point.settings.id, "")
            if not in_control and self._seen_after(point, point.confirmed_at):
                point.first_write_due = True
            elif why and point.mode is Mode.ARMED and not point.first_write_due:
                found.append((point, why))
        return found

    def working(self, point: Point, values: Iterable[RegisterValue], at: float, *, in_control: bool) -> None:
        """The PLC's own word on all outputs of a point, asked for at `at`."""
        for value in values:
            changed = point.histories[value.tag].observe(value.value, at)
            if changed and in_control:
                self._note(point, value.tag, decimal_text(value.value))

    def _observe(self, point: Point, output: TagId, value: TagValue) -> None:
        if not value.status.is_plain_good or value.value is None or isinstance(value.value, str):
            point.histories[output].out_of_sight(self.clock.monotonic())
            return
        changed = point.histories[output].observe(exact(value.value), value.confirmed_at)
        if changed and self._in_control(point):
            self._note(point, output, str(value.value))

    def _note(self, point: Point, output: TagId, value: str) -> None:
        self._unrequested[point.settings.id] = f"`{output}` became {value} without a request"

    def _seen_after(self, point: Point, at: float) -> bool:
        """Whether the status word is younger than that: an older one says nothing of a write since."""
        tag = point.settings.status_tag
        return tag is None or self.store[tag].confirmed_at > at

    def _in_control(self, point: Point) -> bool:
        return self.writer.status_bit(point, point.settings.in_control_bit)

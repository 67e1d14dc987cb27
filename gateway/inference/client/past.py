"""What a decision point's history rests on, kept so that another bundle can be given the same history."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.core.tagstore import Snapshot

MOST_MOMENTS = 1024  # cycles; no bundle looks further back


@dataclass(frozen=True, slots=True)
class Moment:
    """One cycle: when it began (monotonic s), what was in force then, and the newest that was measured in it.

    Tags keep their names, so that each bundle can take its own from it.
    """

    at: float
    snapshot: Snapshot
    previous: Mapping[TagId, Fraction]


class Past:
    """The newest cycles of one decision point, oldest first."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque(maxlen=MOST_MOMENTS)
        self._cycle: int | None = None

    @property
    def moments(self) -> tuple[Moment, ...]:
        """All that is kept. Placed again in this order they leave the history that the requests left."""
        return tuple(self._moments)

    def took(self, cycle: int, at: float, snapshot: Snapshot, previous: Mapping[TagId, Fraction]) -> None:
        """A request stands in that cycle; a further one of the same cycle replaces what was measured."""
        if cycle == self._cycle and self._moments:
            newest = self._moments[-1]
            self._moments[-1] = Moment(newest.at, snapshot, newest.previous)
        else:
            self._moments.append(Moment(at, snapshot, previous))
        self._cycle = cycle

    def unknown(self, moments: Sequence[Moment]) -> Sequence[Moment]:
        """Of moments that began as these did, those from the newest one known here on."""
        if not self._moments:
            return moments
        newest, first = self._moments[-1].at, len(moments)
        while first and moments[first - 1].at >= newest:
            first -= 1
        return moments[first:]

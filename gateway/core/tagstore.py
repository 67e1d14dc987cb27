"""The one owner of the truth about tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gateway.core.clock import Clock
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagValue

Observer = Callable[[TagId, TagValue], None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Tag values taken at one monotonic instant."""

    taken_at: float
    values: Mapping[TagId, TagValue]

    def age_s(self, tag: TagId) -> float:
        """Seconds since the source last confirmed this tag (S13)."""
        return max(0.0, self.taken_at - self.values[tag].confirmed_at)

    def skew_s(self) -> float:
        """Seconds between the oldest and the newest confirmation in the snapshot (S14)."""
        stamps = [v.confirmed_at for v in self.values.values()]
        return max(stamps) - min(stamps) if stamps else 0.0


@dataclass(frozen=True, slots=True)
class TagStoreStatistics:
    """Counters since start."""

    tags: int
    updates: int
    changes: int
    out_of_order: int
    bad: int


class TagStore:
    """Latest value of every tag. Order and age follow our monotonic receipt time, never a foreign clock."""

    def __init__(self, definitions: Iterable[TagDefinition], clock: Clock) -> None:
        self._clock = clock
        self.definitions: dict[TagId, TagDefinition] = {d.id: d for d in definitions}
        waiting = TagValue(
            value=None,
            status=StatusCode.BadWaitingForInitialData,
            source_ts_ns=None,
            server_ts_ns=clock.utc_ns(),
            confirmed_at=float("-inf"),
        )
        self._values: dict[TagId, TagValue] = dict.fromkeys(self.definitions, waiting)
        self._observers: list[Observer] = []
        self._updates = self._changes = self._out_of_order = 0

    def observe(self, observer: Observer) -> None:
        """Call `observer` synchronously on every update whose value or status changed."""
        self._observers.append(observer)

    def update(self, tag: TagId, new: TagValue) -> bool:
        """Take a sample; False when an older one arrived late and was counted instead.

        A Bad sample without a value keeps the last value beside its Bad status.
        """
        old = self._values[tag]
        if new.confirmed_at < old.confirmed_at:
            self._out_of_order += 1
            return False
        if new.value is None and old.value is not None:
            new = TagValue(
                value=old.value,
                status=new.status,
                source_ts_ns=old.source_ts_ns,
                server_ts_ns=new.server_ts_ns,
                confirmed_at=old.confirmed_at,
            )
        self._values[tag] = new
        self._updates += 1
        if new.value != old.value or new.status != old.status:
            self._changes += 1
            for observer in self._observers:
                observer(tag, new)
        return True

    def degrade(self, tags: Iterable[TagId], status: StatusCode) -> None:
        """Mark tags whose source is lost: the last value stays, the quality never improves (R9)."""
        for tag in tags:
            old = self._values[tag]
            new = old.degraded_to(status)
            if new != old:
                self._values[tag] = new
                self._changes += 1
                for observer in self._observers:
                    observer(tag, new)

    def __getitem__(self, tag: TagId) -> TagValue:
        return self._values[tag]

    def snapshot(self, tags: Iterable[TagId]) -> Snapshot:
        """Values of `tags` at this instant."""
        return Snapshot(self._clock.monotonic(), {t: self._values[t] for t in tags})

    def statistics(self) -> TagStoreStatistics:
        """Counters since start and how many tags are not Good now."""
        bad = sum(1 for v in self._values.values() if not v.status.is_plain_good)
        return TagStoreStatistics(len(self._values), self._updates, self._changes, self._out_of_order, bad)

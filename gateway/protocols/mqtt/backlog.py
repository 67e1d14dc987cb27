"""What waits for the broker, in memory: newest value per topic, events in order, both bounded and counted.

It does not outlive the process: a durable outbox is not built yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One publication. An event is never coalesced; a state gives way to its successor.

    `correlation` is not None for the answer to a request, which never waits in a backlog.
    """

    topic: str
    payload: bytes
    retain: bool
    event: bool = False
    correlation: bytes | None = None


@dataclass(frozen=True, slots=True)
class BacklogStatistics:
    """What waits now, and what never left."""

    states_due: int
    events_due: int
    event_bytes: int
    coalesced: int
    events_dropped: int
    topics_refused: int


class Backlog:
    """States and events due for publication. `take` alternates, so neither starves the other."""

    def __init__(self, *, topic_capacity: int, event_capacity: int, event_limit_bytes: int) -> None:
        self._topic_capacity = topic_capacity
        self._event_capacity, self._event_limit_bytes = event_capacity, event_limit_bytes
        self._retained: dict[str, Message] = {}  # the newest of each retained topic, sent again on a new link
        self._due: dict[str, Message] = {}  # in order of first change
        self._events: deque[Message] = deque()
        self._event_bytes = 0
        self._coalesced = self._dropped = self._refused = 0
        self._event_next = True

    def put(self, message: Message) -> None:
        """Take a message; what gives way to it is counted."""
        if message.event:
            self._events.append(message)
            self._event_bytes += len(message.payload)
            self._trim()
            return
        topic = message.topic
        known = topic in self._due or topic in self._retained
        if not known and len(self._due.keys() | self._retained.keys()) >= self._topic_capacity:
            self._refused += 1
            return
        if topic in self._due:
            self._coalesced += 1
        self._due[topic] = message
        if message.retain:
            self._retained[topic] = message

    def take(self) -> Message | None:
        """The next message to publish, or None."""
        event_first = self._event_next and bool(self._events)
        self._event_next = not event_first
        if self._events and (event_first or not self._due):
            message = self._events.popleft()
            self._event_bytes -= len(message.payload)
            return message
        if self._due:
            return self._due.pop(next(iter(self._due)))
        return None

    def give_back(self, messages: Iterable[Message]) -> None:
        """Messages sent but not acknowledged, oldest first: events in front again, states unless outdated."""
        events = []
        for message in messages:
            if message.event:
                events.append(message)
            else:
                self._due.setdefault(message.topic, message)
        self._events.extendleft(reversed(events))
        self._event_bytes += sum(len(m.payload) for m in events)
        self._trim()

    def renew(self) -> None:
        """Make every retained state due again: a restarted broker may have lost them all."""
        for topic, message in self._retained.items():
            self._due.setdefault(topic, message)

    def statistics(self) -> BacklogStatistics:
        """What waits now, and what never left."""
        return BacklogStatistics(
            len(self._due),
            len(self._events),
            self._event_bytes,
            self._coalesced,
            self._dropped,
            self._refused,
        )

    def _trim(self) -> None:
        while len(self._events) > self._event_capacity or self._event_bytes > self._event_limit_bytes:
            self._event_bytes -= len(self._events.popleft().payload)
            self._dropped += 1

"""What was worked out last, kept as long as the very same object may be asked for again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

_Of = TypeVar("_Of")
_Made = TypeVar("_Made")

_KEPT = 8  # a decision has one snapshot and a few checks


class Memo(Generic[_Of, _Made]):
    """`make` of an object that nobody changes, by its identity; never by what it equals."""

    def __init__(self, make: Callable[[_Of], _Made]) -> None:
        self._make = make
        self._kept: deque[tuple[_Of, _Made]] = deque(maxlen=_KEPT)

    def of(self, thing: _Of) -> _Made:
        """What `make` makes of it; raises what `make` raises."""
        for kept, made in self._kept:
            if kept is thing:
                return made
        made = self._make(thing)
        self._kept.append((thing, made))
        return made

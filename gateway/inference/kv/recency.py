"""Who goes first when room lacks: LRU, and LRU-K, behind one policy."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Recency(Generic[K]):
    """Orders keys by the age of their `k`-th newest use; what was used less often than that goes first.

    With `k` 1 this is LRU. With 2, one long scan does not push out what is used again and again (O'Neil,
    O'Neil, Weikum 1993). Among equals the least recently used goes first. Time is counted in uses.
    """

    def __init__(self, k: int = 1) -> None:
        if k < 1:
            message = f"LRU-K needs at least one use, not {k}"
            raise ValueError(message)
        self._k, self._now = k, 0
        self._uses: dict[K, deque[int]] = {}

    def touch(self, key: K) -> None:
        """A use of `key`, now."""
        self._now += 1
        self._uses.setdefault(key, deque(maxlen=self._k)).append(self._now)

    def forget(self, key: K) -> None:
        """No use of `key` is known any more."""
        self._uses.pop(key, None)

    def oldest_first(self, keys: Iterable[K]) -> list[K]:
        """The keys in the order in which they should make room."""
        return sorted(keys, key=self.rank)

    def rank(self, key: K) -> tuple[int, int]:
        """What keys are ordered by: the times of the `k`-th newest use, 0 without, and of the newest."""
        uses = self._uses.get(key)
        if not uses:
            return 0, 0
        return uses[0] if len(uses) == self._k else 0, uses[-1]

"""Counters by name: if it can be lost, refused, expired, killed or retried, it is counted here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class CountersSnapshot:
    """All counters at one instant; `help` says in a sentence what each counts."""

    values: Mapping[str, int]
    help: Mapping[str, str]


class Counters:
    """Plain ints, declared once, counted upwards from one event loop. Reading copies, counting does not."""

    def __init__(self) -> None:
        # INVARIANT: both have the same keys; a value never falls.
        self._values: dict[str, int] = {}
        self._help: dict[str, str] = {}

    def declare(self, name: str, what: str) -> None:
        """A counter that starts at 0: it is visible before the first event. Once per name."""
        if name in self._values:
            raise ValueError(f"counter `{name}` is declared twice")
        if not name.isidentifier() or name.lower() != name:
            raise ValueError(f"counter `{name}` is not a lower-case identifier")
        self._values[name] = 0
        self._help[name] = what

    def add(self, name: str, count: int = 1) -> None:
        """Count; a name nobody declared is a programming error (`KeyError`)."""
        if count < 0:
            raise ValueError(f"counter `{name}` cannot fall by {-count}")
        self._values[name] += count

    def raise_to(self, name: str, total: int) -> None:
        """Take over a total some part counts itself; a total that fell (a part restarted) changes nothing."""
        self._values[name] = max(self._values[name], total)

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def snapshot(self) -> CountersSnapshot:
        """A copy that no longer moves."""
        return CountersSnapshot(MappingProxyType(dict(self._values)), MappingProxyType(dict(self._help)))

"""Counters of a point's lists of proposals."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ListCounters:
    """Since start; a list is two proposals or more, and made where the first is refused."""

    lists: int = 0
    checked: int = 0  # proposals after the first
    used: int = 0  # of those: permitted, and taken in place of the first
    exhausted: int = 0  # lists of which nothing that was checked was permitted

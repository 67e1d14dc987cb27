"""Health of the parts, told as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartHealth:
    """One part as a person would ask after it."""

    part: str
    ok: bool
    text: str

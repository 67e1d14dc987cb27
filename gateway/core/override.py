"""Overrides: standard constraints that two persons set aside for a while (S25)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One in force: what it sets aside, why, who asked and who confirmed. Times are UTC nanoseconds."""

    module: str
    constraint: str
    reason: str
    requested_by: str
    confirmed_by: str
    since_ns: int
    until_ns: int

    @property
    def name(self) -> str:
        """`MODULE/CONSTRAINT`, as verdicts name it."""
        return f"{self.module}/{self.constraint}"


def utc_text(utc_ns: int) -> str:
    """A moment as records say it, the same on every machine: `2026-11-29 14:05:00 UTC`."""
    return f"{datetime.fromtimestamp(utc_ns // _NS_PER_S, UTC):%Y-%m-%d %H:%M:%S} UTC"


def phrase(overrides: Iterable[Override]) -> str:
    """`with `tank/ramp` overridden until ... by A, confirmed by B`, one after another; empty without any."""
    said = " and ".join(map(_said, overrides))
    return f"with {said}" if said else ""


def plain(overrides: Iterable[Override]) -> list[dict[str, Any]]:
    """Plain data, in the order of their names."""
    return [asdict(o) for o in sorted(overrides, key=lambda o: o.name)]


def overrides_of(said: object) -> tuple[Override, ...]:
    """The overrides that `plain` told of; raises `ValueError` for anything else."""
    if not isinstance(said, list | tuple):
        raise ValueError("overrides are a list")  # noqa: TRY004  whoever reads evidence catches one kind
    found = tuple(map(_override, said))
    if [o.name for o in found] != sorted({o.name for o in found}):
        raise ValueError("overrides are listed by name, each once")
    return found


def _said(override: Override) -> str:
    until, who = utc_text(override.until_ns), (override.requested_by, override.confirmed_by)
    return f"`{override.name}` overridden until {until} by {who[0]}, confirmed by {who[1]}"


def _override(said: object) -> Override:
    kinds = {f.name: int if f.name.endswith("_ns") else str for f in fields(Override)}
    if not isinstance(said, Mapping) or said.keys() != kinds.keys():
        raise ValueError(f"an override has exactly the facts {', '.join(kinds)}")
    if any(type(said[name]) is not kind for name, kind in kinds.items()):
        raise ValueError("a fact of an override is of the wrong kind")
    return Override(**said)

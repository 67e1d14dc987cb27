"""How far measurements lie from what was predicted earlier: what the assumption monitor tells (S16)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.core.tag import TagId

WINDOWS = (1, 10, 60)  # steps between prediction and measurement
COUNTED, TRIPS_AT = 5, 3  # of the newest five measurements of a window, so many outside trip it


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One tag's newest measurement against what was predicted `window` steps before it.

    `residual` is reading minus middle of the predicted band, `outside` by how far the reading, its error
    counted, misses the band; both in the tag's unit. `used_share` is where the reading stands in the band: 0
    in the middle, 1 where reading and band only just touch, above 1 outside. `missed` counts the measurements
    outside among the newest five of this window.
    """

    tag: TagId
    window: int
    residual: float
    outside: float
    used_share: float
    missed: int = 0

    @property
    def tripped(self) -> bool:
        """This measurement is outside, and so were enough before it."""
        return self.outside > 0 and self.missed >= TRIPS_AT


def broken(residuals: Iterable[Residual], unit_of: dict[TagId, str] | None = None) -> str:
    """What the newest measurements contradict, in words, the widest miss first; empty while nothing trips."""
    tripped = [found for found in residuals if found.tripped]
    if not tripped:
        return ""
    worst = max(tripped, key=lambda found: found.used_share)
    outside = f"{worst.outside:.4g} {(unit_of or {}).get(worst.tag, '')}".strip()
    steps = "one step" if worst.window == 1 else f"{worst.window} steps"
    return (
        f"broken assumption: `{worst.tag}` lies {outside} outside what was predicted {steps} before, "
        f"as {worst.missed} of its last {COUNTED} measurements did; a sensor, a bound or the dynamics of a "
        "module are wrong"
    )

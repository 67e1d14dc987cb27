"""What keeps outputs from moving about (S12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.core.tag import TagId


@dataclass(frozen=True, slots=True, kw_only=True)
class Restraint:
    """How little outputs are moved. It permits nothing: what it leaves as it is must pass the check itself.

    `least_change`: by output, in its own unit: a smaller change is not written, the value in force is.
    `kept_back`: outputs that a repair or a fallback lately left above (1) or below (-1) what was proposed.
    Such an output goes back towards a proposal only as far as every rule about the plant's state would still
    hold if it went further by the share `margin` of its range.
    """

    least_change: Mapping[TagId, Fraction] = field(default_factory=dict)
    kept_back: Mapping[TagId, int] = field(default_factory=dict)
    margin: Fraction = Fraction(0)


UNRESTRAINED = Restraint()

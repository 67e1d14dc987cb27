"""A tag: one named value with unit, range, quality and both timestamps."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NewType

from gateway.core.errors import RegisterRangeError
from gateway.core.quality import StatusCode

TagId = NewType("TagId", str)

Scalar = bool | int | float | str


class TagKind(enum.Enum):
    """What a tag's value is to a person: decides node type, display and rounding."""

    REAL = "real"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagDefinition:
    """What configuration says of a tag. `scale` and `offset` turn counts into engineering units exactly."""

    id: TagId
    kind: TagKind
    unit: str = ""
    description: str = ""
    eu_range: tuple[Fraction, Fraction] | None = None
    raw_type: str = "uint16"
    raw_range: tuple[int, int] | None = None  # counts; None for floating point and text
    scale: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)
    deadband: Fraction = Fraction(0)  # a change the source may keep to itself
    max_change: Fraction | None = None  # how far a model's proposal may be from the value in force
    writable: bool = False
    protected: bool = False  # unwritable by any path (S22)

    def engineering(self, raw: int) -> Fraction:
        """The exact engineering value of a register count."""
        return raw * self.scale + self.offset

    def counts(self, value: Fraction | int) -> int:
        """The register count nearest to an engineering value; halves go away from zero, never wrapped."""
        exact = (Fraction(value) - self.offset) / self.scale
        raw = int(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)
        low, high = self.raw_range if self.raw_range is not None else (raw, raw)
        if not low <= raw <= high:
            raise RegisterRangeError(self.id, float(value), low, high)
        return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class TagValue:
    """A value that never parts from its quality and its times.

    `source_ts_ns` is the device's own UTC stamp (None where it sends none), `server_ts_ns` ours at arrival;
    `confirmed_at` is our monotonic time of the last confirmation by the source (S13), in seconds.
    """

    value: Scalar | None
    status: StatusCode
    source_ts_ns: int | None
    server_ts_ns: int
    confirmed_at: float

    def degraded_to(self, status: StatusCode) -> TagValue:
        """The same reading, never better than `status`."""
        if status.severity.value < self.status.severity.value:
            return self
        return replace(self, status=status)


def exact(value: float) -> Fraction:
    """The shortest decimal that reads back as this number: what people, records and the checker see."""
    return Fraction(int(value)) if isinstance(value, bool | int) else Fraction(repr(value))


_MOST_PLACES = 2_000  # Python makes no text of a number of more than 4 300 digits


def decimal_text(value: Fraction) -> str:
    """A terminating decimal as text (`12.5`), or `p/q` where it does not terminate, or only after pages."""
    numerator, denominator = value.numerator, value.denominator
    if denominator == 1:
        return str(numerator)
    twos = (denominator & -denominator).bit_length() - 1
    left, fives = denominator >> twos, 0
    while left % 5 == 0:
        left //= 5
        fives += 1
    places = max(twos, fives)
    if left != 1 or places > _MOST_PLACES:
        return f"{numerator}/{denominator}"
    digits = str(abs(numerator) * (10**places // denominator)).rjust(places + 1, "0")
    return f"{'-' if numerator < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def number_text(value: float) -> str:
    """`decimal_text(exact(value))`, mostly without making a fraction of it."""
    text = repr(value)
    if not isinstance(value, float) or "e" in text or "n" in text or text == "-0.0":
        return decimal_text(exact(value))
    return text.removesuffix(".0")


_SPELLED = re.compile(r"-?[0-9]+(?:\.[0-9]+|/0*[1-9][0-9]*)?")


def number_of(text: str) -> Fraction:
    """The number behind a text of `decimal_text`; raises `ValueError` or `TypeError` for any other.

    No exponents: `1e999999999` is short to write, and nobody can carry it.
    """
    if _SPELLED.fullmatch(text) is None:
        raise ValueError(f"`{text[:40]}` is no number as records spell them")
    return Fraction(text)

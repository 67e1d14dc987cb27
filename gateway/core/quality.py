"""Quality is an OPC UA StatusCode (OPC 10000-6, Annex A.2) and travels with every value."""

from __future__ import annotations

import enum


class Severity(enum.Enum):
    """Bits 30-31 of a StatusCode (OPC 10000-4, StatusCode)."""

    GOOD = 0
    UNCERTAIN = 1
    BAD = 2


class StatusCode(enum.IntEnum):
    """The StatusCodes this gateway produces or understands by name."""

    Good = 0x00000000
    GoodLocalOverride = 0x00960000
    Uncertain = 0x40000000
    UncertainLastUsableValue = 0x40900000
    UncertainSensorNotAccurate = 0x40930000
    UncertainSubstituteValue = 0x40910000
    UncertainInitialValue = 0x40920000
    Bad = 0x80000000
    BadCommunicationError = 0x80050000
    BadDecodingError = 0x80070000
    BadNoCommunication = 0x80310000
    BadWaitingForInitialData = 0x80320000
    BadOutOfRange = 0x803C0000
    BadConfigurationError = 0x80890000
    BadNotConnected = 0x808A0000
    BadDeviceFailure = 0x808B0000
    BadSensorFailure = 0x808C0000
    BadOutOfService = 0x808D0000

    @property
    def severity(self) -> Severity:
        """Good, Uncertain or Bad."""
        return severity(self)

    @property
    def is_plain_good(self) -> bool:
        """True only for Good itself: nothing else may be used for a write (S15)."""
        return self is StatusCode.Good


def severity(code: int) -> Severity:
    """Severity of any 32-bit StatusCode, known by name or not; the reserved pattern 0b11 counts as Bad."""
    return (Severity.GOOD, Severity.UNCERTAIN, Severity.BAD, Severity.BAD)[(code >> 30) & 0b11]

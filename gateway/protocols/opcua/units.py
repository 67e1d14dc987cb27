"""Engineering units as OPC UA names them: UNECE Recommendation 20 codes (OPC 10000-8, 5.6.3)."""

from __future__ import annotations

from asyncua import ua

UNECE_URI = "http://www.opcfoundation.org/UA/units/un/cefact"

_CODES = {
    "m": ("MTR", "metre"),
    "mm": ("MMT", "millimetre"),
    "cm": ("CMT", "centimetre"),
    "m2": ("MTK", "square metre"),
    "m3": ("MTQ", "cubic metre"),
    "l": ("LTR", "litre"),
    "m3/h": ("MQH", "cubic metre per hour"),
    "m3/s": ("MQS", "cubic metre per second"),
    "l/min": ("L2", "litre per minute"),
    "l/s": ("G51", "litre per second"),
    "m/s": ("MTS", "metre per second"),
    "degC": ("CEL", "degree Celsius"),
    "°C": ("CEL", "degree Celsius"),
    "K": ("KEL", "kelvin"),
    "%": ("P1", "percent"),
    "1": ("C62", "one"),
    "Pa": ("PAL", "pascal"),
    "kPa": ("KPA", "kilopascal"),
    "MPa": ("MPA", "megapascal"),
    "bar": ("BAR", "bar"),
    "mbar": ("MBR", "millibar"),
    "V": ("VLT", "volt"),
    "A": ("AMP", "ampere"),
    "mA": ("4K", "milliampere"),
    "W": ("WTT", "watt"),
    "kW": ("KWT", "kilowatt"),
    "kWh": ("KWH", "kilowatt hour"),
    "Hz": ("HTZ", "hertz"),
    "rpm": ("RPM", "revolutions per minute"),
    "1/min": ("RPM", "revolutions per minute"),
    "kg": ("KGM", "kilogram"),
    "g": ("GRM", "gram"),
    "t": ("TNE", "tonne"),
    "kg/h": ("E93", "kilogram per hour"),
    "N": ("NEW", "newton"),
    "N.m": ("NU", "newton metre"),
    "s": ("SEC", "second"),
    "ms": ("C26", "millisecond"),
    "min": ("MIN", "minute"),
    "h": ("HUR", "hour"),
    "pH": ("Q30", "pH"),
    "ppm": ("59", "part per million"),
}


def unit_id(code: str) -> int:
    """UnitId of a UNECE code: its ASCII bytes, most significant first (OPC 10000-8, 5.6.3.4)."""
    return int.from_bytes(code.encode("ascii"), "big")


def engineering_units(unit: str) -> ua.EUInformation:
    """EUInformation of a unit as the configuration spells it; UnitId -1 where UNECE has no code we know."""
    code, description = _CODES.get(unit, ("", unit))
    return ua.EUInformation(
        NamespaceUri=UNECE_URI if code else "",
        UnitId=unit_id(code) if code else -1,
        DisplayName=ua.LocalizedText(unit),
        Description=ua.LocalizedText(description),
    )

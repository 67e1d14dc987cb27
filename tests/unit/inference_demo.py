"""The shipped bundles and the demo's tags, shared by the tests of inference."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import gateway.inference
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind, TagValue
from gateway.core.tagstore import Snapshot

BUNDLES = Path(gateway.inference.__file__).parent / "bundles"
BUFFER_TANK = BUNDLES / "buffer-tank"
RECKLESS = BUNDLES / "reckless"
SIGNED, PERMILLE = (-32768, 32767), (0, 1000)


def _tag(
    name: str, kind: TagKind, unit: str, eu: tuple[str, str], raw: tuple[int, int], scale: str
) -> TagDefinition:
    low, high = eu
    return TagDefinition(
        id=TagId(name),
        kind=kind,
        unit=unit,
        eu_range=(Fraction(low), Fraction(high)),
        raw_range=raw,
        scale=Fraction(scale),
    )


def demo_definitions() -> dict[TagId, TagDefinition]:
    tags = [
        _tag("TK1.LT101", TagKind.REAL, "m", ("-0.1", "5"), SIGNED, "0.001"),
        _tag("TK1.FT101", TagKind.REAL, "m3/h", ("-1", "40"), SIGNED, "0.01"),
        _tag("TK1.TT101", TagKind.REAL, "degC", ("0", "100"), SIGNED, "0.01"),
        _tag("TK1.P101.SP", TagKind.REAL, "%", ("0", "100"), PERMILLE, "0.1"),
        _tag("TK1.H101.CMD", TagKind.BOOLEAN, "", ("0", "1"), (0, 1), "1"),
        _tag("TK1.M101.STAGE", TagKind.INTEGER, "", ("0", "3"), (0, 3), "1"),
    ]
    return {tag.id: tag for tag in tags}


def snapshot(at: float, level: float = 2.0, inflow: float = 12.0, temperature: float = 45.0) -> Snapshot:
    values: Mapping[str, float] = {"TK1.LT101": level, "TK1.FT101": inflow, "TK1.TT101": temperature}
    return Snapshot(
        at,
        {
            TagId(tag): TagValue(
                value=value, status=StatusCode.Good, source_ts_ns=None, server_ts_ns=0, confirmed_at=at
            )
            for tag, value in values.items()
        },
    )


def in_force(pump: str = "26.7", heater: int = 0, mixer: int = 1) -> dict[TagId, Fraction]:
    return {
        TagId("TK1.P101.SP"): Fraction(pump),
        TagId("TK1.H101.CMD"): Fraction(heater),
        TagId("TK1.M101.STAGE"): Fraction(mixer),
    }

"""Registers to values and back, exactly. Pure: what a device sends is bytes, an order and a type.

An order names the bytes as they come over the wire. The four-letter orders mean the same for every width
(`CDAB`: the words reversed; `BADC`: the bytes of each word swapped; `DCBA`: both); an eight-letter order is
an explicit permutation of a four-register value. Text never has its words reversed, only its bytes swapped.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.errors import RegisterRangeError
from gateway.core.quality import StatusCode
from gateway.core.tag import Scalar, exact

_FLOATS = {"float16": ">e", "float32": ">f", "float64": ">d"}
_INTEGERS = {
    "int16": (2, True),
    "uint16": (2, False),
    "int32": (4, True),
    "uint32": (4, False),
    "int64": (8, True),
    "uint64": (8, False),
}
_BCD = {"bcd16": 4, "bcd32": 8}
_HALVES = {"int8hi": (8, True), "uint8hi": (8, False), "int8lo": (0, True), "uint8lo": (0, False)}
_PARTIAL = frozenset({"bit", "bits", *_HALVES})
_ORDERS = ("ABCD", "CDAB", "BADC", "DCBA")
_REGISTERS = {
    "bool": 1,
    "bit": 1,
    "bits": 1,
    "signmag16": 1,
    "mod10k32": 2,
    **dict.fromkeys(_HALVES, 1),
    **{name: struct.calcsize(code) // 2 for name, code in _FLOATS.items()},
    **{name: size // 2 for name, (size, _) in _INTEGERS.items()},
    **{name: digits // 4 for name, digits in _BCD.items()},
}
RAW_TYPES = frozenset({*_REGISTERS, "string"})

_WORD_BITS = 16
_TEN_THOUSAND = 10_000


@dataclass(frozen=True, slots=True)
class NotAValue:
    """The registers hold no value: the status to show, and why in words. Never a guess."""

    status: StatusCode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WordFormat:
    """How registers become one value. `argument` is the bit (`bit`), `start:length` (`bits`) or the charset.

    `invalid_raw` is the bit pattern, taken as an unsigned number in natural byte order, by which the device
    says that it has no value. `registers` is needed for text only. Raises ValueError where it cannot be read.
    """

    raw_type: str = "uint16"
    order: str = "ABCD"
    argument: str = ""
    scale: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)
    invalid_raw: int | None = None
    registers: int = 0

    def __post_init__(self) -> None:
        if self.raw_type not in RAW_TYPES:
            raise ValueError(f"unknown type `{self.raw_type}`")
        if self.scale == 0:
            raise ValueError("a scale of 0 leaves no value")
        if self.raw_type == "string":
            if self.registers < 1:
                raise ValueError("text needs its number of registers")
            "".encode(self.argument or "ascii")  # LookupError for a charset nobody knows
        elif self.registers not in (0, _REGISTERS[self.raw_type]):
            raise ValueError(f"`{self.raw_type}` takes {_REGISTERS[self.raw_type]} registers")
        if self.raw_type in {"string", "bool", "bit"} and not self.plain:
            raise ValueError(f"`{self.raw_type}` has neither scale nor offset")
        if self.order not in _ORDERS and (
            sorted(self.order) != list("ABCDEFGH") or self.count != len("ABCD")
        ):
            raise ValueError(f"order `{self.order}` does not fit `{self.raw_type}`")
        self.field()

    @property
    def count(self) -> int:
        """Registers this value takes."""
        return _REGISTERS.get(self.raw_type, self.registers)

    @property
    def plain(self) -> bool:
        """True when counts are the value."""
        return self.scale == 1 and self.offset == 0

    def field(self) -> tuple[int, int]:
        """Lowest bit and width inside the register of `bit` and `bits`; the whole register for others."""
        if self.raw_type == "bit":
            start, width = int(self.argument or "0"), 1
        elif self.raw_type == "bits":
            first, _, length = self.argument.partition(":")
            start, width = int(first), int(length)
        else:
            return 0, _WORD_BITS
        if start < 0 or width < 1 or start + width > _WORD_BITS:
            raise ValueError(f"field `{self.argument}` lies outside the register")
        return start, width

    def bounds(self) -> tuple[int, int] | None:
        """Lowest and highest count, or None for floating point and text."""
        if self.raw_type in _INTEGERS:
            size, signed = _INTEGERS[self.raw_type]
            return (-(1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1) if signed else (0, (1 << 8 * size) - 1)
        if self.raw_type in _BCD:
            return 0, 10 ** _BCD[self.raw_type] - 1
        if self.raw_type in _HALVES:
            return (-128, 127) if _HALVES[self.raw_type][1] else (0, 255)
        if self.raw_type in {"bit", "bits"}:
            return 0, (1 << self.field()[1]) - 1
        fixed = {"bool": (0, 1), "signmag16": (-0x7FFF, 0x7FFF), "mod10k32": (0, _TEN_THOUSAND**2 - 1)}
        return fixed.get(self.raw_type)


def decode(words: Sequence[int], form: WordFormat) -> Scalar | NotAValue:
    """The value in engineering units; `NotAValue` for markers, NaN, infinities and what cannot be decoded."""
    if len(words) != form.count:
        raise ValueError(f"{len(words)} registers for a value of {form.count}")
    data = _natural(words, form)
    if form.raw_type == "string":
        return _text(data, form.argument or "ascii")
    if form.invalid_raw is not None and int.from_bytes(data, "big") == form.invalid_raw:
        return NotAValue(StatusCode.BadSensorFailure, "the device says that it has no value")
    raw = _float(data, form) if form.raw_type in _FLOATS else _counts(data, form)
    if isinstance(raw, bool | NotAValue):
        return raw
    return _scaled(raw, form)


def encode(
    value: Scalar | Fraction, form: WordFormat, name: str, current: int | None = None
) -> tuple[int, ...]:
    """The registers that hold `value`, rounded to the nearest count; halves go away from zero.

    Raises RegisterRangeError where it does not fit: nothing is ever wrapped or clipped. A value that shares
    its register with others (`bit`, `bits`, a half) needs the register's `current` content.
    """
    if form.raw_type == "string":
        return _text_words(str(value), form, name)
    if isinstance(value, str):
        raise TypeError(f"tag `{name}`: text has no {form.raw_type}")
    if isinstance(value, float) and not math.isfinite(value):
        raise RegisterRangeError(name, value, *(form.bounds() or (0, 0)))
    data = (
        _float_bytes(value, form, name)
        if form.raw_type in _FLOATS
        else _count_bytes(value, form, name, current)
    )
    if form.raw_type not in _PARTIAL and int.from_bytes(data, "big") == form.invalid_raw:
        raise RegisterRangeError(name, float(value), *(form.bounds() or (0, 0)))  # would read as "no value"
    return _words(data, form)


def _arranged(data: bytes, order: str) -> bytes:
    """Wire order to natural order for the four-letter orders; each is its own inverse."""
    pairs = [data[i : i + 2] for i in range(0, len(data), 2)]
    if order in {"CDAB", "DCBA"}:
        pairs.reverse()
    if order in {"BADC", "DCBA"}:
        pairs = [pair[::-1] for pair in pairs]
    return b"".join(pairs)


def _effective_order(form: WordFormat) -> str:
    if form.raw_type != "string":
        return form.order
    return "BADC" if form.order in {"BADC", "DCBA"} else "ABCD"


def _natural(words: Sequence[int], form: WordFormat) -> bytes:
    wire = struct.pack(f">{len(words)}H", *words)
    order = _effective_order(form)
    if order in _ORDERS:
        return _arranged(wire, order)
    return bytes(wire[order.index(letter)] for letter in "ABCDEFGH")


def _words(data: bytes, form: WordFormat) -> tuple[int, ...]:
    order = _effective_order(form)
    wire = _arranged(data, order) if order in _ORDERS else bytes(data["ABCDEFGH".index(c)] for c in order)
    return struct.unpack(f">{len(wire) // 2}H", wire)


def _text(data: bytes, charset: str) -> str | NotAValue:
    try:
        return data.split(b"\0", 1)[0].decode(charset).rstrip(" ")
    except UnicodeDecodeError as exc:
        return NotAValue(StatusCode.BadDecodingError, f"not {charset}: {exc.reason}")


def _text_words(value: str, form: WordFormat, name: str) -> tuple[int, ...]:
    data = value.encode(form.argument or "ascii")
    room = 2 * form.registers
    if len(data) > room:
        raise RegisterRangeError(name, len(data), 0, room)
    return _words(data.ljust(room, b"\0"), form)


def _float(data: bytes, form: WordFormat) -> float | NotAValue:
    raw: float = struct.unpack(_FLOATS[form.raw_type], data)[0]
    return raw if math.isfinite(raw) else NotAValue(StatusCode.BadSensorFailure, f"{raw} is not a value")


def _counts(data: bytes, form: WordFormat) -> bool | int | NotAValue:
    kind = form.raw_type
    if kind in _INTEGERS:
        return int.from_bytes(data, "big", signed=_INTEGERS[kind][1])
    if kind in _PARTIAL:
        return _part(int.from_bytes(data, "big"), form)
    return _oddity(data, kind)


def _part(pattern: int, form: WordFormat) -> bool | int:
    if form.raw_type in _HALVES:
        shift, signed = _HALVES[form.raw_type]
        return int.from_bytes(bytes([pattern >> shift & 0xFF]), "big", signed=signed)
    start, width = form.field()
    part = pattern >> start & ((1 << width) - 1)
    return bool(part) if form.raw_type == "bit" else part


def _oddity(data: bytes, kind: str) -> bool | int | NotAValue:
    """The types in which some patterns mean nothing."""
    pattern = int.from_bytes(data, "big")
    if kind == "signmag16":
        return -(pattern & 0x7FFF) if pattern & 0x8000 else pattern
    if kind in _BCD and data.hex().isdecimal():
        return int(data.hex())
    if kind == "mod10k32":
        high, low = divmod(pattern, 1 << _WORD_BITS)
        if max(high, low) < _TEN_THOUSAND:
            return high * _TEN_THOUSAND + low
    if kind == "bool" and pattern <= 1:
        return bool(pattern)
    return NotAValue(StatusCode.BadDecodingError, f"{data.hex()} is no {kind}")


def _scaled(raw: float, form: WordFormat) -> Scalar | NotAValue:
    if form.plain:
        return raw
    value = Fraction(raw) * form.scale + form.offset
    if isinstance(raw, int) and form.scale.denominator == form.offset.denominator == 1:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return NotAValue(StatusCode.BadOutOfRange, "too large for a double")


def _unscaled(value: float | Fraction, form: WordFormat) -> Fraction:
    number = value if isinstance(value, Fraction) else exact(value)
    return (number - form.offset) / form.scale


def _float_bytes(value: float | Fraction, form: WordFormat, name: str) -> bytes:
    plain = form.plain and not isinstance(value, Fraction)
    try:
        # unscaled floats keep the sign of zero
        return struct.pack(_FLOATS[form.raw_type], float(value) if plain else float(_unscaled(value, form)))
    except OverflowError as exc:
        limit = {"float16": 65504, "float32": 2**128 - 2**104}.get(form.raw_type, 2**1024 - 2**971)
        raise RegisterRangeError(name, math.copysign(math.inf, value), -limit, limit) from exc


def _count_bytes(value: float | Fraction, form: WordFormat, name: str, current: int | None) -> bytes:
    wanted = _unscaled(value, form)
    raw = int(abs(wanted) + Fraction(1, 2)) * (1 if wanted >= 0 else -1)
    low, high = form.bounds() or (0, 0)
    if not low <= raw <= high:
        raise RegisterRangeError(name, float(value), low, high)
    kind = form.raw_type
    if kind in _PARTIAL:
        return _merged(raw, form, name, current)
    if kind in _BCD:
        return bytes.fromhex(f"{raw:0{_BCD[kind]}d}")
    if kind == "signmag16":
        return (abs(raw) | (0x8000 if raw < 0 else 0)).to_bytes(2, "big")
    if kind == "mod10k32":
        return struct.pack(">HH", *divmod(raw, _TEN_THOUSAND))
    return raw.to_bytes(2 * form.count, "big", signed=low < 0)


def _merged(raw: int, form: WordFormat, name: str, current: int | None) -> bytes:
    if current is None:
        raise ValueError(f"tag `{name}` shares its register: the register's content is needed to write it")
    start, width = (_HALVES[form.raw_type][0], 8) if form.raw_type in _HALVES else form.field()
    held = int.from_bytes(_natural([current], form), "big")
    mask = ((1 << width) - 1) << start
    return (held & ~mask & 0xFFFF | (raw << start & mask)).to_bytes(2, "big")

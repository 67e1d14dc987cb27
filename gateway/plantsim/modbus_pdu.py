"""One Modbus request to one response, without I/O (Modbus Application Protocol 1.1b3, chapter 6)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Protocol

_READ_BITS, _READ_WORDS = 2000, 125
_WRITE_BITS, _WRITE_WORDS, _READ_WRITE_WORDS = 1968, 123, 121
_COIL = {0x0000: 0, 0xFF00: 1}
_TABLE_SIZE = 0x10000
_MEI_IDENTIFICATION = 14
_BASIC_OBJECTS, _INDIVIDUAL = 3, 4


class Table(Enum):
    """The four tables of the data model."""

    COILS = "coils"
    DISCRETE = "discrete inputs"
    HOLDING = "holding registers"
    INPUT = "input registers"


class Code(IntEnum):
    """Exception codes."""

    ILLEGAL_FUNCTION = 1
    ILLEGAL_ADDRESS = 2
    ILLEGAL_VALUE = 3
    NO_SUCH_UNIT = 0x0B  # gateway target device failed to respond


class ModbusRefusalError(Exception):
    """A request answered with an exception response."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


class Unit(Protocol):
    """What a unit holds. An address it lacks is refused (`ILLEGAL_ADDRESS`) and then nothing is changed."""

    def read(self, table: Table, address: int, count: int) -> Sequence[int]:
        """That many bits or words."""
        ...

    def write(self, table: Table, address: int, values: Sequence[int]) -> None:
        """Take all values at once: nobody sees some of them."""
        ...


Identity = Mapping[int, bytes]  # object id -> value; 0 vendor, 1 product, 2 revision


def respond(unit: Unit | None, pdu: bytes, identity: Identity) -> bytes:
    """The response to one request PDU, which has at least its function code. Never raises."""
    function = pdu[0]
    if unit is None:
        return bytes((function | 0x80, Code.NO_SUCH_UNIT))
    try:
        return bytes((function,)) + _answer(unit, function, pdu[1:], identity)
    except ModbusRefusalError as exc:
        return bytes((function | 0x80, exc.code))


def _answer(unit: Unit, function: int, body: bytes, identity: Identity) -> bytes:
    if function in _READERS:
        return _read(unit, *_READERS[function], body)
    if function in _WRITERS:
        return _WRITERS[function](unit, body)
    if function == 0x2B:  # noqa: PLR2004  # encapsulated interface transport
        return _identify(body, identity)
    raise ModbusRefusalError(Code.ILLEGAL_FUNCTION)


def _read(unit: Unit, table: Table, most: int, body: bytes) -> bytes:
    address, count = _fields(">HH", body)
    _check_span(address, count, most)
    return _packed(table, unit.read(table, address, count))


def _write_coil(unit: Unit, body: bytes) -> bytes:
    address, value = _fields(">HH", body)
    if value not in _COIL:
        raise ModbusRefusalError(Code.ILLEGAL_VALUE)
    unit.write(Table.COILS, address, (_COIL[value],))
    return body


def _write_register(unit: Unit, body: bytes) -> bytes:
    address, value = _fields(">HH", body)
    unit.write(Table.HOLDING, address, (value,))
    return body


def _write_coils(unit: Unit, body: bytes) -> bytes:
    address, count, size = _head(">HHB", body)
    if size != (count + 7) // 8:
        raise ModbusRefusalError(Code.ILLEGAL_VALUE)
    bits = _trailing(body, 5, size)
    _check_span(address, count, _WRITE_BITS)
    unit.write(Table.COILS, address, [bits[index // 8] >> index % 8 & 1 for index in range(count)])
    return body[:4]


def _write_registers(unit: Unit, body: bytes) -> bytes:
    address, count, size = _head(">HHB", body)
    values = _words(body, 5, count, size)
    _check_span(address, count, _WRITE_WORDS)
    unit.write(Table.HOLDING, address, values)
    return body[:4]


def _mask_register(unit: Unit, body: bytes) -> bytes:
    address, keep, put = _fields(">HHH", body)
    (before,) = unit.read(Table.HOLDING, address, 1)
    unit.write(Table.HOLDING, address, ((before & keep) | (put & ~keep & 0xFFFF),))
    return body


def _read_write(unit: Unit, body: bytes) -> bytes:
    read_at, read_count, address, count, size = _head(">HHHHB", body)
    values = _words(body, 9, count, size)
    _check_span(read_at, read_count, _READ_WORDS)
    _check_span(address, count, _READ_WRITE_WORDS)
    unit.read(Table.HOLDING, read_at, read_count)  # refused before anything is written
    unit.write(Table.HOLDING, address, values)
    return _packed(Table.HOLDING, unit.read(Table.HOLDING, read_at, read_count))


def _identify(body: bytes, identity: Identity) -> bytes:
    """Read Device Identification: the basic objects, as a stream or one alone."""
    if not body or body[0] != _MEI_IDENTIFICATION:
        raise ModbusRefusalError(Code.ILLEGAL_FUNCTION)
    mei, wanted, first = _fields(">BBB", body)
    if not 1 <= wanted <= _INDIVIDUAL:
        raise ModbusRefusalError(Code.ILLEGAL_VALUE)
    if wanted == _INDIVIDUAL:
        if first not in identity:
            raise ModbusRefusalError(Code.ILLEGAL_ADDRESS)
        chosen = [first]
    else:  # a higher category than ours is answered with ours; an unknown start begins at 0
        start = first if first in identity else 0
        chosen = [number for number in sorted(identity) if start <= number < _BASIC_OBJECTS]
    objects = b"".join(bytes((number, len(identity[number]))) + identity[number] for number in chosen)
    return bytes((mei, wanted, 0x81, 0, 0, len(chosen))) + objects  # 0x81: basic, stream and individual


def _packed(table: Table, values: Sequence[int]) -> bytes:
    if table in {Table.HOLDING, Table.INPUT}:
        return struct.pack(f">B{len(values)}H", 2 * len(values), *values)
    octets = bytearray((len(values) + 7) // 8)
    for index, bit in enumerate(values):
        octets[index // 8] |= (bit & 1) << index % 8
    return bytes((len(octets),)) + bytes(octets)


def _fields(layout: str, body: bytes) -> tuple[int, ...]:
    if len(body) != struct.calcsize(layout):
        raise ModbusRefusalError(Code.ILLEGAL_VALUE)
    return struct.unpack(layout, body)


def _head(layout: str, body: bytes) -> tuple[int, ...]:
    if len(body) < struct.calcsize(layout):
        raise ModbusRefusalError(Code.ILLEGAL_VALUE)
    return struct.unpack_from(layout, body)


def _trailing(body: bytes, start: int, size: int) -> bytes:
    if len(body) != start + size:
        raise ModbusRefusalError(Code.ILLEGAL_VALUE)
    return body[start:]


def _words(body: bytes, start: int, count: int, size: int) -> tuple[int, ...]:
    if size != 2 * count:
        raise ModbusRefusalError(Code.ILLEGAL_VALUE)
    return struct.unpack(f">{count}H", _trailing(body, start, size))


def _check_span(address: int, count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise ModbusRefusalError(Code.ILLEGAL_VALUE)
    if address + count > _TABLE_SIZE:
        raise ModbusRefusalError(Code.ILLEGAL_ADDRESS)


_READERS = {
    1: (Table.COILS, _READ_BITS),
    2: (Table.DISCRETE, _READ_BITS),
    3: (Table.HOLDING, _READ_WORDS),
    4: (Table.INPUT, _READ_WORDS),
}
_WRITERS: dict[int, Callable[[Unit, bytes], bytes]] = {
    5: _write_coil,
    6: _write_register,
    15: _write_coils,
    16: _write_registers,
    22: _mask_register,
    23: _read_write,
}

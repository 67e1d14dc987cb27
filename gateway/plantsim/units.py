"""The soft PLC as Modbus units: 1 the PLC, 2 its local panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.plantsim.modbus_pdu import Code, ModbusRefusalError, Table, Unit
from gateway.plantsim.plc import BLOCK_ADDRESS, SoftPlc

PLC_UNIT = 1
PANEL_UNIT = 2
IDENTITY = {0: b"O3 Gateway", 1: b"O3-PLANTSIM", 2: b"1.0"}
_STATUS_BITS = 4
_PANEL_COILS = 2  # remote and freeze


def units_of(plc: SoftPlc) -> Mapping[int, Unit]:
    """Both units by unit id."""
    return {PLC_UNIT: _PlcUnit(plc), PANEL_UNIT: _PanelUnit(plc)}


class _PlcUnit:
    def __init__(self, plc: SoftPlc) -> None:
        self._plc = plc

    def read(self, table: Table, address: int, count: int) -> Sequence[int]:
        match table:
            case Table.INPUT:
                return _cut(self._plc.inputs, address, count)
            case Table.HOLDING:
                return _cut(self._plc.block, address - BLOCK_ADDRESS, count)
            case Table.DISCRETE:  # the status register's bits
                status = self._plc.inputs[1]
                return _cut([status >> bit & 1 for bit in range(_STATUS_BITS)], address, count)
            case Table.COILS:
                raise ModbusRefusalError(Code.ILLEGAL_ADDRESS)

    def write(self, table: Table, address: int, values: Sequence[int]) -> None:
        if table is not Table.HOLDING:
            raise ModbusRefusalError(Code.ILLEGAL_ADDRESS)
        _put(self._plc.block, address - BLOCK_ADDRESS, values)


class _PanelUnit:
    def __init__(self, plc: SoftPlc) -> None:
        self._plc = plc

    def read(self, table: Table, address: int, count: int) -> Sequence[int]:
        if table is Table.HOLDING:
            return _cut(self._plc.panel, address, count)
        if table is Table.COILS:
            return _cut([int(word != 0) for word in self._plc.panel[:_PANEL_COILS]], address, count)
        raise ModbusRefusalError(Code.ILLEGAL_ADDRESS)

    def write(self, table: Table, address: int, values: Sequence[int]) -> None:
        if table is Table.COILS:
            _cut(self._plc.panel[:_PANEL_COILS], address, len(values))
        elif table is not Table.HOLDING:
            raise ModbusRefusalError(Code.ILLEGAL_ADDRESS)
        _put(self._plc.panel, address, values)


def _cut(words: Sequence[int], start: int, count: int) -> Sequence[int]:
    if start < 0 or start + count > len(words):
        raise ModbusRefusalError(Code.ILLEGAL_ADDRESS)
    return words[start : start + count]


def _put(words: list[int], start: int, values: Sequence[int]) -> None:
    _cut(words, start, len(values))
    words[start : start + len(values)] = values

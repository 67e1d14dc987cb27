"""Tags from spreadsheets, and what the rest of the gateway is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from gateway.config.model import GatewayConfig, TagRow
from gateway.config.positions import Node, Position, PositionError
from gateway.core.tag import TagDefinition, TagId, TagKind

_INTEGER_BITS = {"int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64}
REGISTERS = {"bool": 1, "int16": 1, "uint16": 1, "int32": 2, "uint32": 2, "int64": 4, "uint64": 4} | {
    "float32": 2,
    "float64": 4,
}


def parse_csv(text: str) -> Node:
    """A table with a header row as a positioned list of rows; blank cells are left out.

    Comma, semicolon or tab separates, as the header does; `"` quotes; lines that begin with `#` are skipped.
    Raises `PositionError`.
    """
    lines = [
        (number, line)
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise PositionError(1, 1, "the table is empty; its first row names the columns")
    separator = max(",;\t", key=lines[0][1].count)
    header = list(_cells(*lines[0], separator))
    names = [name for name, _ in header]
    for index, (name, position) in enumerate(header):
        if not name or name in names[:index]:
            raise PositionError(*position, f"column `{name}` has no name or appears twice")
    rows = tuple(_row(names, number, line, separator) for number, line in lines[1:])
    return Node(value=rows, line=1, column=1)


def _row(names: list[str], number: int, line: str, separator: str) -> Node:
    cells = list(_cells(number, line, separator))
    if len(cells) > len(names):
        raise PositionError(*cells[len(names)][1], f"the row has more cells than the header's {len(names)}")
    filled = {
        name: Node(value=text, line=at[0], column=at[1])
        for name, (text, at) in zip(names, cells, strict=False)
        if text
    }
    keys = {name: at for name, (_, at) in zip(names, cells, strict=False)}
    return Node(value=filled, line=number, column=1, keys=keys)


def _cells(number: int, line: str, separator: str) -> Iterator[tuple[str, Position]]:
    at = 0
    while True:
        start = at
        if line.startswith('"', at):
            text, at = _quoted(number, line, at)
        else:
            end = line.find(separator, at)
            at = len(line) if end < 0 else end
            text = line[start:at].strip()
        yield text, (number, start + 1)
        if at >= len(line):
            return
        if line[at] != separator:
            raise PositionError(number, at + 1, "text stands behind a closing quote")
        at += 1


def _quoted(number: int, line: str, start: int) -> tuple[str, int]:
    parts: list[str] = []
    at = start + 1
    while True:
        end = line.find('"', at)
        if end < 0:
            raise PositionError(number, start + 1, "a quoted cell is not closed in its line")
        parts.append(line[at:end])
        if not line.startswith('""', end):
            return "".join(parts).strip(), end + 1
        parts.append('"')
        at = end + 2


def tag_kind(row: TagRow) -> TagKind:
    """Boolean for bool; integer for whole counts without unit, scale or offset; else real."""
    if row.type == "bool":
        return TagKind.BOOLEAN
    plain = row.scale == 1 and row.offset == 0 and not row.unit
    return TagKind.INTEGER if plain and row.type in _INTEGER_BITS else TagKind.REAL


def raw_range(row: TagRow) -> tuple[int, int] | None:
    """Register counts the type can carry; None for floating point."""
    if row.type == "bool":
        return 0, 1
    if row.type not in _INTEGER_BITS:
        return None
    bits = _INTEGER_BITS[row.type]
    return (0, (1 << bits) - 1) if row.type.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)


def tag_definition(row: TagRow) -> TagDefinition:
    """What the tag store, the checker and the northbound sides know of a tag."""
    eu_range = None
    if row.eu_low is not None and row.eu_high is not None:
        eu_range = Fraction(row.eu_low), Fraction(row.eu_high)
    return TagDefinition(
        id=TagId(row.id),
        kind=tag_kind(row),
        unit=row.unit,
        description=row.description,
        eu_range=eu_range,
        raw_type=row.type,
        raw_range=raw_range(row),
        scale=Fraction(row.scale),
        offset=Fraction(row.offset),
        deadband=Fraction(row.deadband),
        max_change=None if row.max_change is None else Fraction(row.max_change),
        writable=row.writable,
        protected=row.protected,
    )


def tag_definitions(config: GatewayConfig) -> list[TagDefinition]:
    """All tags of all devices, in the order of the files."""
    return [tag_definition(row) for c in config.channel for d in c.device for row in d.tags]

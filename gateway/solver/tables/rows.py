"""CSV tables read with their line numbers; what is wrong is told all at once, in the table's own words."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from gateway.config.problems import nearest
from gateway.core.errors import ConstraintError
from gateway.solver.errors import ModuleRefusedError

if TYPE_CHECKING:
    from _csv import Reader

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,47}")
_DELIMITERS = (",", ";", "\t")
_MOST_ROWS = 2_000
_MOST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: cells by the header's names, stripped."""

    line: int
    cells: Mapping[str, str]

    @property
    def id(self) -> str:
        """Its name."""
        return self.cells["row"]


@dataclass(slots=True)
class Table:
    """A table and what is wrong with it."""

    source: str
    header: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    problems: list[ConstraintError] = field(default_factory=list)

    def wrong(self, line: int, column: str, sentence: str) -> None:
        """A problem of one cell; the column is its place in the header."""
        place = self.header.index(column) + 1 if column in self.header else 1
        self.problems.append(ConstraintError(self.source, line, place, sentence))

    def refuse(self) -> NoReturn:
        """Raise every problem found."""
        raise ModuleRefusedError(tuple(sorted(self.problems, key=lambda p: (p.line, p.column))))


def read_table(data: bytes, source: str, needed: Sequence[str], known: Iterable[str] | None) -> Table:
    """The rows of a CSV file with a header; `known` None allows columns of any name.

    Comma, semicolon or tabulator, UTF-8 with or without a mark, as spreadsheets write. A problem's column
    counts cells. Raises `ModuleRefusedError` where nothing can be read at all.
    """
    table = Table(source)
    if len(data) > _MOST_BYTES:
        table.wrong(1, "", f"the table is longer than {_MOST_BYTES} bytes")
        table.refuse()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        table.wrong(data[: exc.start].count(b"\n") + 1, "", "the table is not UTF-8; save it as `CSV UTF-8`")
        table.refuse()
    reader = _cells(text, _delimiter(text, needed))
    try:
        _read(table, reader, needed, known)
    except csv.Error as exc:
        quote = (
            "; a quote that is not closed takes in all lines after it" if "end of data" in str(exc) else ""
        )
        table.wrong(reader.line_num, "", f"the table cannot be read: {exc}{quote}")
        table.refuse()
    return table


def _cells(text: str, delimiter: str) -> Reader:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)


def _delimiter(text: str, needed: Sequence[str]) -> str:
    """What the cells of the header lie between; a comma where no other makes them what is needed."""
    for delimiter in _DELIMITERS:
        try:
            header: list[str] = next(_cells(text, delimiter), [])
        except csv.Error:
            continue
        if set(needed) <= {cell.strip() for cell in header}:
            return delimiter
    return ";" if ";" in text.split("\n", 1)[0] else ","


def _read(
    table: Table, reader: Iterable[list[str]], needed: Sequence[str], known: Iterable[str] | None
) -> None:
    lines = iter(reader)
    table.header = tuple(_trimmed([cell.strip() for cell in next(lines, [])], 0))
    _judge_header(table, needed, known)
    if table.problems:
        table.refuse()
    seen: dict[str, int] = {}
    for number, found in enumerate(lines, start=2):
        line = getattr(reader, "line_num", number)
        if not any(cell.strip() for cell in found):
            continue
        if len(table.rows) >= _MOST_ROWS:
            table.wrong(line, "", f"the table has more than {_MOST_ROWS} rows")
            return
        cells = _trimmed(found, len(table.header))
        if len(cells) > len(table.header):
            table.wrong(line, "", f"the line has {len(cells)} cells and the header {len(table.header)}")
            continue
        filled = [cell.strip() for cell in cells] + [""] * (len(table.header) - len(cells))
        row = Row(line, dict(zip(table.header, filled, strict=True)))
        if not _ID.fullmatch(row.id):
            table.wrong(line, "row", f"`{row.id}` cannot name a row: a letter, then letters, digits, - and _")
        elif row.id in seen:
            table.wrong(line, "row", f"row `{row.id}` is already in line {seen[row.id]}")
        seen.setdefault(row.id, line)
        table.rows.append(row)


def _trimmed(cells: list[str], least: int) -> list[str]:
    """Without the blank cells at the end that spreadsheets leave behind, down to `least`."""
    count = len(cells)
    while count > least and not cells[count - 1].strip():
        count -= 1
    return cells[:count]


def _judge_header(table: Table, needed: Sequence[str], known: Iterable[str] | None) -> None:
    for name in needed:
        if name not in table.header:
            table.wrong(1, "", f"the header has no column `{name}`{nearest(name, table.header)}")
    for name in table.header:
        if not name or table.header.count(name) > 1:
            table.wrong(1, name, f"column `{name}` has no name of its own")
        elif known is not None and name not in (allowed := set(known)):
            table.wrong(1, name, f"`{name}` is no column of this table{nearest(name, allowed)}")

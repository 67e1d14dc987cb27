"""TOML read with the position of every key and value: values by tomllib, positions by tree-sitter."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal

import tree_sitter
import tree_sitter_toml

from gateway.config.positions import MAX_DEPTH, MAX_DIGITS, MAX_EXPONENT, Loc, Node, Position, PositionError

_LANGUAGE = tree_sitter.Language(tree_sitter_toml.language())
_WHERE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_KEY_TYPES = {"bare_key", "quoted_key", "dotted_key"}


def parse_toml(text: str) -> Node:
    """The document as positioned nodes; raises `PositionError` for what TOML 1.0 does not allow.

    Dates, infinities, NaN and numbers beyond any use are refused too: no setting takes them.
    """
    text = text.removeprefix("\ufeff")
    values = _values(text)
    try:
        return _Builder(_Places(text)).node(values, ())
    except RecursionError as exc:  # a dotted key of a thousand parts
        raise PositionError(1, 1, "the file is nested too deeply to be read") from exc


def _values(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as exc:
        found = _WHERE.search(str(exc))
        problem = _WHERE.sub("", str(exc))
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        if found and found[1]:
            line, column = int(found[1]), int(found[2])
        raise PositionError(line, column, problem[:1].lower() + problem[1:]) from exc
    except (RecursionError, ValueError) as exc:  # ValueError: an integer longer than Python will read
        raise PositionError(1, 1, f"the file cannot be read: {exc}") from exc


class _Places:
    """Where each loc of a document has its key and its value."""

    def __init__(self, text: str) -> None:
        self.keys: dict[Loc, Position] = {}
        self.values: dict[Loc, Position] = {}
        self._lines = text.encode().split(b"\n")
        self._lengths: dict[Loc, int] = {}  # of arrays of tables, so far
        root = tree_sitter.Parser(_LANGUAGE).parse(text.encode()).root_node
        self.values[()] = (1, 1)
        for child in root.named_children:
            if child.type == "pair":
                self._pair(child, (), 0)
            elif child.type in {"table", "table_array_element"}:
                self._table(child)

    def _position(self, node: tree_sitter.Node) -> Position:
        row, column_bytes = node.start_point
        return row + 1, len(self._lines[row][:column_bytes].decode(errors="replace")) + 1

    def _enter(self, loc: Loc, part: tree_sitter.Node) -> Loc:
        """`loc` extended by one key, and by the newest element where that key is an array of tables."""
        loc = (*loc, _key_text(part))
        self.keys.setdefault(loc, self._position(part))
        self.values.setdefault(loc, self._position(part))
        return (*loc, self._lengths[loc] - 1) if loc in self._lengths else loc

    def _table(self, table: tree_sitter.Node) -> None:
        header = next(c for c in table.named_children if c.type in _KEY_TYPES)
        parts = list(_key_parts(header))
        loc: Loc = ()
        for part in parts[:-1]:
            loc = self._enter(loc, part)
        array = (*loc, _key_text(parts[-1]))
        if table.type == "table_array_element":
            self._lengths[array] = self._lengths.get(array, 0) + 1
        loc = self._enter(loc, parts[-1])
        self.values.setdefault(loc, self._position(table))
        for child in table.named_children:
            if child.type == "pair":
                self._pair(child, loc, 0)

    def _pair(self, pair: tree_sitter.Node, loc: Loc, depth: int) -> None:
        key, *rest = [c for c in pair.named_children if c.type != "comment"]
        for part in _key_parts(key):
            loc = self._enter(loc, part)
        if rest:
            self._value(rest[0], loc, depth)

    def _value(self, value: tree_sitter.Node, loc: Loc, depth: int) -> None:
        self.values[loc] = self._position(value)
        if depth > MAX_DEPTH:
            raise PositionError(*self._position(value), f"values are nested deeper than {MAX_DEPTH} levels")
        members = [c for c in value.named_children if c.type != "comment"]
        if value.type == "array":
            for index, item in enumerate(members):
                self._value(item, (*loc, index), depth + 1)
        elif value.type == "inline_table":
            for member in members:
                self._pair(member, loc, depth + 1)


class _Builder:
    """Joins values with their places."""

    def __init__(self, places: _Places) -> None:
        self._places = places

    def node(self, value: object, loc: Loc) -> Node:
        line, column = self._places.values.get(loc) or self._places.values.get(loc[:-1], (1, 1))
        match value:
            case Mapping():
                members = {str(k): self.node(v, (*loc, str(k))) for k, v in value.items()}
                keys = {k: self._places.keys.get((*loc, k), (line, column)) for k in members}
                return Node(value=members, line=line, column=column, keys=keys)
            case list():
                items = tuple(self.node(v, (*loc, i)) for i, v in enumerate(value))
                return Node(value=items, line=line, column=column)
            case bool() | str():
                return Node(value=value, line=line, column=column)
            case int() | Decimal():
                if not _affordable(value):
                    raise PositionError(line, column, f"`{str(value)[:40]}` is no number a setting can take")
                return Node(value=value, line=line, column=column)
            case _:
                raise PositionError(line, column, f"`{value}`: dates and times are not used here")


def _affordable(value: int | Decimal) -> bool:
    if isinstance(value, int):
        return value.bit_length() < MAX_DIGITS * 3
    _, digits, exponent = value.as_tuple()
    return value.is_finite() and len(digits) <= MAX_DIGITS and abs(int(exponent)) <= MAX_EXPONENT


def _key_parts(key: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The bare and quoted keys of a possibly dotted key, left to right."""
    if key.type != "dotted_key":
        yield key
        return
    for child in key.named_children:
        if child.type in _KEY_TYPES:
            yield from _key_parts(child)


def _key_text(key: tree_sitter.Node) -> str:
    text = (key.text or b"").decode()
    return next(iter(tomllib.loads(f"{text} = 0"))) if key.type == "quoted_key" else text

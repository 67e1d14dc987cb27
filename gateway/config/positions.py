"""JSON read with the position of every key and value, and with exact numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from gateway.core.errors import GatewayError

Leaf = str | int | Decimal | bool | None
Loc = tuple[str | int, ...]
Position = tuple[int, int]

MAX_DEPTH = 64  # deeper than any file a person writes; keeps a hostile one off the stack
MAX_DIGITS = 400  # more than any physical constant; keeps exact arithmetic affordable
MAX_EXPONENT = 308


class PositionError(GatewayError):
    """A text is not what its format allows: where (1-based line and column), and why."""

    def __init__(self, line: int, column: int, problem: str) -> None:
        super().__init__(f"line {line}, column {column}: {problem}")
        self.line, self.column, self.problem = line, column, problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One value of a document and where it stands; `keys` tells where each key of an object stands."""

    value: Leaf | tuple[Node, ...] | Mapping[str, Node]
    line: int
    column: int
    keys: Mapping[str, Position] = field(default_factory=dict)

    def plain(self) -> object:
        """The same as ordinary Python data: dict, list, str, int, Decimal, bool, None."""
        match self.value:
            case tuple() as items:
                return [item.plain() for item in items]
            case Mapping() as members:
                return {key: member.plain() for key, member in members.items()}
            case leaf:
                return leaf

    def get(self, loc: Loc) -> Node:
        """The deepest value on the way to `loc`: `loc` itself where it exists, else its nearest parent.

        Steps that are no part of the document (pydantic names union members so) are passed over.
        """
        node = self
        for step in loc:
            match node.value:
                case tuple() as items if isinstance(step, int) and 0 <= step < len(items):
                    node = items[step]
                case Mapping() as members if isinstance(step, str) and step in members:
                    node = members[step]
                case _:
                    continue
        return node

    def at(self, loc: Loc) -> Position:
        """Line and column of the value at `loc`, or of its nearest parent."""
        node = self.get(loc)
        return node.line, node.column

    def key_at(self, loc: Loc) -> Position:
        """Line and column of the key that ends `loc`; of the value where no key does."""
        if loc and isinstance(loc[-1], str):
            found = self.get(loc[:-1]).keys.get(loc[-1])
            if found is not None:
                return found
        return self.at(loc)


class Lines:
    """Offsets of a text as 1-based line and column, in characters."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(m.end() for m in re.finditer(r"\r\n|\n|\r", text))]

    def position(self, offset: int) -> Position:
        """Line and column of a character offset. O(log lines)."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def exact_number(text: str) -> int | Decimal | None:
    """The number a decimal text stands for, exactly; None when it is too long or too large to carry."""
    mantissa, _, exponent = text.lower().partition("e")
    if sum(c.isdigit() for c in mantissa) > MAX_DIGITS:
        return None
    if exponent and (len(exponent) > len("-9999") or abs(int(exponent)) > MAX_EXPONENT):
        return None
    if exponent or "." in mantissa:
        return Decimal(text)
    return int(mantissa)


def parse_json(text: str) -> Node:
    """The document as positioned nodes.

    Raises `PositionError` for anything RFC 8259 does not allow, and for duplicate keys, NaN, infinities,
    lone surrogates, text after the value, and numbers or nesting beyond any use.
    """
    return _JsonScanner(text).document()


_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[-+]?[A-Za-z_][A-Za-z_0-9]*|[-+]?[0-9][0-9A-Za-z_.+-]*|.", re.DOTALL)
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_HEX4 = re.compile(r"[0-9A-Fa-f]{4}")
_HIGH, _LOW, _END = 0xD800, 0xDC00, 0xE000  # UTF-16 surrogates
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}


class _JsonScanner:
    """One pass over one text; `_at` is the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0  # RFC 8259, 8.1: a parser may ignore a mark
        self._lines = Lines(text)

    def document(self) -> Node:
        node = self._value(depth=0)
        self._blanks()
        if self._at < len(self._text):
            raise self._error(f"`{self._word()}` stands after the end of the value")
        return node

    def _error(self, problem: str, at: int | None = None) -> PositionError:
        return PositionError(*self._lines.position(self._at if at is None else at), problem)

    def _blanks(self) -> None:
        match = _BLANK.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _word(self) -> str:
        match = _WORD.match(self._text, self._at)
        return match.group()[:40] if match else "end of file"

    def _peek(self) -> str:
        self._blanks()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self._error(f"values are nested deeper than {MAX_DEPTH} levels")
        match self._peek():
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case '"':
                line, column = self._lines.position(self._at)
                return Node(value=self._string(), line=line, column=column)
            case "":
                raise self._error("the file ends where a value is expected")
            case _:
                return self._scalar()

    def _scalar(self) -> Node:
        line, column = self._lines.position(self._at)
        word = self._word()
        if word in _WORDS:
            self._at += len(word)
            return Node(value=_WORDS[word], line=line, column=column)
        match = _NUMBER.match(self._text, self._at)
        end = match.end() if match else self._at
        if match is None or re.match(r"[0-9A-Za-z_.+-]", self._text[end : end + 1]):
            raise self._error(f"`{word}` is not a JSON value")
        number = exact_number(match.group())
        if number is None:
            raise self._error(f"the number `{word}` has too many digits or too large an exponent")
        self._at = end
        return Node(value=number, line=line, column=column)

    def _object(self, depth: int) -> Node:
        line, column = self._lines.position(self._at)
        self._at += 1
        members: dict[str, Node] = {}
        keys: dict[str, Position] = {}
        while self._peek() != "}" or members:
            if self._peek() != '"':
                raise self._error(f"expected a key in double quotes, found `{self._word()}`")
            start = self._at
            key = self._string()
            if key in members:
                first = keys[key][0]
                raise self._error(f"key `{key}` appears twice (first on line {first})", start)
            keys[key] = self._lines.position(start)
            if self._peek() != ":":
                raise self._error(f"expected `:` after key `{key}`, found `{self._word()}`")
            self._at += 1
            members[key] = self._value(depth + 1)
            if self._ends("}"):
                break
        else:
            self._at += 1
        return Node(value=members, line=line, column=column, keys=keys)

    def _array(self, depth: int) -> Node:
        line, column = self._lines.position(self._at)
        self._at += 1
        items: list[Node] = []
        while self._peek() != "]" or items:
            items.append(self._value(depth + 1))
            if self._ends("]"):
                break
        else:
            self._at += 1
        return Node(value=tuple(items), line=line, column=column)

    def _ends(self, close: str) -> bool:
        """Take a comma (False: another member follows) or the closing bracket (True)."""
        found = self._peek()
        if found not in {",", close} or not found:
            raise self._error(f"expected `,` or `{close}`, found `{self._word()}`")
        comma = self._at
        self._at += 1
        if found == "," and self._peek() == close:
            raise self._error(f"a comma stands directly before `{close}`", comma)
        return found == close

    def _string(self) -> str:
        start = self._at
        self._at += 1
        parts: list[str] = []
        while True:
            match = _PLAIN.match(self._text, self._at)
            if match:
                parts.append(match.group())
                self._at = match.end()
            stop = self._text[self._at : self._at + 1]
            if stop == '"':
                self._at += 1
                return "".join(parts)
            if stop == "\\":
                parts.append(self._escape())
            elif stop:
                raise self._error("a text holds a line break or control character; write it as an escape")
            else:
                raise self._error("a text is not closed with a double quote", start)

    def _escape(self) -> str:
        at = self._at
        letter = self._text[at + 1 : at + 2]
        if letter in _ESCAPES:
            self._at += 2
            return _ESCAPES[letter]
        if letter != "u":
            raise self._error(f"`\\{letter}` is not a JSON escape")
        code = self._hex(at)
        self._at += 6
        if _HIGH <= code < _LOW and self._text.startswith("\\u", self._at):
            low = self._hex(self._at)
            if _LOW <= low < _END:
                self._at += 6
                return chr(0x10000 + ((code - _HIGH) << 10) + (low - _LOW))
        if _HIGH <= code < _END:
            raise self._error("half of a surrogate pair stands alone", at)
        return chr(code)

    def _hex(self, at: int) -> int:
        match = _HEX4.match(self._text, at + 2)
        if match is None:
            raise self._error("`\\u` needs four hexadecimal digits", at)
        return int(match.group(), 16)

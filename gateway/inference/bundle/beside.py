"""Which files beside a graph hold its weights: read from the graph itself, without a parser for all of it.

A graph is a Protocol Buffers message (onnx.proto). Weights kept beside it are entries with the key `location`
of a tensor, and tensors stand in several places, in graphs within graphs too. Only messages that contain that
word are looked into, so the time does not grow with a model's weights.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

_LOCATION = b"location"
_PIECE = 1 << 20
_MOST_PARTS = 500_000  # of the messages looked into: a second or two
_LONGEST_NAME = 1024

# By kind of message, what its fields are (onnx.proto, IR version 11); others hold no tensor.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {1: "key", 2: "value"},
}
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5  # wire types; groups (3, 4) are in no such message


class NoGraphError(ValueError):
    """The file is no such message."""


def external_files(file: BinaryIO) -> list[str]:
    """Names of the files in which a graph keeps weights, each once; raises `NoGraphError`."""
    found = _places(file)
    if not found:
        return []
    return list(dict.fromkeys(_Walk(file, found).names()))


def external_files_of(model: Path) -> list[str]:
    """The same of a file by its path; raises `OSError`, too."""
    with model.open("rb") as file:
        return external_files(file)


def _places(file: BinaryIO) -> list[int]:
    """Where the word stands, in ascending order."""
    places: list[int] = []
    held, begin = b"", 0  # the end of the piece before, and where it begins
    file.seek(0)
    while piece := file.read(_PIECE):
        whole, at = held + piece, -1
        while (at := whole.find(_LOCATION, at + 1)) >= 0:
            places.append(begin + at)
            if len(places) > _MOST_PARTS:
                _refuse_many()
        held = whole[-len(_LOCATION) + 1 :]
        begin += len(whole) - len(held)
    return places


class _Walk:
    """Through the messages that contain the word."""

    def __init__(self, file: BinaryIO, places: list[int]) -> None:
        self._file, self._places = file, places
        self._left = _MOST_PARTS

    def names(self) -> Iterator[str]:
        """What the entries say; all of them, where one says it twice."""
        end = self._file.seek(0, 2)
        todo = [("model", 0, end)]
        while todo:
            kind, begin, end = todo.pop()
            inner = list(self._messages(_FIELDS[kind], begin, end))
            if kind != "entry":
                todo += (part for part in inner if self._has_word(part[1], part[2]))
            elif any(part == "key" and self._text(at, till) == _LOCATION for part, at, till in inner):
                for part, at, till in inner:
                    if part == "value":
                        yield self._text(at, till).decode("utf-8", "replace")

    def _messages(self, wanted: dict[int, str], begin: int, end: int) -> Iterator[tuple[str, int, int]]:
        """Kind, begin and end of each wanted field between two places."""
        file = self._file
        at = begin
        while at < end:
            self._left -= 1
            if self._left < 0:
                _refuse_many()
            file.seek(at)
            tag = self._varint() & 0xFFFFFFFF  # as the runtime's parser cuts it
            kind = tag & 7
            if kind == _VARINT:
                self._varint()
                at = file.tell()
            elif kind in {_EIGHT, _FOUR}:
                at = file.tell() + (8 if kind == _EIGHT else 4)
            elif kind == _LENGTH:
                length = self._varint()
                first = file.tell()
                at = first + length
                if at <= end and (name := wanted.get(tag >> 3)) is not None:
                    yield name, first, at
            else:
                message = f"there is no field of wire type {kind} in a graph"
                raise NoGraphError(message)
        if at != end:
            message = "a part of it ends where it should not"
            raise NoGraphError(message)

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:  # noqa: PLR2004  ten bytes of seven bits
            byte = self._file.read(1)
            if not byte:
                message = "it ends in the middle"
                raise NoGraphError(message)
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:  # noqa: PLR2004  the last byte of a number
                return value
            shift += 7
        message = "a number in it does not end"
        raise NoGraphError(message)

    def _has_word(self, begin: int, end: int) -> bool:
        at = bisect_left(self._places, begin)
        return at < len(self._places) and self._places[at] + len(_LOCATION) <= end

    def _text(self, begin: int, end: int) -> bytes:
        if end - begin > _LONGEST_NAME:
            message = f"a file beside it has a name of {end - begin} bytes"
            raise NoGraphError(message)
        self._file.seek(begin)
        return self._file.read(end - begin)


def _refuse_many() -> NoReturn:
    message = f"it has more than {_MOST_PARTS} places in which weights beside it may be named"
    raise NoGraphError(message)

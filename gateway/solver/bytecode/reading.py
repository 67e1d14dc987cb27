"""Bounded reading of a file's bytes: nothing is believed, and every refusal knows its byte."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

from gateway.solver.bytecode.opcodes import MAX_ITEMS, MAX_RATIO

T = TypeVar("T")
_NEGATIVE = 1 << 15


class BadBytesError(Exception):
    """The bytes at an offset are not what the format allows; `problem` is a sentence."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.offset, self.problem = offset, problem


@dataclass(slots=True)
class Allowance:
    """How many items of lists may still be read from one file: it bounds the memory they take."""

    items: int = MAX_ITEMS


@dataclass(slots=True)
class Reader:
    """One part of a file, `at` the next byte; it never reads at or beyond `end`."""

    data: bytes
    at: int
    end: int
    allowance: Allowance = field(default_factory=Allowance)

    def take(self, count: int, what: str) -> bytes:
        """The next bytes."""
        if count > self.end - self.at:
            left = self.end - self.at
            raise BadBytesError(
                self.at, f"{what} needs {count} bytes and {left} are left in its part of the file"
            )
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, size: int, what: str, most: int | None = None, least: int = 0) -> int:
        """An unsigned integer of `size` bytes from `least` to `most`."""
        start = self.at
        found = int.from_bytes(self.take(size, what))
        if found < least or (most is not None and found > most):
            wanted = f"{least} to {most}" if most is not None else f"at least {least}"
            raise BadBytesError(start, f"{what} is {found}; it can be {wanted}")
        return found

    def index(self, size: int, what: str, count: int) -> int:
        """An index into a list of `count` items."""
        start = self.at
        found = int.from_bytes(self.take(size, what))
        if found >= count:
            raise BadBytesError(start, f"{what} is number {found} of {count}, counted from 0")
        return found

    def choice(self, what: str, among: tuple[T, ...]) -> T:
        """One of a few things, coded as its place."""
        return among[self.index(1, what, len(among))]

    def flag(self, what: str) -> bool:
        """0 or 1."""
        return self.number(1, what, 1) == 1

    def text(self, what: str) -> str:
        """A text of at most 65 535 bytes."""
        start = self.at
        data = self.take(self.number(2, f"the length of {what}"), what)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise BadBytesError(start, f"{what} is not UTF-8 text") from None

    def ratio(self, what: str) -> Fraction:
        """An exact number in lowest terms, each part in as few bytes as it needs."""
        start = self.at
        negative, top = self._part(what, signed=True)
        _, bottom = self._part(what, signed=False)
        if not bottom or (negative and not top) or math.gcd(top, bottom) != 1:
            raise BadBytesError(start, f"{what} is not a ratio in lowest terms")
        return Fraction(-top if negative else top, bottom)

    def _part(self, what: str, *, signed: bool) -> tuple[bool, int]:
        start = self.at
        size = self.number(2, f"the length of {what}")
        negative = signed and bool(size & _NEGATIVE)
        size -= _NEGATIVE if negative else 0
        if size > MAX_RATIO:
            raise BadBytesError(start, f"{what} has {size} bytes; a number has at most {MAX_RATIO}")
        data = self.take(size, what)
        if data[:1] == b"\0":
            raise BadBytesError(start, f"{what} is spelled with needless zeros")
        return negative, int.from_bytes(data)

    def maybe(self, what: str, read: Callable[[str], T]) -> T | None:
        """What is there, or None."""
        return read(what) if self.flag(f"whether there is {what}") else None

    def many(self, what: str, read: Callable[[], T], most: int | None = None) -> tuple[T, ...]:
        """A list; what all lists of a file hold together is bounded."""
        start = self.at
        count = self.number(2, f"the number of {what}", most)
        self.allowance.items -= count
        if self.allowance.items < 0:
            raise BadBytesError(start, f"the file lists more than {MAX_ITEMS} things")
        return tuple(read() for _ in range(count))

    def done(self, what: str) -> None:
        """Raises where bytes are left."""
        if self.at != self.end:
            raise BadBytesError(self.at, f"{self.end - self.at} bytes are left over at the end of {what}")

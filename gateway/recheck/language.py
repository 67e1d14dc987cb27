"""The expression language, read a second time: a Pratt parser that builds functions over exact rationals.

It shares no code with the compiler on purpose (S7): a fault in one of the two shows as a difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

Value = Fraction | bool
Environment = Mapping[str, Fraction]  # `level`, `prev pump`, `rate pump`; booleans are 0 or 1
Evaluate = Callable[[Environment], Value]

_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|[A-Za-z_]\w*|<=|>=|==|!=|[-+*/(),<>]|$)")
_POWER = {"iff": 1, "implies": 2, "or": 3, "and": 4}
_NOT, _COMPARE, _SUM, _PRODUCT, _SIGN = 5, 6, 7, 8, 9
_COMPARISONS = {"<=", "<", ">=", ">", "==", "!="}
_MAX_DEPTH = 60


class LanguageError(ValueError):
    """A text that this reader does not understand; nothing may be concluded from it."""


@dataclass(slots=True)
class _Reader:
    words: list[str]
    names: Mapping[str, str]  # the module's name -> the environment's
    at: int = 0
    depth: int = 0

    def peek(self) -> str:
        return self.words[self.at]

    def take(self, expected: str = "") -> str:
        word = self.words[self.at]
        if expected and word != expected:
            raise LanguageError(f"expected `{expected}`, found `{word}`")
        self.at += 1
        return word

    def expression(self, power: int = 0) -> Evaluate:
        """An expression whose operators all bind tighter than `power`."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise LanguageError("nested too deeply")
        left = self._prefix()
        while True:
            word = self.peek()
            if word in _POWER and _POWER[word] > power:
                self.take()
                right = self.expression(_POWER[word] - (word == "implies"))
                left = _logic(word, left, right)
            elif word in _COMPARISONS and power < _COMPARE:
                left = self._chain(left)
            elif word == "in" and power < _COMPARE:
                left = self._member(left)
            elif word in {"+", "-"} and power < _SUM:
                self.take()
                left = _arithmetic(word, left, self.expression(_SUM))
            elif word in {"*", "/"} and power < _PRODUCT:
                self.take()
                left = _arithmetic(word, left, self.expression(_PRODUCT))
            else:
                self.depth -= 1
                return left

    def _prefix(self) -> Evaluate:
        word = self.take()
        if word == "-":
            inner = self.expression(_SIGN)
            return lambda env: -number(inner(env))
        if word == "not":
            negated = self.expression(_NOT - 1)
            return lambda env: not truth(negated(env))
        if word == "(":
            grouped = self.expression()
            self.take(")")
            return grouped
        return self._atom(word)

    def _atom(self, word: str) -> Evaluate:
        if word in {"true", "false"} or word[:1].isdigit():
            constant = Fraction(word) if word[:1].isdigit() else word == "true"
            return lambda _env: constant
        if word in {"abs", "min", "max"}:
            return self._function(word)
        if word in {"prev", "rate"}:
            self.take("(")
            name = f"{word} {self._name(self.take())}"
            self.take(")")
            return lambda env: env[name]
        own = self._name(word)
        return lambda env: env[own]

    def _name(self, word: str) -> str:
        if word not in self.names:
            raise LanguageError(f"`{word}` is not known")
        return self.names[word]

    def _function(self, word: str) -> Evaluate:
        self.take("(")
        parts = [self.expression()]
        while self.peek() == ",":
            self.take()
            parts.append(self.expression())
        self.take(")")
        if word == "abs":
            if len(parts) != 1:
                raise LanguageError("abs takes one value")
            return lambda env: abs(number(parts[0](env)))
        choose = min if word == "min" else max
        return lambda env: choose(number(part(env)) for part in parts)

    def _chain(self, first: Evaluate) -> Evaluate:
        signs: list[str] = []
        parts = [first]
        while self.peek() in _COMPARISONS:
            signs.append(self.take())
            parts.append(self.expression(_COMPARE))
        return lambda env: _ordered(signs, [number(part(env)) for part in parts])

    def _member(self, left: Evaluate) -> Evaluate:
        self.take("in")
        self.take("(")
        allowed: set[Fraction] = set()
        while True:
            sign = -1 if self.peek() == "-" and self.take() else 1
            allowed.add(sign * Fraction(self.take()))
            if self.peek() != ",":
                break
            self.take()
        self.take(")")
        return lambda env: number(left(env)) in allowed


def read(text: str, names: Mapping[str, str]) -> Evaluate:
    """The function a text stands for; raises `LanguageError`."""
    words: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise LanguageError(f"`{text[at : at + 10]}` is not part of the language")
        words.append(match[1])
        at = match.end()
    reader = _Reader([*words, ""], names)
    found = reader.expression()
    if reader.peek():
        raise LanguageError(f"`{reader.peek()}` is not expected here")
    return found


def number(value: Value) -> Fraction:
    """A value as a number: true counts as 1."""
    return Fraction(value)


def truth(value: Value) -> bool:
    """A value as a condition."""
    return bool(value)


def _logic(word: str, left: Evaluate, right: Evaluate) -> Evaluate:
    if word == "and":
        return lambda env: truth(left(env)) and truth(right(env))
    if word == "or":
        return lambda env: truth(left(env)) or truth(right(env))
    if word == "implies":
        return lambda env: not truth(left(env)) or truth(right(env))
    return lambda env: truth(left(env)) == truth(right(env))


def _arithmetic(word: str, left: Evaluate, right: Evaluate) -> Evaluate:
    if word == "+":
        return lambda env: number(left(env)) + number(right(env))
    if word == "-":
        return lambda env: number(left(env)) - number(right(env))
    if word == "*":
        return lambda env: number(left(env)) * number(right(env))
    return lambda env: number(left(env)) / number(right(env))


def _ordered(signs: list[str], values: list[Fraction]) -> bool:
    for sign, low, high in zip(signs, values, values[1:], strict=False):
        order = (low > high) - (low < high)
        good = {"<=": order <= 0, "<": order < 0, ">=": order >= 0, ">": order > 0, "==": not order}
        if not good.get(sign, bool(order)):
            return False
    return True

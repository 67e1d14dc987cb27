"""Rules as statements about straight sums of what is unknown: for linear rules, and nothing is rounded.

A number is a sum, or a choice among numbers (`max`, `min`, `if`); a comparison of it becomes a statement made
of sums that are at most, or less than, 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.tree import READS, LanguageError, Node

_MOST_SUMS = 512
_MEDIAN_OF = 3


class NotLinearError(LanguageError):
    """A rule that is no statement about straight sums, or about too many of them."""


@dataclass(frozen=True, slots=True)
class Sum:
    """`constant + sum of multiplier * unknown`."""

    constant: Fraction
    terms: Mapping[str, Fraction] = field(default_factory=dict)

    def plus(self, other: Sum, times: Fraction = Fraction(1)) -> Sum:
        """This sum and so many times the other."""
        terms = dict(self.terms)
        for name, multiplier in other.terms.items():
            terms[name] = terms.get(name, Fraction(0)) + times * multiplier
        return Sum(
            self.constant + times * other.constant,
            {name: multiplier for name, multiplier in terms.items() if multiplier},
        )

    def scaled(self, times: Fraction) -> Sum:
        """So many times this sum."""
        return Sum(Fraction(0)).plus(self, times)

    def range(self, box: Mapping[str, tuple[Fraction, Fraction]]) -> tuple[Fraction, Fraction]:
        """Least and greatest value over a box."""
        low = high = self.constant
        for name, multiplier in self.terms.items():
            ends = sorted(multiplier * end for end in box[name])
            low, high = low + ends[0], high + ends[1]
        return low, high


@dataclass(frozen=True, slots=True)
class Below:
    """A sum is at most 0, or less where `strict`."""

    sum: Sum
    strict: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """All of the parts hold, or any of them."""

    how: str  # `all`, `any`
    parts: tuple[Statement, ...]


Statement = Below | Joined | bool


@dataclass(frozen=True, slots=True)
class Choice:
    """The greatest or the least of numbers, or by `asked` the first or the second."""

    how: str
    parts: tuple[Sum | Choice, ...]
    asked: Statement | None = None


Numeric = Sum | Choice
Known = Callable[[str, str], Sum]


def all_of(parts: Sequence[Statement]) -> Statement:
    """All of the parts, without what is settled."""
    left = [part for part in parts if part is not True]
    if any(part is False for part in left):
        return False
    return left[0] if len(left) == 1 else (Joined("all", tuple(left)) if left else True)


def any_of(parts: Sequence[Statement]) -> Statement:
    """Any of the parts, without what is settled."""
    return negated(all_of([negated(part) for part in parts]))


def negated(statement: Statement) -> Statement:
    """The contrary."""
    if isinstance(statement, bool):
        return not statement
    if isinstance(statement, Below):
        return Below(statement.sum.scaled(Fraction(-1)), not statement.strict)
    turned = tuple(negated(part) for part in statement.parts)
    return Joined("any" if statement.how == "all" else "all", turned)


def opened(parts: Sequence[Statement], how: str = "all") -> list[Statement]:
    """Parts of parts that are joined the same way."""
    found: list[Statement] = []
    for part in parts:
        found += part.parts if isinstance(part, Joined) and part.how == how else [part]
    return found


def shortened(wanted: Statement, box: Mapping[str, tuple[Fraction, Fraction]]) -> Statement:
    """A statement without what the ends of the intervals settle."""
    if isinstance(wanted, Below):
        low, high = wanted.sum.range(box)
        if high < 0 or (high == 0 and not wanted.strict):
            return True
        return wanted if low < 0 or (low == 0 and not wanted.strict) else False
    if isinstance(wanted, Joined):
        parts = opened([shortened(part, box) for part in wanted.parts], wanted.how)
        return all_of(parts) if wanted.how == "all" else any_of(parts)
    return wanted


def statement_of(node: Node, known: Known) -> Statement:
    """What a condition says, where `known` gives the sum of what is read; raises `NotLinearError`."""
    if node.op == "truth":
        return bool(node.constant)
    if node.op in READS:
        return _on(known(node.op, node.name))
    if node.op == "compare":
        numbers = [numeric_of(part, known) for part in node.parts]
        pairs = zip(node.signs, numbers, numbers[1:], strict=False)
        return all_of([_ordered(sign, a, b) for sign, a, b in pairs])
    if node.op == "in":
        value = numeric_of(node.parts[0], known)
        return any_of([_ordered("==", value, Sum(Fraction(constant))) for constant in node.among])
    return _connected(node, known)


def _connected(node: Node, known: Known) -> Statement:
    if node.op in {"at_most", "exactly"}:
        sign = "<=" if node.op == "at_most" else "=="
        return _ordered(sign, _count(node.parts, known), Sum(node.constant))
    parts = [statement_of(part, known) for part in node.parts]
    if node.op in {"implies", "iff", "if"}:
        return _logic(node.op, parts)
    if node.op == "not":
        return negated(parts[0])
    if node.op == "for" and node.row is not None:
        return all_of([*parts, _on(known("for", node.row.name))])
    return all_of(parts) if node.op == "and" else any_of(parts)


def numeric_of(node: Node, known: Known) -> Numeric:
    """What a number is; raises `NotLinearError`."""
    if node.op == "number":
        return Sum(node.constant)
    if node.op in READS:
        return known(node.op, node.name)
    if node.op == "count":
        return _count(node.parts, known)
    if node.op == "if":
        asked = statement_of(node.parts[0], known)
        return _choice("if", [numeric_of(part, known) for part in node.parts[1:]], asked)
    return _calculated(node.op, [numeric_of(part, known) for part in node.parts])


def _calculated(op: str, parts: Sequence[Numeric]) -> Numeric:
    if op in {"min", "max"}:
        return _choice(op, parts)
    if op in {"*", "/"}:
        return _product(op, *parts)
    minus = scaled(parts[-1], Fraction(-1))
    if op in {"neg", "abs"}:
        return minus if op == "neg" else _choice("max", [parts[0], minus])
    if op == "median":
        return _median(parts)
    return _total([parts[0], minus] if op == "-" else parts)


def added(left: Numeric, right: Numeric) -> Numeric:
    """The sum of two numbers."""
    if isinstance(left, Choice):
        return _choice(left.how, [added(part, right) for part in left.parts], left.asked)
    if isinstance(right, Choice):
        return _choice(right.how, [added(left, part) for part in right.parts], right.asked)
    return left.plus(right)


def scaled(number: Numeric, times: Fraction) -> Numeric:
    """So many times a number."""
    if isinstance(number, Sum):
        return number.scaled(times)
    turned = {"max": "min", "min": "max"} if times < 0 else {}
    parts = [scaled(part, times) for part in number.parts]
    return _choice(turned.get(number.how, number.how), parts, number.asked)


def _choice(how: str, parts: Sequence[Numeric], asked: Statement | None = None) -> Numeric:
    if how == "if" and isinstance(asked, bool):
        return parts[0] if asked else parts[1]
    found = Choice(how, tuple(parts), asked)
    if _leaves(found) > _MOST_SUMS:
        raise NotLinearError("too many sums")
    return found


def _leaves(number: Numeric) -> int:
    return 1 if isinstance(number, Sum) else sum(map(_leaves, number.parts))


def _total(parts: Sequence[Numeric]) -> Numeric:
    total: Numeric = Sum(Fraction(0))
    for part in parts:
        total = added(total, part)
    return total


def _count(parts: Sequence[Node], known: Known) -> Numeric:
    one, none = Sum(Fraction(1)), Sum(Fraction(0))
    return _total([_choice("if", [one, none], statement_of(part, known)) for part in parts])


def _median(parts: Sequence[Numeric]) -> Numeric:
    if len(parts) == 1:
        return parts[0]
    if len(parts) != _MEDIAN_OF:
        raise NotLinearError("a median of more than three")
    pairs = [_choice("max", pair) for pair in itertools.combinations(parts, 2)]
    return _choice("min", pairs)


def _product(op: str, left: Numeric, right: Numeric) -> Numeric:
    if op == "*" and isinstance(left, Sum) and not left.terms:
        left, right = right, left
    if not isinstance(right, Sum) or right.terms or (op == "/" and not right.constant):
        raise NotLinearError("a product or a quotient of what is unknown")
    return scaled(left, right.constant if op == "*" else 1 / right.constant)


def _logic(op: str, parts: Sequence[Statement]) -> Statement:
    first, second = parts[0], parts[1]
    if op == "implies":
        return any_of([negated(first), second])
    third = parts[2] if op == "if" else negated(second)
    return any_of([all_of([first, second]), all_of([negated(first), third])])


def _on(value: Sum) -> Statement:
    """Whether a boolean is on; what it is must be settled."""
    if value.terms:
        raise NotLinearError("a boolean that is not settled")
    return bool(value.constant)


def _ordered(sign: str, left: Numeric, right: Numeric) -> Statement:
    if sign in {">", ">="}:
        left, right, sign = right, left, {">": "<", ">=": "<="}[sign]
    if sign == "==":
        return all_of([_ordered("<=", left, right), _ordered("<=", right, left)])
    if sign == "!=":
        return negated(_ordered("==", left, right))
    return _below(added(left, scaled(right, Fraction(-1))), strict=sign == "<")


def _below(number: Numeric, *, strict: bool) -> Statement:
    if isinstance(number, Sum):
        if number.terms:
            return Below(number, strict)
        return number.constant < 0 or (number.constant == 0 and not strict)
    parts = [_below(part, strict=strict) for part in number.parts]
    if number.asked is not None:
        return _logic("if", [number.asked, *parts])
    return all_of(parts) if number.how == "max" else any_of(parts)

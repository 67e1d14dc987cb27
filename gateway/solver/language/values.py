"""Numbers with alternatives: what an expression can be before a comparison turns it into conditions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.solver.language.affine import (
    Affine,
    Atom,
    Every,
    Form,
    Formula,
    Quadratic,
    Some,
    added,
    multiplied,
    negated,
)
from gateway.solver.language.parse import ExpressionError

Interval = tuple[Fraction, Fraction]

_MINUS = Fraction(-1)
_LARGEST = 256  # forms of one value
TWO_AT_MOST = "a term holds more than two variables; a rule may multiply at most two"


@dataclass(frozen=True, slots=True)
class Ratio:
    """`top / bottom`, where `bottom` is no plain number."""

    top: Form
    bottom: Form


@dataclass(frozen=True, slots=True)
class Greatest:
    """The greatest of several values."""

    parts: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Least:
    """The least of several values."""

    parts: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """`first` where `condition` holds, else `second`."""

    condition: Formula
    first: Value
    second: Value


Value = Affine | Quadratic | Ratio | Greatest | Least | Chosen


def plus(at: int, left: Value, right: Value) -> Value:  # noqa: PLR0911  one return for each kind of value
    """The sum; raises `ExpressionError`."""
    if _forms(left) * _forms(right) > _LARGEST:
        raise ExpressionError(at, "the expression has too many alternatives")
    match left, right:
        case (Affine() | Quadratic(), Affine() | Quadratic()):
            return added(left, right)
        case (Greatest() | Least(), _):
            return type(left)(tuple(plus(at, part, right) for part in left.parts))
        case (Chosen(), _):
            return Chosen(left.condition, plus(at, left.first, right), plus(at, left.second, right))
        case (_, Greatest() | Least() | Chosen()):
            return plus(at, right, left)
        case (Ratio(), Ratio()) if left.bottom == right.bottom:
            return Ratio(added(left.top, right.top), left.bottom)
        case (Ratio(), Ratio()):
            top = added(_form_product(at, left.top, right.bottom), _form_product(at, right.top, left.bottom))
            return Ratio(top, _form_product(at, left.bottom, right.bottom))
        case (Ratio(), Affine() | Quadratic()):
            return Ratio(added(left.top, _form_product(at, right, left.bottom)), left.bottom)
        case _:
            return plus(at, right, left)


def times(value: Value, factor: Fraction) -> Value:
    """The multiple."""
    match value:
        case Affine() | Quadratic():
            return value.times(factor)
        case Ratio(top, bottom):
            return Ratio(top.times(factor), bottom)
        case Chosen(condition, first, second):
            return Chosen(condition, times(first, factor), times(second, factor))
        case Greatest(parts) | Least(parts):
            turned = tuple(times(part, factor) for part in parts)
            return Greatest(turned) if isinstance(value, Greatest) == (factor >= 0) else Least(turned)


def product(at: int, left: Value, right: Value) -> Value:  # noqa: PLR0911  one return for each kind of value
    """The product; raises `ExpressionError` where a term would hold more than two variables."""
    if _forms(left) * _forms(right) > _LARGEST:
        raise ExpressionError(at, "the expression has too many alternatives")
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Affine) and not one.terms:
            return times(other, one.constant)
    match left, right:
        case (Affine() | Quadratic(), Affine() | Quadratic()):
            return _form_product(at, left, right)
        case (Chosen(), _):
            return Chosen(left.condition, product(at, left.first, right), product(at, left.second, right))
        case (Greatest() | Least(), _):
            return product(at, _as_choice(at, left), right)
        case (_, Greatest() | Least() | Chosen()):
            return product(at, right, left)
        case (Ratio(), Ratio()):
            return Ratio(_form_product(at, left.top, right.top), _form_product(at, left.bottom, right.bottom))
        case (Ratio(), Affine() | Quadratic()):
            return Ratio(_form_product(at, left.top, right), left.bottom)
        case _:
            return product(at, right, left)


def quotient(at: int, left: Value, right: Value) -> Value:
    """`left / right`, and anything where `right` is 0: the caller states `not_zero` beside it."""
    match right:
        case Chosen():
            return Chosen(right.condition, quotient(at, left, right.first), quotient(at, left, right.second))
        case Greatest() | Least():
            return quotient(at, left, _as_choice(at, right))
        case Ratio(top, bottom):
            return product(at, left, Ratio(bottom, top))
        case Affine() if not right.terms:
            return times(left, 1 / right.constant if right.constant else Fraction(0))
        case _:
            return product(at, left, Ratio(Affine(Fraction(1)), right))


def not_positive(value: Value, *, strict: bool) -> Formula:
    """`value <= 0`, or `value < 0`; false where a divisor is 0."""
    match value:
        case Affine() | Quadratic():
            return Atom(value, strict)
        case Ratio(top, bottom):
            below = Every((Atom(bottom.times(_MINUS), strict=True), Atom(top, strict)))
            above = Every((Atom(bottom, strict=True), Atom(top.times(_MINUS), strict)))
            return Some((below, above))
        case Greatest(parts):
            return Every(tuple(not_positive(part, strict=strict) for part in parts))
        case Least(parts):
            return Some(tuple(not_positive(part, strict=strict) for part in parts))
        case Chosen(condition, first, second):
            return either(condition, not_positive(first, strict=strict), not_positive(second, strict=strict))


def either(condition: Formula, first: Formula, second: Formula) -> Formula:
    """`first` where `condition` holds, else `second`; two implications, which intervals can show."""
    return Every((Some((negated(condition), first)), Some((condition, second))))


def not_zero(value: Value) -> Formula:
    """A divisor is not 0."""
    return Some((not_positive(value, strict=True), not_positive(times(value, _MINUS), strict=True)))


def counted(parts: Sequence[Formula]) -> Value:
    """How many of the conditions hold: the greatest n of which at least n hold."""
    found: Value = Affine()
    for number in range(1, len(parts) + 1):
        found = Chosen(at_least(number, parts), Affine(Fraction(number)), found)
    return found


def at_least(number: int, parts: Sequence[Formula]) -> Formula:
    """At least so many of the conditions hold; without `not`, so that intervals stay sharp."""
    if number <= 0:
        return Every(())
    return Some(tuple(Every(chosen) for chosen in itertools.combinations(parts, number)))


def median(parts: Sequence[Value]) -> Value:
    """The middle one of an odd number of values."""
    middle = len(parts) // 2 + 1
    return Greatest(tuple(Least(chosen) for chosen in itertools.combinations(parts, middle)))


def bounds(value: Value, ranges: Mapping[str, Interval]) -> Interval | None:
    """Least and greatest value over independent ranges, rounded outward; None where nobody can tell."""
    match value:
        case Affine() | Quadratic():
            return _form_bounds(value, ranges)
        case Ratio(top, bottom):
            above, below = _form_bounds(top, ranges), _form_bounds(bottom, ranges)
            if above is None or below is None or below[0] <= 0 <= below[1]:
                return None
            ends = [a / b for a in above for b in below]
            return min(ends), max(ends)
        case Chosen(_, first, second):
            return _over(
                (first, second), ranges, lambda ends: (min(e[0] for e in ends), max(e[1] for e in ends))
            )
        case Greatest(parts):
            return _over(parts, ranges, lambda ends: (max(e[0] for e in ends), max(e[1] for e in ends)))
        case Least(parts):
            return _over(parts, ranges, lambda ends: (min(e[0] for e in ends), min(e[1] for e in ends)))


def _over(
    parts: Sequence[Value],
    ranges: Mapping[str, Interval],
    join: Callable[[list[Interval]], Interval],
) -> Interval | None:
    ends = [bounds(part, ranges) for part in parts]
    known = [end for end in ends if end is not None]
    return join(known) if len(known) == len(ends) else None


def _form_bounds(form: Form, ranges: Mapping[str, Interval]) -> Interval | None:
    if not form.symbols <= ranges.keys():
        return None
    linear, products = (form.linear, form.products) if isinstance(form, Quadratic) else (form, {})
    low = high = linear.constant
    for name, factor in linear.terms.items():
        ends = [factor * end for end in ranges[name]]
        low, high = low + min(ends), high + max(ends)
    for (a, b), factor in products.items():
        ends = [x * y for x in ranges[a] for y in ranges[b]]
        if a == b and ranges[a][0] < 0 < ranges[a][1]:
            ends = [Fraction(0), max(ends)]
        scaled = [factor * end for end in ends]
        low, high = low + min(scaled), high + max(scaled)
    return low, high


def _forms(value: Value) -> int:
    match value:
        case Greatest(parts) | Least(parts):
            return sum(map(_forms, parts))
        case Chosen(_, first, second):
            return _forms(first) + _forms(second)
        case _:
            return 1


def _form_product(at: int, left: Form, right: Form) -> Form:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Affine) and not one.terms:
            return other.times(one.constant)
    if isinstance(left, Affine) and isinstance(right, Affine):
        return multiplied(left, right)
    raise ExpressionError(at, TWO_AT_MOST)


def _as_choice(at: int, value: Greatest | Least) -> Value:
    """The same value as a chain of choices."""
    first, *others = value.parts
    if not others:
        return first
    rest = type(value)(tuple(others))
    ahead = plus(at, rest, times(first, _MINUS))  # rest - first
    condition = not_positive(ahead if isinstance(value, Greatest) else times(ahead, _MINUS), strict=False)
    return Chosen(condition, first, _as_choice(at, rest))

"""Trees made into functions over whole numbers: every value is a count of one unit, so nothing is rounded.

What is read stands in a list; place 0 holds how many units make 1. A sum, a product, a limit is then one
operation on whole numbers, whatever the decimals. Only behind a divisor that varies are there fractions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.tree import READS, Kind, LanguageError, Node

Units = list[int]  # place 0: units in 1
Value = Fraction | bool
Environment = Mapping[str, Fraction]
Evaluate = Callable[[Environment], Value]
Whole = Callable[[Units], int]
Number = Callable[[Units], "int | Fraction"]
Condition = Callable[[Units], bool]

ARITHMETIC: dict[str, Callable[..., int | Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "neg": operator.neg,
    "abs": abs,
}
AGGREGATES: dict[str, Callable[..., int | Fraction]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "median": lambda values: sorted(values)[len(values) // 2],
}
ORDER: dict[str, Callable[..., bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
LOGIC: dict[str, Callable[[Condition, Condition], Condition]] = {
    "and": lambda a, b: lambda e: a(e) and b(e),
    "or": lambda a, b: lambda e: a(e) or b(e),
    "implies": lambda a, b: lambda e: b(e) if a(e) else True,
    "iff": lambda a, b: lambda e: a(e) == b(e),
}
COUNTED: dict[str, Callable[[int, int], bool]] = {"at_most": operator.le, "exactly": operator.eq}


@dataclass(slots=True)
class Layout:
    """Where in the list each thing stands that is read: `(op, name)`.

    `spans`: the change that `rate` tells of a tag is against the value at a place, over so many seconds.
    """

    places: dict[tuple[str, str], int] = field(default_factory=dict)
    spans: Mapping[str, tuple[int, Fraction]] = field(default_factory=dict)

    def place(self, op: str, name: str) -> int:
        """The place of one thing, a new one if it had none."""
        return self.places.setdefault((op, name), len(self.places) + 1)


@dataclass(frozen=True, slots=True)
class Scaled:
    """A number: `of(e) / (share * e[0]**degree)`, or a fraction as it is where `degree` is None."""

    of: Number
    share: int = 1
    degree: int | None = 1
    constant: Fraction | None = None


def number_of(node: Node, layout: Layout) -> Scaled:
    """The function of a node that is used as a number; raises `LanguageError`."""
    if node.op == "number":
        return _constant(node.constant)
    if node.op in READS:
        return _read(node, layout)
    if node.op in {"if", "count"}:
        return _chosen(node, layout) if node.op == "if" else Scaled(_counting(node, layout), 1, 0)
    parts = [number_of(part, layout) for part in node.parts]
    if node.op in AGGREGATES:
        return _gathered(node.op, parts)
    return _folded(_calculated(node.op, parts), parts)


def condition_of(node: Node, layout: Layout) -> Condition:
    """The function of a node that is used as a condition; raises `LanguageError`."""
    if node.op in _CONDITIONS:
        return _CONDITIONS[node.op](node, layout)
    if node.op in LOGIC:
        left, right = (condition_of(part, layout) for part in node.parts)
        return LOGIC[node.op](left, right)
    if node.op in COUNTED:
        count, limit, judge = _counting(node, layout), int(node.constant), COUNTED[node.op]
        return lambda e: judge(count(e), limit)
    place = layout.place(node.op, node.name)
    return lambda e: e[place] != 0


def function_of(node: Node) -> Evaluate:
    """The function of a node over values by name: of any node, for a few values at a time."""
    layout = Layout()
    if node.kind is Kind.CONDITION:
        holds = condition_of(node, layout)
        keys = _keys(layout)
        return lambda env: holds(_units(env, keys))
    scaled = number_of(node, layout)
    keys = _keys(layout)

    def value(env: Environment) -> Fraction:
        units = _units(env, keys)
        return _as_fraction(scaled, units)

    return value


def fraction_of(scaled: Scaled) -> Callable[[Units], Fraction]:
    """The number as a fraction."""
    return lambda e: _as_fraction(scaled, e)


def _as_fraction(scaled: Scaled, e: Units) -> Fraction:
    found = scaled.of(e)
    return Fraction(found) if scaled.degree is None else Fraction(found, scaled.share * e[0] ** scaled.degree)


def _keys(layout: Layout) -> list[str]:
    return [name if op == "now" else f"{op} {name}" for op, name in layout.places]


def _units(env: Environment, keys: Sequence[str]) -> Units:
    values = [env[key] for key in keys]
    unit = math.lcm(*(value.denominator for value in values))
    return [unit, *(value.numerator * (unit // value.denominator) for value in values)]


def _constant(value: Fraction) -> Scaled:
    counted = value.numerator
    return Scaled(lambda _e: counted, value.denominator, 0, value)


def _folded(scaled: Scaled, parts: Sequence[Scaled]) -> Scaled:
    """One constant instead of a sum of constants."""
    if any(part.constant is None for part in parts):
        return scaled
    return _constant(_as_fraction(scaled, [1]))


def _read(node: Node, layout: Layout) -> Scaled:
    if node.op != "rate" or node.name not in layout.spans:
        return Scaled(operator.itemgetter(layout.place(node.op, node.name)))
    now, (before, seconds) = layout.place("now", node.name), layout.spans[node.name]
    times, share = seconds.denominator, seconds.numerator
    return Scaled(lambda e: (e[now] - e[before]) * times, share)


def _gathered(op: str, parts: Sequence[Scaled]) -> Scaled:
    functions, scale = _aligned(parts)
    gather = AGGREGATES[op]
    return Scaled(lambda e: gather([f(e) for f in functions]), *scale)


def _calculated(op: str, parts: Sequence[Scaled]) -> Scaled:
    if op == "*":
        return _product(*parts)
    if op == "/":
        return _quotient(*parts)
    functions, scale = _aligned(parts)
    work, first = ARITHMETIC[op], functions[0]
    if len(functions) == 1:
        return Scaled(lambda e: work(first(e)), *scale)
    second = functions[1]
    return Scaled(lambda e: work(first(e), second(e)), *scale)


def _aligned(parts: Sequence[Scaled]) -> tuple[list[Number], tuple[int, int | None]]:
    """Functions of one unit, and that unit."""
    if any(part.degree is None for part in parts):
        return [fraction_of(part) for part in parts], (1, None)
    share = math.lcm(*(part.share for part in parts))
    degree = max(part.degree or 0 for part in parts)
    return [_raised(part, share // part.share, degree - (part.degree or 0)) for part in parts], (
        share,
        degree,
    )


def _raised(part: Scaled, times: int, degrees: int) -> Number:
    inner = part.of
    if part.constant is not None:
        times, inner = times * part.constant.numerator, None  # type: ignore[assignment]
    if inner is None:
        if degrees == 0:
            return lambda _e: times
        return (lambda e: times * e[0]) if degrees == 1 else (lambda e: times * e[0] ** degrees)
    if degrees == 0:
        return inner if times == 1 else lambda e: inner(e) * times
    return lambda e: inner(e) * times * e[0] ** degrees


def _product(left: Scaled, right: Scaled) -> Scaled:
    times = ARITHMETIC["*"]
    if left.degree is None or right.degree is None:
        a, b = fraction_of(left), fraction_of(right)
        return Scaled(lambda e: times(a(e), b(e)), 1, None)
    f, g = left.of, right.of
    return Scaled(lambda e: times(f(e), g(e)), left.share * right.share, left.degree + right.degree)


def _quotient(left: Scaled, right: Scaled) -> Scaled:
    divide, share = ARITHMETIC["/"], right.constant
    if share is not None and not share:
        raise LanguageError("the divisor is 0")
    if share is None or left.degree is None or left.constant is not None:
        a, b = fraction_of(left), fraction_of(right)
        return Scaled(lambda e: divide(a(e), b(e)), 1, None)
    inverse = divide(Fraction(1), share)
    times, inner = inverse.numerator, left.of
    return Scaled(lambda e: inner(e) * times, left.share * inverse.denominator, left.degree)


def _counting(node: Node, layout: Layout) -> Whole:
    conditions = [condition_of(part, layout) for part in node.parts]
    return lambda e: sum([bool(c(e)) for c in conditions])


def _chosen(node: Node, layout: Layout) -> Scaled:
    asked = condition_of(node.parts[0], layout)
    (yes, no), scale = _aligned([number_of(part, layout) for part in node.parts[1:]])
    return Scaled(lambda e: yes(e) if asked(e) else no(e), *scale)


def _compared(node: Node, layout: Layout) -> Condition:
    parts, (_, degree) = _aligned([number_of(part, layout) for part in node.parts])
    orders = [ORDER[sign] for sign in node.signs]
    if len(parts) == 2 and degree is not None:  # noqa: PLR2004  the plain comparison of two
        (left, right), order = parts, orders[0]
        return lambda e: order(left(e), right(e))

    def chain(e: Units) -> bool:
        values = [part(e) for part in parts]
        return all(order(a, b) for order, a, b in zip(orders, values, values[1:], strict=False))

    return chain if degree is not None else _defined(chain)


def _defined(condition: Condition) -> Condition:
    """A comparison with a divisor of 0 does not hold."""

    def holds(e: Units) -> bool:
        try:
            return condition(e)
        except ZeroDivisionError:
            return False

    return holds


def _among(node: Node, layout: Layout) -> Condition:
    inner = node.parts[0]
    sides = [number_of(inner, layout), *map(_constant, node.among)]
    (value, *constants), (_, degree) = _aligned(sides)

    def member(e: Units) -> bool:
        found = value(e)
        return any(found == constant(e) for constant in constants)

    return member if degree is not None else _defined(member)


def _negated(node: Node, layout: Layout) -> Condition:
    inner = condition_of(node.parts[0], layout)
    return lambda e: not inner(e)


def _settled(node: Node, _layout: Layout) -> Condition:
    truth = bool(node.constant)
    return lambda _e: truth


def _either(node: Node, layout: Layout) -> Condition:
    asked, yes, no = (condition_of(part, layout) for part in node.parts)
    return lambda e: yes(e) if asked(e) else no(e)


def _lasting(node: Node, layout: Layout) -> Condition:
    """Holds now, and the row of checks in which it did is long enough."""
    now, row = condition_of(node.parts[0], layout), node.row
    if row is None:
        raise LanguageError("a row without a time")
    held = layout.place("for", row.name)
    return lambda e: now(e) and e[held] != 0


_CONDITIONS: Mapping[str, Callable[[Node, Layout], Condition]] = {
    "not": _negated,
    "truth": _settled,
    "if": _either,
    "for": _lasting,
    "compare": _compared,
    "in": _among,
}

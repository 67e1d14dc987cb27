"""Worst cases of conditions over intervals, in whole numbers: exact and fast where they are affine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from gateway.solver.language.affine import Affine, Atom, Every, Form, Formula, Pair, Quadratic, atoms, symbols

SCALE = 10**12  # interval ends are whole multiples of 1e-12, rounded outward
SETTLED = (  # symbols that say nothing of the plant's state
    "new:",
    "old:",
    "rate:",
    "kept_on:",
    "may_rise:",
    "held:",
    "for:",
    "good:",
    "age:",
)
_MOST_FREE = 10  # symbols of products whose corners are all looked at

Box = Mapping[str, tuple[int, int]]


def outward(low: Fraction, high: Fraction) -> tuple[int, int]:
    """An interval that holds this one, in units of 1 / `SCALE`."""
    return low.numerator * SCALE // low.denominator, -(-high.numerator * SCALE // high.denominator)


def inward(low: Fraction, high: Fraction) -> tuple[int, int]:
    """An interval that lies within this one, in units of 1 / `SCALE`."""
    return -(-low.numerator * SCALE // low.denominator), high.numerator * SCALE // high.denominator


@dataclass(frozen=True, slots=True)
class Row:
    """`constant + sum(factor * symbol) <= 0` in whole numbers; `strict` makes it `< 0`."""

    constant: int
    terms: tuple[tuple[str, int], ...]
    strict: bool
    settled: bool

    def slack(self, box: Box) -> int:
        """How far the worst case stays below 0; negative where it does not."""
        worst = self.constant
        for name, factor in self.terms:
            low, high = box[name]
            worst += factor * (high if factor > 0 else low)
        return -worst - self.strict

    def worst(self, box: Box) -> dict[str, int]:
        """The corner that comes nearest to the limit, for the symbols of this row."""
        return {name: box[name][1 if factor > 0 else 0] for name, factor in self.terms}


@dataclass(frozen=True, slots=True)
class ProductRow(Row):
    """A row with products of two symbols; `constant` and `terms` are in units of `SCALE` more.

    A square with a negative factor is greatest inside the box; such a part is bounded by itself.
    """

    corners: tuple[tuple[Pair, int], ...]  # greatest at a corner of the box
    inner: tuple[tuple[str, int], ...]  # negative squares

    def slack(self, box: Box) -> int:
        """How far the worst case stays below 0; negative where it does not."""
        return -self._worst(box)[0] - self.strict

    def worst(self, box: Box) -> dict[str, int]:
        """The corner that comes nearest to the limit, for the symbols of this row."""
        return self._worst(box)[1]

    def _worst(self, box: Box) -> tuple[int, dict[str, int]]:
        total = self.constant
        corner: dict[str, int] = {}
        for name, factor in self.inner:
            low, high = box[name]
            corner[name] = 0 if low < 0 < high else min(low, high, key=abs)
            total += factor * corner[name] ** 2
        linear = dict(self.terms)
        free = sorted({n for pair, _ in self.corners for n in pair if box[n][0] < box[n][1]})
        for name, factor in self.terms:
            if name not in free:
                corner[name] = box[name][1 if factor > 0 else 0]
                total += factor * corner[name]
        if len(free) > _MOST_FREE:
            return total + self._by_parts(box, linear, free), corner
        fixed = {n: box[n][0] for pair, _ in self.corners for n in pair if n not in free}
        best: tuple[int, dict[str, int]] | None = None
        for ends in itertools.product(*(box[n] for n in free)):
            at = {**fixed, **dict(zip(free, ends, strict=True))}
            value = sum(linear[n] * at[n] for n in free if n in linear)
            value += sum(factor * at[a] * at[b] for (a, b), factor in self.corners)
            if best is None or value > best[0]:
                best = value, at
        value, at = best or (0, {})
        return total + value, {**corner, **at}

    def _by_parts(self, box: Box, linear: Mapping[str, int], free: list[str]) -> int:
        """A bound: every part at its own worst."""
        total = sum(max(linear[n] * end for end in box[n]) for n in free if n in linear)
        for (a, b), factor in self.corners:
            total += max(factor * x * y for x in box[a] for y in box[b])
        return total


@dataclass(frozen=True, slots=True)
class Rows:
    """A formula of rows: all must hold, or one must."""

    every: bool
    parts: tuple[Row | Rows, ...]


class Slack(NamedTuple):
    """The least distance to a limit; `vacuous` where no limit applies. The formula holds when it is >= 0."""

    value: int
    row: Row | None

    @property
    def holds(self) -> bool:
        """Whether the formula is true in the whole box, as far as intervals can tell."""
        return self.value >= 0


VACUOUS = 10**60  # the slack of a formula without a limit


@dataclass(frozen=True, slots=True)
class Scaled:
    """A formula in whole numbers; a slack of `unit` is 1 in the user's own unit."""

    formula: Row | Rows
    unit: int
    symbols: frozenset[str]

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every row, from left to right."""
        return tuple(_each(self.formula))

    def slack(self, box: Box) -> Slack:
        """The worst case over a box. Never too optimistic; exact where only actions bring alternatives."""
        return _slack(self.formula, box)

    def margin(self, slack: Slack) -> Fraction | None:
        """A slack in the user's unit, None where no limit applies."""
        if slack.row is None or slack.value >= VACUOUS:
            return None
        return Fraction(slack.value + slack.row.strict, self.unit)


def scaled(formula: Formula) -> Scaled:
    """A formula with whole factors."""
    factor = lcm(1, *(c.denominator for a in atoms(formula) for c in _factors(a.form)))
    products = any(isinstance(a.form, Quadratic) for a in atoms(formula))
    extra = SCALE if products else 1  # a product of two symbols is in units of SCALE squared
    return Scaled(_rows(formula, factor, extra), factor * SCALE * extra, symbols(formula))


def _factors(form: Form) -> Iterator[Fraction]:
    linear = form.linear if isinstance(form, Quadratic) else form
    yield linear.constant
    yield from linear.terms.values()
    if isinstance(form, Quadratic):
        yield from form.products.values()


def _rows(formula: Formula, factor: int, extra: int) -> Row | Rows:
    if not isinstance(formula, Atom):
        return Rows(isinstance(formula, Every), tuple(_rows(part, factor, extra) for part in formula.parts))
    if isinstance(formula.form, Affine):
        return _row(formula.form, factor, extra, strict=formula.strict)
    linear = _row(formula.form.linear, factor, extra, strict=formula.strict)
    whole = {pair: int(c * factor) for pair, c in formula.form.products.items()}
    return ProductRow(
        linear.constant,
        linear.terms,
        linear.strict,
        all(name.startswith(SETTLED) for name in formula.form.symbols),
        corners=tuple((p, c) for p, c in whole.items() if c > 0 or p[0] != p[1]),
        inner=tuple((p[0], c) for p, c in whole.items() if c < 0 and p[0] == p[1]),
    )


def _row(form: Affine, factor: int, extra: int, *, strict: bool) -> Row:
    return Row(
        int(form.constant * factor) * SCALE * extra,
        tuple((name, int(c * factor) * extra) for name, c in form.terms.items()),
        strict,
        all(name.startswith(SETTLED) for name in form.terms),
    )


def _each(formula: Row | Rows) -> Iterator[Row]:
    if isinstance(formula, Row):
        yield formula
    else:
        for part in formula.parts:
            yield from _each(part)


def _slack(formula: Row | Rows, box: Box) -> Slack:
    if isinstance(formula, Row):
        return Slack(formula.slack(box), formula)
    if formula.every:
        found = [_slack(part, box) for part in formula.parts]
        return min(found, key=lambda s: s.value, default=Slack(VACUOUS, None))
    return _alternatives(formula.parts, box)


def _alternatives(parts: tuple[Row | Rows, ...], box: Box) -> Slack:
    """One part must hold. A part about actions alone is true or false; its distance means nothing."""
    stateful: list[Slack] = []
    settled: list[Slack] = []
    for part in parts:
        slack = _slack(part, box)
        alone = slack.row is None or slack.row.settled
        if alone and slack.holds:
            return Slack(VACUOUS, None)
        (settled if alone else stateful).append(slack)
    return max(stateful or settled, key=lambda s: s.value, default=Slack(-VACUOUS, None))

"""Worst cases of affine conditions over intervals, in whole numbers: exact and fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from gateway.solver.affine import Affine, Atom, Every, Formula, atoms

SCALE = 10**12  # interval ends are whole multiples of 1e-12, rounded outward
SETTLED = ("new:", "old:", "rate:", "kept_on:", "may_rise:")  # symbols that say nothing of the plant's state

Box = Mapping[str, tuple[int, int]]


def outward(low: Fraction, high: Fraction) -> tuple[int, int]:
    """An interval that holds this one, in units of 1 / `SCALE`."""
    return low.numerator * SCALE // low.denominator, -(-high.numerator * SCALE // high.denominator)


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
class Rows:
    """A formula of rows: all must hold, or one must."""

    every: bool
    parts: tuple[Row | Rows, ...]


@dataclass(frozen=True, slots=True)
class Slack:
    """The least distance to a limit; `vacuous` where no limit applies. The formula holds when it is >= 0."""

    value: int
    row: Row | None

    @property
    def holds(self) -> bool:
        """Whether the formula is true in the whole box, as far as intervals can tell."""
        return self.value >= 0


_VACUOUS = 10**60


@dataclass(frozen=True, slots=True)
class Scaled:
    """A formula in whole numbers; a slack of `unit` is 1 in the user's own unit."""

    formula: Row | Rows
    unit: int

    def slack(self, box: Box) -> Slack:
        """The worst case over a box. Never too optimistic; exact where only actions bring alternatives."""
        return _slack(self.formula, box)

    def margin(self, slack: Slack) -> Fraction | None:
        """A slack in the user's unit, None where no limit applies."""
        if slack.row is None or slack.value >= _VACUOUS:
            return None
        return Fraction(slack.value + slack.row.strict, self.unit)


def scaled(formula: Formula) -> Scaled:
    """A formula with whole factors."""
    factor = lcm(
        1, *(c.denominator for a in atoms(formula) for c in (a.form.constant, *a.form.terms.values()))
    )
    return Scaled(_rows(formula, factor), factor * SCALE)


def _rows(formula: Formula, factor: int) -> Row | Rows:
    if isinstance(formula, Atom):
        return _row(formula.form, factor, strict=formula.strict)
    return Rows(isinstance(formula, Every), tuple(_rows(part, factor) for part in formula.parts))


def _row(form: Affine, factor: int, *, strict: bool) -> Row:
    return Row(
        int(form.constant * factor) * SCALE,
        tuple((name, int(c * factor)) for name, c in form.terms.items()),
        strict,
        all(name.startswith(SETTLED) for name in form.terms),
    )


def _slack(formula: Row | Rows, box: Box) -> Slack:
    if isinstance(formula, Row):
        return Slack(formula.slack(box), formula)
    if formula.every:
        found = [_slack(part, box) for part in formula.parts]
        return min(found, key=lambda s: s.value, default=Slack(_VACUOUS, None))
    return _alternatives(formula.parts, box)


def _alternatives(parts: tuple[Row | Rows, ...], box: Box) -> Slack:
    """One part must hold. A part about actions alone is true or false; its distance means nothing."""
    stateful: list[Slack] = []
    settled: list[Slack] = []
    for part in parts:
        slack = _slack(part, box)
        alone = slack.row is None or slack.row.settled
        if alone and slack.holds:
            return Slack(_VACUOUS, None)
        (settled if alone else stateful).append(slack)
    return max(stateful or settled, key=lambda s: s.value, default=Slack(-_VACUOUS, None))

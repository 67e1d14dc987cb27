"""Exact affine forms, and the truth values built from them: the meeting point of condensing and encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Affine:
    """`constant` plus a sum of coefficient times symbol. No coefficient is zero."""

    constant: Fraction = Fraction(0)
    terms: Mapping[str, Fraction] = field(default_factory=dict)

    def plus(self, other: Affine) -> Affine:
        """The sum."""
        terms = dict(self.terms)
        for name, factor in other.terms.items():
            total = terms.get(name, Fraction(0)) + factor
            if total:
                terms[name] = total
            else:
                del terms[name]
        return Affine(self.constant + other.constant, terms)

    def times(self, factor: Fraction) -> Affine:
        """The multiple."""
        if not factor:
            return Affine()
        return Affine(self.constant * factor, {n: c * factor for n, c in self.terms.items()})

    def substituted(self, values: Callable[[str], Affine]) -> Affine:
        """The same form with every symbol replaced."""
        total = Affine(self.constant)
        for name, factor in self.terms.items():
            total = total.plus(values(name).times(factor))
        return total

    def at(self, point: Mapping[str, Fraction]) -> Fraction:
        """The value at one point."""
        return self.constant + sum((c * point[n] for n, c in self.terms.items()), Fraction(0))


def symbol(name: str) -> Affine:
    """The form that is one symbol."""
    return Affine(Fraction(0), {name: Fraction(1)})


@dataclass(frozen=True, slots=True)
class Atom:
    """`form <= 0`, or `form < 0` where `strict`."""

    form: Affine
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Every:
    """True when every part is; `Every(())` is true."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """True when one part is; `Some(())` is false."""

    parts: tuple[Formula, ...]


Formula = Atom | Every | Some


def negated(formula: Formula) -> Formula:
    """The formula that is true exactly where this one is false."""
    match formula:
        case Atom(form, strict):
            return Atom(form.times(Fraction(-1)), not strict)
        case Every(parts):
            return Some(tuple(negated(p) for p in parts))
        case Some(parts):
            return Every(tuple(negated(p) for p in parts))


def atoms(formula: Formula) -> Iterable[Atom]:
    """Every atom, left to right."""
    if isinstance(formula, Atom):
        yield formula
    else:
        for part in formula.parts:
            yield from atoms(part)


def symbols(formula: Formula) -> frozenset[str]:
    """Every symbol that occurs."""
    return frozenset(name for atom in atoms(formula) for name in atom.form.terms)


def mapped(formula: Formula, change: Callable[[Affine], Affine]) -> Formula:
    """The same shape with every form changed."""
    match formula:
        case Atom(form, strict):
            return Atom(change(form), strict)
        case Every(parts):
            return Every(tuple(mapped(p, change) for p in parts))
        case Some(parts):
            return Some(tuple(mapped(p, change) for p in parts))

"""Exact forms of degree one and two, and the truth values built from them.

Here condensing and encoding meet. `Affine` is the common case and carries nothing of the other.
"""

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
        constant, terms = self.constant, dict[str, Fraction]()
        for name, factor in self.terms.items():
            form = values(name)
            constant += form.constant * factor
            for inner, share in form.terms.items():
                more = share * factor
                known = terms.get(inner)
                if known is None:
                    terms[inner] = more
                elif total := known + more:
                    terms[inner] = total
                else:
                    del terms[inner]
        return Affine(constant, terms)

    def at(self, point: Mapping[str, Fraction]) -> Fraction:
        """The value at one point."""
        return self.constant + sum((c * point[n] for n, c in self.terms.items()), Fraction(0))

    @property
    def symbols(self) -> frozenset[str]:
        """Every symbol that occurs."""
        return frozenset(self.terms)


Pair = tuple[str, str]  # in alphabetical order; twice the same for a square


@dataclass(frozen=True, slots=True)
class Quadratic:
    """An affine form plus a sum of coefficient times product of two symbols, at least one and none zero."""

    linear: Affine
    products: Mapping[Pair, Fraction]

    def times(self, factor: Fraction) -> Form:
        """The multiple."""
        if not factor:
            return Affine()
        return Quadratic(self.linear.times(factor), {p: c * factor for p, c in self.products.items()})

    def substituted(self, values: Callable[[str], Affine]) -> Form:
        """The same form with every symbol replaced by an affine form."""
        total: Form = self.linear.substituted(values)
        for (first, second), factor in self.products.items():
            total = added(total, multiplied(values(first), values(second)).times(factor))
        return total

    def at(self, point: Mapping[str, Fraction]) -> Fraction:
        """The value at one point."""
        products = (c * point[a] * point[b] for (a, b), c in self.products.items())
        return self.linear.at(point) + sum(products, Fraction(0))

    @property
    def symbols(self) -> frozenset[str]:
        """Every symbol that occurs."""
        return self.linear.symbols.union(*self.products)


Form = Affine | Quadratic


def added(left: Form, right: Form) -> Form:
    """The sum of two forms."""
    if isinstance(left, Affine) and isinstance(right, Affine):
        return left.plus(right)
    (first, ours), (second, theirs) = _split(left), _split(right)
    products = dict(ours)
    for pair, factor in theirs.items():
        products[pair] = products.get(pair, Fraction(0)) + factor
    return _joined(first.plus(second), products)


def multiplied(left: Affine, right: Affine) -> Form:
    """The product of two affine forms."""
    linear = left.times(right.constant).plus(
        Affine(Fraction(0), right.terms).times(left.constant) if right.terms else Affine()
    )
    products: dict[Pair, Fraction] = {}
    for a, x in left.terms.items():
        for b, y in right.terms.items():
            pair = (a, b) if a <= b else (b, a)
            products[pair] = products.get(pair, Fraction(0)) + x * y
    return _joined(linear, products)


def _split(form: Form) -> tuple[Affine, Mapping[Pair, Fraction]]:
    return (form.linear, form.products) if isinstance(form, Quadratic) else (form, {})


def _joined(linear: Affine, products: Mapping[Pair, Fraction]) -> Form:
    kept = {pair: factor for pair, factor in products.items() if factor}
    return Quadratic(linear, kept) if kept else linear


def symbol(name: str) -> Affine:
    """The form that is one symbol."""
    return Affine(Fraction(0), {name: Fraction(1)})


@dataclass(frozen=True, slots=True)
class Atom:
    """`form <= 0`, or `form < 0` where `strict`."""

    form: Form
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
    return frozenset().union(*(atom.form.symbols for atom in atoms(formula)))


def mapped(formula: Formula, change: Callable[[Form], Form]) -> Formula:
    """The same shape with every form changed."""
    match formula:
        case Atom(form, strict):
            return Atom(change(form), strict)
        case Every(parts):
            return Every(tuple(mapped(p, change) for p in parts))
        case Some(parts):
            return Some(tuple(mapped(p, change) for p in parts))

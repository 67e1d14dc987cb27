"""Whether a rule that holds at every instant of a plan also holds between two of them.

Between two instants a variable with dynamics moves on a straight line; one without may be anywhere in its
interval, which only grows. So a rule is safe to look at only at instants where, with everything that has no
dynamics fixed, the states it holds in are convex.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from gateway.solver.language.affine import Affine, Atom, Every, Formula, Quadratic, atoms, symbols

_Side = tuple[tuple[str, Fraction], ...]  # by variable, its share in a bound


def breaks_between(formula: Formula, moving: Collection[str]) -> tuple[str, ...]:
    """The variables with dynamics that could break a rule between two instants; none where it is safe."""
    match formula:
        case Atom(form):
            return _bent(form, moving) if isinstance(form, Quadratic) else ()
        case Every(parts):
            return next((found for part in parts if (found := breaks_between(part, moving))), ())
        case _:
            touched = [symbols(part) & frozenset(moving) for part in formula.parts]
            if sum(map(bool, touched)) > 1:
                return tuple(sorted(frozenset().union(*touched)))
            return next((found for part in formula.parts if (found := breaks_between(part, moving))), ())


def leaves_between(formula: Formula, moving: Collection[str]) -> tuple[str, ...]:
    """The same of a set that is looked at between instants, too: a decision may come at any moment (S1).

    Alternatives that bound one variable to one side are a bound to that side, whichever holds.
    """
    match formula:
        case Atom(form):
            return _bent(form, moving) if isinstance(form, Quadratic) else ()
        case Every(parts):
            return next((found for part in parts if (found := leaves_between(part, moving))), ())
        case _:
            touching = [part for part in formula.parts if symbols(part) & frozenset(moving)]
            if len(touching) == 1:
                return leaves_between(touching[0], moving)
            sides = frozenset[_Side]().union(*(_sides(part, moving) for part in touching))
            return () if len(sides) <= 1 else tuple(sorted({name for side in sides for name, _ in side}))


def _sides(formula: Formula, moving: Collection[str]) -> frozenset[_Side]:
    """The directions in which a formula bounds variables with dynamics."""
    found: set[_Side] = set()
    for atom in atoms(formula):
        named = sorted(atom.form.symbols & frozenset(moving))
        if named and isinstance(atom.form, Affine):
            size = abs(atom.form.terms[named[0]])
            found.add(tuple((name, atom.form.terms[name] / size) for name in named))
    return frozenset(found)


def _bent(form: Affine | Quadratic, moving: Collection[str]) -> tuple[str, ...]:
    """Products of two moving variables, but for squares that only grow: those keep a set convex."""
    products = form.products if isinstance(form, Quadratic) else {}
    for (first, second), factor in products.items():
        if first in moving and second in moving and (first != second or factor < 0):
            return tuple(sorted({first, second}))
    return ()


def problem_of_set(names: Collection[str]) -> str:
    """What to tell the author of a set that the plant may leave between instants."""
    listed = " and ".join(f"`{name}`" for name in names)
    what = "changes" if len(names) == 1 else "change"
    return (
        f"a `safe_set` is judged step by step, and while {listed} {what} within a step neither alternative "
        "may hold though one does at both ends; name a set without a choice between them"
    )


def problem(names: Collection[str]) -> str:
    """What to tell the author of a rule that breaks between instants."""
    listed = " and ".join(f"`{name}`" for name in names)
    what = "changes" if len(names) == 1 else "change"
    return (
        f"`always` is judged step by step, and while {listed} {what} within a step neither alternative may "
        "hold though one does at both ends; split the rule into one for each alternative, or leave `always` "
        "out and let a finer step judge it more often"
    )

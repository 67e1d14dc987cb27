"""Whether a rule that holds at every instant of a plan also holds between two of them.

Between two instants a variable with dynamics moves on a straight line; one without may be anywhere in its
interval, which only grows. So a rule is safe to look at only at instants where, with everything that has no
dynamics fixed, the states it holds in are convex.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.solver.language.affine import Affine, Atom, Every, Formula, Quadratic, symbols


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


def _bent(form: Affine | Quadratic, moving: Collection[str]) -> tuple[str, ...]:
    """Products of two moving variables, but for squares that only grow: those keep a set convex."""
    products = form.products if isinstance(form, Quadratic) else {}
    for (first, second), factor in products.items():
        if first in moving and second in moving and (first != second or factor < 0):
            return tuple(sorted({first, second}))
    return ()


def problem(names: Collection[str]) -> str:
    """What to tell the author of a rule that breaks between instants."""
    listed = " and ".join(f"`{name}`" for name in names)
    what = "changes" if len(names) == 1 else "change"
    return (
        f"`always` is judged step by step, and while {listed} {what} within a step neither alternative may "
        "hold though one does at both ends; split the rule into one for each alternative, or leave `always` "
        "out and let a finer step judge it more often"
    )

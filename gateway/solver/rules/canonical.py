"""Formulas as texts that are the same wherever the formula is: digests and comparisons rest on them."""

from __future__ import annotations

from gateway.solver.language.affine import Atom, Every, Form, Formula, Quadratic
from gateway.solver.modules.module import Variable


def form_text(form: Form) -> str:
    """`3/2 + 1*level + -1*pump`, symbols in alphabetical order, products last."""
    linear = form.linear if isinstance(form, Quadratic) else form
    terms = [f"{factor}*{name}" for name, factor in sorted(linear.terms.items())]
    if isinstance(form, Quadratic):
        terms += [f"{factor}*{a}*{b}" for (a, b), factor in sorted(form.products.items())]
    return f"{linear.constant} + {' + '.join(terms)}"


def formula_text(formula: Formula) -> str:
    """A truth value with everything that matters and nothing else."""
    return str(_plain(formula))


def premises(v: Variable) -> list[object]:
    """What a proof assumes of a variable."""
    found: list[object] = [
        v.sort,
        v.action,
        *map(str, v.range),
        str(v.error),
        str(v.max_rate),
        str(v.physical),
        str(v.definition.scale),
    ]
    if v.widest is not None:
        found.append(["roams", *map(str, v.widest)])
    if v.hidden:
        found.append("state")
    if v.labels is not None:
        found.append(sorted(v.labels.values()))
    if v.sort == "real" and v.uncertainty != v.error + abs(v.definition.scale) / 2:
        found.append(str(v.uncertainty))
    return found


def _plain(formula: Formula) -> list[object]:
    if isinstance(formula, Atom):
        return [form_text(formula.form), formula.strict]
    return ["every" if isinstance(formula, Every) else "some", [_plain(part) for part in formula.parts]]

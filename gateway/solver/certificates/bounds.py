"""Interval bounds of a claim with their multipliers: one sum a limit, that anyone can add up.

`sum`: constant + sum(multiplier * end) is the worst the linear form can be, each end being the one of that
symbol's premise that its multiplier pulls towards; it stays at or below 0 (below 0 where `strict`). `all`:
every part holds; `any`: the part named holds. What intervals cannot show is left to the solvers, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from gateway.core.tag import decimal_text
from gateway.solver.certificates.claims import Range, Scene
from gateway.solver.certificates.smtlib import acting
from gateway.solver.language.affine import Affine, Atom, Every, Formula, symbols

Premises = Mapping[str, Range]
BY_SOLVER = "solver"


def bounds(scene: Scene) -> list[dict[str, Any]]:
    """For each duty of a `holds` claim the proof by intervals, or `solver`."""
    needed = frozenset[str]().union(*(symbols(duty.formula) for duty in scene.duties))
    premises = scene.premises(needed)
    found: list[dict[str, Any]] = []
    for duty in scene.duties:
        rule = scene.rule(duty)
        proof = _proof(duty.formula, premises)
        found.append(
            {
                "rule": f"{rule.module}/{rule.constraint.id}",
                "instant": duty.instant,
                "at_s": decimal_text(scene.plan.instant(duty.instant)),
                "drift": max(duty.drift, duty.instant),
                "values": acting(duty),
                "proof": BY_SOLVER if proof is None else proof,
            }
        )
    return found


def _proof(formula: Formula, premises: Premises) -> dict[str, Any] | None:
    match formula:
        case Atom(form, strict):
            return _sum(form, premises, strict=strict) if isinstance(form, Affine) else None
        case Every(parts):
            proofs = [_proof(part, premises) for part in parts]
            return None if None in proofs else {"all": proofs}
        case _:
            for index, part in enumerate(formula.parts):
                proof = _proof(part, premises)
                if proof is not None:
                    return {"any": index, "of": proof}
            return None


def _sum(form: Affine, premises: Premises, *, strict: bool) -> dict[str, Any] | None:
    worst = form.constant
    terms: list[list[str]] = []
    for name, factor in sorted(form.terms.items()):
        low, high = premises[name]
        end = high if factor > 0 else low
        worst += factor * end
        terms.append([name, decimal_text(factor), decimal_text(end)])
    if worst > 0 or (strict and worst == Fraction(0)):
        return None
    return {
        "sum": {
            "constant": decimal_text(form.constant),
            "terms": terms,
            "worst": decimal_text(worst),
            "strict": strict,
        }
    }

"""What a backup entry does with one action."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from gateway.config.positions import Loc, Node
from gateway.config.problems import nearest
from gateway.solver.language.schema import decimal
from gateway.solver.modules.expressions import Report
from gateway.solver.modules.module import Hold, Move, Ramp, Variable

_RAMP = re.compile(r"\s*ramp\(\s*([-+]?\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*\)\s*")


def compile_move(  # noqa: PLR0911  one return for each thing that may be wrong
    name: str, value: object, node: Node, loc: Loc, variables: Mapping[str, Variable], report: Report
) -> Move | None:
    """`ramp(100, 10)`, `hold`, or a constant; None with its problem reported."""
    variable = variables.get(name)
    if variable is None or not variable.action:
        known = [v.name for v in variables.values() if v.action]
        report.key(node, loc, f"`{name}` is not an action{nearest(name, known)}")
        return None
    if variable.labels is not None and isinstance(value, str) and value in variable.labels:
        return Fraction(variable.labels[value])
    move = _move(value)
    if move is None:
        offer = nearest(str(value), variable.labels or ())
        report.add(
            node.get(loc),
            f"`{value}` is not a move{offer}; there are a value, a label, `hold` and `ramp(target, rate)`",
        )
        return None
    target = move.target if isinstance(move, Ramp) else move
    low, high = variable.range
    if variable.labels is not None and isinstance(target, Fraction):
        report.add(
            node.get(loc), f"`{value}` is not a value of `{name}`{nearest(str(value), variable.labels)}"
        )
        return None
    if isinstance(target, Fraction) and not low <= target <= high:
        report.add(node.get(loc), f"`{value}` is outside the range of `{name}`")
        return None
    if isinstance(move, Ramp) and variable.sort != "real":
        report.add(node.get(loc), f"`{name}` is not a real and cannot ramp")
        return None
    if isinstance(move, Ramp) and not move.rate:
        report.add(node.get(loc), f"`{value}` never moves `{name}`; give a rate above 0, or write `hold`")
        return None
    return move


def _move(value: object) -> Move | None:
    if isinstance(value, bool | Fraction):
        return Fraction(value)
    if not isinstance(value, str):
        return None
    if value == "hold":
        return Hold()
    match = _RAMP.fullmatch(value)
    if match is not None:
        return Ramp(Fraction(match.group(1)), Fraction(match.group(2)))
    try:
        return decimal(value)
    except ValueError:
        return None

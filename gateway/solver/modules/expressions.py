"""Expressions of one file: parsed, checked and normalised where they stand, problems reported there."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from fractions import Fraction
from pathlib import Path
from typing import Literal

import pydantic

from gateway.config.positions import Loc, Node, Position
from gateway.config.problems import Problems, add_validation_errors
from gateway.core.errors import ConstraintError
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language import normal, steady
from gateway.solver.language.affine import Affine, Formula, Quadratic, atoms
from gateway.solver.language.parse import ExpressionError, parse
from gateway.solver.language.syntax import (
    Chain,
    Expr,
    For,
    Label,
    Member,
    Number,
    Ref,
    keyed,
    references,
    timed,
)
from gateway.solver.language.typecheck import Declared, typecheck
from gateway.solver.modules.module import Constraint, Variable

Place = Literal["rule", "always", "set", "backup", "dynamics"]

_PLACES: Mapping[Place, str] = {
    "rule": "a rule",
    "always": "a rule with `always`",
    "set": "`safe_set` and `terminal`",
    "backup": "`backup`",
    "dynamics": "`dynamics`",
}


class Report(Problems):
    """Problems of one module file."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.found: list[ConstraintError] = []

    def add(self, file: Path | Node, position: Position | str, sentence: str = "") -> None:
        """A problem at a node; the three-argument form is `Problems`' own."""
        if isinstance(file, Node):
            place, sentence = (file.line, file.column), str(position)
        elif isinstance(position, tuple):
            place = position
        problem = ConstraintError(self.source, *place, sentence)
        if str(problem) not in {str(p) for p in self.found}:
            self.found.append(problem)

    def key(self, node: Node, loc: Loc, sentence: str) -> None:
        """A problem at a key."""
        self.add(Path(self.source), node.key_at(loc), sentence)

    def line(self, line: int, sentence: str) -> None:
        """A problem of a whole line."""
        self.add(Path(self.source), (line, 1), sentence)

    def shape(self, node: Node, model: type[pydantic.BaseModel], error: pydantic.ValidationError) -> None:
        """Pydantic's problems, in our words."""
        add_validation_errors(self, Path(self.source), node, model, error)

    def raise_if_any(self) -> None:
        """Raises `ModuleRefusedError` when anything was added."""
        if self.found:
            raise ModuleRefusedError(tuple(sorted(self.found, key=lambda p: (p.line, p.column))))


class Expressions:
    """The expressions of one file under one set of names."""

    def __init__(
        self,
        node: Node,
        report: Report,
        names: Mapping[str, Declared],
        ill_declared: AbstractSet[str],
        ranges: normal.Ranges,
        module: str,
    ) -> None:
        self._node, self._report = node, report
        self._names = names
        self._ill_declared = ill_declared  # their own problem is reported already
        self._ranges, self._module = ranges, module
        self.asked: set[str] = set()  # variables that `good` or `age` is asked of

    def truth(self, loc: Loc, place: Place) -> Expr | None:
        """The condition at `loc`, or None with its problem reported."""
        return self._checked(loc, "truth", place)

    def number(self, loc: Loc, place: Place) -> Expr | None:
        """The number at `loc`, or None with its problem reported."""
        return self._checked(loc, "number", place)

    def formula(
        self, tree: Expr, loc: Loc, *, moving: AbstractSet[str] | None = None, linear: bool = False
    ) -> Formula | None:
        """The condition over exact forms, or None with its problem reported.

        `moving`: it must hold between instants too while these variables move; `linear`: without products.
        """
        try:
            found = normal.formula(tree, self._ranges)
            for lasting in timed(tree):
                normal.formula(lasting.operand, self._ranges)
        except ExpressionError as exc:
            self._at(loc, exc)
            return None
        if linear and any(isinstance(atom.form, Quadratic) for atom in atoms(found)):
            self._at(loc, ExpressionError(0, "a product of two variables is not allowed in a safe set"))
            return None
        broken = steady.breaks_between(found, moving) if moving else ()
        if broken:
            self._at(loc, ExpressionError(0, steady.problem(broken)))
            return None
        return found

    def form(self, tree: Expr, loc: Loc) -> Affine:
        """A step of the dynamics as one affine form."""
        try:
            return normal.affine(tree)
        except ExpressionError as exc:
            self._at(loc, exc)
            return Affine()

    def within(self, variable: Variable, line: int) -> Constraint:
        """An action stays inside its range; an enum has one of its values."""
        low, high = variable.range
        tree: Expr = Chain(0, ("<=", "<="), (Number(0, low), Ref(0, variable.name), Number(0, high)))
        if variable.labels is not None:
            known = (Label(0, name, Fraction(value)) for name, value in variable.labels.items())
            tree = Member(0, Ref(0, variable.name), tuple(known))
        return _implicit(f"{variable.name}.range", tree, line, "outside its range", "critical")

    def kept(self, name: str, tree: Expr, line: int) -> Constraint:
        """A minimum time is kept."""
        return _implicit(name, tree, line, "minimum time not yet over", "standard")

    def _checked(self, loc: Loc, want: Literal["number", "truth"], place: Place) -> Expr | None:
        text = self._node.get(loc).value
        if not isinstance(text, str):
            self._report.add(self._node.get(loc), "an expression in double quotes is expected")
            return None
        try:
            tree = parse(text)
            if any(r.name in self._ill_declared for r in references(tree)):
                return None
            tree = typecheck(tree, self._names, want, self._module)
            self._placed(tree, place)
        except ExpressionError as exc:
            self._at(loc, exc)
            return None
        self.asked |= {r.name for r in references(tree) if r.form in {"good", "age"}}
        return tree

    def _placed(self, tree: Expr, place: Place) -> None:
        """What looks back, or at the quality of a reading, has a meaning in plain rules only."""
        if place == "rule":
            return
        for part in sorted(keyed(tree), key=lambda p: p.at):
            if isinstance(part, For):
                raise ExpressionError(part.at, f"`for` has no meaning in {_PLACES[place]}")
            measured = part.name in self._names and not self._names[part.name].action
            if place == "backup" and part.name in self._names and self._names[part.name].hidden:
                raise ExpressionError(
                    part.at, f"`{part.name}` is never measured, and a backup can only ask for what is seen"
                )
            backward = measured or place == "dynamics" or (place == "backup" and part.form == "rate")
            if part.form != "now" and backward:
                raise ExpressionError(part.at, f"`{part.key}` has no meaning in {_PLACES[place]}")

    def _at(self, loc: Loc, error: ExpressionError) -> None:
        node = self._node.get(loc)
        text = node.value if isinstance(node.value, str) else ""
        position = (node.line, node.column + 1 + error.at)
        self._report.add(Path(self._report.source), position, f"{error.problem}, in `{text}`")


def _implicit(
    name: str, tree: Expr, line: int, message: str, kind: Literal["critical", "standard"]
) -> Constraint:
    return Constraint(
        id=name,
        kind=kind,
        when=None,
        require=tree,
        always=False,
        message=message,
        line=line,
        text=message,
        formula=normal.formula(tree),
    )

"""Expressions of one file: parsed, checked and normalised where they stand, problems reported there."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Literal

import pydantic

from gateway.config.positions import Loc, Node, Position
from gateway.config.problems import Problems, add_validation_errors
from gateway.core.errors import ConstraintError
from gateway.solver import normal
from gateway.solver.affine import Affine, Atom, Every, Formula, Some, atoms
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.module import Constraint, Variable
from gateway.solver.parse import ExpressionError, parse
from gateway.solver.syntax import Chain, Expr, Number, Ref, references
from gateway.solver.typecheck import Declared, typecheck


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
        disturbances: Mapping[str, Declared] | None = None,
    ) -> None:
        self._node, self._report = node, report
        self._names = {**names, **(disturbances or {})}
        self._steps = disturbances is not None  # these are the dynamics
        self._ill_declared = ill_declared  # their own problem is reported already

    def truth(self, loc: Loc) -> Expr | None:
        """The condition at `loc`, or None with its problem reported."""
        return self._checked(loc, "truth")

    def number(self, loc: Loc) -> Expr | None:
        """The number at `loc`, or None with its problem reported."""
        return self._checked(loc, "number")

    def formula(self, tree: Expr, loc: Loc, *, convex: bool = False) -> Formula | None:
        """The condition over affine forms; `convex` refuses alternatives between measured values."""
        try:
            found = normal.formula(tree)
        except ExpressionError as exc:
            self._at(loc, exc)
            return None
        if convex and not _convex(found, self._names):
            problem = (
                "`always` with alternatives between measured values is not built yet; write one for each"
            )
            self._at(loc, ExpressionError(0, problem))
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
        """An action stays inside its range."""
        low, high = variable.range
        tree = Chain(0, ("<=", "<="), (Number(0, low), Ref(0, variable.name), Number(0, high)))
        return _implicit(f"{variable.name}.range", tree, line, "outside its range", "critical")

    def kept(self, name: str, tree: Expr, line: int) -> Constraint:
        """A minimum time is kept."""
        return _implicit(name, tree, line, "minimum time not yet over", "standard")

    def _checked(self, loc: Loc, want: Literal["number", "truth"]) -> Expr | None:
        text = self._node.get(loc).value
        if not isinstance(text, str):
            self._report.add(self._node.get(loc), "an expression in double quotes is expected")
            return None
        try:
            tree = parse(text)
            if any(r.name in self._ill_declared for r in references(tree)):
                return None
            typecheck(tree, self._names, want)
        except ExpressionError as exc:
            self._at(loc, exc)
            return None
        if self._steps and any(r.form != "now" for r in references(tree)):
            self._at(loc, ExpressionError(0, "`prev` and `rate` have no meaning in dynamics"))
            return None
        return tree

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


def _convex(formula: Formula, names: Mapping[str, Declared]) -> bool:
    """Whether, with actions fixed, holding at two states means holding on the line between them."""

    def measured(part: Formula) -> bool:
        return any(n in names and not names[n].action for atom in atoms(part) for n in atom.form.terms)

    match formula:
        case Atom():
            return True
        case Every(parts):
            return all(_convex(part, names) for part in parts)
        case Some(parts):
            return sum(measured(part) for part in parts) <= 1 and all(_convex(p, names) for p in parts)

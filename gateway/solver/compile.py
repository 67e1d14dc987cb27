"""Module file to compiled module: shape, names, sorts, units, cases; every problem at once, placed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pydantic

from gateway.config.positions import Node, PositionError, parse_json
from gateway.config.problems import nearest
from gateway.core.errors import ConstraintError
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.cases import compile_case, misjudged
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.expressions import Expressions, Report
from gateway.solver.module import BackupEntry, Case, Constraint, Interval, Module, Move, Variable
from gateway.solver.moves import compile_move
from gateway.solver.schema import ModuleShape
from gateway.solver.syntax import Connective, Expr, Ref
from gateway.solver.typecheck import Declared
from gateway.solver.variables import compile_variable

__all__ = ["ModuleRefusedError", "compile_module"]


def compile_module(data: bytes, source: str, tags: Mapping[TagId, TagDefinition]) -> Module:
    """The module in `data`; `source` names the file in problems.

    Raises `ModuleRefusedError` with all problems found.
    """
    report = Report(source)
    try:
        text = data.decode("utf-8")
        node = parse_json(text)
    except UnicodeDecodeError as exc:
        raise ModuleRefusedError((ConstraintError(source, 1, 1, "the file is not UTF-8 text"),)) from exc
    except PositionError as exc:
        raise ModuleRefusedError((ConstraintError(source, exc.line, exc.column, exc.problem),)) from exc
    shape = _shape(node, report)
    compiler = _Compiler(shape, node, report, tags)
    module = compiler.module(text, hashlib.sha256(data).hexdigest())
    report.raise_if_any()
    return module


def _shape(node: Node, report: Report) -> ModuleShape:
    try:
        return ModuleShape.model_validate(node.plain())
    except pydantic.ValidationError as exc:
        report.shape(node, ModuleShape, exc)
    report.raise_if_any()
    raise AssertionError  # pragma: no cover  a validation error always reports


class _Compiler:
    """One compilation; every step adds to the report and goes on where it can."""

    def __init__(
        self, shape: ModuleShape, node: Node, report: Report, tags: Mapping[TagId, TagDefinition]
    ) -> None:
        self._shape, self._node, self._report = shape, node, report
        self.variables: dict[str, Variable] = {}
        for name, declared in shape.variables.items():
            found = compile_variable(name, declared, node.get(("variables", name)), tags, report)
            if found is not None:
                self.variables[name] = found
        self._disturbances = self._read_disturbances()
        names = {
            v.name: Declared(v.sort, v.unit, v.action, exact=v.action or (v.sort != "real" and not v.error))
            for v in self.variables.values()
        }
        self._unknown = shape.variables.keys() - self.variables.keys()
        self._rules = Expressions(node, report, names, self._unknown)
        leaks = {n: Declared("real", None, action=False, exact=False) for n in self._disturbances}
        self._steps = Expressions(node, report, names, self._unknown, disturbances=leaks)

    def module(self, text: str, digest: str) -> Module:
        shape = self._shape
        dynamics = self._dynamics()
        rules = (*self._constraints(), *self._implicit())
        module = Module(
            id=shape.id,
            revision=shape.revision,
            digest=digest,
            priority=shape.priority,
            source=self._report.source,
            text=text,
            tags={v.name: v.tag for v in self.variables.values()},
            actions=tuple(v.tag for v in self.variables.values() if v.action),
            constraints=tuple(r.id for r in rules),
            critical=frozenset(r.id for r in rules if r.kind == "critical"),
            step=shape.step,
            variables=self.variables,
            dynamics=dynamics,
            forms={name: self._steps.form(tree, ("dynamics", name)) for name, tree in dynamics.items()},
            disturbances=self._disturbances,
            rules=rules,
            backup=self._backup(),
            safe_set=self._safe_set(),
            repair=self._repair(),
            cases=self._cases(),
        )
        self._whole(module)
        return module

    def _read_disturbances(self) -> dict[str, Interval]:
        found = self._shape.dynamics.get("disturbance", {})
        if isinstance(found, str):
            self._report.add(
                self._node.get(("dynamics", "disturbance")), "`disturbance` is a table of intervals"
            )
            return {}
        for name in found.keys() & self._shape.variables.keys():
            self._report.key(
                self._node, ("dynamics", "disturbance", name), f"`{name}` is already the name of a variable"
            )
        return dict(found)

    def _dynamics(self) -> dict[str, Expr]:
        trees: dict[str, Expr] = {}
        for name, text in self._shape.dynamics.items():
            loc = ("dynamics", name)
            if name == "disturbance":
                continue
            if not isinstance(text, str):
                self._report.add(self._node.get(loc), f"`{name}` needs an expression")
                continue
            variable = self.variables.get(name)
            if variable is None or variable.action or variable.sort != "real":
                if name not in self._unknown:
                    self._report.key(
                        self._node,
                        loc,
                        f"`{name}` is not a measured real variable{nearest(name, self.variables)}",
                    )
                continue
            tree = self._steps.number(loc)
            if tree is not None:
                trees[name] = tree
        return trees

    def _constraints(self) -> list[Constraint]:
        rules: list[Constraint] = []
        seen: set[str] = set()
        for index, shape in enumerate(self._shape.constraints):
            loc = ("constraints", index)
            if shape.id in seen:
                self._report.add(self._node.get((*loc, "id")), f"constraint `{shape.id}` appears twice")
            seen.add(shape.id)
            when = self._rules.truth((*loc, "when")) if shape.when is not None else None
            require = self._rules.truth((*loc, "require"))
            if require is None or (shape.when is not None and when is None):
                continue
            whole = require if when is None else Connective(require.at, "implies", when, require)
            formula = self._rules.formula(whole, (*loc, "require"), convex=shape.always)
            if formula is None:
                continue
            rules.append(
                Constraint(
                    id=shape.id,
                    kind=shape.kind,
                    when=when,
                    require=require,
                    always=shape.always,
                    message=shape.message,
                    line=self._node.get((*loc, "require")).line,
                    text=shape.require if shape.when is None else f"{shape.when} implies {shape.require}",
                    formula=formula,
                )
            )
        if not self._shape.constraints:
            self._report.add(self._node.get(("constraints",)), "a module without constraints permits nothing")
        return rules

    def _implicit(self) -> list[Constraint]:
        """What the variables' own declarations demand: actions in their range, minimum times kept."""
        rules: list[Constraint] = []
        for v in self.variables.values():
            if not v.action:
                continue
            line = self._node.get(("variables", v.name)).line
            rules.append(self._rules.within(v, line))
            if v.min_on:
                kept = Connective(0, "implies", Ref(0, v.name, "kept_on"), Ref(0, v.name))
                rules.append(self._rules.kept(f"{v.name}.min_on", kept, line))
            if v.min_off:
                kept = Connective(0, "implies", Ref(0, v.name), Ref(0, v.name, "may_rise"))
                rules.append(self._rules.kept(f"{v.name}.min_off", kept, line))
        return rules

    def _backup(self) -> tuple[BackupEntry, ...]:
        entries: list[BackupEntry] = []
        settled: set[str] = set()
        for index, shape in enumerate(self._shape.backup):
            loc = ("backup", index)
            when = self._rules.truth((*loc, "when")) if "when" in shape else None
            formula = self._rules.formula(when, (*loc, "when")) if when is not None else None
            moves: dict[str, Move] = {}
            for name, value in shape.items():
                if name == "when":
                    continue
                move = compile_move(name, value, self._node, (*loc, name), self.variables, self._report)
                if move is not None:
                    moves[name] = move
                    if "when" not in shape:
                        settled.add(name)
            entries.append(BackupEntry(when, formula, moves))
        if self._shape.backup:
            for v in self.variables.values():
                if v.action and v.name not in settled:
                    self._report.add(
                        self._node.get(("backup",)),
                        f"the backup leaves `{v.name}` open; end with an entry for it that has no `when`",
                    )
        return tuple(entries)

    def _safe_set(self) -> tuple[Constraint, ...]:
        rules: list[Constraint] = []
        for index, text in enumerate(self._shape.safe_set):
            loc = ("safe_set", index)
            tree = self._rules.truth(loc)
            formula = self._rules.formula(tree, loc) if tree is not None else None
            if tree is None or formula is None:
                continue
            rules.append(
                Constraint(
                    id=f"safe_set[{index + 1}]",
                    kind="critical",
                    when=None,
                    require=tree,
                    always=False,
                    message="the backup might no longer keep the rules",
                    line=self._node.get(loc).line,
                    text=text,
                    formula=formula,
                )
            )
        return tuple(rules)

    def _repair(self) -> frozenset[str]:
        for name in self._shape.repair:
            variable = self.variables.get(name)
            if name not in self._unknown and (variable is None or not variable.action):
                known = [v.name for v in self.variables.values() if v.action]
                self._report.key(
                    self._node, ("repair", name), f"`{name}` is not an action{nearest(name, known)}"
                )
        return frozenset(name for name, wanted in self._shape.repair.items() if wanted)

    def _cases(self) -> tuple[Case, ...]:
        found = (
            compile_case(case, self._node, ("cases", index), self.variables, self._report)
            for index, case in enumerate(self._shape.cases)
        )
        return tuple(case for case in found if case is not None)

    def _whole(self, module: Module) -> None:
        """What can only be judged once every part is there."""
        for v in self.variables.values():
            if not v.action and v.error == 0 and v.sort == "real":
                self._report.add(
                    self._node.get(("variables", v.name, "error")),
                    f"`{v.name}` claims an error of 0, which no instrument has; state its accuracy",
                )
        if self._report.found:
            return
        for line, problem in misjudged(module):
            self._report.line(line, problem)
        violated = frozenset[str]().union(*(case.violated for case in module.cases))
        for rule in module.rules:
            implicit = rule.line == 0 or "." in rule.id
            if rule.kind == "critical" and not implicit and rule.id not in violated:
                self._report.line(
                    rule.line, f"no case violates critical constraint `{rule.id}`; add one that does"
                )
        if module.cases and all(case.violated for case in module.cases):
            self._report.line(module.cases[0].line, "no case is permitted; add one that just is")

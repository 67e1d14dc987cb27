"""Module file to compiled module: shape, names, sorts, units, cases; every problem at once, placed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from fractions import Fraction

import pydantic

from gateway.config.positions import Node, PositionError, parse_json
from gateway.config.problems import nearest
from gateway.core.errors import ConstraintError
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language import steady
from gateway.solver.language.schema import ModuleShape
from gateway.solver.language.syntax import Connective, Expr, Ref
from gateway.solver.language.typecheck import Declared
from gateway.solver.modules.cases import compile_case, misjudged
from gateway.solver.modules.expressions import Expressions, Place, Report
from gateway.solver.modules.module import BackupEntry, Case, Constraint, Interval, Module, Move, Variable
from gateway.solver.modules.moves import compile_move
from gateway.solver.modules.sequences import compile_sequence
from gateway.solver.modules.variables import compile_variable

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


def _declared(v: Variable) -> Declared:
    """What expressions may know of a variable. An error-free reading is exact."""
    labels = None if v.labels is None else {name: Fraction(n) for name, n in v.labels.items()}
    exact = v.action or not (v.error or v.hidden)
    return Declared(v.sort, v.unit, v.action, exact=exact, labels=labels, hidden=v.hidden)


def _ranges(variables: Iterable[Variable], step: Fraction) -> dict[str, Interval]:
    """Declared ranges by the keys of references; a divisor is judged by them."""
    found: dict[str, Interval] = {}
    for v in variables:
        most = (v.range[1] - v.range[0]) / step if step else Fraction(0)
        found |= {v.name: v.range, f"prev({v.name})": v.range, f"rate({v.name})": (-most, most)}
    return found


class _Compiler:
    """One compilation; every step adds to the report and goes on where it can."""

    def __init__(
        self, shape: ModuleShape, node: Node, report: Report, tags: Mapping[TagId, TagDefinition]
    ) -> None:
        self._shape, self._node, self._report = shape, node, report
        self.variables: dict[str, Variable] = {}
        for name, declared in shape.variables.items():
            place = node.get(("variables", name))
            found = compile_variable(name, declared, place, tags, report, shape.id)
            if found is not None:
                self.variables[name] = found
        self._disturbances = self._read_disturbances()
        self._labels()
        names = {v.name: _declared(v) for v in self.variables.values()}
        self._unknown = shape.variables.keys() - self.variables.keys()
        ranges = _ranges(self.variables.values(), shape.step)
        self._rules = Expressions(node, report, names, self._unknown, ranges, shape.id)
        leaks = {
            n: Declared("real", None, action=False, exact=False, disturbance=True) for n in self._disturbances
        }
        self._steps = Expressions(node, report, names | leaks, self._unknown, ranges, shape.id)

    def module(self, text: str, digest: str) -> Module:
        shape = self._shape
        dynamics = self._dynamics()
        rules = (*self._constraints(dynamics.keys()), *self._implicit(), *self._sequences())
        safe_set = self._set("safe_set", shape.safe_set, dynamics.keys())
        terminal = self._set("terminal", shape.terminal)
        backup = self._backup()
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
            backup=backup,
            safe_set=safe_set,
            repair=self._repair(),
            cases=self._cases(),
            horizon=self._horizon(dynamics),
            terminal=terminal,
            tolerated=frozenset(self.variables[name].tag for name in self._rules.asked),
        )
        self._whole(module)
        return module

    def _labels(self) -> None:
        """A label beside a variable of the same name could mean either."""
        for v in self.variables.values():
            for label in (v.labels or {}).keys() & self._shape.variables.keys():
                self._report.key(
                    self._node,
                    ("variables", v.name, "values"),
                    f"label `{label}` of `{v.name}` is also the name of a variable",
                )

    def _horizon(self, dynamics: Mapping[str, Expr]) -> int:
        shape = self._shape
        wanted = shape.horizon
        if wanted is None:
            wanted = int(bool(dynamics or shape.safe_set or shape.terminal))
        where = self._node.get(("horizon",))
        if shape.terminal and shape.safe_set:
            self._report.key(
                self._node, ("terminal",), "a module has a `safe_set` or a `terminal` set, not both"
            )
        if shape.terminal and not shape.backup:
            self._report.key(self._node, ("terminal",), "a `terminal` set needs a `backup` that reaches it")
        if shape.terminal and shape.horizon is None:
            self._report.key(self._node, ("terminal",), "a `terminal` set needs a `horizon` to be reached in")
        if wanted > 1 and not shape.terminal:
            self._report.add(where, "a `horizon` above 1 needs a `terminal` set; a `safe_set` needs one step")
        if wanted == 0 and (shape.safe_set or shape.terminal):
            self._report.add(
                where, "a `horizon` of 0 claims the snapshot only, and has no safe or terminal set"
            )
        return wanted

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
            tree = self._steps.number(loc, "dynamics")
            if tree is not None:
                trees[name] = tree
        for v in self.variables.values():
            if v.hidden and v.name not in self._shape.dynamics:
                self._report.add(
                    self._node.get(("variables", v.name)),
                    f"`{v.name}` is never measured and needs `dynamics`: nothing else tells where it is",
                )
        return trees

    def _constraints(self, moving: AbstractSet[str]) -> list[Constraint]:
        rules: list[Constraint] = []
        seen: set[str] = set()
        for index, shape in enumerate(self._shape.constraints):
            loc = ("constraints", index)
            if shape.id in seen:
                self._report.add(self._node.get((*loc, "id")), f"constraint `{shape.id}` appears twice")
            seen.add(shape.id)
            place: Place = "always" if shape.always else "rule"
            when = self._rules.truth((*loc, "when"), place) if shape.when is not None else None
            require = self._rules.truth((*loc, "require"), place)
            if require is None or (shape.when is not None and when is None):
                continue
            whole = require if when is None else Connective(require.at, "implies", when, require)
            formula = self._rules.formula(whole, (*loc, "require"), moving=moving if shape.always else None)
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
                    row=shape.row,
                    monitor=shape.monitor,
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

    def _sequences(self) -> list[Constraint]:
        rules: list[Constraint] = []
        known = set(self._shape.variables) | {c.id for c in self._shape.constraints}
        for index, shape in enumerate(self._shape.sequences):
            loc = ("sequences", index)
            if shape.id in known:
                self._report.add(
                    self._node.get((*loc, "id")), f"`{shape.id}` is already the name of something else"
                )
            known.add(shape.id)
            if shape.variable not in self._unknown:
                rules.extend(compile_sequence(shape, self._node, loc, self.variables, self._report))
        return rules

    def _backup(self) -> tuple[BackupEntry, ...]:
        entries: list[BackupEntry] = []
        settled: set[str] = set()
        for index, shape in enumerate(self._shape.backup):
            loc = ("backup", index)
            when = self._rules.truth((*loc, "when"), "backup") if "when" in shape else None
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

    def _set(
        self, key: str, texts: list[str], moving: AbstractSet[str] = frozenset()
    ) -> tuple[Constraint, ...]:
        """`safe_set` or `terminal`; the former holds between instants too, while `moving` variables move."""
        rules: list[Constraint] = []
        for index, text in enumerate(texts):
            loc = (key, index)
            tree = self._rules.truth(loc, "set")
            formula = self._rules.formula(tree, loc, linear=True) if tree is not None else None
            if tree is None or formula is None:
                continue
            if left := steady.leaves_between(formula, moving):
                self._report.add(self._node.get(loc), f"{steady.problem_of_set(left)}, in `{text}`")
                continue
            rules.append(
                Constraint(
                    id=f"{key}[{index + 1}]",
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
        if self._unknown:
            return ()  # a variable is wrong itself, and told of: that its cases do not fit would be noise
        found = (
            compile_case(case, self._node, ("cases", index), self.variables, self._report)
            for index, case in enumerate(self._shape.cases)
        )
        return tuple(case for case in found if case is not None)

    def _whole(self, module: Module) -> None:
        """What can only be judged once every part is there."""
        if self._report.found:
            return
        for line, problem in misjudged(module):
            self._report.line(line, problem)
        violated = frozenset[str]().union(*(case.violated for case in module.cases))
        written = {constraint.id for constraint in self._shape.constraints}
        seen: set[str] = set()
        for rule in module.rules:
            if rule.id in seen:
                self._report.line(
                    rule.line, f"a declaration makes a rule `{rule.id}`; name the other one anew"
                )
            seen.add(rule.id)
            if rule.kind == "critical" and rule.id in written and rule.id not in violated:
                self._report.line(
                    rule.line, f"no case violates critical constraint `{rule.id}`; add one that does"
                )
        if module.cases and all(case.violated for case in module.cases):
            self._report.line(module.cases[0].line, "no case is permitted; add one that just is")

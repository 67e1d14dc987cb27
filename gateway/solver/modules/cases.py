"""The examples a module brings: each must be judged as it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from gateway.config.positions import Loc, Node
from gateway.config.problems import nearest
from gateway.solver.language.evaluate import truth
from gateway.solver.language.schema import CaseShape, seconds
from gateway.solver.language.syntax import Connective, For, references, timed
from gateway.solver.modules.expressions import Report
from gateway.solver.modules.module import Case, Module, Variable

_HELD = "_for"
_EVER = Fraction(10**9)  # seconds; longer than any duration in a rule


def compile_case(
    shape: CaseShape, node: Node, loc: Loc, variables: Mapping[str, Variable], report: Report
) -> Case | None:
    """The case, or None with its problems reported."""
    before = len(report.found)
    reader = _Reader(node, loc, variables, report)
    given = reader.values("given", shape.given)
    missing = variables.keys() - shape.given.keys()
    if missing:
        report.add(node.get((*loc, "given")), f"the case gives no value for `{min(missing)}`")
    held = {name: value for name, value in shape.held.items() if reader.measured("held", name)}
    times = {n: v for n, v in shape.previous.items() if n not in variables and n.endswith(_HELD)}
    previous = reader.values("previous", {n: v for n, v in shape.previous.items() if n not in times})
    for name, text in times.items():
        action = name.removesuffix(_HELD)
        if action not in variables or not variables[action].action:
            report.key(
                node, (*loc, "previous", name), f"`{action}` is not an action{nearest(action, variables)}"
            )
            continue
        try:
            held[action] = seconds(text)
        except ValueError as exc:
            report.add(node.get((*loc, "previous", name)), str(exc))
    ages = {name: value for name, value in shape.age.items() if reader.measured("age", name)}
    bad = frozenset(name for name in shape.bad if reader.measured("bad", name))
    if len(report.found) > before:
        return None
    return Case(
        given=given,
        previous=previous,
        held_s=held,
        violated=shape.expect,
        line=node.get(loc).line,
        age_s=ages,
        bad=bad,
    )


class _Reader:
    """Values of one case."""

    def __init__(self, node: Node, loc: Loc, variables: Mapping[str, Variable], report: Report) -> None:
        self._node, self._loc, self._variables, self._report = node, loc, variables, report

    def values(self, key: str, wanted: Mapping[str, Fraction | bool | str]) -> dict[str, Fraction]:
        found: dict[str, Fraction] = {}
        for name, value in wanted.items():
            loc = (*self._loc, key, name)
            variable = self._variables.get(name)
            if variable is None:
                self._report.key(
                    self._node, loc, f"`{name}` is not a variable{nearest(name, self._variables)}"
                )
                continue
            number = _number(variable, value)
            if number is None:
                self._report.add(self._node.get(loc), _wrong(variable, value))
            else:
                found[name] = number
        return found

    def measured(self, key: str, name: str) -> bool:
        """Whether a name is that of a measured variable; reported where it is not."""
        known = [v.name for v in self._variables.values() if not v.action and not v.hidden]
        if name in known:
            return True
        self._report.key(
            self._node, (*self._loc, key, name), f"`{name}` is not a measured variable{nearest(name, known)}"
        )
        return False


def _number(variable: Variable, value: Fraction | bool | str) -> Fraction | None:  # noqa: FBT001
    """The exact value, None where it is none of this variable."""
    if variable.labels is not None:
        return (
            Fraction(variable.labels[value]) if isinstance(value, str) and value in variable.labels else None
        )
    if isinstance(value, str) or (isinstance(value, bool) and variable.sort != "bool"):
        return None
    number = Fraction(value)
    return None if variable.sort != "real" and number.denominator != 1 else number


def _wrong(variable: Variable, value: Fraction | bool | str) -> str:  # noqa: FBT001
    if variable.labels is not None:
        return f"`{value}` is not a label of `{variable.name}`{nearest(str(value), variable.labels)}"
    return f"`{value}` is not a value of `{variable.name}`, which is {variable.sort}"


def misjudged(module: Module) -> Iterator[tuple[int, str]]:
    """Line and sentence for every case whose outcome is not the expected one."""
    known = {rule.id for rule in module.rules}
    for case in module.cases:
        for name in sorted(case.violated - known):
            yield case.line, f"`{name}` is not a constraint{nearest(name, known)}"
        found = violations(module, case)
        if found != case.violated:
            yield case.line, f"the case expects {_names(case.violated)} and finds {_names(found)}"


def violations(module: Module, case: Case) -> frozenset[str]:
    """Critical and standard rules that the snapshot of a case violates, without any sensor error."""
    point = case_point(module, case)
    return frozenset(
        rule.id
        for rule in module.rules
        if rule.kind != "informational"
        and not truth(
            rule.require if rule.when is None else Connective(0, "implies", rule.when, rule.require), point
        )
    )


def case_point(module: Module, case: Case) -> dict[str, Fraction]:
    """The values of everything a rule can ask for, by key, in the module's own names."""
    point: dict[str, Fraction] = dict(case.given)
    for v in module.variables.values():
        old = case.previous.get(v.name, case.given[v.name])
        held = case.held_s.get(v.name, _EVER)
        point[f"prev({v.name})"] = old
        point[f"rate({v.name})"] = (case.given[v.name] - old) / module.step
        if v.action:
            point[f"held({v.name})"] = held
            point[f"kept_on({v.name})"] = Fraction(old >= 1 and held < v.min_on)
            point[f"may_rise({v.name})"] = Fraction(old >= 1 or held >= v.min_off)
        elif not v.hidden:
            point[f"good({v.name})"] = Fraction(v.name not in case.bad)
            point[f"age({v.name})"] = case.age_s.get(v.name, Fraction(0))
    for rule in module.rules:
        for node in timed(rule.require) | (timed(rule.when) if rule.when is not None else frozenset()):
            point[node.key] = Fraction(_lasted(node, case, point))
    return point


def _lasted(node: For, case: Case, point: Mapping[str, Fraction]) -> bool:
    """Whether `c for N s` holds: `c` does, and every variable of `c` has been so for that long."""
    names = {reference.name for reference in references(node.operand)}
    return truth(node.operand, point) and all(case.held_s.get(name, _EVER) >= node.seconds for name in names)


def _names(ids: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(ids)) or "nothing violated"

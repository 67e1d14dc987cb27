"""The examples a module brings: each must be judged as it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from gateway.config.positions import Loc, Node
from gateway.config.problems import nearest
from gateway.solver.evaluate import truth
from gateway.solver.expressions import Report
from gateway.solver.module import Case, Module, Variable
from gateway.solver.schema import CaseShape, seconds
from gateway.solver.syntax import Connective

_HELD = "_for"


def compile_case(
    shape: CaseShape, node: Node, loc: Loc, variables: Mapping[str, Variable], report: Report
) -> Case | None:
    """The case, or None with its problems reported."""
    before = len(report.found)
    given = {name: Fraction(value) for name, value in shape.given.items() if name in variables}
    for name in shape.given.keys() - variables.keys():
        report.key(node, (*loc, "given", name), f"`{name}` is not a variable{nearest(name, variables)}")
    missing = variables.keys() - shape.given.keys()
    if missing:
        report.add(node.get((*loc, "given")), f"the case gives no value for `{min(missing)}`")
    previous: dict[str, Fraction] = {}
    held: dict[str, Fraction] = {}
    for name, value in shape.previous.items():
        action = name.removesuffix(_HELD)
        if action not in variables or not variables[action].action:
            report.key(
                node, (*loc, "previous", name), f"`{action}` is not an action{nearest(action, variables)}"
            )
        elif name != action:
            try:
                held[action] = seconds(value)
            except ValueError as exc:
                report.add(node.get((*loc, "previous", name)), str(exc))
        elif isinstance(value, str):
            report.add(node.get((*loc, "previous", name)), f"`{value}` is not a value")
        else:
            previous[name] = Fraction(value)
    violated = frozenset[str]() if isinstance(shape.expect, str) else frozenset(shape.expect["violated"])
    if len(report.found) > before:
        return None
    return Case(given=given, previous=previous, held_s=held, violated=violated, line=node.get(loc).line)


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
    point: dict[str, Fraction] = dict(case.given)
    for v in module.variables.values():
        if not v.action:
            continue
        old = case.previous.get(v.name, case.given[v.name])
        held = case.held_s.get(v.name, max(v.min_on, v.min_off))
        point[f"prev({v.name})"] = old
        point[f"rate({v.name})"] = (case.given[v.name] - old) / module.step
        point[f"kept_on({v.name})"] = Fraction(old >= 1 and held < v.min_on)
        point[f"may_rise({v.name})"] = Fraction(old >= 1 or held >= v.min_off)
    return frozenset(
        rule.id
        for rule in module.rules
        if rule.kind != "informational"
        and not truth(
            rule.require if rule.when is None else Connective(0, "implies", rule.when, rule.require), point
        )
    )


def _names(ids: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(ids)) or "nothing violated"

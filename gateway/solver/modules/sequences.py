"""Ordered states of an enum action as rules: where it may go, how long it stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from gateway.config.positions import Loc, Node
from gateway.config.problems import nearest
from gateway.solver.language import normal
from gateway.solver.language.schema import SequenceShape
from gateway.solver.language.syntax import Chain, Connective, Expr, Label, Member, Not, Number, Ref, Truth
from gateway.solver.modules.expressions import Report
from gateway.solver.modules.module import Constraint, Variable


def compile_sequence(
    shape: SequenceShape, node: Node, loc: Loc, variables: Mapping[str, Variable], report: Report
) -> tuple[Constraint, ...]:
    """`ID.order`, `ID.min`, `ID.max`; none with the problems reported."""
    variable = variables.get(shape.variable)
    if variable is None or not variable.action or variable.labels is None:
        known = [v.name for v in variables.values() if v.action and v.labels is not None]
        report.add(
            node.get((*loc, "variable")),
            f"`{shape.variable}` is not an enum action{nearest(shape.variable, known)}",
        )
        return ()
    before = len(report.found)
    _judge(shape, node, loc, variable.labels, report)
    if len(report.found) > before:
        return ()
    line = node.get(loc).line
    steps = _Steps(shape, variable.labels)
    found = [_rule(shape, "order", steps.order(), line, "not a step of the sequence")]
    if any(state.min for state in shape.states):
        found.append(_rule(shape, "min", steps.dwell("min"), line, "left before its minimum time"))
    if any(state.max is not None for state in shape.states):
        found.append(_rule(shape, "max", steps.dwell("max"), line, "its maximum time has passed"))
    return tuple(found)


def _judge(shape: SequenceShape, node: Node, loc: Loc, labels: Mapping[str, int], report: Report) -> None:
    seen: set[str] = set()
    for index, state in enumerate(shape.states):
        here = (*loc, "states", index)
        for name in (state.state, *(state.next or ())):
            if name not in labels:
                report.add(
                    node.get(here), f"`{name}` is not a value of `{shape.variable}`{nearest(name, labels)}"
                )
        if state.state in seen:
            report.add(node.get((*here, "state")), f"state `{state.state}` appears twice")
        seen.add(state.state)
        if state.min is not None and state.max is not None and state.min > state.max:
            report.add(node.get(here), f"`min` of `{state.state}` is longer than its `max`")
    for index, state in enumerate(shape.states):
        for name in state.next or ():
            if name in labels and name not in seen:
                report.add(
                    node.get((*loc, "states", index, "next")),
                    f"`{name}` is not a state of this sequence, and may not be entered",
                )


class _Steps:
    """The rules of one sequence as syntax trees."""

    def __init__(self, shape: SequenceShape, labels: Mapping[str, int]) -> None:
        self._states, self._cyclic, self._labels = shape.states, shape.cyclic, labels
        self._now = Ref(0, shape.variable)
        self._before = Ref(0, shape.variable, "prev")
        self._held = Ref(0, shape.variable, "held")

    def _in(self, value: Ref, names: Iterable[str]) -> Expr:
        return Member(0, value, tuple(Label(0, n, Fraction(self._labels[n])) for n in names))

    def _next(self, index: int) -> tuple[str, ...]:
        state = self._states[index]
        if state.next is not None:
            return tuple(state.next)
        if index + 1 < len(self._states):
            return (self._states[index + 1].state,)
        return (self._states[0].state,) if self._cyclic else ()

    def order(self) -> Expr:
        listed = [s.state for s in self._states]
        parts: list[Expr] = [
            Connective(
                0, "implies", self._in(self._before, [name]), self._in(self._now, [name, *self._next(index)])
            )
            for index, name in enumerate(listed)
        ]
        stays = Chain(0, ("==",), (self._now, self._before))  # a register may hold what no label stands for
        parts += [
            Connective(0, "implies", Not(0, self._in(value, listed)), stays)
            for value in (self._before, self._now)
        ]
        return _all(parts)

    def dwell(self, which: str) -> Expr:
        parts: list[Expr] = []
        for state in self._states:
            here = self._in(self._before, [state.state])
            stays = self._in(self._now, [state.state])
            if which == "min" and state.min:
                parts.append(_kept(here, self._held, "<", state.min, stays))
            if which == "max" and state.max is not None:
                parts.append(_kept(here, self._held, ">=", state.max, Not(0, stays)))
        return _all(parts)


def _kept(here: Expr, held: Ref, op: str, seconds: Fraction, then: Expr) -> Expr:
    time = Chain(0, ("<",) if op == "<" else (">=",), (held, Number(0, seconds)))
    return Connective(0, "implies", Connective(0, "and", here, time), then)


def _all(parts: list[Expr]) -> Expr:
    whole: Expr = Truth(0, value=True)
    for index, part in enumerate(parts):
        whole = Connective(0, "and", whole, part) if index else part
    return whole


def _rule(shape: SequenceShape, name: str, tree: Expr, line: int, message: str) -> Constraint:
    return Constraint(
        id=f"{shape.id}.{name}",
        kind=shape.kind,
        when=None,
        require=tree,
        always=False,
        message=message,
        line=line,
        text=message,
        formula=normal.formula(tree),
    )

"""The check as one would write it down first: every step a variable, one query to Z3 for each decision.

It is the reference of the solver's benchmark, which demands equal verdicts. Nothing is condensed and nothing
is kept between two decisions; premises are those of the real check, so that only the way differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction

import z3

from gateway.core.ports import CheckRequest
from gateway.solver.checking.condense import Duty, Plan, acts_in
from gateway.solver.checking.judge import Judge
from gateway.solver.checking.predict import observe
from gateway.solver.checking.terms import Budget
from gateway.solver.language.syntax import (
    Call,
    Chain,
    Connective,
    Expr,
    Negative,
    Not,
    Number,
    Ref,
    Sum,
    Truth,
)
from gateway.solver.rules.interval import SCALE
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import millis_up

Read = Callable[[Ref], z3.ArithRef]

_ORDER: Mapping[str, Callable[[z3.ArithRef, z3.ArithRef], z3.BoolRef]] = {
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


class Naive:
    """Unrolled checks of one rule set; `permitted` builds and asks everything anew."""

    def __init__(self, rules: RuleSet, patience_s: float | None = None) -> None:
        """A query that takes longer than `patience_s` of wall time is `undetermined`."""
        self._rules, self._judge, self._patience_s = rules, Judge(rules, Budget()), patience_s

    def permitted(self, request: CheckRequest) -> str:
        """`permitted`, `refused` or `undetermined`."""
        assert request.proposal is not None
        rules = self._rules
        facts = observe(rules, request)
        prepared = self._judge.prepare(millis_up(request.effect_delay_s), millis_up(request.hold_s))
        box = prepared.box(facts, request.proposal.engineering())
        query = _Unrolled(rules, prepared.plan, box)
        if self._patience_s is not None:
            query.solver.set("timeout", int(1000 * self._patience_s))
        answer = query.ask([d for d in prepared.plan.duties if d.rule not in prepared.informational])
        return {"sat": "refused", "unsat": "permitted"}.get(answer, "undetermined")


class _Unrolled:
    """One decision's query."""

    def __init__(self, rules: RuleSet, plan: Plan, box: Mapping[str, tuple[int, int]]) -> None:
        self._rules, self._plan, self._box = rules, plan, box
        self._measured = {str(v.tag) for v in rules.measured}
        self.solver = z3.Solver()
        self._known: set[str] = set()
        for k, backup in itertools.product(range(len(plan.segments)), (False, True)):
            segment = plan.segments[k]
            part = _number((segment.end - segment.start) / plan.step)
            for tag, tree in rules.dynamics.items():
                before, after = self._state(tag, k, backup=backup), self._state(tag, k + 1, backup=backup)
                step = _value(tree, self._during(k, backup=backup))
                self.solver.add(after == before + part * (step - before))

    def ask(self, duties: list[Duty]) -> str:
        """Whether one of the duties can be missed: `sat`, `unsat` or `unknown`."""
        missed = [z3.Not(_truth(self._plan.rules[duty.rule].tree, self._in(duty))) for duty in duties]
        self.solver.add(z3.Or(missed))
        return str(self.solver.check())

    def _state(self, tag: str, instant: int, *, backup: bool) -> z3.ArithRef:
        if instant == 0:
            return self._symbol(f"x:{tag}")
        if tag not in self._rules.forms:
            return self._symbol(f"p{instant}:{tag}")
        return z3.Real(f"{tag}@{instant}{' backup' if backup else ''}")

    def _symbol(self, name: str) -> z3.ArithRef:
        symbol = z3.Real(name)
        if name not in self._known and name in self._box:
            self._known.add(name)
            low, high = self._box[name]
            self.solver.add(symbol >= _number(Fraction(low, SCALE)), symbol <= _number(Fraction(high, SCALE)))
        return symbol

    def _during(self, k: int, *, backup: bool) -> Read:
        segment = self._plan.segments[k]

        def read(ref: Ref) -> z3.ArithRef:
            name = ref.key
            if name in self._rules.forms:
                return self._state(name, k, backup=backup)
            if name in self._measured:
                return self._symbol(f"m{k}:{name}")
            if name in self._rules.disturbances:
                return self._symbol(f"d{k}:{name}")
            return self._symbol(f"{acts_in(segment, k, name, backup=backup)}:{name}")

        return read

    def _in(self, duty: Duty) -> Read:
        acting = f"b{duty.backup}" if duty.backup >= 0 else "old" if duty.old else "new"

        def read(ref: Ref) -> z3.ArithRef:
            if ref.form != "now":
                return self._symbol(f"{'old' if ref.form == 'prev' else ref.form}:{ref.name}")
            if ref.name not in self._measured:
                return self._symbol(f"{acting}:{ref.name}")
            drifts = duty.drift >= 0 and ref.name not in self._rules.forms
            return self._state(ref.name, duty.drift if drifts else duty.instant, backup=duty.backup >= 0)

        return read


def _number(value: Fraction) -> z3.RatNumRef:
    return z3.RealVal(f"{value.numerator}/{value.denominator}")


def _truth(node: Expr, read: Read) -> z3.BoolRef:
    match node:
        case Truth(_, value):
            return z3.BoolVal(value)
        case Ref():
            return read(node) >= 1
        case Not(_, operand):
            return z3.Not(_truth(operand, read))
        case Connective(_, op, left, right):
            first, second = _truth(left, read), _truth(right, read)
            made = {"and": z3.And, "or": z3.Or, "implies": z3.Implies, "iff": lambda a, b: a == b}[op]
            return made(first, second)
        case Chain(_, ops, operands):
            values = [_value(part, read) for part in operands]
            return z3.And([_ORDER[op](a, b) for op, a, b in zip(ops, values, values[1:], strict=False)])
        case _:
            raise TypeError(f"no term for {type(node).__name__}")


def _value(node: Expr, read: Read) -> z3.ArithRef:
    match node:
        case Number(_, value):
            return _number(value)
        case Ref():
            return read(node)
        case Negative(_, operand):
            return -_value(operand, read)
        case Sum(_, op, left, right):
            first, second = _value(left, read), _value(right, read)
            return {"+": first + second, "-": first - second, "*": first * second}[op]
        case Call(_, "abs", (only,)):
            inner = _value(only, read)
            return z3.If(inner >= 0, inner, -inner)
        case _:
            raise TypeError(f"no term for {type(node).__name__}")

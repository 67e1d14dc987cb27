"""The stack machine over exact rationals: the third judge beside `evaluate` and Z3."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

from gateway.solver.bytecode.opcodes import Op
from gateway.solver.bytecode.program import Block, Instruction, Program
from gateway.solver.language.evaluate import Point
from gateway.solver.modules.module import Case

Value = Fraction | bool | None  # None: a number that is divided by 0

_EVER = Fraction(10**9)  # seconds: how long what a case leaves out has been as it is
_COMPARE: tuple[Callable[[Fraction, Fraction], bool], ...] = (
    operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne,
)  # fmt: skip
_TRUTHS: Mapping[Op, Callable[[bool, bool], bool]] = {
    Op.AND: lambda a, b: a and b,
    Op.OR: lambda a, b: a or b,
    Op.IMPLIES: lambda a, b: not a or b,
    Op.IFF: lambda a, b: a == b,
}
_SUMS: Mapping[Op, Callable[[Fraction, Fraction], Fraction]] = {
    Op.ADD: operator.add,
    Op.SUBTRACT: operator.sub,
    Op.MULTIPLY: operator.mul,
    Op.DIVIDE: operator.truediv,
}
_MANY: Mapping[Op, Callable[[list[Fraction]], Fraction]] = {
    Op.NEGATE: lambda v: -v[0],
    Op.ABS: lambda v: abs(v[0]),
    Op.MIN: min,
    Op.MAX: max,
    Op.SUM: lambda v: sum(v, Fraction(0)),
    Op.MEDIAN: lambda v: sorted(v)[len(v) // 2],
}


def judge(program: Program, point: Point) -> dict[str, bool]:
    """Whether each rule holds at a point, by id. `point` gives every slot the rules read, by its key."""
    return {rule.id: truth(program, program.blocks[rule.block], point) for rule in program.rules}


def truth(program: Program, block: Block, point: Point) -> bool:
    """The value of a block that leaves a truth."""
    return run(program, block, point) is True


def number(program: Program, block: Block, point: Point) -> Fraction | None:
    """The value of a block that leaves a number; None where it has none."""
    found = run(program, block, point)
    return Fraction(found) if found is not None else None


def run(program: Program, block: Block, point: Point) -> Value:
    """What a block leaves. One pass over its instructions; raises `KeyError` for a slot not in `point`."""
    stack: list[Value] = []
    for step in block.code:
        stack.append(_step(program, step, stack, point))
    return stack.pop()


def _step(  # noqa: C901, PLR0911, PLR0912  one return for each group of instructions
    program: Program, step: Instruction, stack: list[Value], point: Point
) -> Value:
    match step.op:
        case Op.NUMBER:
            return program.constants[step.operand]
        case Op.TRUE | Op.FALSE:
            return step.op is Op.TRUE
        case Op.LOAD:
            return point[program.slots[step.operand].key]
        case Op.TEST:
            return point[program.slots[step.operand].key] >= 1
        case Op.NOT:
            return not stack.pop()
        case Op.AND | Op.OR | Op.IMPLIES | Op.IFF:
            second, first = bool(stack.pop()), bool(stack.pop())
            return _TRUTHS[step.op](first, second)
        case Op.ADD | Op.SUBTRACT | Op.MULTIPLY | Op.DIVIDE:
            return _sum(step.op, *_taken(stack, 2))
        case Op.NEGATE | Op.ABS:
            return _many(step.op, _taken(stack, 1))
        case Op.MIN | Op.MAX | Op.SUM | Op.MEDIAN:
            return _many(step.op, _taken(stack, step.operand))
        case Op.COUNT:
            return Fraction(sum(map(bool, _taken(stack, step.operand))))
        case Op.AT_MOST | Op.EXACTLY:
            held, wanted = sum(map(bool, _taken(stack, step.operand))), stack.pop()
            return wanted is not None and (held <= wanted if step.op is Op.AT_MOST else held == wanted)
        case Op.CHAIN:
            return _chain(step.comparisons, _taken(stack, step.operand))
        case Op.MEMBER:
            values, found = _taken(stack, step.operand), stack.pop()
            return found is not None and found in values
        case Op.CHOOSE_NUMBER | Op.CHOOSE_TRUTH:
            condition, first_branch, second_branch = _taken(stack, 3)
            return first_branch if condition else second_branch


def _taken(stack: list[Value], count: int) -> list[Value]:
    found = stack[-count:]
    del stack[-count:]
    return found


def _sum(op: Op, left: Value, right: Value) -> Fraction | None:
    if left is None or right is None or (op is Op.DIVIDE and not right):
        return None
    return _SUMS[op](Fraction(left), Fraction(right))


def _many(op: Op, values: list[Value]) -> Fraction | None:
    numbers = [Fraction(value) for value in values if value is not None]
    return _MANY[op](numbers) if len(numbers) == len(values) else None


def _chain(comparisons: bytes, values: list[Value]) -> bool:
    pairs = zip(comparisons, values, values[1:], strict=False)
    return all(
        left is not None and right is not None and _COMPARE[code](Fraction(left), Fraction(right))
        for code, left, right in pairs
    )


def violations(program: Program, case: Case) -> frozenset[str]:
    """Critical and standard rules that the snapshot of a case violates."""
    held = judge(program, case_point(program, case))
    return frozenset(r.id for r in program.rules if r.kind != "informational" and not held[r.id])


def case_point(program: Program, case: Case) -> dict[str, Fraction]:
    """What a case says of everything that blocks can read, by key."""
    point: dict[str, Fraction] = dict(case.given)
    for v in program.variables:
        now = case.given[v.name]
        old, held = case.previous.get(v.name, now), case.held_s.get(v.name, _EVER)
        point[f"prev({v.name})"] = old
        point[f"rate({v.name})"] = (now - old) / program.step
        if v.action:
            point[f"held({v.name})"] = held
            point[f"kept_on({v.name})"] = Fraction(old >= 1 and held < v.min_on)
            point[f"may_rise({v.name})"] = Fraction(old >= 1 or held >= v.min_off)
        elif not v.hidden:
            point[f"good({v.name})"] = Fraction(v.name not in case.bad)
            point[f"age({v.name})"] = case.age_s.get(v.name, Fraction(0))
    for slot in program.slots:
        if slot.form == "timer":
            timer = program.timers[slot.index]
            block = program.blocks[timer.block]
            names = _read(program, block)
            lasted = all(case.held_s.get(name, _EVER) >= timer.seconds for name in names)
            point[slot.key] = Fraction(lasted and truth(program, block, point))
    return point


def _read(program: Program, block: Block) -> frozenset[str]:
    """Names of the variables that a block reads."""
    slots = (program.slots[s.operand] for s in block.code if s.op in {Op.LOAD, Op.TEST})
    return frozenset(program.variables[slot.index].name for slot in slots)

"""The stack machine over columns: a million recorded points at once, exact where it says it is certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from gateway.core.tag import exact
from gateway.solver.bytecode import columns as c
from gateway.solver.bytecode.columns import Bools, Column
from gateway.solver.bytecode.opcodes import COMPARISONS, Op
from gateway.solver.bytecode.program import Block, Instruction, Program, Slot
from gateway.solver.bytecode.run import truth

_CHUNK = 65_536  # points at a time: a block's columns stay in the cache

Columns = Mapping[str, npt.NDArray[Any]]  # by the key of a slot; all of one length


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What came out for each point. Where `unknown` is true, `holds` is false.

    `unknown`: a value the rule reads is NaN or infinite. `doubtful` were within rounding of a limit, and were
    judged again by the exact machine.
    """

    holds: Mapping[str, Bools]  # by rule
    unknown: Mapping[str, Bools]
    doubtful: Mapping[str, Bools]


@dataclass(frozen=True, slots=True)
class _Truths:
    """For each point: surely true, and possibly true. The same object where nothing is open."""

    yes: Bools
    may: Bools


def run_many(program: Program, columns: Columns) -> Verdicts:
    """Every rule of a program at every point.

    `columns` gives each slot that the rules read, by its key; `rate(x)` is worked out from `x` and `prev(x)`
    where it is left out. A float stands for the shortest decimal that reads back as it, as everywhere in the
    gateway. Raises `KeyError` for a slot that is missing and `ValueError` for columns of unlike length.
    """
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"the columns are of unlike length: {sorted(lengths)}")
    count = next(iter(lengths), 0)
    found = {rule.id: _Judged(program, program.blocks[rule.block], columns, count) for rule in program.rules}
    return Verdicts(
        holds={name: judged.holds for name, judged in found.items()},
        unknown={name: judged.unknown for name, judged in found.items()},
        doubtful={name: judged.doubtful for name, judged in found.items()},
    )


class _Judged:
    """One block at every point."""

    def __init__(self, program: Program, block: Block, columns: Columns, count: int) -> None:
        self._program, self._block = program, block
        self.holds: Bools = np.zeros(count, dtype=np.bool_)
        self.unknown: Bools = np.zeros(count, dtype=np.bool_)
        self.doubtful: Bools = np.zeros(count, dtype=np.bool_)
        numbers = {s.operand for s in block.code if s.op in {Op.LOAD, Op.TEST}}
        slots = [program.slots[number] for number in sorted(numbers)]
        self._read = {key: columns[key] for slot in slots for key in self._keys(slot, columns)}
        for start in range(0, count, _CHUNK):
            self._chunk(slice(start, min(start + _CHUNK, count)))
        self._judge_again()

    def _keys(self, slot: Slot, columns: Columns) -> tuple[str, ...]:
        if slot.key in columns or slot.form != "rate":
            return (slot.key,)
        name = self._program.variables[slot.index].name
        return name, f"prev({name})"

    def _chunk(self, part: slice) -> None:
        values = {key: column[part] for key, column in self._read.items()}
        unknown = np.zeros(part.stop - part.start, dtype=np.bool_)
        for column in values.values():
            if np.issubdtype(column.dtype, np.floating):
                unknown |= ~np.isfinite(column)
        if unknown.any():
            values = {key: np.where(unknown, 0, column) for key, column in values.items()}
        with np.errstate(all="ignore"):  # what overflows is in doubt
            found = _Machine(self._program, values).run(self._block)
        self.holds[part] = found.yes & ~unknown
        self.unknown[part] = unknown
        if found.may is not found.yes:
            self.doubtful[part] = (found.may != found.yes) & ~unknown

    def _judge_again(self) -> None:
        """What is in doubt, exactly; equal points once."""
        rows = np.flatnonzero(self.doubtful)
        if not len(rows):
            return
        keys = list(self._read)
        if not keys:  # it reads nothing and is the same everywhere
            self.holds[rows] = truth(self._program, self._block, {})
            return
        table = np.stack([self._read[key][rows].astype(np.float64) for key in keys], axis=1)
        different, back = np.unique(table, axis=0, return_inverse=True)
        first = np.zeros(len(different), dtype=np.int64)
        first[back.reshape(-1)] = rows
        verdicts = np.array([self._exactly(keys, int(row)) for row in first], dtype=np.bool_)
        self.holds[rows] = verdicts[back.reshape(-1)]

    def _exactly(self, keys: list[str], row: int) -> bool:
        point = {key: _value(self._read[key][row]) for key in keys}
        for slot in self._program.slots:
            if slot.form == "rate" and slot.key not in point:
                name = self._program.variables[slot.index].name
                if name in point and f"prev({name})" in point:
                    point[slot.key] = (point[name] - point[f"prev({name})"]) / self._program.step
        return truth(self._program, self._block, point)


def _value(found: np.generic) -> Fraction:
    return exact(found.item())


class _Machine:
    """One chunk: columns on the stack in the place of values."""

    def __init__(self, program: Program, values: Columns) -> None:
        self._program, self._values = program, values
        self._columns: dict[str, Column] = {}
        self._stack: list[Any] = []  # Column or _Truths: the loader, or the assembler, has checked which

    def run(self, block: Block) -> _Truths:
        for step in block.code:
            self._stack.append(self._step(step))
        found: _Truths = self._stack.pop()
        return found

    def _load(self, number: int) -> Column:
        slot = self._program.slots[number]
        if slot.key not in self._columns:
            self._columns[slot.key] = self._slot(slot)
        return self._columns[slot.key]

    def _slot(self, slot: Slot) -> Column:
        if slot.key in self._values:
            return c.column(self._values[slot.key])
        name = self._program.variables[slot.index].name
        change = c.added(c.column(self._values[name]), c.column(self._values[f"prev({name})"]), -1)
        return c.divided(change, c.constant(self._program.step))

    def _taken(self, count: int) -> list[Any]:
        found = self._stack[-count:]
        del self._stack[-count:]
        return found

    def _step(self, step: Instruction) -> Column | _Truths:  # noqa: C901, PLR0911, PLR0912  one a group
        match step.op:
            case Op.NUMBER:
                return c.constant(self._program.constants[step.operand])
            case Op.TRUE | Op.FALSE:
                return _certain(np.array([step.op is Op.TRUE]))
            case Op.LOAD:
                return self._load(step.operand)
            case Op.TEST:
                return _compared(">=", self._load(step.operand), c.constant(Fraction(1)))
            case Op.NOT:
                return _not(self._stack.pop())
            case Op.AND | Op.OR | Op.IMPLIES | Op.IFF:
                return _joined(step.op, *self._taken(2))
            case Op.ADD | Op.SUBTRACT:
                left, right = self._taken(2)
                return c.added(left, right, 1 if step.op is Op.ADD else -1)
            case Op.MULTIPLY:
                return c.multiplied(*self._taken(2))
            case Op.DIVIDE:
                return c.divided(*self._taken(2))
            case Op.NEGATE:
                return c.negated(self._stack.pop())
            case Op.ABS:
                return c.absolute(self._stack.pop())
            case Op.MIN | Op.MAX | Op.SUM | Op.MEDIAN:
                return _many(step.op, tuple(self._taken(step.operand)))
            case Op.COUNT:
                return _count(self._taken(step.operand))
            case Op.AT_MOST | Op.EXACTLY:
                held = _count(self._taken(step.operand))
                return _compared("<=" if step.op is Op.AT_MOST else "==", held, self._stack.pop())
            case Op.CHAIN:
                return _chain(step.comparisons, self._taken(step.operand))
            case Op.MEMBER:
                values = self._taken(step.operand)
                found = self._stack.pop()
                return _any([_compared("==", found, value) for value in values])
            case Op.CHOOSE_NUMBER:
                condition, first, second = self._taken(3)
                return c.chosen(condition.yes, condition.may, first, second)
            case Op.CHOOSE_TRUTH:
                return _chosen(*self._taken(3))


def _certain(found: Bools) -> _Truths:
    return _Truths(found, found)


def _not(found: _Truths) -> _Truths:
    yes = ~found.may
    return _Truths(yes, yes if found.may is found.yes else ~found.yes)


def _joined(op: Op, left: _Truths, right: _Truths) -> _Truths:
    if op is Op.IMPLIES:
        left, op = _not(left), Op.OR
    closed = left.yes is left.may and right.yes is right.may
    if op is Op.IFF:
        yes = (left.yes & right.yes) | ~(left.may | right.may)
        return _certain(yes) if closed else _Truths(yes, ~((left.yes & ~right.may) | (right.yes & ~left.may)))
    join = np.bitwise_and if op is Op.AND else np.bitwise_or
    yes = join(left.yes, right.yes)
    return _certain(yes) if closed else _Truths(yes, join(left.may, right.may))


def _any(parts: list[_Truths]) -> _Truths:
    found = parts[0]
    for part in parts[1:]:
        found = _joined(Op.OR, found, part)
    return found


def _chosen(condition: _Truths, first: _Truths, second: _Truths) -> _Truths:
    yes = (condition.yes & first.yes) | (~condition.may & second.yes) | (first.yes & second.yes)
    if all(part.yes is part.may for part in (condition, first, second)):
        return _certain(yes)
    may = (condition.may & first.may) | (~condition.yes & second.may)
    return _Truths(yes, may)


def _count(parts: list[_Truths]) -> Column:
    """How many hold. Nothing is known where some are open."""
    total: Column = c.constant(Fraction(0))
    for part in parts:
        total = c.added(total, c.chosen(part.yes, part.may, c.constant(Fraction(1)), c.constant(Fraction(0))))
    return total


def _many(op: Op, columns: tuple[Column, ...]) -> Column:
    if op is not Op.SUM:
        return c.picked(columns, {Op.MIN: 0, Op.MAX: len(columns) - 1}.get(op, len(columns) // 2))
    total = columns[0]
    for column in columns[1:]:
        total = c.added(total, column)
    return total


def _chain(comparisons: bytes, columns: list[Column]) -> _Truths:
    pairs = zip(comparisons, columns, columns[1:], strict=False)
    found = [_compared(COMPARISONS[code], left, right) for code, left, right in pairs]
    whole = found[0]
    for part in found[1:]:
        whole = _joined(Op.AND, whole, part)
    return whole


def _compared(op: str, left: Column, right: Column) -> _Truths:
    """A comparison; a value of which nothing is known leaves it open."""
    if op in {">", ">="}:
        return _compared("<" if op == ">" else "<=", right, left)
    if op == "!=":  # not the negation of `==`: both are false where something is divided by 0
        below, above = _compared("<", left, right), _compared("<", right, left)
        return _joined(Op.OR, below, above)
    found, bound = c.difference(left, right)
    if bound is None:
        return _certain({"<": np.less, "<=": np.less_equal, "==": np.equal}[op](found, 0))
    open_ = ~np.isfinite(bound) | np.isnan(found)
    match op:
        case "<":
            yes, may = found < -bound, found < bound
        case "<=":
            yes, may = found <= -bound, found <= bound
        case _:
            yes, may = (found == 0) & (bound == 0), np.abs(found) <= bound
    return _Truths(yes & ~open_, may | open_)

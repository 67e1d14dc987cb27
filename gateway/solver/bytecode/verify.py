"""Whether code is harmless: known opcodes, the right types on the stack, bounded depth, numbers and work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.solver.bytecode.opcodes import (
    COMPARISONS,
    COUNTED,
    INDEXED,
    MAX_DEPTH,
    MAX_INDEX,
    MAX_INSTRUCTIONS,
    MAX_WIDTH,
    MAX_WORK,
    READ_WIDTH,
    Op,
    Type,
    puts,
    takes,
)
from gateway.solver.bytecode.program import Block, Instruction
from gateway.solver.bytecode.reading import BadBytesError, Reader

_KNOWN = frozenset(int(op) for op in Op)
_SUMS = frozenset((Op.ADD, Op.SUBTRACT, Op.MULTIPLY, Op.DIVIDE, Op.SUM))
_PICKS = frozenset((Op.MIN, Op.MAX, Op.MEDIAN, Op.CHOOSE_NUMBER))
_TRUTH_WIDTH = 1

Placed = tuple[Instruction, int]  # and its offset in the file


@dataclass(slots=True)
class Verifier:
    """The blocks of one file, one after the other."""

    constants: Sequence[Fraction]
    slots: int
    origins: int
    _instructions: int = 0
    _work: int = 0
    _widths: list[int] = field(init=False)
    _known: dict[int, Instruction] = field(
        default_factory=dict
    )  # one object for each: a large file stays small

    def __post_init__(self) -> None:
        self._widths = [c.numerator.bit_length() + c.denominator.bit_length() for c in self.constants]

    def decoded(self, reader: Reader) -> list[Placed]:
        """The instructions of one block."""
        found: list[Placed] = []
        while reader.at < reader.end:
            start = reader.at
            code = reader.number(1, "an instruction")
            if code not in _KNOWN:
                raise BadBytesError(start, f"there is no instruction {code:#04x}")
            op, operand = Op(code), 0
            if op in INDEXED | COUNTED:
                least = 2 if op is Op.CHAIN else int(op in COUNTED)  # a comparison has two sides
                operand = reader.number(2, f"the operand of {op.name}", MAX_INDEX, least)
            if op is Op.MEDIAN and operand % 2 == 0:
                raise BadBytesError(start, "a median takes an odd number of values")
            if op is Op.CHAIN:
                comparisons = reader.take(operand - 1, "the comparisons of a chain")
                if max(comparisons) >= len(COMPARISONS):
                    raise BadBytesError(start, f"there is no comparison {max(comparisons)}")
                found.append((Instruction(op, operand, comparisons), start))
            else:
                step = self._known.setdefault(code << 16 | operand, Instruction(op, operand))
                found.append((step, start))
        return found

    def check(self, steps: Sequence[Placed], result: Type) -> None:
        """Run the types and the widths of a block; raises `BadBytesError`.

        A width bounds the bits of a numerator and of a denominator: no value is used twice, so both are at
        most the sum of what it is made of.
        """
        self._instructions += len(steps)
        if self._instructions > MAX_INSTRUCTIONS:
            raise BadBytesError(steps[0][1], f"there are more than {MAX_INSTRUCTIONS} instructions")
        stack: list[tuple[Type, int]] = []
        for step, at in steps:
            wanted = takes(step.op, step.operand)
            taken = stack[len(stack) - len(wanted) :] if len(wanted) <= len(stack) else None
            if taken is None or any(have != want for (have, _), want in zip(taken, wanted, strict=True)):
                has = ", ".join(kind for kind, _ in stack[-4:]) or "nothing"
                raise BadBytesError(at, f"{step.op.name} does not fit what is on the stack: {has}")
            del stack[len(stack) - len(wanted) :]
            width = self._width(step, [w for _, w in taken], at)
            stack.append((puts(step.op), width))
            self._work += width
            if len(stack) > MAX_DEPTH:
                raise BadBytesError(at, f"more than {MAX_DEPTH} values are on the stack")
            if width > MAX_WIDTH or self._work > MAX_WORK:
                raise BadBytesError(at, "the numbers it would work with grow beyond any use")
        if [kind for kind, _ in stack] != [result]:
            at = steps[-1][1] if steps else 0
            raise BadBytesError(at, f"the block does not leave one {result}")

    def check_places(self, block: Block, at: int) -> None:
        """Every instruction comes from an expression there is."""
        for index in range(len(block.code)):
            origin, _ = block.place(index)
            if origin >= self.origins:
                raise BadBytesError(
                    at + 4 * index, f"an instruction comes from expression {origin}, not there"
                )

    def _width(self, step: Instruction, taken: Sequence[int], at: int) -> int:
        op = step.op
        if op is Op.NUMBER:
            if step.operand >= len(self._widths):
                raise BadBytesError(at, f"there is no constant {step.operand}")
            return self._widths[step.operand]
        if op in {Op.LOAD, Op.TEST}:
            if step.operand >= self.slots:
                raise BadBytesError(at, f"there is no slot {step.operand}")
            return READ_WIDTH if op is Op.LOAD else _TRUTH_WIDTH
        if op in _SUMS:
            return sum(taken) + len(taken)
        if op in _PICKS:
            return max(taken)
        if op in {Op.NEGATE, Op.ABS}:
            return taken[0]
        return sum(taken) if op in {Op.CHAIN, Op.MEMBER} else 32 if op is Op.COUNT else _TRUTH_WIDTH

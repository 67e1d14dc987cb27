"""The instructions of a compiled module, and every bound of its file format.

A block is a straight line of instructions for a stack of numbers and truths: there are no jumps, no calls
and no instruction that copies, so a block runs through once, each value is used once, and the work is known
before it begins. Both branches of a choice are worked out; a number without a value (something divided by 0)
may stand in the one not taken, and makes a comparison false in the one that is.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Literal

MAGIC = b"\x89O3C\r\n\x1a\n"  # a transfer as text changes it
FORMAT = 1  # rises with every change of the bytes that one source compiles to
CONTEXT = b"o3-module/1\n"  # no signature over anything else is one over a module

MAX_FILE = 4 * 1024 * 1024
MAX_SOURCE = 2 * 1024 * 1024
MAX_TEXT = 65_535  # bytes of one text
MAX_RATIO = 1_785  # bytes of a numerator or a denominator: Python makes no text of more than 4 300 digits
MAX_INDEX = 20_000  # constants, slots, origins, blocks
MAX_ITEMS = 120_000  # of all lists of a file together
MAX_VARIABLES = 4_096
MAX_LABELS = 64  # of one enum
MAX_INSTRUCTIONS = 200_000
MAX_DEPTH = 4_096  # values on the stack
MAX_WIDTH = 1 << 18  # bits that one value of a block may need
MAX_WORK = 1 << 31  # bits that all values of a file may need together
READ_WIDTH = 128  # bits that a value read from a slot counts as

Type = Literal["number", "truth"]


class Op(enum.IntEnum):
    """Instructions; the comment says what follows in the code, what is taken, and what is put."""

    NUMBER = 0x01  # u16 constant; -> number
    TRUE = 0x02
    FALSE = 0x03
    LOAD = 0x04  # u16 slot; -> number
    TEST = 0x05  # u16 slot; -> truth, that its value is at least 1
    NOT = 0x10
    AND = 0x11
    OR = 0x12
    IMPLIES = 0x13
    IFF = 0x14
    NEGATE = 0x20
    ADD = 0x21
    SUBTRACT = 0x22
    MULTIPLY = 0x23
    DIVIDE = 0x24
    ABS = 0x25
    MIN = 0x30  # u16 n; n numbers
    MAX = 0x31
    SUM = 0x32
    MEDIAN = 0x33  # n is odd
    COUNT = 0x38  # u16 n; n truths -> number
    AT_MOST = 0x39  # u16 n; a number, n truths -> truth
    EXACTLY = 0x3A
    CHAIN = 0x40  # u16 n, n - 1 comparisons; n numbers -> truth
    MEMBER = 0x41  # u16 n; a number, n numbers -> truth, that it is one of them
    CHOOSE_NUMBER = 0x48  # truth, number, number -> number
    CHOOSE_TRUTH = 0x49


COMPARISONS = ("<=", "<", ">=", ">", "==", "!=")  # coded as 0 to 5

_N: Type = "number"
_T: Type = "truth"
_FIXED: Mapping[Op, tuple[tuple[Type, ...], Type]] = {
    Op.NUMBER: ((), _N),
    Op.TRUE: ((), _T),
    Op.FALSE: ((), _T),
    Op.LOAD: ((), _N),
    Op.TEST: ((), _T),
    Op.NOT: ((_T,), _T),
    **dict.fromkeys((Op.AND, Op.OR, Op.IMPLIES, Op.IFF), ((_T, _T), _T)),
    **dict.fromkeys((Op.NEGATE, Op.ABS), ((_N,), _N)),
    **dict.fromkeys((Op.ADD, Op.SUBTRACT, Op.MULTIPLY, Op.DIVIDE), ((_N, _N), _N)),
    Op.CHOOSE_NUMBER: ((_T, _N, _N), _N),
    Op.CHOOSE_TRUTH: ((_T, _T, _T), _T),
}
_COUNTED: Mapping[Op, tuple[tuple[Type, ...], Type, Type]] = {  # first, then n of the second; puts the third
    **dict.fromkeys((Op.MIN, Op.MAX, Op.SUM, Op.MEDIAN), ((), _N, _N)),
    Op.COUNT: ((), _T, _N),
    Op.AT_MOST: ((_N,), _T, _T),
    Op.EXACTLY: ((_N,), _T, _T),
    Op.CHAIN: ((), _N, _T),
    Op.MEMBER: ((_N,), _N, _T),
}
INDEXED = frozenset((Op.NUMBER, Op.LOAD, Op.TEST))
COUNTED = frozenset(_COUNTED)


def takes(op: Op, count: int) -> tuple[Type, ...]:
    """What an instruction takes from the stack, deepest first."""
    if op in _COUNTED:
        first, many, _ = _COUNTED[op]
        return first + (many,) * count
    return _FIXED[op][0]


def puts(op: Op) -> Type:
    """What an instruction leaves on the stack."""
    return _COUNTED[op][2] if op in _COUNTED else _FIXED[op][1]

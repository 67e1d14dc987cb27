"""A syntax tree as the text a person would write: no more parentheses than the language needs."""

from __future__ import annotations

from fractions import Fraction

from gateway.core.tag import decimal_text
from gateway.solver.language.syntax import (
    Call,
    Chain,
    Choice,
    Connective,
    Expr,
    For,
    Label,
    Member,
    Negative,
    Not,
    Number,
    Ref,
    Sum,
    Truth,
)

_IF, _IFF, _IMPLIES, _OR, _AND, _NOT, _FOR, _COMPARE, _ADD, _MULTIPLY, _SIGN, _ATOM = range(12)
_LOGIC = {"iff": _IFF, "implies": _IMPLIES, "or": _OR, "and": _AND}


def printed(node: Expr) -> str:
    """The text; it parses to the same tree."""
    return _text(node)[0]


def _within(node: Expr, least: int) -> str:
    """The text of a part, in parentheses where it binds less than `least`."""
    text, binding = _text(node)
    return text if binding >= least else f"({text})"


def _text(node: Expr) -> tuple[str, int]:  # noqa: C901, PLR0911, PLR0912  one return for each kind of node
    match node:
        case Number(_, value):
            return (decimal_text(value), _ATOM) if value >= 0 else (decimal_text(value), _SIGN)
        case Label(_, name, _):
            return name, _ATOM
        case Truth(_, truth):
            return str(truth).lower(), _ATOM
        case Ref():
            return node.key, _ATOM
        case Not(_, operand):
            return f"not {_within(operand, _NOT)}", _NOT
        case Negative(_, operand):
            return f"-{_within(operand, _SIGN)}", _SIGN
        case Sum(_, op, left, right):
            level = _ADD if op in {"+", "-"} else _MULTIPLY
            return f"{_within(left, level)} {op} {_within(right, level + 1)}", level
        case Connective(_, op, left, right):
            level = _LOGIC[op]
            to_right = op == "implies"
            return f"{_within(left, level + to_right)} {op} {_within(right, level + (not to_right))}", level
        case Chain(_, ops, operands):
            first, *others = (_within(part, _ADD) for part in operands)
            return " ".join(
                [first, *(f"{op} {part}" for op, part in zip(ops, others, strict=True))]
            ), _COMPARE
        case Member(_, operand, values):
            return f"{_within(operand, _ADD)} in ({', '.join(map(printed, values))})", _COMPARE
        case Call(_, function, arguments):
            listed = ", ".join(map(printed, arguments))
            return (f"vote(median, {listed})" if function == "median" else f"{function}({listed})"), _ATOM
        case Choice(_, condition, first, second):
            return f"if {printed(condition)} then {printed(first)} else {printed(second)}", _IF
        case For(_, operand, seconds, _):
            return f"{_within(operand, _COMPARE)} for {_duration(seconds)}", _FOR


def _duration(seconds: Fraction) -> str:
    return f"{decimal_text(seconds)} s"

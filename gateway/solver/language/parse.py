"""Constraint text to syntax tree: a recursive descent over a few tokens, no other judgement."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, cast

from gateway.config.problems import nearest
from gateway.solver.language.syntax import (
    Call,
    Chain,
    Choice,
    Comparison,
    Connective,
    Expr,
    For,
    Form,
    Logic,
    Member,
    Negative,
    Not,
    Number,
    Ref,
    Sum,
    Truth,
    children,
)

MAX_DEPTH = 40  # nested parentheses and signs: deeper than anyone writes, shallower than the stack
MAX_LENGTH = 4_000  # characters of one expression
MAX_IN_A_ROW = 150  # operations one inside the other, as `a + b + c` nests them; all later passes recurse

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<op><=|>=|==|!=|[-+*/()<>,])|(?P<bad>\S))"
)
_COMPARISONS = frozenset(("<=", "<", ">=", ">", "==", "!="))
FUNCTIONS = frozenset(("abs", "min", "max", "sum", "count", "at_most", "exactly", "vote"))
FORMS = frozenset(("prev", "rate", "good", "age"))
KEYWORDS = frozenset(
    ("and", "or", "not", "implies", "iff", "in", "true", "false", "if", "then", "else", "for")
)
_VOTES = {"median": "median", "max": "max", "min": "min"}
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600)}


class ExpressionError(Exception):
    """An expression is wrong at one offset of its text."""

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at, self.problem = at, problem


@dataclass(frozen=True, slots=True)
class Token:
    """One word, number or sign."""

    kind: Literal["number", "word", "op", "end"]
    text: str
    at: int


def tokens(text: str) -> list[Token]:
    """The tokens of a text, with an `end` token last."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(0, f"the expression is longer than {MAX_LENGTH} characters")
    found: list[Token] = []
    at = 0
    while (match := _TOKEN.match(text, at)) is not None:
        kind = match.lastgroup
        assert kind is not None, "each alternative has a name"  # noqa: S101
        start = match.start(kind)
        if kind == "bad":
            raise ExpressionError(start, f"`{match.group('bad')}` is not part of the language")
        found.append(Token(cast("Literal['number', 'word', 'op']", kind), match.group(kind), start))
        at = match.end()
    found.append(Token("end", "end of text", len(text)))
    return found


def parse(text: str) -> Expr:
    """The syntax tree of one expression; raises `ExpressionError`."""
    parser = _Parser(tokens(text))
    tree = parser.whole()
    parser.finish()
    _bounded(tree)
    return tree


def _bounded(tree: Expr) -> None:
    """Raises `ExpressionError` for a tree that is too deep for the passes after this one."""
    level = [tree]
    for _ in range(MAX_IN_A_ROW):
        level = [part for node in level for part in children(node)]
        if not level:
            return
    raise ExpressionError(
        tree.at,
        f"the expression has more than {MAX_IN_A_ROW} operations in a row; write `sum(...)`, `min(...)` or "
        "several rules",
    )


class _Parser:
    """One reading of one text; `_next` is the token not yet taken."""

    def __init__(self, found: list[Token]) -> None:
        self._tokens, self._index, self._depth = found, 0, 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._index]

    def _take(self) -> Token:
        token = self._next
        self._index = min(self._index + 1, len(self._tokens) - 1)
        return token

    def _is(self, *texts: str) -> bool:
        return self._next.kind in {"op", "word"} and self._next.text in texts

    def _expect(self, text: str) -> None:
        if not self._is(text):
            raise ExpressionError(self._next.at, f"expected `{text}`, found `{self._next.text}`")
        self._take()

    def finish(self) -> None:
        if self._next.kind != "end":
            raise ExpressionError(self._next.at, f"`{self._next.text}` is not expected here")

    def whole(self) -> Expr:
        """The loosest form: `if c then a else b`, or what `iff` connects."""
        if not self._is("if"):
            return self._iff()
        at = self._take().at
        self._deeper(at)
        condition = self.whole()
        self._expect("then")
        first = self.whole()
        self._expect("else")
        second = self.whole()
        self._depth -= 1
        return Choice(at, condition, first, second)

    def _iff(self) -> Expr:
        left = self._implies()
        while self._is("iff"):
            at = self._take().at
            left = Connective(at, "iff", left, self._implies())
        return left

    def _implies(self) -> Expr:
        left = self._connected("or")
        if self._is("implies"):
            at = self._take().at
            return Connective(at, "implies", left, self._implies())
        return left

    def _connected(self, word: Logic) -> Expr:
        def part() -> Expr:
            return self._connected("and") if word == "or" else self._negated()

        left = part()
        while self._is(word):
            at = self._take().at
            left = Connective(at, word, left, part())
        return left

    def _negated(self) -> Expr:
        if not self._is("not"):
            return self._lasting()
        at = self._take().at
        self._deeper(at)
        operand = self._negated()
        self._depth -= 1
        return Not(at, operand)

    def _lasting(self) -> Expr:
        start = self._index
        found = self._compared()
        if not self._is("for"):
            return found
        row = " ".join(token.text for token in self._tokens[start : self._index])
        at = self._take().at
        number, unit = self._take(), self._take()
        if number.kind != "number" or unit.text not in _SECONDS:
            raise ExpressionError(number.at, "expected a duration such as `10 s` after `for`")
        return For(at, found, Fraction(number.text) * _SECONDS[unit.text], row)

    def _compared(self) -> Expr:
        first = self._sum()
        if self._is("in"):
            return self._member(first)
        operands, ops, at = [first], [], self._next.at
        while self._next.kind == "op" and self._next.text in _COMPARISONS:
            ops.append(cast("Comparison", self._take().text))
            operands.append(self._sum())
        return Chain(at, tuple(ops), tuple(operands)) if ops else first

    def _member(self, operand: Expr) -> Member:
        at = self._take().at
        self._expect("(")
        values = [self._value()]
        while self._is(","):
            self._take()
            values.append(self._value())
        self._expect(")")
        return Member(at, operand, tuple(values))

    def _value(self) -> Expr:
        """A whole number or the label of an enum."""
        negative = self._is("-") and bool(self._take())
        token = self._take()
        if token.kind == "number":
            return Number(token.at, Fraction(token.text) * (-1 if negative else 1))
        if token.kind == "word" and not negative and token.text not in KEYWORDS:
            return Ref(token.at, token.text)
        raise ExpressionError(token.at, f"expected a number or a label, found `{token.text}`")

    def _sum(self) -> Expr:
        left = self._product()
        while self._is("+", "-"):
            token = self._take()
            left = Sum(token.at, "+" if token.text == "+" else "-", left, self._product())
        return left

    def _product(self) -> Expr:
        left = self._signed()
        while self._is("*", "/"):
            token = self._take()
            left = Sum(token.at, "*" if token.text == "*" else "/", left, self._signed())
        return left

    def _signed(self) -> Expr:
        if not self._is("-"):
            return self._atom()
        at = self._take().at
        self._deeper(at)
        operand = self._signed()
        self._depth -= 1
        return Negative(at, operand)

    def _atom(self) -> Expr:
        token = self._take()
        if token.kind == "number":
            return Number(token.at, Fraction(token.text))
        if token.kind == "op" and token.text == "(":
            self._deeper(token.at)
            inner = self.whole()
            self._depth -= 1
            self._expect(")")
            return inner
        if token.kind == "word" and token.text not in KEYWORDS - {"true", "false"}:
            return self._word(token)
        hint = "; put `if ... then ... else ...` into parentheses here" if token.text == "if" else ""
        raise ExpressionError(token.at, f"expected a value, found `{token.text}`{hint}")

    def _word(self, token: Token) -> Expr:
        if token.text in {"true", "false"}:
            return Truth(token.at, token.text == "true")
        if not self._is("("):
            return Ref(token.at, token.text)
        if token.text in FORMS:
            self._take()
            name = self._take()
            if name.kind != "word":
                raise ExpressionError(name.at, f"`{token.text}` takes the name of a variable")
            self._expect(")")
            return Ref(token.at, name.text, cast("Form", token.text))
        if token.text in FUNCTIONS:
            return self._call(token)
        near = nearest(token.text, FUNCTIONS | FORMS)
        raise ExpressionError(token.at, f"`{token.text}` is not a function{near}; there are {_listed()}")

    def _call(self, token: Token) -> Call:
        self._take()
        self._deeper(token.at)
        function = self._voted() if token.text == "vote" else token.text
        arguments = [self.whole()]
        while self._is(","):
            self._take()
            arguments.append(self.whole())
        self._depth -= 1
        self._expect(")")
        if function == "abs" and len(arguments) != 1:
            raise ExpressionError(token.at, "`abs` takes one value")
        if function == "median" and len(arguments) % 2 == 0:
            raise ExpressionError(token.at, "`vote(median, ...)` takes an odd number of values")
        return Call(token.at, function, tuple(arguments))

    def _voted(self) -> str:
        word = self._take()
        if word.text not in _VOTES:
            raise ExpressionError(word.at, "`vote` begins with `median`, `max` or `min`, then the values")
        self._expect(",")
        return _VOTES[word.text]

    def _deeper(self, at: int) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(at, f"the expression is nested deeper than {MAX_DEPTH} levels")


def _listed() -> str:
    return ", ".join(f"`{name}`" for name in sorted(FUNCTIONS | FORMS))

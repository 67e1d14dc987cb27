"""The expression language, read a second time: a Pratt parser over the words of `docs/language.md`.

It shares no code with the compiler on purpose (S7): a fault in one of the two shows as a difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from gateway.recheck.numbers import Evaluate, Value, function_of
from gateway.recheck.tree import READS, Kind, LanguageError, Node, Row, Sort

__all__ = [
    "Evaluate",
    "LanguageError",
    "Value",
    "number",
    "parse",
    "read",
    "row_named",
    "seconds_of",
    "truth",
]

_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\.)|[A-Za-z_]\w*|<=|>=|==|!=|[-+*/(),<>]|$)")
_POWER = {"iff": 1, "implies": 2, "or": 3, "and": 4}
_NOT, _FOR, _COMPARE, _SUM, _PRODUCT, _SIGN = 5, 6, 7, 8, 9, 10
_COMPARISONS = {"<=", "<", ">=", ">", "==", "!="}
_OF_NUMBERS = {"abs", "min", "max", "sum"}
_OF_CONDITIONS = {"count", "at_most", "exactly"}
_OF_NAMES = {"prev", "rate", "good", "age"}
_CALLED = {*_OF_NUMBERS, *_OF_CONDITIONS, *_OF_NAMES, "vote"}
_KEYWORDS = {*_POWER, *_CALLED, "not", "for", "in", "if", "then", "else", "true", "false"}
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600)}
_MAX_DEPTH = 200


def read(
    text: str, names: Mapping[str, str], sorts: Mapping[str, Sort] | None = None, module: str = ""
) -> Evaluate:
    """The function a text stands for; raises `LanguageError`.

    It takes what is read by name: `level`, `prev pump`, `rate pump`, `good level`, `age level`, and
    `for MODULE/words SECONDS` whether a row has been long enough; booleans are 0 or 1.
    """
    return function_of(parse(text, names, sorts, module))


def parse(
    text: str, names: Mapping[str, str], sorts: Mapping[str, Sort] | None = None, module: str = ""
) -> Node:
    """The tree of a text; `names` maps the module's names to the environment's. Raises `LanguageError`."""
    words: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise LanguageError(f"`{text[at : at + 10]}` is not part of the language")
        words.append(match[1])
        at = match.end()
    reader = _Reader([*(word for word in words if word), ""], names, sorts or {}, module)
    found = reader.whole()
    if reader.peek():
        raise LanguageError(f"`{reader.peek()}` is not expected here")
    if found.kind is Kind.LABEL:
        raise LanguageError("labels stand where nothing is compared with them")
    return found


def seconds_of(amount: str, unit: str) -> Fraction:
    """Seconds of `30`, `s` and the like; raises `LanguageError`."""
    if unit not in _SECONDS:
        raise LanguageError(f"`{unit}` is no unit of time")
    return Fraction(amount) * _SECONDS[unit]


def number(value: Value) -> Fraction:
    """A value as a number: true counts as 1."""
    return Fraction(value)


def truth(value: Value) -> bool:
    """A value as a condition."""
    return bool(value)


def as_condition(node: Node) -> Node:
    """The node, if it may be a condition; raises `LanguageError`."""
    if node.kind not in {Kind.CONDITION, Kind.BOOLEAN}:
        raise LanguageError(f"{node.kind.value} stands where a condition is needed")
    return node


def as_number(node: Node) -> Node:
    """The node, if it may be a number; raises `LanguageError`."""
    if node.kind not in {Kind.NUMBER, Kind.BOOLEAN}:
        raise LanguageError(f"{node.kind.value} stands where a number is needed")
    return node


@dataclass(slots=True)
class _Reader:
    words: list[str]
    names: Mapping[str, str]  # the module's name -> the environment's
    sorts: Mapping[str, Sort]  # by the module's name
    module: str
    at: int = 0
    depth: int = 0
    within_for: bool = False
    labels: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.labels = {label for sort in self.sorts.values() for label in sort.values}

    def peek(self) -> str:
        return self.words[self.at]

    def take(self, expected: str = "") -> str:
        word = self.words[self.at]
        if not word or (expected and word != expected):
            raise LanguageError(f"expected `{expected or 'something'}`, found `{word or 'the end'}`")
        self.at += 1
        return word

    def whole(self) -> Node:
        """An expression of any kind, an `if` too."""
        if self.peek() != "if":
            return self.expression(0)
        self.take("if")
        asked = as_condition(self.whole())
        self.take("then")
        yes = self.whole()
        self.take("else")
        no = self.whole()
        if {yes.kind, no.kind} == {Kind.LABEL}:  # of which enum tells what it is compared with
            return Node("if", Kind.LABEL, (asked, yes, no))
        if {Kind.ENUM, Kind.LABEL} & {yes.kind, no.kind}:
            return Node("if", Kind.ENUM, (asked, yes, no), sort=_labelled(yes, no))
        conditions = {Kind.CONDITION} & {yes.kind, no.kind}
        as_needed = as_condition if conditions else as_number
        kind = Kind.CONDITION if conditions else Kind.NUMBER
        if yes.kind is no.kind is Kind.BOOLEAN:
            kind = Kind.BOOLEAN
        return Node("if", kind, (asked, as_needed(yes), as_needed(no)))

    def expression(self, power: int) -> Node:
        """An expression whose operators all bind tighter than `power`."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise LanguageError("nested too deeply")
        began = self.at
        left = self._prefix()
        while (after := self._extended(left, power, began)) is not None:
            left = after
        self.depth -= 1
        return left

    def _extended(self, left: Node, power: int, began: int) -> Node | None:
        word = self.peek()
        if word in _POWER and _POWER[word] > power:
            self.take()
            right = self.expression(_POWER[word] - (word == "implies"))
            return Node(word, Kind.CONDITION, (as_condition(left), as_condition(right)))
        if word == "for" and power < _FOR:
            return self._row(left, began)
        if word in _COMPARISONS and power < _COMPARE:
            return self._chain(left)
        if word == "in" and power < _COMPARE:
            return self._member(left)
        for signs, binds in (({"+", "-"}, _SUM), ({"*", "/"}, _PRODUCT)):
            if word in signs and power < binds:
                self.take()
                right = self.expression(binds)
                return Node(word, Kind.NUMBER, (as_number(left), as_number(right)))
        return None

    def _prefix(self) -> Node:
        word = self.take()
        if word == "-":
            return Node("neg", Kind.NUMBER, (as_number(self.expression(_SIGN)),))
        if word == "not":
            return Node("not", Kind.CONDITION, (as_condition(self.expression(_NOT - 1)),))
        if word == "(":
            grouped = self.whole()
            self.take(")")
            return grouped
        return self._called(word) if word in _CALLED else self._word(word)

    def _word(self, word: str) -> Node:
        if word[:1].isdigit():
            return Node("number", Kind.NUMBER, constant=Fraction(word))
        if word in {"true", "false"}:
            return Node("truth", Kind.CONDITION, constant=Fraction(word == "true"))
        return self._name(word)

    def _called(self, word: str) -> Node:
        self.take("(")
        if word in _OF_NAMES:
            return self._of_name(word)
        return self._of_conditions(word) if word in _OF_CONDITIONS else self._of_numbers(word)

    def _name(self, word: str) -> Node:
        if word in self.names and word not in _KEYWORDS:
            sort = self.sorts.get(word, Sort())
            return Node("now", sort.kind, name=self.names[word], sort=sort)
        if word in self.labels:
            return Node("label", Kind.LABEL, name=word)
        raise LanguageError(f"`{word}` is not known")

    def _of_name(self, word: str) -> Node:
        read_of = self._name(self.take())
        self.take(")")
        if read_of.kind is Kind.LABEL:
            raise LanguageError(f"`{word}` is asked of a variable, and `{read_of.name}` is a label")
        if word == "prev":
            return Node(word, read_of.kind, name=read_of.name, sort=read_of.sort)
        if word == "rate":
            as_number(read_of)
        return Node(word, Kind.CONDITION if word == "good" else Kind.NUMBER, name=read_of.name)

    def _listed(self) -> list[Node]:
        parts = [self.whole()]
        while self.peek() == ",":
            self.take()
            parts.append(self.whole())
        self.take(")")
        return parts

    def _of_numbers(self, word: str) -> Node:
        if word == "vote":
            word = self.take()
            self.take(",")
            if word not in {"median", "min", "max"}:
                raise LanguageError(f"a vote is median, min or max, not `{word}`")
        parts = [as_number(part) for part in self._listed()]
        if word == "abs" and len(parts) != 1:
            raise LanguageError("abs takes one value")
        if word == "median" and len(parts) % 2 == 0:
            raise LanguageError("a median takes an odd number of values")
        return Node(word, Kind.NUMBER, tuple(parts))

    def _of_conditions(self, word: str) -> Node:
        limit = Fraction(0)
        if word != "count":
            limit = Fraction(self._amount())
            if limit.denominator != 1:
                raise LanguageError(f"{word} begins with a whole number, not `{limit}`")
            self.take(",")
        parts = tuple(as_condition(part) for part in self._listed())
        return Node(word, Kind.NUMBER if word == "count" else Kind.CONDITION, parts, constant=limit)

    def _row(self, left: Node, began: int) -> Node:
        words = _bare(self.words[began : self.at])
        self.take("for")
        amount, unit = self._amount(), self.take()
        if any(node.op == "for" for node in left.walk()):
            raise LanguageError("`for` does not nest")
        row = Row(self.module, " ".join(words), seconds_of(amount, unit), f"{amount} {unit}")
        return Node("for", Kind.CONDITION, (as_condition(left),), row=row)

    def _amount(self) -> str:
        word = self.take()
        if not word[:1].isdigit():
            raise LanguageError(f"`{word}` is no number")
        return word

    def _chain(self, first: Node) -> Node:
        signs: list[str] = []
        parts = [first]
        while self.peek() in _COMPARISONS:
            signs.append(self.take())
            parts.append(self.expression(_COMPARE))
        if not any(part.kind in {Kind.ENUM, Kind.LABEL} for part in parts):
            return Node("compare", Kind.CONDITION, tuple(map(as_number, parts)), signs=tuple(signs))
        pairs = [_alike(*pair) for pair in zip(signs, parts, parts[1:], strict=False)]
        return pairs[0] if len(pairs) == 1 else _joined("and", pairs)

    def _member(self, left: Node) -> Node:
        self.take("in")
        self.take("(")
        among = [self._item(left)]
        while self.peek() == ",":
            self.take()
            among.append(self._item(left))
        self.take(")")
        return Node("in", Kind.CONDITION, (left,), among=tuple(among))

    def _item(self, left: Node) -> Fraction:
        if left.kind is Kind.ENUM and left.op in READS:
            return _value(left, self.take())
        as_number(left)
        sign = -1 if self.peek() == "-" and self.take() else 1
        return sign * Fraction(self._amount())


def row_named(name: str) -> str:
    """A row of checks `MODULE/words` as this reader calls it: without parentheses around the whole."""
    module, _, words = name.partition("/")
    return f"{module}/{' '.join(_bare(words.split()))}"


def _bare(words: list[str]) -> list[str]:
    while words and words[0] == "(" and _closes_at_end(words):
        words = words[1:-1]
    return words


def _closes_at_end(words: list[str]) -> bool:
    """Whether the parenthesis at the beginning is closed by the last word only."""
    depth = 0
    for place, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth == 0:
            return place == len(words) - 1
    return False


def _value(node: Node, label: str) -> Fraction:
    if label not in node.sort.values:
        raise LanguageError(f"`{label}` is no label of `{node.name}`")
    return node.sort.values[label]


def _joined(op: str, parts: list[Node]) -> Node:
    left = parts[0]
    for right in parts[1:]:
        left = Node(op, Kind.CONDITION, (left, right))
    return left


def _alike(sign: str, left: Node, right: Node) -> Node:
    """Enums, labels and choices of them: equal where their labels are."""
    if sign not in {"==", "!="}:
        raise LanguageError(f"enums have no order, `{sign}` says nothing of them")
    sort = _labelled(left, right)
    plain = next((node for node in (left, right) if node.op == "label"), None)
    if plain is not None:
        same = _is(right if plain is left else left, plain.name)
    elif all(node.sort.values == sort.values for node in (left, right) if node.kind is Kind.ENUM):
        registers = tuple(_register(node, sort) for node in (left, right))  # one may hold what no label is
        same = Node("compare", Kind.CONDITION, registers, signs=("==",))
    else:
        same = _joined("or", [_joined("and", [_is(left, one), _is(right, one)]) for one in sort.values])
    return same if sign == "==" else Node("not", Kind.CONDITION, (same,))


def _labelled(*nodes: Node) -> Sort:
    """The labels that all of some enums have; raises `LanguageError` where there are none, or unlike ones."""
    sorts = [node.sort for node in nodes if node.kind is Kind.ENUM]
    if not sorts or any(sort.values.keys() != sorts[0].values.keys() for sort in sorts):
        raise LanguageError("what is compared has other labels, or is no enum")
    for label in (part.name for node in nodes for part in node.walk() if part.op == "label"):
        if label not in sorts[0].values:
            raise LanguageError(f"`{label}` is no label of what it is compared with")
    if any(node.kind not in {Kind.ENUM, Kind.LABEL} for node in nodes):
        raise LanguageError("an enum is compared with what is none")
    return sorts[0]


def _is(node: Node, label: str) -> Node:
    """Whether an enum, a label or a choice of them is this label."""
    if node.op == "if":
        asked, yes, no = node.parts
        return Node("if", Kind.CONDITION, (asked, _is(yes, label), _is(no, label)))
    if node.kind is Kind.LABEL:
        return Node("truth", Kind.CONDITION, constant=Fraction(node.name == label))
    return Node("in", Kind.CONDITION, (node,), among=(_value(node, label),))


def _register(node: Node, sort: Sort) -> Node:
    """The register value of an enum, a label or a choice of them."""
    if node.op == "if":
        asked, yes, no = node.parts
        return Node("if", Kind.NUMBER, (asked, _register(yes, sort), _register(no, sort)))
    if node.kind is Kind.LABEL:
        return Node("number", Kind.NUMBER, constant=sort.values[node.name])
    return replace(node, kind=Kind.NUMBER)

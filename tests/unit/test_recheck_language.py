"""The second reading of the language (S7): hand-made answers, all parentheses, plain fractions, mutants."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.recheck import numbers
from gateway.recheck.language import LanguageError, parse, read
from gateway.recheck.tree import Node
from tests.unit.recheck_examples import CONDITIONS, ENV, NAMES, NUMBERS, REFUSED, SORTS, wrong_examples


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_is_what_the_text_of_the_language_makes_it(text: str) -> None:
    assert read(text, NAMES, SORTS, "m")(ENV) == Fraction(NUMBERS[text])


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_is_what_the_text_of_the_language_makes_it(text: str) -> None:
    assert bool(read(text, NAMES, SORTS, "m")(ENV)) is CONDITIONS[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_the_language_is_refused(text: str) -> None:
    with pytest.raises(LanguageError, match=r".+"):
        read(f"({text}) == 1" if text == "clear" else text, NAMES, SORTS, "m")


def test_a_row_is_named_by_its_words_without_parentheses_around_the_whole() -> None:
    texts_ = ("(p and q) for 10 s", "((p)) for 1 s", "(x) < 1 for 1 s", "not q or x*2 < (y) for 1 s")
    rows = [
        node.row.words
        for text in texts_
        for node in parse(text, NAMES, SORTS, "m").walk()
        if node.row is not None
    ]
    assert rows == ["p and q", "p", "( x ) < 1", "x * 2 < ( y )"]


# ---- precedence, against a printer that puts every parenthesis ----

_LOGIC = {"iff": 1, "implies": 2, "or": 3, "and": 4}


@st.composite
def texts(draw: st.DrawFn, depth: int = 3, kind: str = "condition") -> tuple[str, str, int]:
    """A text with as few parentheses as may be, the same with all of them, and how tightly its root binds."""
    if depth == 0:
        if kind == "number":
            name = draw(st.sampled_from(["x", "y", "z", "2", "0.5"]))
            return name, name, 99
        name = draw(st.sampled_from(["p", "q", "x < y", "z >= x", "true"]))
        return name, f"({name})", 7 if " " in name else 99
    if kind == "number":
        return draw(_numeric(depth))
    return draw(_logical(depth))


@st.composite
def _numeric(draw: st.DrawFn, depth: int) -> tuple[str, str, int]:
    op = draw(st.sampled_from(["+", "-", "*", "neg", "if"]))
    a, b = (draw(texts(depth=depth - 1, kind="number")) for _ in range(2))
    if op == "neg":
        return f"-{_at(a, 10)}", f"(-{a[1]})", 10
    if op == "if":
        c = draw(texts(depth=depth - 1))
        return f"if {c[0]} then {a[0]} else {b[0]}", f"(if {c[1]} then {a[1]} else {b[1]})", 0
    power = 9 if op == "*" else 8
    return f"{_at(a, power)} {op} {_at(b, power + 1)}", f"({a[1]} {op} {b[1]})", power


@st.composite
def _logical(draw: st.DrawFn, depth: int) -> tuple[str, str, int]:
    op = draw(st.sampled_from(["and", "or", "implies", "iff", "not", "for", "<", "<=", "if"]))
    if op in {"<", "<="}:
        a, b = (draw(texts(depth=depth - 1, kind="number")) for _ in range(2))
        return f"{_at(a, 8)} {op} {_at(b, 8)}", f"({a[1]} {op} {b[1]})", 7
    a, b = (draw(texts(depth=depth - 1)) for _ in range(2))
    if op == "not":
        return f"not {_at(a, 5)}", f"(not {a[1]})", 5
    if op == "for":
        a = ("x < y", "(x < y)", 7)
        return f"{_at(a, 7)} for 5 s", f"({a[1]} for 5 s)", 6
    if op == "if":
        c = draw(texts(depth=depth - 1))
        return f"if {c[0]} then {a[0]} else {b[0]}", f"(if {c[1]} then {a[1]} else {b[1]})", 0
    power = _LOGIC[op]
    left, right = (power + 1, power) if op == "implies" else (power, power + 1)
    return f"{_at(a, left)} {op} {_at(b, right)}", f"({a[1]} {op} {b[1]})", power


def _at(part: tuple[str, str, int], power: int) -> str:
    return part[0] if part[2] >= power else f"({part[0]})"


def bare(node: Node) -> tuple[object, ...]:
    """A tree without the words it was made of."""
    return (node.op, node.name, node.constant, node.signs, node.among, *map(bare, node.parts))


@settings(max_examples=150, deadline=None)
@given(texts())
def test_few_parentheses_mean_what_all_of_them_mean(found: tuple[str, str, int]) -> None:
    few, all_of_them, _ = found
    assert bare(parse(few, NAMES, SORTS, "m")) == bare(parse(all_of_them, NAMES, SORTS, "m"))


# ---- whole numbers, against fractions worked out node by node ----


PLAIN: Mapping[str, Callable[..., object]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "neg": lambda a: -a,
    "if": lambda c, a, b: a if c else b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "not": lambda a: 1 - a,
    "and": min,
    "or": max,
    "implies": lambda a, b: max(1 - a, b),
    "iff": lambda a, b: a == b,
}


def plainly(node: Node, env: Mapping[str, Fraction]) -> Fraction:
    """A tree's value as a pupil would work it out; conditions are 0 and 1."""
    if node.op in {"number", "truth"}:
        return node.constant
    if node.op == "now":
        return env[node.name]
    parts = [plainly(part, env) for part in node.parts]
    if node.op == "for":
        return min(parts[0], env["for m/x < y 5"])
    return Fraction(cast("Fraction", PLAIN[node.signs[0] if node.op == "compare" else node.op](*parts)))


_DECIMALS = st.decimals(-5, 5, places=3).map(Fraction)


@settings(max_examples=150, deadline=None)
@given(texts(), st.tuples(_DECIMALS, _DECIMALS, _DECIMALS), st.tuples(*[st.booleans()] * 3))
def test_whole_numbers_say_what_fractions_say(
    found: tuple[str, str, int], reals: tuple[Fraction, ...], truths: tuple[bool, ...]
) -> None:
    env = dict(zip(("x", "y", "z"), reals, strict=True))
    env |= dict(zip(("p", "q", "for m/x < y 5"), map(Fraction, truths), strict=True))
    tree = parse(found[0], NAMES, SORTS, "m")
    assert Fraction(numbers.function_of(tree)(env)) == plainly(tree, env)


# ---- mutants: each changed operator must be noticed by the worked examples ----

TABLES: Mapping[str, dict[str, Any]] = {
    "ARITHMETIC": numbers.ARITHMETIC,
    "AGGREGATES": numbers.AGGREGATES,
    "ORDER": numbers.ORDER,
    "COUNTED": numbers.COUNTED,
    "LOGIC": numbers.LOGIC,
}
SWAPS = [
    (table, one, other)
    for table, entries in TABLES.items()
    for one, other in itertools.permutations(entries, 2)
    if (one in {"neg", "abs"}) == (other in {"neg", "abs"})
]


def test_the_worked_examples_come_out_and_there_are_enough_mutants() -> None:
    assert list(wrong_examples()) == []
    assert len(SWAPS) >= 60


@pytest.mark.parametrize(("table", "one", "other"), SWAPS, ids=str)
def test_a_judge_with_one_operator_for_another_is_noticed(
    monkeypatch: pytest.MonkeyPatch, table: str, one: str, other: str
) -> None:
    entries = TABLES[table]
    monkeypatch.setitem(entries, one, entries[other])
    assert list(wrong_examples())


MUTANTS: Mapping[str, tuple[str, str, Any]] = {
    "neg keeps": ("ARITHMETIC", "neg", lambda a: a),
    "abs keeps": ("ARITHMETIC", "abs", lambda a: a),
    "division rounds": ("ARITHMETIC", "/", lambda a, b: Fraction(a // b)),
    "median is the mean": ("AGGREGATES", "median", lambda v: Fraction(sum(v), 1) / len(v)),
    "median takes the first": ("AGGREGATES", "median", lambda v: v[0]),
    "sum forgets the last": ("AGGREGATES", "sum", lambda v: sum(v[:-1])),
    "max takes the first": ("AGGREGATES", "max", lambda v: v[0]),
    "min takes the last": ("AGGREGATES", "min", lambda v: v[-1]),
    "at_most is less": ("COUNTED", "at_most", lambda n, limit: n < limit),
    "at_most is at least": ("COUNTED", "at_most", lambda n, limit: n >= limit),
    "exactly is at least": ("COUNTED", "exactly", lambda n, limit: n >= limit),
    "implies turned round": ("LOGIC", "implies", lambda a, b: lambda e: a(e) or not b(e)),
    "or is either alone": ("LOGIC", "or", lambda a, b: lambda e: a(e) != b(e)),
    "and takes the first": ("LOGIC", "and", lambda a, _b: a),
    "or takes the last": ("LOGIC", "or", lambda _a, b: b),
    "iff takes the last": ("LOGIC", "iff", lambda _a, b: b),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_judge_with_a_wrong_operator_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    table, op, wrong = MUTANTS[name]
    monkeypatch.setitem(TABLES[table], op, wrong)
    assert list(wrong_examples())


@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("_negated", lambda node, layout: numbers.condition_of(node.parts[0], layout)),
        ("_settled", lambda _node, _layout: lambda _e: True),
        ("_lasting", lambda node, layout: numbers.condition_of(node.parts[0], layout)),
        ("_defined", lambda condition: condition),
    ],
)
def test_a_judge_that_leaves_out_a_rule_is_noticed(
    monkeypatch: pytest.MonkeyPatch, what: str, wrong: object
) -> None:
    kept = getattr(numbers, what)
    monkeypatch.setattr(numbers, what, wrong)
    for key, found in list(numbers._CONDITIONS.items()):
        if found is kept:
            monkeypatch.setitem(cast("dict[str, Any]", numbers._CONDITIONS), key, wrong)
    assert list(wrong_examples())

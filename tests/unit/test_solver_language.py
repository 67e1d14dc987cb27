"""Every construct of the language on a grid of points, by the exact judge, the normal form and Z3."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction

import pytest
import z3

from gateway.solver.checking.terms import Terms
from gateway.solver.language import normal
from gateway.solver.language.evaluate import truth
from gateway.solver.language.parse import ExpressionError, parse
from gateway.solver.language.printing import printed
from gateway.solver.language.syntax import Expr
from gateway.solver.rules.interval import SCALE, scaled

ENDS = (-2, -1, 0, 1, 2)
GRID = [
    {"a": Fraction(a), "b": Fraction(b), "c": Fraction(c), "on": Fraction(on)}
    for a, b, c, on in itertools.product(ENDS, ENDS, ENDS, (0, 1))
]

DIVISIONS = (
    "a / b <= 1",
    "a / b < 1",
    "a / b >= -1",
    "a / b != 1",
    "a / b == c",
    "not a / b <= 1",
    "1 <= a / b <= 2",
    "min(a / b, c) <= 0",
    "max(a / b, c) <= 0",
    "max(a / b, 0 - 3) >= c",
    "(if b > 0 then a / b else c) <= 1",
    "(if on then a / b else c) < 1",
    "(if on then c else a / b) < 1",
    "a / b + c <= 1",
    "a / b + c / b <= 1",
    "a / (b / c) <= 1",
    "a / max(b, c) <= 1",
    "a / (if on then b else c) <= 1",
    "a / count(b > 0, on) <= 1",
    "a / count(b > 0) <= 1",
    "abs(a / b) <= 1",
    "(a + c) * c / b <= 1",
)
PRODUCTS = (
    "a * b <= c",
    "a * a <= 1",
    "1 - a * a <= 0",
    "a * b - a * c + b <= 1",
    "(a + b) * (a - b) <= 0",
    "(a + 1) * (b - 2) <= c * c",
    "a * b == c",
    "max(a, b) * c <= 1",
    "min(a, b) * c >= -1",
    "min(a, b) * max(b, c) <= 0",
    "abs(a) * b <= 1",
    "abs(a) * abs(b) < 1",
    "-2 * max(a, b) <= c",
    "count(on, a > 0) * c <= 1",
    "0.5 * a * b <= 1",
)
OTHERS = (
    "vote(median, a, b, c) <= 0",
    "vote(median, a, b, c, 1, 0 - 1) < b",
    "vote(max, a, b) <= c",
    "vote(min, a, b) <= c",
    "sum(a, b, c) <= 1",
    "-max(a, b) <= c",
    "2 * min(a, -b) < c - 1",
    "count(a > 0, b > 0, on) >= 2",
    "count(on, not on) == 1",
    "count(a > 0, b > 0, c > 0) - 1 <= a",
    "at_most(1, a > 0, b > 0, c > 0)",
    "at_most(0, on, a > b)",
    "at_most(3, a > 0, b > 0)",
    "exactly(2, a > 0, b > 0, on)",
    "exactly(0, on)",
    "exactly(4, a > 0, on)",
    "if on then a < b else b < c",
    "if a < b then on else not on",
    "(if a < b then a else b) + (if on then 1 else 2) <= c",
    "a < b <= c != a",
    "a > 0 iff b > 0 iff on",
    "(a > 0 implies b > 0) implies on",
    "a > 0 implies b > 0 implies on",
    "not on and a > 0 or b > 0",
    "on or a * b > 1 and c in (1, -2)",
    "3 * on - 2 * a <= 1",
)
TEXTS = (*DIVISIONS, *PRODUCTS, *OTHERS)


def by_z3(tree: Expr, points: list[Mapping[str, Fraction]]) -> list[bool]:
    context = z3.Context()
    terms = Terms(context)
    formula = terms.formula(normal.formula(tree))
    found: list[bool] = []
    for point in points:
        pairs = [(terms.name(name), terms.number(value)) for name, value in point.items()]
        found.append(z3.is_true(z3.simplify(z3.substitute(formula, *pairs))))
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_every_judge_says_the_same_at_every_point_of_a_grid(text: str) -> None:
    tree = parse(text)
    rows = scaled(normal.formula(tree))
    expected = [truth(tree, point) for point in GRID]

    assert True in expected or False in expected
    assert [
        rows.slack({name: (int(v * SCALE), int(v * SCALE)) for name, v in point.items()}).holds
        for point in GRID
    ] == expected
    some = range(0, len(GRID), 7)
    assert by_z3(tree, [GRID[i] for i in some]) == [expected[i] for i in some]


BOXES = [
    {"a": a, "b": b, "c": c}
    for a, b, c in itertools.product(((-2, 0), (-1, 1), (0, 2), (1, 2)), ((-1, 0), (0, 2)), ((-2, 1), (1, 1)))
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_interval_pass_never_holds_where_a_point_inside_does_not(text: str) -> None:
    tree = parse(text)
    rows = scaled(normal.formula(tree))

    for box, on in itertools.product(BOXES, (0, 1)):
        within = {n: (low * SCALE, high * SCALE) for n, (low, high) in {**box, "on": (on, on)}.items()}
        if rows.slack(within).holds:
            inside = (
                {"a": Fraction(a), "b": Fraction(b), "c": Fraction(c), "on": Fraction(on)}
                for a, b, c in itertools.product(
                    *(
                        [Fraction(n, 2) for n in range(2 * low, 2 * high + 1)]
                        for low, high in (box["a"], box["b"], box["c"])
                    )
                )
            )
            assert all(truth(tree, point) for point in inside)


# Worst vertices exactly first: where every symbol occurs once in each product, corners tell everything.
@pytest.mark.parametrize("text", ["a * b <= c", "a * b - a * c + b <= 1", "a * a <= 1", "a * a + b <= 3"])
def test_the_interval_pass_is_exact_for_products_without_falling_squares(text: str) -> None:
    tree = parse(text)
    rows = scaled(normal.formula(tree))
    outcomes: set[bool] = set()

    for box in BOXES:
        within = {n: (low * SCALE, high * SCALE) for n, (low, high) in box.items()}
        corners = itertools.product(box["a"], box["b"], box["c"])
        exact = all(
            truth(tree, {"a": Fraction(a), "b": Fraction(b), "c": Fraction(c)}) for a, b, c in corners
        )
        assert rows.slack(within).holds is exact
        outcomes.add(exact)
    assert outcomes == {True, False}


@pytest.mark.parametrize("text", TEXTS)
def test_every_construct_prints_and_parses_again(text: str) -> None:
    again = printed(parse(text))

    assert printed(parse(again)) == again
    assert [truth(parse(again), p) for p in GRID[::11]] == [truth(parse(text), p) for p in GRID[::11]]


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("a * b * c <= 1", 6, "more than two variables"),
        ("a / b * c * c <= 1", 10, "more than two variables"),
        ("a / 0 <= 1", 2, "the divisor is 0"),
        ("if a > 0 then b", 15, "expected `else`"),
        ("if a > 0 or b", 13, "expected `then`"),
        ("1 + if on then a else b <= 1", 4, "put `if ... then ... else ...` into parentheses"),
        ("on for 10", 7, "expected a duration such as `10 s`"),
        ("on for ten s", 7, "expected a duration such as `10 s`"),
        ("vote(a, b, c) <= 1", 5, "begins with `median`, `max` or `min`"),
        ("vote(median, a, b) <= 1", 0, "an odd number of values"),
        ("abs(a, b) <= 1", 0, "takes one value"),
        ("cuont(on) <= 1", 0, "did you mean `count`?"),
        ("a in (1, )", 9, "expected a number or a label"),
        ("prev(1) <= 1", 5, "takes the name of a variable"),
        ("a <= 1 b", 7, "is not expected here"),
        ("sum() <= 1", 4, "expected a value"),
        (
            "count(a > 0, b > 0, c > 0, a > 1, b > 1, c > 1, a > 2, b > 2, c > 2, a > 3) <= 1",
            0,
            "10 compound conditions",
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_is(text: str, at: int, said: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        normal.formula(parse(text))

    assert said in refused.value.problem
    assert refused.value.at == at


def test_an_expression_too_deep_for_the_passes_after_the_parser_is_refused_and_flat_ones_are_not() -> None:
    for text in ("a" + " + a" * 900 + " <= 1", "on" + " implies on" * 300, "on" + " and on" * 500):
        with pytest.raises(ExpressionError, match="more than 150 operations in a row"):
            parse(text)
    normal.formula(parse("a" + " + a" * 140 + " <= 1"))
    normal.formula(parse("sum(" + ", ".join(["a"] * 900) + ") <= 1"))

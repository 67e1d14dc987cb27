"""Z3, the interval pass and the exact judge say the same, on random and on boundary cases."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from fractions import Fraction

import pytest
import z3
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from gateway.core.decision import Permitted, Refused, Undetermined
from gateway.solver.checking.terms import Budget, Terms
from gateway.solver.checking.terms import solver as budgeted
from gateway.solver.language import normal
from gateway.solver.language.affine import Formula
from gateway.solver.language.evaluate import number, truth
from gateway.solver.language.parse import ExpressionError, parse
from gateway.solver.language.printing import printed
from gateway.solver.language.syntax import (
    Call,
    Chain,
    Choice,
    Connective,
    Expr,
    For,
    Member,
    Negative,
    Not,
    Number,
    Ref,
    Sum,
    Truth,
    rebuilt,
)
from gateway.solver.rules.interval import SCALE, scaled
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import PATIENT, Situation, proposal, rule_set

NAMES = ("a", "b", "c")
numbers = st.integers(-100, 100).map(lambda n: Fraction(n, 20))


BOOLEANS = ("on", "off")
WHOLE = ("k",)


def values(leaves: int = 4) -> st.SearchStrategy[Expr]:
    """Numbers; those beyond degree two are refused by `normal` and thrown away by the tests."""
    bases = st.one_of(
        numbers.map(lambda n: Number(0, n) if n >= 0 else Negative(0, Number(0, -n))),
        st.sampled_from(NAMES).map(lambda name: Ref(0, name)),
        st.sampled_from(BOOLEANS).map(lambda name: Ref(0, name)),
        st.lists(simple(), min_size=1, max_size=3).map(lambda cs: Call(0, "count", tuple(cs))),
    )

    def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        several = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            st.builds(lambda op, x, y: Sum(0, op, x, y), st.sampled_from("+-*/"), inner, inner),
            st.builds(lambda x: Negative(0, x), inner),
            st.builds(lambda x: Call(0, "abs", (x,)), inner),
            st.builds(lambda f, xs: Call(0, f, tuple(xs)), st.sampled_from(("min", "max", "sum")), several),
            st.builds(lambda x, y, z: Call(0, "median", (x, y, z)), inner, inner, inner),
            st.builds(lambda c, x, y: Choice(0, c, x, y), simple(), inner, inner),
        )

    return st.recursive(bases, grown, max_leaves=leaves)


def simple() -> st.SearchStrategy[Expr]:
    """Conditions without numbers that could grow."""
    return st.one_of(
        st.sampled_from(BOOLEANS).map(lambda name: Ref(0, name)),
        st.sampled_from(BOOLEANS).map(lambda name: Not(0, Ref(0, name))),
        st.builds(
            lambda name, n: Chain(0, ("<=",), (Ref(0, name), Number(0, abs(n)))),
            st.sampled_from(NAMES),
            numbers,
        ),
        st.just(Member(0, Ref(0, "k"), (Number(0, Fraction(1)), Number(0, Fraction(3))))),
        st.sampled_from(NAMES).map(
            lambda name: For(0, Chain(0, (">",), (Ref(0, name), Number(0, Fraction(1)))), Fraction(10), "m/c")
        ),
    )


def conditions() -> st.SearchStrategy[Expr]:
    compared = st.builds(
        lambda op, x, y: Chain(0, (op,), (x, y)),
        st.sampled_from(("<=", "<", ">=", ">", "==", "!=")),
        values(),
        values(2),
    )
    counted = st.builds(
        lambda f, n, cs: Call(0, f, (Number(0, Fraction(n)), *cs)),
        st.sampled_from(("at_most", "exactly")),
        st.integers(0, 3),
        st.lists(simple(), min_size=1, max_size=3),
    )
    leaves = st.one_of(compared, compared, counted, simple(), st.booleans().map(lambda b: Truth(0, b)))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(lambda x: Not(0, x)),
            st.builds(
                lambda op, x, y: Connective(0, op, x, y),
                st.sampled_from(("and", "or", "implies", "iff")),
                inner,
                inner,
            ),
            st.builds(lambda c, x, y: Choice(0, c, x, y), inner, inner, inner),
        ),
        max_leaves=3,
    )


def normalised(tree: Expr) -> Formula:
    """The tree over exact forms; one of a higher degree or with too many alternatives is thrown away."""
    try:
        return normal.formula(tree)
    except ExpressionError:
        reject()


LASTED = For(0, Truth(0, value=True), Fraction(10), "m/c").key
points = st.fixed_dictionaries(
    {
        **dict.fromkeys(NAMES, numbers),
        **dict.fromkeys((*BOOLEANS, LASTED), st.sampled_from((Fraction(0), Fraction(1)))),
        "k": st.integers(0, 4).map(Fraction),
    }
)


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(conditions(), points)
def test_the_exact_judge_the_normal_form_and_z3_agree_at_every_point(
    tree: Expr, point: dict[str, Fraction]
) -> None:
    formula = normalised(tree)
    expected = truth(tree, point)
    context = z3.Context()
    terms = Terms(context)
    solver = budgeted(context, Budget(timeout_ms=10_000), products=True)
    for name, value in point.items():
        solver.add(terms.name(name) == terms.number(value))
    solver.add(terms.formula(formula))

    assert (str(solver.check()) == "sat") is expected
    box = {name: (int(value * SCALE), int(value * SCALE)) for name, value in point.items()}
    assert scaled(formula).slack(box).holds is expected


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(conditions(), points, points)
def test_the_interval_pass_is_never_too_optimistic(
    tree: Expr, low: dict[str, Fraction], high: dict[str, Fraction]
) -> None:
    formula = normalised(tree)
    ends = {n: sorted((low[n], high[n])) for n in low}
    box = {n: (int(a * SCALE), int(b * SCALE)) for n, (a, b) in ends.items()}

    if scaled(formula).slack(box).holds:
        rng = random.Random(7)  # noqa: S311  # a repeatable sample
        for _ in range(12):
            point = {
                n: a + (b - a) * Fraction(rng.randint(0, 4), 4) if n in NAMES else rng.choice((a, b))
                for n, (a, b) in ends.items()
            }
            assert truth(tree, point)


def unplaced(tree: Expr) -> Expr:
    """The tree without offsets and without the words of `for`."""
    changed = replace(rebuilt(tree, unplaced), at=0)
    return replace(changed, row="") if isinstance(changed, For) else changed


@settings(max_examples=200, deadline=None)
@given(conditions())
def test_what_is_printed_parses_to_the_same_tree(tree: Expr) -> None:
    assert unplaced(parse(printed(tree))) == unplaced(tree)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(values(), points)
def test_bounds_over_ranges_hold_every_value(tree: Expr, point: dict[str, Fraction]) -> None:
    at = next(iter(point.values()))
    ranges = {name: (min(value, at), max(value, at)) for name, value in point.items()}
    limit = Chain(0, ("<=",), (tree, Number(0, Fraction(0))))
    normalised(limit)
    found = normal.bounds(tree, ranges)
    with contextlib.suppress(ZeroDivisionError):  # what has no value there has none outside its bounds
        value = number(tree, point)
        assert found is None or found[0] <= value <= found[1]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab01.+-*/()<>=! andorimplstfxcuev,", max_size=40))
def test_any_text_parses_or_is_refused_with_a_place_inside_it(text: str) -> None:
    found: ExpressionError | None = None
    try:
        parse(text)
    except ExpressionError as exc:
        found = exc
    assert found is None or 0 <= found.at <= len(text)


@pytest.mark.parametrize(
    "text", ["(" * 500 + "1" + ")" * 500, "-" * 500 + "1", "not " * 500 + "true", "1" * 5_000]
)
def test_a_hostile_text_is_refused_and_never_crashes(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-7/2 == -3.5", True),  # Z3's integers would say -4, a PLC's -3
        ("0.1 + 0.2 == 0.3", True),  # floats would deny it
        ("1 < 2 <= 2 < 3", True),
        ("1 < 2 > 1.5", True),
        ("not 1 > 2 and 2 > 1", True),
        ("false implies false implies false", True),
        ("true or false and false", True),
        ("2 - 1 - 1 == 0", True),
        ("max(1, 2, 3) - min(1, 2, 3) == 2", True),
        ("abs(-0.5) < 0.5", False),
        ("if 1 < 2 then 3 < 4 else 5 < 4", True),
        ("(if 1 > 2 then 3 else 4) == 4", True),
        ("count(1 < 2, 2 < 1, 3 < 4) == 2", True),
        ("at_most(1, 1 < 2, 2 < 3)", False),
        ("exactly(1, 1 < 2, 3 < 2)", True),
        ("vote(median, 3, 1, 2) == 2 and vote(max, 1, 2) == 2 and vote(min, 1, 2) == 1", True),
        ("sum(1, 2, 3) == 6", True),
        ("2/(1 - 3) == -1", True),
        ("1 < 2 iff 3 < 2 iff 1 < 0", True),  # left to right
    ],
)
def test_the_language_means_what_a_reader_expects(text: str, *, expected: bool) -> None:
    tree = parse(text)
    context = z3.Context()
    solver = z3.SimpleSolver(ctx=context)
    solver.add(Terms(context).formula(normal.formula(tree)))

    assert truth(tree, {}) is expected
    assert (str(solver.check()) == "sat") is expected


@pytest.fixture(scope="module")
def checks() -> Checks:
    return Checks(rule_set(), PATIENT)


# Vertex sampling with the exact judge alone: what the checker permits holds at every corner of its premises.
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    level=st.floats(0.28, 3.62).map(lambda v: round(v, 3)),
    inflow=st.floats(0.3, 35.7).map(lambda v: round(v, 2)),
    temp=st.floats(73.0, 75.2).map(lambda v: round(v, 2)),
    old=st.integers(0, 1000),
    move=st.integers(-110, 110),
    heater=st.integers(0, 1),
)
def test_no_corner_of_the_premises_violates_what_is_permitted(
    checks: Checks, level: float, inflow: float, temp: float, old: int, move: int, heater: int
) -> None:
    from gateway.solver.checking.boxes import Boxes  # noqa: PLC0415
    from gateway.solver.checking.predict import observe  # noqa: PLC0415
    from gateway.solver.checking.simulate import violates  # noqa: PLC0415

    here = Situation(
        level=level, inflow=inflow, temp=temp, pump=f"{old / 10}", heater=heater, may_repair=False
    )
    wanted = proposal(f"{min(1000, max(0, old + move)) / 10}", heater=heater)
    request = here.request(wanted)
    result, _ = checks.check(request)
    assert not isinstance(result.verdict, Undetermined)
    prepared = checks._prepared(here.hold_s, here.effect_delay_s)
    boxes = Boxes(checks.rules, prepared.plan)
    within = boxes.box(observe(checks.rules, request), wanted.engineering())
    rng = random.Random(3)  # noqa: S311  # a repeatable sample
    for _ in range(6):
        corner = {name: Fraction(rng.choice(ends), SCALE) for name, ends in within.items()}
        for duty in prepared.plan.duties:
            binding = prepared.plan.rules[duty.rule].constraint.kind != "informational"
            if isinstance(result.verdict, Permitted) and binding:
                assert violates(checks.rules, prepared.plan, duty, corner) is None
    if isinstance(result.verdict, Refused):
        margin = result.verdict.counterexample.margin
        assert margin is None or margin < 0

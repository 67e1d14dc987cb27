"""Z3, the interval pass and the exact judge say the same, on random and on boundary cases."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
import z3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.decision import Permitted, Refused, Undetermined
from gateway.solver import normal
from gateway.solver.check import Checks
from gateway.solver.evaluate import truth
from gateway.solver.interval import SCALE, scaled
from gateway.solver.parse import ExpressionError, parse
from gateway.solver.syntax import Call, Chain, Connective, Expr, Negative, Not, Number, Ref, Sum, Truth
from gateway.solver.terms import Terms
from tests.unit.solver_demo import PATIENT, Situation, proposal, rule_set

NAMES = ("a", "b", "c")
numbers = st.integers(-100, 100).map(lambda n: Fraction(n, 20))


def values() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(
        numbers.map(lambda n: Number(0, n)), st.sampled_from(NAMES).map(lambda name: Ref(0, name))
    )

    def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(lambda op, x, y: Sum(0, op, x, y), st.sampled_from("+-"), inner, inner),
            st.builds(lambda k, x: Sum(0, "*", Number(0, k), x), numbers, inner),
            st.builds(lambda x, k: Sum(0, "/", x, Number(0, k)), inner, numbers.filter(bool)),
            st.builds(lambda x: Negative(0, x), inner),
            st.builds(lambda x: Call(0, "abs", (x,)), inner),
            st.builds(lambda f, x, y: Call(0, f, (x, y)), st.sampled_from(("min", "max")), inner, inner),
        )

    return st.recursive(leaves, grown, max_leaves=4)


def conditions() -> st.SearchStrategy[Expr]:
    compared = st.builds(
        lambda op, x, y: Chain(0, (op,), (x, y)),
        st.sampled_from(("<=", "<", ">=", ">", "==", "!=")),
        values(),
        values(),
    )
    leaves = st.one_of(compared, st.booleans().map(lambda b: Truth(0, b)))
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
        ),
        max_leaves=3,
    )


points = st.fixed_dictionaries(dict.fromkeys(NAMES, numbers))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conditions(), points)
def test_the_exact_judge_the_affine_form_and_z3_agree_at_every_point(
    tree: Expr, point: dict[str, Fraction]
) -> None:
    formula = normal.formula(tree)
    expected = truth(tree, point)
    context = z3.Context()
    terms = Terms(context)
    solver = z3.SimpleSolver(ctx=context)
    for name, value in point.items():
        solver.add(terms.name(name) == terms.number(value))
    solver.add(terms.formula(formula))

    assert (str(solver.check()) == "sat") is expected
    box = {name: (int(value * SCALE), int(value * SCALE)) for name, value in point.items()}
    assert scaled(formula).slack(box).holds is expected


@settings(max_examples=60, deadline=None)
@given(conditions(), points, points)
def test_the_interval_pass_is_never_too_optimistic(
    tree: Expr, low: dict[str, Fraction], high: dict[str, Fraction]
) -> None:
    formula = normal.formula(tree)
    ends = {n: sorted((low[n], high[n])) for n in NAMES}
    box = {n: (int(a * SCALE) - 1, int(b * SCALE) + 1) for n, (a, b) in ends.items()}

    if scaled(formula).slack(box).holds:
        rng = random.Random(7)  # noqa: S311  # a repeatable sample
        for _ in range(12):
            point = {n: a + (b - a) * Fraction(rng.randint(0, 4), 4) for n, (a, b) in ends.items()}
            assert truth(tree, point)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab01.+-*/()<>=! andorimplstfx,", max_size=40))
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
    from gateway.solver.predict import box, observe  # noqa: PLC0415
    from gateway.solver.simulate import violates  # noqa: PLC0415

    here = Situation(
        level=level, inflow=inflow, temp=temp, pump=f"{old / 10}", heater=heater, may_repair=False
    )
    wanted = proposal(f"{min(1000, max(0, old + move)) / 10}", heater=heater)
    request = here.request(wanted)
    result, _ = checks.check(request)
    assert not isinstance(result.verdict, Undetermined)
    prepared = checks._prepared(here.hold_s, here.effect_delay_s)
    within = box(checks.rules, prepared.plan, observe(checks.rules, request), wanted.engineering())
    rng = random.Random(3)  # noqa: S311  # a repeatable sample
    for _ in range(6):
        corner = {name: Fraction(rng.choice(ends), SCALE) for name, ends in within.items()}
        for duty in prepared.plan.duties:
            binding = prepared.plan.rules[duty.rule].constraint.kind != "informational"
            if isinstance(result.verdict, Permitted) and binding:
                assert violates(checks.rules, prepared.plan, duty, corner) is None
    if isinstance(result.verdict, Refused):
        assert result.verdict.counterexample.margin <= 0

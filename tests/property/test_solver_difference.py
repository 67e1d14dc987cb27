"""S24: what is taken for a tightening permits nothing new, at any point, out of range too."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.solver.analysis import difference
from gateway.solver.analysis.asking import Allowance
from gateway.solver.language.evaluate import truth
from tests.unit.solver_small import rule, small

_atoms = st.builds(
    lambda name, relation, limit: f"{name} {relation} {limit}",
    st.sampled_from(["p", "2*p", "l", "l*p", "abs(l)", "max(l, 0.1*p)"]),
    st.sampled_from(["<=", "<", ">=", ">"]),
    st.integers(-3, 3),
)
_conditions = st.recursive(
    st.one_of(_atoms, st.sampled_from(["h", "b"])),
    lambda inner: st.one_of(
        st.builds(lambda a, b: f"({a}) and ({b})", inner, inner),
        st.builds(lambda a, b: f"({a}) or ({b})", inner, inner),
        st.builds(lambda a: f"not ({a})", inner),
    ),
    max_leaves=4,
)
GRID = [
    {"p": Fraction(p, 2), "l": Fraction(level, 2), "h": Fraction(h), "b": Fraction(b)}
    for p in range(-4, 5)
    for level in range(-4, 5)
    for h in (0, 1)
    for b in (0, 1)
]


@settings(max_examples=120, deadline=None)
@given(old=_conditions, new=_conditions, stronger=st.booleans())
def test_s24_no_point_shows_that_a_tightening_permits_something_new(
    *, old: str, new: str, stronger: bool
) -> None:
    text = f"({old}) and ({new})" if stronger else new
    before, after = small(rule(old, always=True)), small(rule(text, always=True))

    found = difference.unkept(before, after, Allowance(seconds=10.0))

    newly = [x for x in GRID if truth(after.rules[0].require, x) and not truth(before.rules[0].require, x)]
    assert not (newly and found == "")
    assert not (stronger and found)

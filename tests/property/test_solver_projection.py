"""Projections of random conditions on whole numbers against every point there is."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.solver.decoding.counts import AllOf, Condition, Line, OneOf, line
from gateway.solver.decoding.projection import projected

DOMAINS = ((-3, 14), (0, 21), (0, 1), (2, 6))
_lines = st.builds(
    line,
    st.dictionaries(st.integers(0, 3), st.integers(-5, 5), min_size=1, max_size=3),
    st.integers(-15, 60),
)
_conditions = st.recursive(
    _lines,
    lambda inner: (
        st.builds(OneOf, st.lists(inner, min_size=1, max_size=3).map(tuple))
        | st.builds(AllOf, st.lists(inner, min_size=1, max_size=3).map(tuple))
    ),
    max_leaves=4,
)


def _true(condition: Condition, point: tuple[int, ...]) -> bool:
    match condition:
        case Line(terms, limit):
            return sum(factor * point[place] for place, factor in terms) <= limit
        case AllOf(parts):
            return all(_true(part, point) for part in parts)
        case OneOf(parts):
            return any(_true(part, point) for part in parts)


@settings(max_examples=60, deadline=None)
@given(st.lists(_conditions, min_size=1, max_size=5))
def test_a_projection_leaves_no_count_out_and_has_none_too_many_unless_it_says_so(
    conditions: list[Condition],
) -> None:
    found = projected(conditions, DOMAINS)
    points = [
        point
        for point in itertools.product(*(range(low, high + 1) for low, high in DOMAINS))
        if all(_true(condition, point) for condition in conditions)
    ]
    for length in range(len(DOMAINS)):
        true: dict[tuple[int, ...], set[int]] = {}
        for point in points:
            true.setdefault(point[:length], set()).add(point[length])
        for fixed in itertools.product(*(range(low, high + 1) for low, high in DOMAINS[:length])):
            said = {v for low, high in found.values(fixed) for v in range(low, high + 1)}
            if all(found.allowed) and found.levels[length].why:
                assert said >= true.get(fixed, set())
            else:
                assert said == true.get(fixed, set())

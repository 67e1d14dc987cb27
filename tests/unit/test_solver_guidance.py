"""Guidance: what may be decoded next as plain data, and how refusals narrow it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import msgspec

from gateway.core.decision import Permitted, Proposal, Refused, RegisterValue, Repaired
from gateway.core.guidance import Guidance, GuidanceCase, GuidanceLevel, Refusal
from gateway.core.ports import CheckRequest
from gateway.core.spans import nearest, without
from gateway.core.tag import TagId
from gateway.solver.decoding.permitted_next import NotKnown
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import HEATER, MIXER, PATIENT, PUMP, Situation, proposal, rule_set
from tests.unit.solver_next import ORDER, TAGS, Here, rules

NONE: tuple[Refusal, ...] = ()


def test_numbers_of_any_size_travel() -> None:
    huge = 2**90
    case = GuidanceCase(((0, 9), (0, 9)), ((((0, huge), (1, -huge)), 3 * huge),))
    level = GuidanceLevel(((0, 9),), (case,))
    made = Guidance(order=(TagId("a"), TagId("b")), levels=(level, level))

    found = msgspec.json.decode(msgspec.json.encode(made), type=Guidance)

    assert found == made
    assert found.after([7]) == ((4, 9),)  # 7 - b <= 3


def test_a_block_that_was_refused_is_left_out_and_nothing_else() -> None:
    free = tuple(GuidanceLevel(((0, 3),), (GuidanceCase(((0, 3), (0, 3)), ()),)) for _ in range(2))
    made = Guidance(order=(TagId("a"), TagId("b")), levels=free, refused=((1, 2), (3, None)))

    assert made.after([]) == ((0, 2),)
    assert made.after([1]) == ((0, 1), (3, 3))
    assert made.after([2]) == ((0, 3),)
    assert made.after([3]) == ((0, 3),)


def test_the_nearest_count_is_the_lower_of_two_and_never_between_spans() -> None:
    spans = ((0, 3), (7, 9))
    assert nearest(spans, 2.4) == 2
    assert nearest(spans, 5.0) == 3
    assert nearest(spans, 5.1) == 7
    assert nearest(spans, -4.0) == 0
    assert nearest(spans, 99.0) == 9
    assert without(((4, 4),), 4) == ()


def test_outputs_that_no_module_governs_are_not_guided() -> None:
    found = Checks(rule_set(), PATIENT).guidance(Situation().request(None), (HEATER, PUMP), NONE)
    assert isinstance(found, NotKnown)
    assert f"`{MIXER}`" in found.because


def test_guidance_of_the_demo_is_exact_at_its_ends() -> None:
    checks, request = Checks(rule_set(), PATIENT), Situation().request(None)
    found = checks.guidance(request, (HEATER, MIXER, PUMP), NONE)
    assert isinstance(found, Guidance)
    assert found.exact
    assert found.after([0, 1]) == ((300, 500),)  # 10 %/s over the second since 40.0 %


def test_a_refusal_narrows_what_is_decoded_next_to_what_differs_where_it_matters() -> None:
    """A product of outputs is no part of guidance; what is refused for it differs in them next time."""
    made = rules("p*r <= 600", "r <= 20")
    checks, request = Checks(made, PATIENT), replace(Here().request(), may_repair=False)
    refusals = NONE
    tried: list[tuple[int, ...]] = []
    while True:
        found = checks.guidance(request, ORDER, refusals)
        assert isinstance(found, Guidance)
        block = _greatest(found)
        if block is None:
            break
        assert block not in tried
        tried.append(block)
        result, _ = checks.check(replace(request, proposal=_proposal(made, block)))
        if not isinstance(result.verdict, Refused | Repaired):
            break
        cause = result.verdict.counterexample
        refusals = (
            *refusals,
            Refusal(block=block, module=cause.module, constraint=cause.constraint, witness=cause.assignment),
        )
        again = checks.guidance(request, ORDER, refusals)
        assert isinstance(again, Guidance)
        _nothing_permitted_is_lost(checks, made, again, request)
    assert [block[:2] for block in tried] == [(7, 4), (7, 3), (7, 2)]  # 42 % * 10 % is permitted


def _greatest(found: Guidance) -> tuple[int, ...] | None:
    block: list[int] = []
    for _ in ORDER:
        counts = found.after(block)
        if not counts:
            return None
        block.append(counts[-1][1])
    return tuple(block)


def _nothing_permitted_is_lost(checks: Checks, made: RuleSet, found: Guidance, request: CheckRequest) -> None:
    for p in range(8):
        block = (p, 2, 0, 0)
        result, _ = checks.check(replace(request, proposal=_proposal(made, block)))
        if not isinstance(result.verdict, Refused | Repaired):
            assert all(
                any(low <= raw <= high for low, high in found.after(block[:at]))
                for at, raw in enumerate(block)
            )


def _proposal(made: RuleSet, block: tuple[int, ...]) -> Proposal:
    del made
    values = (
        RegisterValue(tag, raw, Fraction(TAGS[tag].engineering(raw)))
        for tag, raw in zip(ORDER, block, strict=True)
    )
    return Proposal(values=tuple(values), by="test")


def test_an_order_that_is_not_the_rule_sets_is_prepared_like_none() -> None:
    """Another model, or other modules, may have come since the order was told."""
    checks, request = Checks(rule_set(), PATIENT), Situation().request(proposal())
    checks.prepare(request, (HEATER, PUMP))
    result, _ = checks.check(request)
    assert isinstance(result.verdict, Permitted)


def test_a_check_after_guidance_says_what_it_says_without() -> None:
    request = Situation().request(proposal("60"))
    guided, plain = Checks(rule_set(), PATIENT), Checks(rule_set(), PATIENT)
    guided.prepare(request, (PUMP, HEATER, MIXER))
    assert isinstance(guided.guidance(request, (PUMP, HEATER, MIXER), NONE), Guidance)

    (mine, state), (other, expected) = guided.check(request), plain.check(request)

    assert isinstance(mine.verdict, Repaired)
    assert replace(mine, timings_ms={}) == replace(other, timings_ms={})
    assert state == expected

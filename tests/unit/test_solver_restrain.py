"""S12: what keeps outputs from moving about, inside one check."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import pytest

from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    Permitted,
    Proposal,
    Refused,
    RegisterValue,
    Repaired,
)
from gateway.core.ports import InForce
from gateway.core.restraint import Restraint
from gateway.core.tag import TagId
from gateway.solver.checking.predict import observe
from gateway.solver.checking.restrain import resolved, shifts
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.wire import answers, checked, encoder, result
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import (
    BUFFER_TANK,
    HEATER,
    MIXER,
    PATIENT,
    PUMP,
    Situation,
    module,
    proposal,
    rule_set,
)
from tests.unit.solver_small import TAGS, Plant, document, rule, small

Fact = TypeVar("Fact")
P = TagId("P")
FULL = Situation(level=3.575, inflow=20.0, pump="54")  # the pump may fall a little, not far
EMPTY = Situation(level=0.345, inflow=4.0, pump="40")  # it may rise a little


@pytest.fixture(scope="module")
def checks() -> Checks:
    return Checks(rule_set(), PATIENT)


def coarse(least: str) -> Restraint:
    return Restraint(least_change={PUMP: Fraction(least)})


def kept(side: int, margin: str = "0.05") -> Restraint:
    return Restraint(kept_back={PUMP: side}, margin=Fraction(margin))


def asked(here: Situation, wanted: Proposal, restraint: Restraint | None = None) -> CheckRequest:
    request = here.request(wanted)
    return request if restraint is None else replace(request, restraint=restraint)


def checked_alike(
    checks: Checks, here: Situation, wanted: Proposal, restraint: Restraint | None = None
) -> CheckResult:
    return replace(checks.check(asked(here, wanted, restraint))[0], timings_ms={})


def pump(found: CheckResult) -> Fraction:
    assert isinstance(found.verdict, Permitted | Repaired), found.verdict
    return next(v.value for v in found.verdict.setpoints if v.tag == PUMP)


@pytest.mark.parametrize(
    ("wanted", "written"), [("40.4", "40"), ("39.6", "40"), ("40.5", "40.5"), ("30", "30")]
)
def test_s12_a_change_below_the_resolution_limit_holds_the_value_in_force(
    checks: Checks, wanted: str, written: str
) -> None:
    found = checked_alike(checks, Situation(), proposal(wanted), coarse("0.5"))
    assert found.verdict == Permitted(proposal(written).values)


def test_s12_only_the_small_change_is_held_the_rest_of_the_block_is_written(checks: Checks) -> None:
    found = checked_alike(checks, Situation(), proposal("40.4", heater=1, mixer=2), coarse("0.5"))
    assert found.verdict == Permitted(proposal("40", heater=1, mixer=2).values)


def test_s12_the_held_values_are_what_was_checked(checks: Checks) -> None:
    plain = checked_alike(checks, Situation(), proposal("40"))
    held = checked_alike(checks, Situation(), proposal("40.4"), coarse("0.5"))
    assert held.findings == plain.findings
    assert held.findings != checked_alike(checks, Situation(), proposal("40.4")).findings


def test_s12_holding_is_not_permitted_so_the_least_change_worth_writing_is_made(checks: Checks) -> None:
    for here, up in ((FULL, True), (EMPTY, False)):
        low, high = 0, 1000
        while high - low > 1:  # the last count that may not be held
            middle = (low + high) // 2
            still = replace(here, pump=str(Fraction(middle, 10)), may_repair=False)
            fine = isinstance(checked_alike(checks, still, proposal(still.pump)).verdict, Permitted)
            low, high = (low, middle) if fine == up else (middle, high)
        bad, step = (low, 1) if up else (high, -1)
        at = replace(here, pump=str(bad / 10), may_repair=False)
        small = proposal(str((bad + step) / 10))
        assert isinstance(checked_alike(checks, at, proposal(at.pump)).verdict, Refused)
        assert isinstance(checked_alike(checks, at, small).verdict, Permitted)
        found = checked_alike(checks, at, small, coarse("0.5"))
        assert isinstance(found.verdict, Permitted)
        assert pump(found) == Fraction(bad + 5 * step, 10)
        assert "a smaller change is not written" in found.verdict.kept_back


def resolutions(rules: RuleSet, in_force: str, wanted: str, least: str) -> list[Fraction]:
    """Of `p` alone: what a wish becomes, first held, then made large enough."""
    here = Plant(old={"P": in_force}, new={"P": wanted}).request()
    assert here.proposal is not None
    asked = {v.tag: v for v in here.proposal.values}
    coarsely = Restraint(least_change={P: Fraction(least)})
    return [found[P].value for found in resolved(rules, observe(rules, here), asked, coarsely)]


# Large enough: away from the value in force, on the register's own counts, within the range.
@pytest.mark.parametrize(
    ("in_force", "wanted", "least", "found"),
    [
        ("40", "40.4", "0.5", ["40", "40.5"]),
        ("40", "39.6", "0.5", ["40", "39.5"]),
        ("40", "40.1", "0.25", ["40", "40.3"]),
        ("40", "39.9", "0.25", ["40", "39.7"]),
        ("40", "39.9", "3.05", ["40", "36.9"]),
        ("40", "40", "0.5", ["40"]),
        ("40", "40.5", "0.5", ["40.5"]),
        ("99.5", "99.8", "0.5", ["99.5", "100"]),
        ("99.8", "99.9", "0.5", ["99.8"]),
        ("0.5", "0.2", "0.5", ["0.5", "0"]),
        ("0.2", "0.1", "0.5", ["0.2"]),
    ],
)
def test_s12_a_small_change_is_held_or_made_as_large_as_is_worth_writing(
    in_force: str, wanted: str, least: str, found: list[str]
) -> None:
    rules = RuleSet.of([small("l <= 3")], 1)
    assert resolutions(rules, in_force, wanted, least) == [Fraction(value) for value in found]


def test_s12_a_change_that_the_register_cannot_make_large_enough_is_not_made() -> None:
    limited = {**TAGS, P: replace(TAGS[P], raw_range=(0, 420))}
    text = json.dumps(document(rule("l <= 3"))).encode()
    rules = RuleSet.of([compile_module(text, "small.json", limited)], 1)
    assert resolutions(rules, "41.6", "41.8", "0.3") == [Fraction("41.6"), Fraction("41.9")]
    assert resolutions(rules, "41.8", "41.9", "0.3") == [Fraction("41.8")]


# Left above a proposal: downward with room to spare; left below: upward. Nothing else.
@pytest.mark.parametrize(
    ("side", "wanted", "further"),
    [
        (1, "39.5", "-8"),
        (1, "10", "-8"),
        (-1, "40.5", "8"),
        (1, "40", None),
        (1, "40.5", None),
        (-1, "39.5", None),
        (0, "10", None),
    ],
)
def test_s12_room_is_asked_for_in_the_direction_of_the_release_and_as_a_share_of_the_range(
    side: int, wanted: str, further: str | None
) -> None:
    rules = RuleSet.of([small("l <= 3", variables={"p": {"range": ["20", "100"]}})], 1)
    here = Plant(old={"P": "40"}, new={"P": wanted, "H": "1"}).request()
    assert here.proposal is not None
    asked = {v.tag: v for v in here.proposal.values}
    back = Restraint(kept_back={P: side, TagId("H"): -1, TagId("S"): 1}, margin=Fraction(1, 10))
    found = shifts(rules, observe(rules, here), asked, back)
    assert found == ({} if further is None else {P: Fraction(further)})


def test_s12_what_goes_the_other_way_than_it_was_kept_back_needs_no_room(checks: Checks) -> None:
    limit = pump(checked_alike(checks, FULL, proposal("45")))
    here = replace(FULL, pump=str(float(limit) + 0.5))
    wanted = proposal(str(float(limit) + 1))
    assert checked_alike(checks, here, wanted, kept(1)).verdict == Permitted(wanted.values)


def test_s12_a_repair_writes_no_change_below_the_resolution_limit(checks: Checks) -> None:
    free = checked_alike(checks, FULL, proposal("45"))
    assert isinstance(free.verdict, Repaired)
    distance = 54 - pump(free)
    assert 0 < distance < 10
    found = checked_alike(checks, FULL, proposal("45"), coarse(str(float(distance) + 0.1)))
    assert isinstance(found.verdict, Repaired)
    assert pump(found) == 54


def test_s12_an_output_whose_value_in_force_is_not_certain_is_not_held(checks: Checks) -> None:
    request = asked(Situation(), proposal("40.4"), coarse("0.5"))
    both = (InForce(Fraction("40.2"), 0.0), InForce(Fraction(40), 0.0))
    found = checks.check(replace(request, history={**request.history, PUMP: both}))[0]
    assert found.verdict == Permitted(proposal("40.4").values)


def test_s12_what_was_kept_back_is_released_only_with_room_to_spare(checks: Checks) -> None:
    free = checked_alike(checks, FULL, proposal("45"))
    held = checked_alike(checks, FULL, proposal("45"), kept(1))
    assert isinstance(held.verdict, Repaired)
    assert pump(free) + 4 <= pump(held) <= pump(free) + 6, "5 % of its range further from the limit"


def test_s12_a_permitted_proposal_waits_for_room_and_says_so(checks: Checks) -> None:
    limit = pump(checked_alike(checks, FULL, proposal("45")))
    wanted = proposal(str(float(limit) + 1))
    assert checked_alike(checks, FULL, wanted).verdict == Permitted(wanted.values)
    found = checked_alike(checks, FULL, wanted, kept(1))
    assert isinstance(found.verdict, Permitted)
    assert pump(found) > limit + 4
    assert "`TK1.P101.SP` goes to" in found.verdict.kept_back
    assert "safe_set[1]` would hold with too little to spare" in found.verdict.kept_back


def test_s12_without_room_the_value_in_force_stays_where_it_is_permitted(checks: Checks) -> None:
    found = checked_alike(checks, FULL, proposal("45"), kept(1, "0.9"))
    assert pump(found) == 54


def test_s12_where_staying_is_not_permitted_nothing_is_kept_back(checks: Checks) -> None:
    over = replace(EMPTY, level=0.34, pump="52")
    wanted = proposal("42")
    assert isinstance(checked_alike(checks, over, proposal("52")).verdict, Refused)
    assert checked_alike(checks, over, wanted, kept(1, "0.9")) == checked_alike(checks, over, wanted)


@pytest.mark.parametrize(
    ("here", "wanted", "restraint"),
    [
        (Situation(), "45", kept(1)),  # the other way
        (Situation(), "35", kept(-1)),
        (Situation(), "35", kept(1)),  # far from every limit
        (Situation(), "45", kept(-1)),
        (FULL, "62", kept(1)),  # away from the limit
        (FULL, "48", Restraint(margin=Fraction(1, 20))),  # nothing was repaired lately
    ],
)
def test_s12_nothing_is_held_that_was_not_kept_back_or_has_room(
    checks: Checks, here: Situation, wanted: str, restraint: Restraint
) -> None:
    plain = checked_alike(checks, here, proposal(wanted))
    assert plain.verdict == Permitted(proposal(wanted).values)
    assert checked_alike(checks, here, proposal(wanted), restraint) == plain


def test_s12_why_a_value_is_kept_back_comes_through_the_workers_pipe(checks: Checks) -> None:
    limit = pump(checked_alike(checks, FULL, proposal("45")))
    request = asked(FULL, proposal(str(float(limit) + 1)), kept(1))
    found, state = checks.check(request)
    answer = answers.decode(encoder.encode(checked(found, state)))
    assert result(answer)[0] == found  # type: ignore[arg-type]


# S12: the same question gets the same answer, whoever is asked, in whatever order its facts stand.
def test_s12_ties_are_settled_alike_by_every_worker(checks: Checks) -> None:
    other = Checks(rule_set(), PATIENT)
    for wanted in (proposal("55", heater=1, mixer=0), proposal("20", heater=1, mixer=3), proposal("0", 1, 0)):
        for here in (Situation(), FULL, replace(FULL, held_s=5.0)):
            one = checks.check(here.request(wanted))[0].verdict
            turned = here.request(replace(wanted, values=wanted.values[::-1]))
            turned = replace(
                turned,
                inputs=backwards(turned.inputs),
                history=backwards(turned.history),
                held_s=backwards(turned.held_s),
            )
            two = other.check(turned)[0].verdict
            assert type(one) is type(two)
            if isinstance(one, Permitted | Repaired):
                assert isinstance(two, Permitted | Repaired)
                assert sorted(one.setpoints, key=by_tag) == sorted(two.setpoints, key=by_tag)


def backwards(facts: Mapping[TagId, Fact]) -> dict[TagId, Fact]:
    return dict(list(facts.items())[::-1])


def by_tag(value: RegisterValue) -> TagId:
    return value.tag


@pytest.mark.parametrize(
    ("named", "written"),
    [
        ('"repair": {"heater": true, "mixer": true},', (0, 0)),
        ('"repair": {"heater": true},', (0, 0)),
        ('"repair": {"mixer": true},', (1, 1)),
        ("", None),
    ],
)
def test_s12_switches_and_whole_numbers_are_moved_only_where_the_module_names_them(
    named: str, written: tuple[int, int] | None
) -> None:
    rules = rule_set(module(BUFFER_TANK, ('"repair": {"heater": true, "mixer": true},', named)))
    here = Situation(heater=0, mixer=0)
    found = checked_alike(Checks(rules, PATIENT), here, proposal("40", heater=1, mixer=0))
    if written is None:
        assert isinstance(found.verdict, Refused)
        return
    assert isinstance(found.verdict, Repaired)
    values = {v.tag: v.raw for v in found.verdict.setpoints}
    assert (values[HEATER], values[MIXER]) == written

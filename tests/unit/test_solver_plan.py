from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import Holds, Refused
from gateway.core.ports import InForce
from gateway.core.tag import TagId
from gateway.solver.checking.condense import Plan, condense, keys
from gateway.solver.checking.query import Query
from gateway.solver.checking.shelf import Shelf
from gateway.solver.checking.terms import Budget
from gateway.solver.language.affine import Affine, atoms, symbols
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import (
    BUFFER_TANK,
    HEATER,
    INFLOW,
    NOW,
    PATIENT,
    Situation,
    module,
    proposal,
    rule_set,
)
from tests.unit.solver_modules import shipped
from tests.unit.solver_small import small

DELAY, HOLD = Fraction("0.3"), Fraction("1.2")


@pytest.fixture(scope="module")
def checks() -> Checks:
    return Checks(rule_set(), PATIENT)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return condense(rule_set(), DELAY, HOLD)


def instants(plan: Plan, name: str, *, old: bool) -> list[Fraction]:
    return [
        plan.instant(d.instant)
        for d in plan.duties
        if plan.rules[d.rule].constraint.id == name and d.old is old
    ]


# A step is what `dynamics` say it is; a shorter stretch has its share of it.
def test_what_moves_within_a_stretch_is_its_share_of_a_step() -> None:
    dynamics = {"l": "0.9*l + 0.5*q - 0.25*p + w", "disturbance": {"w": ["-1", "1"]}}
    moving = small(
        {"id": "r", "kind": "standard", "require": "l <= 3", "always": True}, dynamics=dynamics, step="2 s"
    )
    half = Fraction(1, 2)
    found = condense(RuleSet.of([moving], 1), half, Fraction(3))

    stretches = [(s.start, s.end, s.mixed) for s in found.segments]
    assert stretches == [(0, half, True), (half, 2, False), (2, 3, False)]
    (form,) = (a.form for d in found.duties if (d.instant, d.old) == (1, False) for a in atoms(d.formula))
    assert isinstance(form, Affine)
    assert form.constant == -3
    share = Fraction(1, 4)
    assert form.terms == {"x:L": 1 - share / 10, "m0:Q": share / 2, "e0:P": -share / 4, "d0:w": share}


# Counts and truths are told apart value by value; what is measured in decimals never is.
def test_what_counts_in_whole_numbers_is_told_apart_from_what_does_not() -> None:
    said = ("n <= 9 or b", "l <= 3", "m == auto", "(b for 3 s) implies l <= 4", "prev(n) <= 8")
    rules = [{"id": f"r{k}", "kind": "standard", "require": require} for k, require in enumerate(said)]
    found = condense(RuleSet.of([small(*rules)], 1), DELAY, HOLD)
    (timer,) = (name for name in found.symbols if name.startswith("for:"))
    assert set(found.whole) == {"x:N", "x:B", "x:M", "was:N", timer}


# A rule that looks back is about the change the proposal makes, however long the plan is.
def test_what_looks_back_is_asked_of_the_proposal_and_of_nothing_the_backup_does_later() -> None:
    look_back = {
        "id": "slow",
        "kind": "standard",
        "require": "abs(rate(p)) <= 10 and (prev(h) iff h)",
        "always": True,
    }
    plain = {"id": "plain", "kind": "standard", "require": "p <= 90"}
    backup = [{"p": "ramp(0, 5)"}, {"h": "hold"}, {"s": "hold"}]
    module = small(
        look_back, plain, dynamics={"l": "l + 0.01*p"}, backup=backup, terminal=["p <= 0"], horizon=4
    )
    found = condense(RuleSet.of([module], 1), DELAY, HOLD)
    names = [found.rules[d.rule].constraint.id for d in found.duties]

    assert "slow" in names
    assert not [
        d for d, name in zip(found.duties, names, strict=True) if name in {"slow", "plain"} and d.backup >= 0
    ]
    assert not [d for d, name in zip(found.duties, names, strict=True) if name == "slow" and d.old]


# The key of a rule is of all that its duties and their terms follow from, and of nothing else.
@pytest.mark.parametrize(
    ("changed", "differ"),
    [
        ({"g": {"error": "0.2"}}, {"plain", "back"}),
        ({"t": {"range": ["0", "80"]}}, {"other"}),
        ({"p": {"range": ["0", "90"]}}, {"out"}),
        ({"q": {"max_rate": "3 m3/h/s"}}, {"plain", "back", "other", "out"}),  # the level moves with it
    ],
)
def test_s3_a_premise_makes_another_key_of_the_rules_that_it_is_a_premise_of(
    changed: dict[str, dict[str, object]], differ: set[str]
) -> None:
    said = {"plain": "g <= 4", "back": "prev(g) <= 5", "other": "t <= 70", "out": "rate(p) <= 9"}
    rules = [{"id": name, "kind": "standard", "require": require} for name, require in said.items()]
    dynamics = {"l": "l + 0.01*q"}
    one, other = (
        RuleSet.of([small(*rules, dynamics=dynamics, variables=variables)], 1) for variables in ({}, changed)
    )
    told = [r.constraint.id for r in one.rules]
    pairs = zip(told, keys(one, DELAY, HOLD), keys(other, DELAY, HOLD), strict=True)
    assert {name for name, before, after in pairs if before != after} & said.keys() == differ


def test_values_one_step_ago_are_the_record_s_for_outputs_and_the_last_check_s_for_readings() -> None:
    looking = {"id": "r", "kind": "standard", "require": "prev(l) <= 3 and prev(p) <= 90 and rate(l) <= 1"}
    found = condense(RuleSet.of([small(looking, step="2 s")], 1), DELAY, HOLD)
    (duty,) = (d for d in found.duties if found.rules[d.rule].constraint.id == "r")
    assert symbols(duty.formula) == {"was:L", "old:P", "x:L"}
    change = next(a.form for a in atoms(duty.formula) if len(a.form.symbols) > 1)
    assert isinstance(change, Affine)
    assert change.terms == {"x:L": Fraction(1, 2), "was:L": -Fraction(1, 2)}  # a second, of a step of two


def test_s4_where_the_proposal_acts_at_once_nothing_is_owed_with_the_values_in_force() -> None:
    found = condense(rule_set(), Fraction(0), HOLD)
    assert not any(duty.old for duty in found.duties)
    assert not any(segment.mixed for segment in found.segments)


# S1: every rule holds until the proposal can be replaced, and a decision may come at any moment before.
def test_s1_what_must_hold_always_is_asked_at_every_instant_with_whatever_may_be_in_force(plan: Plan) -> None:
    assert instants(plan, "no-overflow", old=False) == [0, DELAY, 1, HOLD]
    assert instants(plan, "no-overflow", old=True) == [0, DELAY]
    assert instants(plan, "safe_set[1]", old=False) == [DELAY, 1, HOLD]
    assert instants(plan, "safe_set[1]", old=True) == []
    assert instants(plan, "pump-ramp", old=False) == [0]


@pytest.mark.parametrize(
    ("delay", "hold", "end"), [("0", "0.2", 1), ("0.3", "2.5", "2.5"), ("1.5", "1", "1.5")]
)
def test_a_plan_ends_no_sooner_than_a_step_and_no_sooner_than_the_proposal_acts(
    delay: str, hold: str, end: str | int
) -> None:
    plan = condense(rule_set(), Fraction(delay), Fraction(hold))

    assert plan.segments[-1].end == Fraction(end)
    assert all(s.end - s.start <= 1 for s in plan.segments)
    assert all(s.mixed is (s.start < Fraction(delay)) for s in plan.segments)


# S4: until the new values act, the old ones do; nobody knows when in between.
def test_s4_the_old_value_acts_until_the_new_one_surely_does(checks: Checks) -> None:
    def margin(here: Situation) -> Fraction:
        result, _ = checks.check(here.request(proposal("50")))
        found = next(f for f in result.findings if f.constraint == "no-overflow")
        assert isinstance(found, Holds)
        assert found.margin is not None
        return found.margin

    rising = replace(Situation(level=3.4), inflow=36.0)
    difference = margin(replace(rising, pump="50")) - margin(replace(rising, pump="40"))

    assert difference == Fraction("0.0000625") * 10 * DELAY


# The heater in force goes on heating for a moment, whatever is proposed.
def test_s4_the_values_in_force_must_keep_the_rules_until_they_are_replaced(checks: Checks) -> None:
    dry = Situation(level=0.505, pump="0", heater=1, may_repair=False)

    verdict = checks.check(dry.request(proposal("0", heater=0)))[0].verdict

    assert isinstance(verdict, Refused)
    assert verdict.counterexample.constraint == "no-dry-fire"
    assert verdict.counterexample.assignment[HEATER] == 1


def test_s4_the_skew_of_the_snapshot_counts_for_what_has_no_dynamics(checks: Checks) -> None:
    together = Situation().inputs()
    apart = {t: v if t == INFLOW else replace(v, confirmed_at=NOW - 1) for t, v in together.items()}

    widths = []
    for inputs in (together, apart):
        _, state = checks.check(Situation().request(proposal(), inputs))
        assert state is not None
        widths.append(state.intervals[INFLOW].high - state.intervals[INFLOW].low)

    assert widths[1] - widths[0] == 4  # 2 m3/h/s for a second, either way


# S18: {before, after} while a write is unconfirmed: the heater may be neither switched on nor off too soon.
def test_s18_with_an_unconfirmed_heater_both_minimum_times_hold(checks: Checks) -> None:
    here = Situation(heater=1, held_s=5.0, may_repair=False, older={HEATER: (InForce(Fraction(0), 0.0),)})

    for wanted, rule in ((0, "heater.min_on"), (1, "heater.min_off")):
        verdict = checks.check(here.request(proposal(heater=wanted)))[0].verdict
        assert isinstance(verdict, Refused)
        assert verdict.counterexample.constraint == rule


# S3: from premises that cannot be met anything follows; so nothing may.
def test_s3_premises_that_cannot_be_met_are_noticed(plan: Plan) -> None:
    query = Query(Shelf(), plan, Budget())
    fine = dict.fromkeys(plan.symbols, (0, 0))

    assert query.open(fine, {})
    query.close()
    assert not query.open({**fine, plan.symbols[0]: (1, 0)}, {})
    query.close()
    assert not query.open(fine, {"old:TK1.P101.SP": (Fraction(1), Fraction(2))})


SLOW = '"require": "pump <= 80"'  # informational: no case speaks of it


def with_rule(text: str) -> Plan:
    """The plan of the demo's module with another rule in the place of `prefer-slow`."""
    return condense(rule_set(module(BUFFER_TANK, (SLOW, text))), DELAY, HOLD)


def read_in(plan: Plan, name: str, tag: TagId) -> list[str]:
    """By duty of a rule, what it reads of a tag."""
    duties = [d for d in plan.duties if plan.rules[d.rule].constraint.id == name and not d.old]
    return [n for d in duties for n in sorted(symbols(d.formula)) if n.endswith(f":{tag}")]


# Between two instants a level hardly moves, and an inflow may: the later of both stands for what is between.
def test_a_rule_over_level_and_inflow_counts_the_inflow_as_far_as_the_next_instant() -> None:
    plan = with_rule('"require": "level + 0.001*inflow <= 5", "always": true')
    duties = [d for d in plan.duties if plan.rules[d.rule].constraint.id == "prefer-slow" and not d.old]

    assert [d.instant for d in duties] == [0, 1, 2, 3]
    assert [d.drift for d in duties] == [1, 2, 3, -1]
    read = [sorted(n for n in symbols(d.formula) if INFLOW in n) for d in duties]
    assert read == [
        [f"p1:{INFLOW}"],
        [f"m0:{INFLOW}", f"p2:{INFLOW}"],
        [f"m0:{INFLOW}", f"m1:{INFLOW}", f"p3:{INFLOW}"],
        [f"m0:{INFLOW}", f"m1:{INFLOW}", f"m2:{INFLOW}", f"p3:{INFLOW}"],
    ]


@pytest.mark.parametrize(
    ("changed", "read"),
    [
        ('"require": "level + 0.001*inflow <= 5"', [f"x:{INFLOW}"]),  # now, and nothing else
        (
            '"require": "inflow <= 40", "always": true',
            [f"x:{INFLOW}", *(f"p{k}:{INFLOW}" for k in (1, 2, 3))],
        ),
    ],
)
def test_a_rule_of_now_or_over_the_inflow_alone_counts_it_at_its_own_instants(
    changed: str, read: list[str]
) -> None:
    assert read_in(with_rule(changed), "prefer-slow", INFLOW) == read


# S1: under a terminal set what must hold always must hold all along the backup's way there, at both ends of
# each of its steps, with the value that acts in it; and from the start of each segment in which it may begin.
def test_s1_under_a_terminal_set_the_backup_owes_what_must_hold_always_at_every_instant() -> None:
    rules = RuleSet.of([shipped("tclab-twin")], 1)
    plan = condense(rules, Fraction(3), Fraction(12))
    acting = sum(not s.backup for s in plan.segments)
    begun = [(k, k) for k in range(acting)]
    along = [(k, at) for k in range(acting, len(plan.segments)) for at in (k, k + 1)]
    owed = [*begun, *along]
    always = {r.constraint.id for r in rules.rules if r.constraint.always}

    assert len(along) == 2 * rules.horizon
    assert [s.mixed for s in plan.segments] == [s.end <= 3 for s in plan.segments]
    assert always == {"hot1", "hot2", "power"}
    found: dict[str, list[tuple[int, int]]] = {rule.constraint.id: [] for rule in plan.rules}
    for duty in plan.duties:
        if duty.backup >= 0:
            found[plan.rules[duty.rule].constraint.id].append((duty.backup, duty.instant))
    assert {name: found[name] for name in always} == dict.fromkeys(always, owed)
    others = {name: at for name, at in found.items() if name not in always and at}
    assert set(others) == {rule.constraint.id for rule in rules.terminal}
    assert all(at == [(len(plan.segments) - 1, len(plan.segments))] for at in others.values())
    assert not any(duty.old for duty in plan.duties if duty.backup >= 0)
    power = [d for d in plan.duties if plan.rules[d.rule].constraint.id == "power" and d.backup >= 0]
    assert all(symbols(d.formula) == {f"b{d.backup}:TCL.Q1.SP", f"b{d.backup}:TCL.Q2.SP"} for d in power)

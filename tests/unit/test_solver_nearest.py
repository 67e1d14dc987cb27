"""S12, `repair = "nearest"`: the permitted block nearest to a proposal, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import (
    CheckResult,
    Permitted,
    Proposal,
    Refused,
    Repaired,
    Undetermined,
)
from gateway.core.restraint import Restraint
from gateway.core.tag import TagId
from gateway.solver.checking.judge import Judge, Judgement
from gateway.solver.checking.predict import observe
from gateway.solver.decoding.counts import Line
from gateway.solver.repairing.linear import Bound, Least, LinearProgram, UnsolvedError
from gateway.solver.repairing.nearest import Answer, Disagreed, Nearest, Question
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.wire import answers, checked, encoder, result
from gateway.solver.workers.check import Checks, millis_up
from tests.unit.solver_demo import HEATER, MIXER, PATIENT, PUMP, Situation, rule_set
from tests.unit.solver_demo import proposal as demo_proposal
from tests.unit.solver_nearest import Block, H, P, R, S, asked, block_of, proposal
from tests.unit.solver_next import Here, rules

FAR = {P: 7, R: 6, H: 0, S: 0}
IDLE = {P: 0, R: 0, H: 0, S: 0}
STILL = Here(old={"P": 4, "R": 4, "H": 0, "S": 0})


def verdict(
    rule_set: RuleSet, wanted: Block, here: Here = STILL, restraint: Restraint | None = None
) -> object:
    request = asked(here, wanted) if restraint is None else asked(here, wanted, restraint)
    return Checks(rule_set, PATIENT).check(request)[0].verdict


def repaired(
    rule_set: RuleSet, wanted: Block, here: Here = STILL, restraint: Restraint | None = None
) -> dict[TagId, int]:
    found = verdict(rule_set, wanted, here, restraint)
    assert isinstance(found, Repaired), found
    return block_of(found.setpoints)


# The way from (24, 20) to (42, 30) leaves p + r <= 50 at once; beside it 42 and 5 are permitted, and nearest.
def test_s12_nearest_finds_what_lies_beside_the_way() -> None:
    two = rules("p + r <= 50", "p >= 40")

    found = repaired(two, FAR)
    beside = Checks(two, PATIENT).check(replace(asked(STILL, FAR), repair="segment"))[0].verdict

    assert found == {P: 7, R: 1, H: 0, S: 0}
    assert isinstance(beside, Refused)


def test_s12_who_does_not_opt_in_keeps_to_the_way() -> None:
    checks = Checks(rule_set(), PATIENT)
    request = Situation().request(demo_proposal("82.5"))
    assert request.repair == "segment"

    plain, there = (checks.check(replace(request, repair=way))[0].verdict for way in ("segment", "nearest"))

    assert isinstance(plain, Repaired)
    assert isinstance(there, Repaired)
    assert plain.setpoints == there.setpoints == demo_proposal("50").values  # one output: both are nearest
    assert not plain.said
    assert there.said


# A share of the range counts, not the unit: two counts of p are 12 of 50, one of each is 6 of 50 and 5 of 40.
def test_s12_the_distance_is_a_share_of_each_range() -> None:
    assert repaired(rules("p + r <= 63"), FAR) == {**FAR, P: 5}


def test_s12_equal_bounds_are_kept_to_the_register_value() -> None:
    assert repaired(rules("p <= 36"), FAR)[P] == 6
    assert repaired(rules("p < 36"), FAR)[P] == 5
    assert repaired(rules("p >= 36"), IDLE)[P] == 6
    assert repaired(rules("p > 36"), IDLE)[P] == 7
    assert repaired(rules("2*p == 3*r", "p >= 6"), {**IDLE, P: 1}) == {P: 5, R: 4, H: 0, S: 0}


@pytest.mark.parametrize(("named", "expected"), [({"h": True}, 1), ({"h": False}, None), ({}, None)])
def test_s12_a_switch_is_turned_only_where_repair_names_it(
    named: Mapping[str, bool], expected: int | None
) -> None:
    found = verdict(rules("h", "p <= 20", repair=named), FAR)

    if expected is None:
        assert isinstance(found, Refused)
    else:
        assert isinstance(found, Repaired)
        assert block_of(found.setpoints)[H] == expected


def test_s12_no_switch_is_turned_where_moving_reals_is_enough() -> None:
    far = rules("h or p <= 6", repair={"h": True})
    assert repaired(far, {**FAR, R: 0}) == {P: 1, R: 0, H: 0, S: 0}


def test_s12_an_enum_is_given_one_of_its_labels_only() -> None:
    found = repaired(rules("s != idle", repair={"s": True}), IDLE)
    assert found == {**IDLE, S: 2}  # 1 is no label; of `run` and `stop` the one nearer to the value in force


def test_s12_of_two_switches_the_one_of_the_module_of_lower_priority_is_turned() -> None:
    both = rules("h or s == run", repair={"h": True, "s": True})
    assert repaired(both, IDLE) == {**IDLE, S: 2}  # of one module the first by name stays


# S12: minimum times hold against a repair as against the model.
def test_s12_minimum_times_hold_against_a_repair() -> None:
    hot = rules("p <= 20 or not h", "p >= 30", repair={"h": True})
    on = {"P": 5, "R": 0, "H": 1, "S": 0}

    long_on = repaired(hot, {P: 5, R: 0, H: 1, S: 0}, Here(old=on))
    just_on = verdict(hot, {P: 5, R: 0, H: 1, S: 0}, Here(old=on, held_s=5.0))

    assert long_on[H] == 0
    assert isinstance(just_on, Refused)


def test_s12_a_repair_writes_no_change_below_the_least_one() -> None:
    near = rules("p <= 20", "p + r >= 40")  # the nearest by itself is p 18, which is 6 off what is in force
    coarse = Restraint(least_change={P: Fraction(7)})

    assert repaired(near, FAR)[P] == 3
    assert repaired(near, FAR, restraint=coarse)[P] == 2  # 24 is not permitted, and 12 is far enough
    assert repaired(near, FAR, restraint=Restraint(least_change={P: Fraction(6)}))[P] == 3


# S12: what was kept back goes on only with room to spare, if anything with room to spare is permitted.
def test_s12_room_before_release_holds_for_a_repair_beside_the_way() -> None:
    level = rules({"require": "l >= 1.9", "always": True})  # r empties, p fills
    here = Here(l=2.0, old=dict.fromkeys("PRHS", 0))
    wanted = {**IDLE, R: 6}
    checks = Checks(level, PATIENT)

    def permitted(block: Block) -> bool:
        return isinstance(checks.check(asked(here, block, may_repair=False))[0].verdict, Permitted)

    free = repaired(level, wanted, here)
    spared = repaired(level, wanted, here, Restraint(kept_back={R: -1}, margin=Fraction(1, 8)))

    assert permitted(free)
    assert not permitted({**free, R: free[R] + 1})
    assert permitted(spared)
    assert permitted({**spared, R: spared[R] + 1})  # an eighth of its range is a count
    assert not permitted({**spared, R: spared[R] + 2})


def test_s12_what_is_kept_back_stays_where_nothing_leaves_it_room() -> None:
    level = rules({"require": "l >= 1.9", "always": True})
    here = Here(l=2.0, old=dict.fromkeys("PRHS", 0))

    found = repaired(level, {**IDLE, R: 6}, here, Restraint(kept_back={R: -1}, margin=Fraction(4)))

    assert found == IDLE


def test_s12_the_answer_is_told_in_words() -> None:
    found = verdict(rules({"require": "l + 0.01*p <= 2.3", "id": "no-overflow"}), FAR)

    assert isinstance(found, Repaired)
    assert found.said == (
        "`P` asked 42 %, permitted up to 24 %, while `L` = 2 m, because of `no-overflow` (small.json:1)"
    )


def test_what_is_told_of_a_repair_travels_and_a_segment_repair_is_as_it_was() -> None:
    checks = Checks(rules("p <= 30"), PATIENT)
    for request in (asked(STILL, FAR), replace(asked(STILL, FAR), repair="segment")):
        found, state = checks.check(request)
        back, _ = result(answers.decode(encoder.encode(checked(found, state))))  # type: ignore[arg-type]
        assert back.verdict == found.verdict
        assert isinstance(found.verdict, Repaired)
        assert bool(found.verdict.said) == (request.repair == "nearest")


class _Lying(LinearProgram):
    """HiGHS that finds nothing, or gives no answer."""

    def __init__(self, *, unsolved: bool) -> None:
        super().__init__()
        self._unsolved = unsolved

    def least(self, goal: Least, box: object, lines: object) -> Bound | None:  # noqa: ARG002  as its base
        if self._unsolved:
            raise UnsolvedError(str(goal.wanted))
        return None


def _asked_of(
    program: LinearProgram | None,
    rule_set: RuleSet,
    wanted: Block,
    late: Callable[[], bool] = lambda: False,
    says: Callable[[Judgement], Judgement] = lambda judged: judged,
) -> tuple[Answer, list[Proposal]]:
    request = asked(STILL, wanted)
    judge = Judge(rule_set, PATIENT)
    prepared = judge.prepare(millis_up(request.effect_delay_s), millis_up(request.hold_s))
    facts = observe(rule_set, request)
    seen: list[Proposal] = []

    def judged(one: Proposal) -> Judgement:
        seen.append(one)
        return says(judge.judge(prepared, facts, one.engineering()))

    refused = judge.judge(prepared, facts, proposal(wanted).engineering())
    question = Question(
        prepared=prepared,
        facts=facts,
        proposal=proposal(wanted),
        restraint=Restraint(),
        refused=refused,
        judge=judged,
        late=late,
    )
    return Nearest(rule_set, program).repaired(question), seen


# HiGHS says that nothing is left, and between the values in force and the proposal something is permitted.
def test_where_highs_and_the_judge_contradict_each_other_nobody_knows() -> None:
    found, seen = _asked_of(_Lying(unsolved=False), rules("p <= 30"), FAR)

    assert isinstance(found, Disagreed)
    assert "disagree" in found.reason
    assert len(seen) == 1


def test_where_the_judge_refuses_what_fulfils_every_condition_nobody_knows() -> None:
    def refuses(judged: Judgement) -> Judgement:
        return Judgement(violated=judged.violated)

    found, _ = _asked_of(None, rules("p <= 30"), FAR, says=refuses)

    assert isinstance(found, Disagreed)


def test_a_disagreement_is_undetermined_and_lets_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = Checks(rules("p <= 30"), PATIENT)
    monkeypatch.setattr(LinearProgram, "least", _Lying(unsolved=False).least)

    found = checks.check(asked(STILL, FAR))[0]

    assert isinstance(found.verdict, Undetermined)
    assert found.verdict.reason.startswith("the search for a repair and the exact judge disagree")
    assert found.proposal is None


def test_without_an_answer_of_highs_the_way_is_looked_along() -> None:
    found, _ = _asked_of(_Lying(unsolved=True), rules("p <= 30"), FAR)

    assert isinstance(found, Proposal)
    assert block_of(found.values)[P] == 5  # on the way from 24 and 20 to 42 and 30
    assert block_of(found.values)[R] == 4


def test_highs_without_an_answer_tells_why() -> None:
    program = LinearProgram()
    with pytest.raises(UnsolvedError, match="too large"):
        program.least(Least((0,), (1,)), [(0, 1)], [Line(((0, 1),), 10**400)])


# S12: no write without a full check, and none after the deadline.
def test_s12_whatever_a_repair_gives_has_passed_the_whole_check() -> None:
    found, seen = _asked_of(None, rules("p + r <= 50", "l*p <= 60"), FAR)

    assert isinstance(found, Proposal)
    assert found in seen


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_s12_once_it_is_late_nothing_is_judged_and_nothing_found(calls: int) -> None:
    left = [calls]

    def late() -> bool:
        left[0] -= 1
        return left[0] < 0

    found, seen = _asked_of(None, rules("p + r <= 50"), FAR, late=late)

    assert found is None
    assert not seen


def test_s12_nothing_is_looked_for_where_nothing_can_be_permitted() -> None:
    found, seen = _asked_of(None, rules("l >= 3"), FAR)

    assert found is None
    assert not seen


def test_s12_nearest_on_the_demo_is_permitted_and_as_near_as_the_segment_or_nearer() -> None:
    checks = Checks(rule_set(), PATIENT)
    for level, pump, wanted in (
        (3.55, "30", "18"),
        (3.578, "60", "75"),
        (3.583, "66", "90"),
        (0.345, "52", "62"),
    ):
        here = Situation(level=level, inflow=25.0 if level > 1 else 4.0, pump=pump)
        request = here.request(demo_proposal(wanted))
        plain, there = (checks.check(replace(request, repair=way))[0] for way in ("segment", "nearest"))
        assert _far(there, wanted) <= _far(plain, wanted)
        if isinstance(there.verdict, Repaired):
            assert there.proposal is not None
            again = checks.check(replace(request, proposal=there.proposal, may_repair=False))[0]
            assert isinstance(again.verdict, Permitted)
            assert {v.tag: v.raw for v in there.proposal.values if v.tag != PUMP} == {HEATER: 0, MIXER: 1}


def _far(found: CheckResult, wanted: str) -> Fraction:
    if isinstance(found.verdict, Permitted):
        return Fraction(0)
    if isinstance(found.verdict, Refused):
        return Fraction(10**6)
    assert isinstance(found.verdict, Repaired), found.verdict
    return next(abs(v.value - Fraction(wanted)) for v in found.verdict.setpoints if v.tag == PUMP)


def test_s12_every_rule_that_the_proposal_breaks_is_told_up_to_three() -> None:
    five = rules("p <= 30", "r <= 20", "p + r <= 40", "2*p + r <= 70", "p - r <= 20")
    found = verdict(five, FAR)

    assert isinstance(found, Repaired)
    because = found.said.partition("because of ")[2]
    assert because.count("(small.json:1)") == 3
    assert because.endswith(" and 1 more")


# Where conditions say all that the rules say, the judge is asked once more than for the proposal itself.
def test_s12_a_plain_repair_is_judged_once() -> None:
    _, seen = _asked_of(None, rules("p + r <= 50", "p >= 40"), FAR)
    assert len(seen) == 1

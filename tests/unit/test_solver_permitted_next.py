"""What may be decoded next is what the full check, Z3 included, permits of all blocks: never less."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import Permitted, Proposal, RegisterValue
from gateway.core.ports import CheckRequest, InForce
from gateway.core.tag import TagId
from gateway.solver.decoding.permitted_next import AtMost, Exactly, NotKnown, mask
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.bench.synthetic import DELAY_S, HOLD_S, Family, requests, rule_set
from tests.unit.solver_demo import HEATER, MIXER, PATIENT, PUMP, Situation, good
from tests.unit.solver_demo import rule_set as demo_rules
from tests.unit.solver_modules import shipped
from tests.unit.solver_next import ORDER, Enumerated, Here, rules

BACKUP = [
    {"when": "l >= 2", "p": "ramp(0, 10)"},
    {"p": "ramp(20, 5)"},
    {"r": "hold"},
    {"h": False},
    {"s": "idle"},
]
SAFE = {"backup": BACKUP, "safe_set": ["l <= 2.3 - 0.002*p", "r > 0 implies l >= 1.7 + 0.002*r"]}
# Moves that ask for no state: what counts of a ramp to the end of a range is straight in the proposal.
DOWN = [{"p": "ramp(0, 10)"}, {"r": "hold"}, {"h": False}, {"s": "idle"}]
OPEN = [{"p": "ramp(0, 10)"}, {"r": "ramp(40, 8)"}, {"h": False}, {"s": "idle"}]
SHUT = [{"p": "0"}, {"r": "ramp(40, 3)"}, {"h": "hold"}, {"s": "run"}]
UPPER = {"require": "l <= 2.05", "always": True}
LOWER = {"require": "l >= 1.8", "always": True}

EXACT: list[tuple[str, RuleSet, Here]] = [
    ("sums and differences", rules("p + r <= 54", "r - p <= 10", "p - r <= 24"), Here()),
    ("S6 ramps", rules("abs(rate(p)) <= 12", "abs(rate(r)) <= 5", "p + r <= 50"), Here()),
    (
        "S6 ramps after changes at odd times",
        rules("abs(rate(p)) <= 13", "abs(rate(r)) <= 7", "p + r >= 20"),
        Here(older={"P": ((6, 0.377),), "R": ((3, 0.123), (5, 0.6))}),
    ),
    (
        "switches and labels",
        rules("h implies p >= 20", "s in (run, stop) iff h", "p > 0 implies r >= 8"),
        Here(),
    ),
    ("S1 safe set", rules(UPPER, LOWER, **SAFE), Here(l=1.93)),
    ("S4 effect delay", rules(UPPER, LOWER), Here(l=1.97, effect_delay_s=1.1)),
    ("no delay", rules(UPPER, LOWER, "p + r >= 12"), Here(l=1.97, effect_delay_s=0.0)),
    ("counts", rules("count(h, s == run, p > 10) <= 1", "n + r <= 30"), Here()),
    ("products with a reading", rules("l*p <= 60", "n*r <= 60", "p + r >= 18"), Here()),
    ("products with nothing", rules("n*p <= 60", "p + r >= 18"), Here(n=0)),
    ("one of two levels", rules({"require": "l >= 1.9 or k >= 2.0", "always": True}), Here(l=1.94)),
    (
        "a sequence",
        rules(
            "p + r <= 60",
            sequences=[
                {
                    "id": "q",
                    "variable": "s",
                    "kind": "standard",
                    "states": [{"state": "idle", "min": "20 s"}, {"state": "run"}, {"state": "stop"}],
                }
            ],
        ),
        Here(held_s=10),
    ),
    ("S23 minimum times", rules("h or p >= 12"), Here(old={"P": 1, "R": 4, "H": 0, "S": 2}, held_s=10)),
    (
        "two values may be in force",
        rules("prev(h) implies p >= prev(r)", "abs(rate(p)) <= 12"),
        Here(older={"P": ((5, 0.0),), "H": ((1, 0.0),)}),
    ),
    ("terminal", rules(UPPER, backup=DOWN, terminal=["l <= 2.2"], horizon=2), Here(l=1.99)),
    (
        "terminal with a late backup",
        rules(UPPER, backup=OPEN, terminal=["l <= 2.02", "p <= 16"], horizon=7),
        Here(l=1.89),
    ),
    (
        "terminal at once",
        rules(UPPER, "p + r <= 54", backup=SHUT, terminal=["l <= 2.02", "r >= 18 or s == run"], horizon=5),
        Here(l=1.93),
    ),
    (
        "terminal and each output by itself",
        rules(
            {"require": "p + 2*r <= 90", "always": True},
            backup=OPEN[:1] + DOWN[1:],
            terminal=["p <= 12"],
            horizon=7,
        ),
        Here(),
    ),
    ("nothing at all", rules("p >= 30", "p + r <= 24", "r >= 0"), Here()),
    ("nothing in any case", rules("p > 20 or r > 20", "p + r <= 18"), Here()),
]
WIDER: list[tuple[str, RuleSet, Here, str]] = [
    ("two outputs multiplied", rules("p*r <= 600", "p + r >= 18"), Here(), "multiplies outputs"),
    ("a gap", rules("abs(l - k - 0.01*p) >= 0.1"), Here(k=1.9), "alternatives"),
    ("squares", rules("l*l - k*k + 0.01*p <= 0.3"), Here(), "multiplies uncertain values"),
    ("terminal by guards", rules(UPPER, backup=BACKUP, terminal=["l <= 2.2"], horizon=2), Here(), "backup"),
    (
        "terminal, a ramp's nearer end",
        rules(LOWER, backup=DOWN, terminal=["l >= 1.83"], horizon=6),
        Here(l=1.9),
        "backup",
    ),
]


@pytest.mark.parametrize(("rule_set", "here"), [e[1:] for e in EXACT], ids=[e[0] for e in EXACT])
def test_s1_what_may_come_next_is_what_some_permitted_block_has_there(rule_set: RuleSet, here: Here) -> None:
    found = Enumerated(rule_set, here)
    for order in (ORDER, tuple(reversed(ORDER))):
        _, more = found.compared(order)
        assert more == 0, [found.outlook(order).after(()), order]
    named = next(name for name, *rest in EXACT if rest[1] is here)
    assert bool(found.permitted) == (not named.startswith("nothing"))


@pytest.mark.parametrize(("rule_set", "here", "why"), [w[1:] for w in WIDER], ids=[w[0] for w in WIDER])
def test_where_more_is_said_than_is_permitted_it_says_so_and_leaves_nothing_out(
    rule_set: RuleSet, here: Here, why: str
) -> None:
    found = Enumerated(rule_set, here)
    _, more = found.compared()  # raises where something permitted is left out

    assert found.permitted
    assert more > 0
    answers = [found.outlook().after(fixed) for fixed in ((), (4,))]
    assert any(isinstance(a, AtMost) and why in a.because for a in answers)


# Every answer on the way is followed at both its ends: each leads to a block that the check permits.
@pytest.mark.parametrize("rules_in_all", [10, 50])
def test_a_block_decoded_along_the_answers_is_permitted(rules_in_all: int) -> None:
    family = Family(rules=rules_in_all)
    made = rule_set(family)
    checks = Checks(made, PATIENT)
    checks.warm(HOLD_S, DELAY_S)
    order = [v.tag for v in made.actions]
    for request in requests(family, 8, seed=5, may_repair=False):
        for end in (0, -1):
            fixed: list[int] = []
            for _ in order:
                answer = checks.permitted_next(request, order, fixed)
                assert isinstance(answer, Exactly)
                if not answer.counts:
                    break
                fixed.append(answer.counts[end][end])
            else:
                assert _permits(checks, made, request, dict(zip(order, fixed, strict=True)))


# Its backup asks for no state and ramps to the end of the range: all of it is straight in what is proposed.
def test_s1_under_the_shipped_terminal_set_every_answer_is_exact_and_its_ends_are_permitted() -> None:
    made = RuleSet.of([shipped("tclab-twin")], 1)
    checks = Checks(made, PATIENT)
    order = [v.tag for v in made.actions]
    here = replace(
        Situation(hold_s=10.2, may_repair=False).request(None),
        history={tag: (InForce(Fraction(42), 0.0),) for tag in order},
        held_s=dict.fromkeys(order, 1_000.0),
    )
    limited = 0
    for hot in (40.0, 56.0, 57.0):
        request = replace(here, inputs={v.tag: good(hot) for v in made.reported})
        first = checks.permitted_next(request, order, ())
        assert isinstance(first, Exactly)
        for fixed in {end for span in first.counts for end in span}:
            then = checks.permitted_next(request, order, (fixed,))
            assert isinstance(then, Exactly)
            (low, high), *others = then.counts
            assert not others
            for raw, may in ((low - 1, False), (low, True), (high, True), (high + 1, False)):
                block = dict(zip(order, (fixed, raw), strict=True))
                assert _permits(checks, made, request, block) is may, (hot, block)
            limited += high - low < 400  # the ramp alone leaves 40 % of the range
    assert limited > 0


def test_unusable_inputs_are_not_known_and_let_nothing_through() -> None:
    found = Checks(demo_rules(), PATIENT).permitted_next(
        Situation().request(None, inputs={}), (HEATER, MIXER, PUMP), ()
    )
    assert isinstance(found, NotKnown)
    assert "has no value" in found.because
    assert mask(found, range(3)) == [False] * 3


def test_a_mask_lets_through_the_counts_that_may_come_next() -> None:
    assert mask(Exactly(((1, 2), (5, 5))), [0, 1, 2, 3, 4, 5, 6]) == [
        False,
        True,
        True,
        False,
        False,
        True,
        False,
    ]
    assert mask(AtMost(((3, 3),), "why"), [2, 3]) == [False, True]


def test_an_order_that_leaves_an_output_out_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not name every output"):
        Checks(demo_rules(), PATIENT).permitted_next(Situation().request(None), (HEATER, PUMP), ())


def test_with_every_output_fixed_there_is_nothing_to_ask() -> None:
    with pytest.raises(ValueError, match="none is left"):
        Checks(demo_rules(), PATIENT).permitted_next(
            Situation().request(None), (HEATER, MIXER, PUMP), (0, 1, 400)
        )


def _permits(checks: Checks, made: RuleSet, request: CheckRequest, counts: dict[TagId, int]) -> bool:
    values = tuple(
        RegisterValue(tag, raw, made.variables[tag].definition.engineering(raw))
        for tag, raw in counts.items()
    )
    result, _ = checks.check(replace(request, proposal=Proposal(values=values, by="test")))
    return result.verdict == Permitted(values)


def test_an_outlook_that_was_prepared_is_the_one_that_answers() -> None:
    checks, request = Checks(demo_rules(), PATIENT), Situation().request(None)
    order = (HEATER, MIXER, PUMP)

    checks.prepare(request, order)
    prepared = checks._guiding()._last

    assert isinstance(checks.permitted_next(request, order, (0, 1)), Exactly)
    assert prepared is not None
    assert checks._guiding()._last is prepared

"""What a reading's age hides: values that acted since, other readings taken later, counts, several ranges."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from gateway.core.decision import InForce
from gateway.core.tag import TagId
from gateway.pipeline.history import OutputHistory
from gateway.solver.certificates.basis import Basis
from gateway.solver.checking.motion import TOLD_S
from gateway.solver.checking.predict import UnusableError, observe
from gateway.solver.modules.compile import compile_module
from gateway.solver.proofs.safeset import prove
from gateway.solver.rules import proof_basis
from gateway.solver.rules.proof_basis import proof_digest
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_small import TAGS, Plant, checks, document, judged, rule, small, verdict

HIGH = rule("l <= 3", "high", always=True)
FILLED: dict[str, Any] = {"dynamics": {"l": "l + 0.01*p"}}


@pytest.mark.parametrize(("ceased_s", "filled"), [(0.05, 1.85), (1.0, 0.9), (1.8, 0.1), (1.95, 0.0)])
def test_s2_a_value_that_ceased_after_a_reading_has_moved_the_plant_since(
    ceased_s: float, filled: float
) -> None:
    rules = RuleSet.of([small(HIGH, **FILLED)], 1)
    request = Plant(l=1.0, ages={"L": 1.9}, old={"P": "0"}).request()
    history = {**request.history, TagId("P"): (InForce(Fraction(0), 0.0), InForce(Fraction(100), ceased_s))}
    low, high = observe(rules, replace(request, history=history)).now["L"]
    assert low <= Fraction("1")
    assert Fraction(str(1.0 + filled)) <= high <= Fraction(str(1.0 + filled)) + Fraction("0.03")


def test_s2_an_old_reading_after_a_change_of_the_pump_is_not_taken_for_the_present_level() -> None:
    module = small(HIGH, **FILLED)
    still = Plant(l=2.0, ages={"L": 1.9}, old={"P": "0"}, hold_s=1.0)
    assert verdict(module, still) == "Permitted"
    request = still.request()
    filled = {**request.history, TagId("P"): (InForce(Fraction(0), 0.0), InForce(Fraction(100), 0.05))}
    result, _ = checks(module).check(replace(request, history=filled))
    assert type(result.verdict).__name__ == "Refused"


CASCADE: dict[str, Any] = {"dynamics": {"l": "l + 0.1*(t - 0) - 0.1*l", "t": "t + 0.5*p - 0.2*(t - 0)"}}


@pytest.mark.parametrize("seed", range(40))
def test_s4_whatever_the_plant_did_between_two_readings_it_lies_in_the_state_set(seed: int) -> None:
    """Played backwards from nothing: a true course, read at two moments, must be in the set at the end."""
    chance = random.Random(seed)  # noqa: S311  repeatable on purpose
    rules = RuleSet.of([small(HIGH, **CASCADE)], 1)
    level, temp = Fraction(chance.randint(-10, 40), 10), Fraction(chance.randint(0, 60))
    pump = Fraction(chance.randint(0, 40))
    parts = chance.choice((10, 20))  # of a step of one second, which the older reading is old
    fresh = chance.randrange(parts)
    read_level, read_temp = level, temp
    rate_l, rate_t = Fraction(0), Fraction(0)
    for part in range(parts):
        if part % 10 == 0:  # a step begins: the straight line of it
            rate_l, rate_t = (temp - level) / 10, pump / 2 - temp / 5
        if part == fresh:
            read_temp = temp
        level, temp = level + rate_l / 10, temp + rate_t / 10
    plant = Plant(
        l=float(read_level),
        t=float(read_temp),
        ages={"L": parts / 10, "T": (parts - fresh) / 10},
        old={"P": str(pump)},
    )
    try:
        now = observe(rules, plant.request()).now
    except UnusableError as exc:
        assert "range" in str(exc)  # noqa: PT017  a reading outside its range says nothing of this
        return
    assert now["L"][0] <= level <= now["L"][1]
    assert now["L"][1] - now["L"][0] < Fraction(16)  # and it is no set of everything


def test_s4_what_moves_a_level_was_elsewhere_by_the_time_the_level_was_read() -> None:
    """The temperature rises by 20 a second: read at 0 two seconds ago it was 20 when the level was read."""
    rising: dict[str, Any] = {"dynamics": {"l": "l + 0.1*(t - 0)", "t": "t + 0.5*p"}}
    rules = RuleSet.of([small(HIGH, **rising)], 1)
    plant = Plant(l=0.0, t=0.2, ages={"L": 1.0, "T": 2.0}, old={"P": "40"})
    low, high = observe(rules, plant.request()).now["L"]
    assert low <= 2 <= high


def test_readings_of_one_moment_are_widened_by_nothing() -> None:
    rules = RuleSet.of([small(HIGH, **CASCADE)], 1)
    apart = Plant(l=1.0, t=10.0, ages={"L": 1.0, "T": 0.9}, old={"P": "4"})
    together = replace(apart, ages={"L": 1.0, "T": 1.0})
    (low, high), (least, most) = (observe(rules, p.request()).now["L"] for p in (together, apart))
    assert least < low < high < most
    assert high - low < Fraction("0.05")


def test_readings_too_far_apart_for_any_bound_are_undetermined() -> None:
    fast: dict[str, Any] = {"dynamics": {"l": "l + 9*(t - 0)", "t": "t + 9*l"}}
    plant = Plant(l=0.0, t=1.0, ages={"L": 2.0})
    said = judged(small(HIGH, **fast), plant).verdict
    assert "too far apart in time" in str(said)


COUNTED = {"range": ["0", "10"], "max_rate": "5 1/s"}


def test_s3_a_count_that_leaves_its_range_later_is_looked_at_there_too() -> None:
    module = small(rule("n != 12", always=True), variables={"n": COUNTED}, horizon=1)
    assert verdict(module, Plant(n=9)) == "Refused"
    assert verdict(module, Plant(n=3)) == "Permitted"


def test_s3_a_rule_that_only_a_later_count_and_a_temperature_break_together_refuses() -> None:
    variables = {"n": COUNTED, "t": {"max_rate": "5 K/s"}}
    module = small(rule("n >= 11 and t > 41 implies not h", always=True), variables=variables, horizon=1)
    assert verdict(module, Plant(n=9, t=40.0, old={"H": "1"})) == "Refused"
    assert verdict(module, Plant(n=9, t=30.0, old={"H": "1"})) == "Permitted"


@pytest.mark.parametrize("delay_s", [0.0, 0.3])
def test_s4_a_count_may_go_up_at_once_and_act_for_the_whole_step(delay_s: float) -> None:
    """5 at first, 6 at once, 7 after half a second: a mean of 6.5."""
    variables = {"n": {"range": ["0", "20"], "max_rate": "2 1/s"}}
    module = small(HIGH, dynamics={"l": "l + 0.1*n"}, variables=variables)
    assert verdict(module, Plant(l=2.35, n=5, hold_s=1.0, effect_delay_s=delay_s)) == "Refused"
    assert verdict(module, Plant(l=2.28, n=5, hold_s=1.0, effect_delay_s=delay_s)) == "Permitted"


def test_s3_a_second_module_with_a_narrower_range_does_not_narrow_where_a_variable_may_go() -> None:
    wide = {"q": {"range": ["0", "400"], "max_rate": None}}
    narrow = {"q": {"range": ["0", "40"], "max_rate": None}}
    filled = small(HIGH, id="a", dynamics={"l": "l + 0.01*q"}, variables=wide)
    other = small(rule("q <= 40", "lo"), id="b", variables=narrow)
    plant = Plant(l=2.0, q=20.0)
    assert verdict(filled, plant) == "Refused"
    assert verdict((filled, other), plant) == "Refused"
    assert verdict((filled, other), replace(plant, l=-0.5, q=50.0)) == "Undetermined"  # not believed by one


CASES = [
    {"given": given | {"l": level, "t": "4"}, "expect": expect}
    for given in [{"q": "20", "g": "1", "b": False, "n": "1", "m": "off", "p": "0", "h": False, "s": "idle"}]
    for level, expect in (("3.5", {"violated": ["high"]}), ("2.5", "permitted"))
]


def test_s1_a_proof_counts_on_no_range_of_a_count_that_has_a_rate() -> None:
    def escape(**of_n: object) -> str:
        module = small(
            rule("l <= 3", "high", "critical", always=True),
            dynamics={"l": "l + 0.1*n - 0.009*p"},
            variables={"n": {"range": ["0", "9"], "max_rate": "0.5 1/s", **of_n}},
            safe_set=["l <= 2", "p >= 100"],
            backup=[{"p": "100", "h": False, "s": "idle"}],
            cases=CASES,
        )
        return prove(RuleSet.of([module], 1)).escape

    assert "n " in escape()
    assert not escape(physical=["0", "9"])


def test_s1_a_proof_follows_a_backup_whose_guard_asks_for_the_value_before() -> None:
    module = small(
        rule("l <= 3", "high", "critical", always=True),
        dynamics={"l": "l - 0.01*p"},
        safe_set=["l <= 2.9"],
        backup=[
            {"when": "prev(p) > 5", "p": "ramp(100, 10)"},
            {"p": "ramp(100, 10)"},
            {"h": False, "s": "idle"},
        ],
        cases=CASES,
    )
    assert not prove(RuleSet.of([module], 1)).escape


def test_s23_what_acted_longer_ago_than_anybody_tells_may_have_been_anything() -> None:
    """A reading of three minutes ago: the pipeline lists what ceased in the last two."""
    slow = {"l": {"max_age": "10 min"}}
    rules = RuleSet.of([small(HIGH, step="60 s", dynamics={"l": "l + 0.01*p"}, variables=slow)], 1)
    told, untold = (
        observe(rules, Plant(l=1.0, ages={"L": age}, old={"P": "0"}).request()).now["L"]
        for age in (float(TOLD_S), float(TOLD_S) + 60)
    )
    assert told == (Fraction("0.9895"), Fraction("1.0105"))
    assert untold == (Fraction("0.9895"), Fraction("2.0105"))


def test_a_pipeline_tells_of_as_long_a_time_as_the_checker_counts_on() -> None:
    history = OutputHistory()
    for value, at in ((0, 0.0), (100, 1.0), (50, 2.0)):
        history.confirm(Fraction(value), at)
    ceased = {e.value: e.ceased_s_ago for e in history.in_force(2.0 + float(TOLD_S) - 0.5)}
    assert ceased[Fraction(100)] == float(TOLD_S) - 0.5
    assert ceased[Fraction(100)] <= TOLD_S


def test_s4_the_evidence_of_a_rule_set_keeps_a_deadband_and_the_set_again_counts_it() -> None:
    tags = {t: replace(d, deadband=Fraction("0.05")) if t == TagId("L") else d for t, d in TAGS.items()}
    data = json.dumps(document(HIGH, **FILLED)).encode()
    rules = RuleSet.of([compile_module(data, "small.json", tags)], 1)
    basis = Basis.of(rules)
    again = basis.rules({rules.modules[0].digest: data}, 1)
    assert again.variables[TagId("L")].uncertainty == rules.variables[TagId("L")].uncertainty
    assert again.variables[TagId("L")].uncertainty == Fraction("0.0605")
    assert basis.document["tags"]["L"]["deadband"] == "0.05"
    assert "deadband" not in basis.document["tags"]["Q"]


def _mixed_escape(rate: str, *safe_set: str) -> str:
    """High only while little flows in: the level sinks, and the inflow may rise before it has."""
    module = small(
        rule("l <= 3 or q <= 15", "high", "critical", always=True),
        dynamics={"l": "0.5*l + 0*p"},
        variables={
            "q": {"max_rate": f"{rate} m3/h/s", "physical": ["10", "40"]},
            "l": {"physical": ["0", "5"]},
        },
        backup=[{"p": "0", "h": False, "s": "idle"}],
        cases=CASES,
        safe_set=list(safe_set),
    )
    return prove(RuleSet.of([module], 1)).escape


def test_s1_a_proof_looks_at_what_may_break_a_rule_between_two_instants() -> None:
    """At a quarter of the step the level is below 3; the inflow passes 15 sooner."""
    safe = "l <= 3 or q <= 13", "l <= 3.2"
    assert not _mixed_escape("2", *safe)
    assert "`high` 0.25 s after the backup was asked" in _mixed_escape("30", *safe)


def test_s1_a_proof_of_what_older_ones_did_not_look_at_has_another_digest() -> None:
    """A digest that was kept with an older proof must not stand for the newer one."""
    plain = small(HIGH, **FILLED)
    mixed = small(rule("l <= 3 or q <= 15", always=True), **FILLED)
    counted = small(HIGH, **FILLED, variables={"n": COUNTED})
    for module, newer in ((plain, False), (mixed, True), (counted, True)):
        rules = RuleSet.of([module], 1)
        now = rules.proof_digest
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(proof_basis, "newly_shown", lambda _: False)
            assert (proof_digest(rules, as_written=False) != now) is newer

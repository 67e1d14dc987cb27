"""What each construct means for a check: premises, the past, quality, whole numbers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.config.model import TagRow
from gateway.config.tags import tag_definition
from gateway.core.decision import Holds, Permitted, Refused, StateSet, Undetermined, Violated
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId
from gateway.solver.modules.compile import ModuleRefusedError
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import BUFFER_TANK, INFLOW, LOWER_LEVEL, module
from tests.unit.solver_small import NOW, PATIENT, Plant, checks, judged, rule, small, verdict

HERE = Plant()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p*q <= 813", "Permitted"),  # 40 * 20.305 = 812.2
        ("p*q <= 812", "Refused"),
        ("p/q <= 2.032", "Permitted"),  # 40 / 19.695 = 2.0310
        ("p/q <= 2.03", "Refused"),
        ("l*l <= 4.05", "Permitted"),  # 2.0105 squared is 4.0421
        ("l*l <= 4.04", "Refused"),
        ("l*l >= 3.95", "Permitted"),
        ("l*q <= 40.9", "Permitted"),  # 2.0105 * 20.305 = 40.823
        ("l*q <= 40.8", "Refused"),
        ("l*q - 2*q <= 0.22", "Permitted"),  # 0.0105 * 20.305 = 0.2132: the q of both terms is the same
        ("l*q - 2*q <= 0.21", "Refused"),
        ("l*l - 4*l <= -3.9", "Permitted"),
        ("(l - 2)*(l - 2) >= 0", "Permitted"),
    ],
)
def test_products_and_quotients_are_judged_exactly_over_the_sensor_error(text: str, expected: str) -> None:
    assert verdict(small(text), HERE) == expected


@pytest.mark.parametrize(
    ("text", "new", "expected"),
    [
        ("m == auto implies s != run", {}, "Permitted"),
        ("m == auto implies s != run", {"S": "5"}, "Refused"),
        ("m == hand implies s != run", {"S": "5"}, "Permitted"),
        ("if b then p <= 10 else p <= 50", {}, "Permitted"),
        ("p <= (if n > 2 then 30 else 50)", {}, "Refused"),
        ("p <= 10*count(l > 1, q > 10, b) + 20", {}, "Permitted"),
        ("p <= 10*count(l > 1, q > 10, b) + 19", {}, "Refused"),
        ("vote(median, l, l + 1, l - 1) <= 2.02", {}, "Permitted"),
        ("n in (1, 3) and exactly(1, b, n > 2)", {}, "Permitted"),
    ],
)
def test_choices_counts_votes_and_labels(text: str, new: dict[str, str], expected: str) -> None:
    assert verdict(small(text), replace(HERE, new=new)) == expected


def test_a_register_value_without_a_label_is_no_action_and_no_reading() -> None:
    proposed = judged(small("p <= 90"), replace(HERE, new={"S": "3"})).verdict
    read = judged(small("p <= 90"), replace(HERE, m=7)).verdict

    assert isinstance(proposed, Refused)
    assert proposed.counterexample.constraint == "s.range"
    assert isinstance(read, Undetermined)
    assert "`M`" in read.reason


def test_a_violated_label_is_told_as_a_label() -> None:
    found = judged(small("m == auto implies s != run"), replace(HERE, new={"S": "5"})).verdict

    assert isinstance(found, Refused)
    assert "s is run and must not be run" in found.counterexample.text


# S8: between 0 and 1 a truth is neither; only the exact query knows that it is one of the two.
def test_s8_a_reading_nobody_can_use_counts_as_each_of_its_values_and_none_between() -> None:
    lost = replace(HERE, status={"B": StatusCode.Bad, "M": StatusCode.Bad})
    tolerant = rule("good(b) or good(m) or p <= 90", "asks")

    assert verdict(small(tolerant, rule("b or not b", "either")), lost) == "Permitted"
    assert verdict(small(tolerant, rule("m in (off, auto, hand)", "known")), lost) == "Permitted"
    assert verdict(small(tolerant, rule("m in (off, auto)", "known")), lost) == "Refused"


# S13, S15: a module that asks accepts; one that does not, does not; and adding a module never weakens (S3).
def test_s15_what_a_module_does_not_ask_about_must_be_good() -> None:
    bad = replace(HERE, status={"L": StatusCode.BadSensorFailure})
    asking = small("if good(l) then l <= 3 else p <= 10", id="asking")
    other = small("p <= 90", id="other")

    assert verdict(asking, bad) == "Refused"
    assert verdict(asking, replace(bad, old={"P": "10"})) == "Permitted"
    assert verdict(other, bad) == "Undetermined"
    assert verdict((asking, other), replace(bad, old={"P": "10"})) == "Undetermined"
    assert RuleSet.of((asking,), 1).tolerated == {TagId("L")}
    assert RuleSet.of((asking, other), 1).tolerated == frozenset()


@pytest.mark.parametrize(("age", "expected"), [(0.5, "Permitted"), (1.5, "Refused"), (2.5, "Refused")])
def test_s13_age_is_what_our_own_clock_says(age: float, expected: str) -> None:
    assert verdict(small("age(l) <= 1 or p <= 10"), replace(HERE, ages={"L": age})) == expected


def test_without_a_limit_on_its_rate_a_reading_at_the_snapshot_is_what_was_read() -> None:
    old = replace(HERE, ages={"L": 1.0, "Q": 1.0})

    assert verdict(small("l <= 2.011"), old) == "Permitted"
    assert verdict(small("q <= 24.3"), old) == "Refused"  # 2 m3/h/s for age and skew of 1 s each, the error
    assert verdict(small("q <= 24.4"), old) == "Permitted"


# S14: readings that lie apart may have moved since.
def test_s14_skew_between_readings_counts_as_time_to_move() -> None:
    together = dict.fromkeys("LQTGBNM", 1.0)

    assert verdict(small("q <= 22.4"), replace(HERE, ages=together)) == "Permitted"
    assert verdict(small("q <= 22.4"), replace(HERE, ages={**together, "L": 0.0})) == "Refused"


# --- the past


def after(checker: Checks, *plants: Plant) -> str:
    """The last verdict of checks in a row, each carrying what the one before knew."""
    state: StateSet | None = None
    found = "none"
    for plant in plants:
        result, state = checker.check(replace(plant, carried=state).request())
        found = type(result.verdict).__name__
    return found


def test_the_rate_of_a_reading_needs_a_check_about_one_step_ago() -> None:
    checker = checks(small("rate(l) <= 0.1"))

    assert after(checker, HERE) == "Undetermined"
    assert after(checker, HERE, replace(HERE, at=NOW + 1, l=2.07)) == "Permitted"
    assert after(checker, HERE, replace(HERE, at=NOW + 1, l=2.1)) == "Refused"  # the errors of both
    assert after(checker, HERE, replace(HERE, at=NOW + 1.2)) == "Permitted"
    assert after(checker, HERE, replace(HERE, at=NOW + 0.5)) == "Undetermined"
    assert after(checker, HERE, replace(HERE, at=NOW + 2)) == "Undetermined"
    often = [replace(HERE, at=NOW + k / 20, l=2 + k * 0.003) for k in range(21)]
    assert after(checker, *often) == "Permitted"
    steep = [replace(HERE, at=NOW + k / 20, l=2 + k * 0.006) for k in range(21)]
    assert after(checker, *steep) == "Refused"


LASTING = "(l > 3 for 10 s) implies p == 0"
HIGH = replace(HERE, l=3.5)


def row(seconds: int, *plants: Plant, step: int = 2) -> list[Plant]:
    """The same plant every few seconds, after others."""
    start = NOW + step * len(plants)
    before = [replace(plant, at=NOW + step * k) for k, plant in enumerate(plants)]
    return [*before, *(replace(HIGH, at=start + k) for k in range(0, seconds + 1, step))]


def test_what_has_lasted_long_enough_binds_and_what_has_not_does_not() -> None:
    checker = checks(small(LASTING))

    assert after(checker, *row(8, HERE)) == "Permitted"
    assert after(checker, *row(10, HERE)) == "Refused"
    assert (
        after(checker, *row(8, HERE), replace(HERE, at=NOW + 11), replace(HIGH, at=NOW + 12)) == "Permitted"
    )


# S23: unknown history is the worst history. After a start nothing has held yet, and anything may have.
def test_s23_after_a_start_a_rule_must_hold_whether_it_has_lasted_or_not() -> None:
    assert after(checks(small(LASTING)), HIGH) == "Refused"
    assert after(checks(small("l > 3 for 10 s")), HIGH) == "Refused"
    assert after(checks(small("l > 3 for 10 s")), *row(10)) == "Permitted"
    assert after(checks(small(LASTING)), HERE) == "Permitted"


def test_a_gap_of_more_than_ten_steps_is_as_a_start() -> None:
    short = [*row(0, HERE), replace(HIGH, at=NOW + 11.5)]
    long = [*row(0, HERE), replace(HIGH, at=NOW + 13)]
    held = small("l > 3 for 10 s")

    assert after(checks(small("(l > 3 for 20 s) implies p == 0")), *short) == "Permitted"
    assert after(checks(small("(l > 3 for 20 s) implies p == 0")), *long) == "Refused"
    assert after(checks(held), *row(10), replace(HIGH, at=NOW + 19)) == "Permitted"
    assert after(checks(held), *row(10), replace(HIGH, at=NOW + 21)) == "Refused"


# What stands before a `for` is about the past; a person is told the rule as it is written.
@pytest.mark.parametrize(
    "text", ["prev(p) > 50 for 10 s", "(prev(p) > 50 or prev(h)) for 10 s", "l > 3 for 10 s"]
)
def test_a_violated_rule_with_for_is_told_in_its_own_words(text: str) -> None:
    verdict = judged(small(text), Plant()).verdict

    assert isinstance(verdict, Refused)
    assert f"`{text}`" in verdict.counterexample.text


def test_where_the_error_leaves_a_condition_open_both_answers_count() -> None:
    edge = [replace(HIGH, l=3.0, at=NOW + k) for k in range(0, 13, 2)]  # 2.9895 to 3.0105

    assert after(checks(small("l > 3 for 10 s")), HERE, *(replace(p, at=p.at + 1) for p in edge)) == "Refused"
    assert after(checks(small(LASTING)), HERE, *(replace(p, at=p.at + 1) for p in edge)) == "Refused"


def test_two_modules_time_the_same_words_each_for_themselves() -> None:
    one = small(rule("(l > 3 for 4 s) implies p == 0", "soon"), id="one")
    other = small(rule("(l > 3 for 10 s) implies p == 0", "late"), id="other")
    checker = checks(one, other)
    _, state = checker.check(HIGH.request())

    assert state is not None
    assert set(state.since) == {"one/l > 3", "other/l > 3"}
    assert after(checks(other), *row(6, HERE)) == "Permitted"
    assert after(checker, *row(6, HERE)) == "Refused"


# --- premises of several modules


# S3: a second module with a smaller error changes no verdict.
@pytest.mark.parametrize("level", [2.9, 2.989, 2.99, 2.9905, 3.0])
def test_s3_a_second_module_with_a_smaller_error_changes_no_verdict(level: float) -> None:
    one = small(rule("l <= 3", "limit"), id="one")
    other = small(rule("p <= 90"), id="other", variables={"l": {"error": "0.001"}})
    plant = replace(HERE, l=level)

    assert verdict((one, other), plant) == verdict(one, plant)
    assert verdict((other, one), plant) == verdict(one, plant)


# S3: what one module vouches for is no premise of another module's rules.
def test_s3_a_rate_and_a_bound_that_one_module_vouches_for_do_not_help_another() -> None:
    vouching = module(BUFFER_TANK)
    silent = module(LOWER_LEVEL, (', "max_rate": "2 m3/h/s", "physical": ["0", "36"]', ""))

    inflow = RuleSet.of([vouching, silent], 1).variables[INFLOW]
    assert (inflow.max_rate, inflow.physical) == (None, None)
    assert RuleSet.of([vouching], 1).variables[INFLOW].max_rate == 2


# S3: a range is a validity limit, not a premise.
@pytest.mark.parametrize("level", [5.0, 4.9951, -1.0, 5.2, -3.0])
def test_s3_a_reading_not_wholly_inside_its_range_is_never_permitted(level: float) -> None:
    found = judged(small("p <= 90"), replace(HERE, l=level)).verdict

    assert isinstance(found, Undetermined)
    assert "not wholly inside its range" in found.reason


# S4: a source may keep a change of less than its deadband to itself.
def test_s4_a_deadband_widens_the_error() -> None:
    plain = small("l <= 2.02")
    level = plain.variables["l"]
    wide = replace(level, definition=replace(level.definition, deadband=Fraction("0.02")))
    muffled = replace(plain, variables={**plain.variables, "l": wide})

    assert verdict(plain, HERE) == "Permitted"
    assert verdict(muffled, HERE) == "Refused"
    assert level.uncertainty == Fraction("0.0105")
    assert wide.uncertainty == Fraction("0.0305")


def test_s4_the_deadband_of_a_tag_comes_from_its_table() -> None:
    row = {"id": "L", "table": "input", "address": 1, "poll_group": "fast", "deadband": "0.02"}

    assert tag_definition(TagRow.model_validate(row)).deadband == Fraction("0.02")


# --- always and horizon

MOVING = {"l": "l + 0.1*p - 4"}


def test_always_over_a_quantity_that_jumps_and_one_that_moves_looks_at_both_together() -> None:
    bound = rule("m == hand implies l <= 2.3", "r", always=True)
    inflow = {"l": "l + 0.01*p - 0.4", "disturbance": {"w": ["-0.1", "0.1"]}}

    free = small(bound, rule("l <= 4", "top", always=True), dynamics=inflow)
    # nothing says that the mode stays what it is, so its limit binds at once
    assert verdict(free, replace(HERE, l=2.2)) == "Permitted"
    assert verdict(free, replace(HERE, l=2.4)) == "Refused"


def test_always_over_alternatives_between_two_moving_quantities_is_refused_with_what_to_do() -> None:
    both = {"l": "l + 0.01*p - 0.4", "g": "g + 0.01*p - 0.4"}
    with pytest.raises(
        ModuleRefusedError, match="while `g` and `l` change within a step neither alternative"
    ):
        small(rule("l <= 3 or g <= 3", always=True), dynamics=both)
    with pytest.raises(ModuleRefusedError, match="split the rule into one for each alternative"):
        small(rule("l*g <= 3", always=True), dynamics=both)

    assert small(rule("l <= 3 or q <= 30", always=True), dynamics={"l": "l"}).rules[0].always
    assert small(rule("l*l <= 9 and (h implies g <= 3)", always=True), dynamics=both).rules[0].always
    other = small(rule("l <= 3 or g <= 3", always=True), id="other")
    with pytest.raises(ModuleRefusedError, match=r"other\.json"):
        RuleSet.of((small("p <= 90", dynamics=both), other), 1)


# S5: without dynamics a module claims the snapshot only.
def test_s5_a_module_without_dynamics_claims_the_snapshot_only() -> None:
    plain = small(rule("q <= 21", always=True))

    assert verdict(plain, HERE) == "Permitted"
    assert verdict(small(rule("q <= 21", always=True), horizon=1), HERE) == "Refused"  # 2 m3/h/s
    assert "snapshot only" in RuleSet.of((plain,), 1).armable((TagId("P"),), ())


# S5: what no action can influence is reported, and refuses nothing.
def test_s5_a_monitor_is_reported_and_does_not_refuse() -> None:
    watched = judged(
        small(rule("l <= 1", "high", "critical", monitor=True), rule("p <= 90"), cases=CASES), HERE
    )
    asked = RuleSet.of((small(rule("l <= 1", "high"), dynamics={"g": "g"}),), 1)

    assert isinstance(watched.verdict, Permitted)
    assert {f.constraint: f.kind for f in watched.findings if isinstance(f, Violated)} == {"high": "monitor"}
    assert verdict(small(rule("l <= 1", "high")), HERE) == "Refused"
    assert "no module in force declares" in asked.armable((TagId("P"),), ())


CASES = [
    {
        "given": {"l": "2", "q": "20", "t": "4", "g": "2", "b": False, "n": "3", "m": "auto", "p": "4"}
        | {"h": False, "s": "idle"},
        "expect": {"violated": ["high"]},
    },
    {
        "given": {"l": "1", "q": "20", "t": "4", "g": "2", "b": False, "n": "3", "m": "auto", "p": "4"}
        | {"h": False, "s": "idle"},
        "expect": "permitted",
    },
]


def test_margins_come_nearest_first_and_alternatives_have_theirs() -> None:
    found = judged(small(rule("p <= 41", "near"), rule("p <= 90", "far")), HERE).findings
    near = [
        (f.constraint, f.margin) for f in found if isinstance(f, Holds) and f.constraint in {"near", "far"}
    ]

    assert near == [("near", Fraction(1)), ("far", Fraction(50))]
    assert PATIENT.timeout_ms == 10_000


@pytest.mark.parametrize(
    ("backup", "goes_on"),
    [
        ([{"p": "ramp(0, 5)"}, {"h": False}, {"s": "hold"}], True),
        ([{"p": "0"}, {"h": False}, {"s": "hold"}], False),
        ([{"when": "l >= 2", "p": "0"}, {"p": "hold", "h": False, "s": "hold"}], True),
    ],
)
def test_s1_a_backup_that_ramps_or_asks_where_the_plant_is_must_move_in_each_step(
    backup: list[dict[str, object]],
    goes_on: bool,  # noqa: FBT001  from the table
) -> None:
    assert RuleSet.of([small("l <= 4", backup=backup)], 1).backup_goes_on is goes_on

"""What the independent checker looks at beyond the words of a rule: time, unknowns, declarations, cases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from gateway.recheck import walk
from gateway.recheck.check import Question, misjudged_cases, recheck
from gateway.recheck.tree import LanguageError
from tests.unit.recheck_examples import module

F = Fraction
X: Mapping[str, object] = {"tag": "X", "type": "real", "range": ["0", "10"], "error": "0.1", "max_age": "2 s"}
Y: Mapping[str, object] = {**X, "tag": "Y"}
P: Mapping[str, object] = {"tag": "P", "type": "real", "range": ["0", "4"], "role": "action"}
H: Mapping[str, object] = {"tag": "H", "type": "bool", "role": "action", "min_on": "30 s", "min_off": "60 s"}
E: Mapping[str, object] = {
    "tag": "E", "type": "enum", "values": {"idle": 0, "load": 2, "run": 5, "cool": 6}, "role": "action",
}  # fmt: skip


def rule(text: str, name: str = "r", **more: object) -> dict[str, object]:
    return {"id": name, "kind": "critical", "require": text, **more}


def small(variables: Mapping[str, object], *rules: Mapping[str, object], **more: object) -> str:
    return module(variables=variables, constraints=list(rules), **more)


def asked(
    x: tuple[str, str] = ("1", "1"),
    p: tuple[str, str] = ("1", "1"),
    hold: str = "1",
    delay: str = "0",
    **more: Any,  # noqa: ANN401  fields of a question
) -> Question:
    return replace(
        Question(
            inputs={"X": (F(x[0]), F(x[1]))},
            previous={"P": [F(p[0])]},
            proposal={"P": F(p[1])},
            hold_s=F(hold),
            effect_delay_s=F(delay),
        ),
        **more,
    )


def violated(text: str, question: Question) -> set[str]:
    return {name.partition("/")[2] for name in recheck([text], question).violated}


FILL = {"x": "x + p", "disturbance": {}}


# ---- time ----


@pytest.mark.parametrize(
    ("hold", "delay", "old", "new", "limit", "fails"),
    [
        ("1", "0", "0", "2", "3", False),  # 1 + 2 after one step
        ("1", "0", "0", "2", "2.99", True),
        ("2.5", "0", "0", "1", "3.5", False),  # two steps and a half
        ("2.5", "0", "0", "1", "3.49", True),
        ("1", "1", "2", "0", "3", False),  # the old value may act for a step
        ("1", "1", "2", "0", "2.99", True),
        ("1", "0.25", "2", "0", "1.5", False),  # for a quarter of a step
        ("1", "0.25", "2", "0", "1.49", True),
        ("1", "1.5", "2", "1", "5", False),  # 1 + 1.5*2 + 1
        ("1", "1.5", "2", "1", "4.99", True),
        ("0.1", "0", "0", "2", "2.99", True),  # a horizon of one step is a whole step
    ],
)
def test_rules_are_shown_until_the_proposal_can_be_replaced(
    *, hold: str, delay: str, old: str, new: str, limit: str, fails: bool
) -> None:  # fmt: skip
    text = small({"x": X, "p": P}, rule(f"x <= {limit}", always=True), dynamics=FILL)
    assert violated(text, asked(p=(old, new), hold=hold, delay=delay)) == ({"r"} if fails else set())


def test_s5_a_horizon_of_0_claims_the_snapshot_only_but_with_old_and_new_values() -> None:
    text = small({"x": X, "p": P}, rule("x + p <= 3", always=True))
    assert violated(text, asked(p=("0", "2"), delay="1")) == set()
    assert violated(text, asked(p=("0", "2.1"), delay="1")) == {"r"}
    assert violated(text, asked(p=("2.1", "0"), delay="1")) == {"r"}
    assert violated(text, asked(p=("2.1", "0"))) == set()


def test_without_always_a_rule_is_judged_on_the_snapshot_with_the_proposal_alone() -> None:
    text = small({"x": X, "p": P}, rule("x + p <= 3"), dynamics=FILL)
    assert violated(text, asked(p=("4", "2"), delay="1")) == set()
    assert violated(text, asked(p=("0", "2.1"), delay="1")) == {"r"}


def test_a_violation_in_the_moment_of_taking_over_is_found() -> None:
    # x rises while the old value acts and falls afterwards: only at the latest effect it stands at 3.
    text = small({"x": X, "p": P}, rule("p < 1 implies x < 3", always=True), dynamics={"x": "x + p - 1"})
    assert violated(text, asked(x=("1", "1"), p=("3", "0"), delay="1")) == {"r"}
    assert violated(text, asked(x=("0.9", "0.9"), p=("3", "0"), delay="1")) == set()


def test_disturbances_may_change_at_every_step() -> None:
    text = small(
        {"x": X, "p": P}, rule("x <= 2.74", always=True),
        dynamics={"x": "0 - 0.5*x + d", "disturbance": {"d": ["-1", "1"]}},
    )  # fmt: skip
    # -1 first and 1 then reach 0.5*1.5 + 1 = 1.75; a constant one no more than 1.25.
    question = asked(x=("1", "1"), hold="2")
    assert violated(text.replace("2.74", "1.75"), question) == set()
    assert violated(text.replace("2.74", "1.74"), question) == {"r"}


# ---- what moves without dynamics ----


def test_s4_what_has_no_dynamics_moves_by_its_rate_within_its_physical_bounds() -> None:
    def moving(limit: str, **more: object) -> str:
        return small({"x": {**X, **more}, "p": P}, rule(f"x <= {limit}", always=True), horizon=1)

    assert violated(moving("3", max_rate="2 m/s"), asked()) == set()
    assert violated(moving("2.99", max_rate="2 m/s"), asked()) == {"r"}
    assert violated(moving("2.5", max_rate="2 m/s", physical=["0", "2.5"]), asked()) == set()


def test_s4_what_has_neither_dynamics_nor_a_rate_may_be_anywhere_in_its_range() -> None:
    text = small({"x": X, "p": P}, rule("x < 10", always=True), horizon=1)
    assert violated(text, asked()) == {"r"}
    assert violated(text.replace('"horizon": 1', '"horizon": 0'), asked()) == set()


def test_a_value_that_rises_during_a_step_is_seen_by_the_dynamics() -> None:
    text = small(
        {"x": X, "y": {**Y, "max_rate": "1"}, "p": P}, rule("x <= 1.5", always=True), dynamics={"x": "x + y"}
    )
    inputs = {"X": (F(1), F(1)), "Y": (F(0), F(0))}
    assert violated(text, asked(inputs=inputs)) == set()  # on average a half
    assert violated(text.replace("1.5", "1.49"), asked(inputs=inputs)) == {"r"}


def test_whole_numbers_and_labels_are_taken_as_such() -> None:
    n = {"tag": "N", "type": "int", "range": ["0", "9"], "max_age": "1 s"}
    text = small({"x": n, "p": P}, rule("x <= 1 or x >= 2"))
    inside = asked(inputs={"N": (F("0.5"), F("2.5"))})
    assert violated(text, inside) == set()
    assert violated(text.replace('"int"', '"real"'), inside) == {"r"}


def test_a_square_is_searched_between_its_corners() -> None:
    text = small({"x": X, "p": P}, rule("x*x - 2*x >= -0.999"))
    assert violated(text, asked(x=("0", "2"))) == {"r"}


def test_s15_other_register_values_than_an_enums_own_are_undetermined() -> None:
    e = {"tag": "X", "type": "enum", "values": ["up", "down"], "max_age": "1 s"}
    text = small({"x": e, "p": P}, rule("x != up or p < 4"))
    assert recheck([text], asked(x=("7", "7"))).undetermined == ("`X` has none of its values",)
    assert violated(text, asked(x=("0", "0"), p=("1", "4"))) == {"r"}


# ---- what was, what lasts, what is usable ----


def test_s6_a_ramp_is_judged_against_everything_that_was_in_force() -> None:
    text = small({"x": X, "p": P}, rule("abs(rate(p)) <= 1"))
    assert violated(text, asked(p=("1", "2"))) == set()
    assert violated(text, asked(p=("1", "2"), history={"P": [(F(1), F(0)), (F(0), F(1))]})) == set()
    assert violated(text, asked(p=("1", "2"), history={"P": [(F(1), F(0)), (F(0), F("0.9"))]})) == {"r"}


def test_the_rate_and_the_past_of_a_reading_come_from_one_step_ago() -> None:
    text = small({"x": X, "p": P}, rule("rate(x) <= 1 and x - prev(x) <= 2"), step="2 s")
    assert recheck([text], asked()).undetermined == ("nothing is known of `X` one step ago",)
    assert violated(text, asked(x=("3", "3"), previous_inputs={"X": (F(1), F(2))})) == set()
    assert violated(text, asked(x=("3", "3.1"), previous_inputs={"X": (F(1), F(2))})) == {"r"}


@pytest.mark.parametrize(
    ("rows", "fails"),
    [
        ({}, True),  # after a start anything may have held, and nothing may have
        ({"m/x < 2": (True, True)}, False),
        ({"m/x < 2": (False, False)}, True),
        ({"m/x < 2 for 10 s": (True, True), "m/x < 2": (False, False)}, False),
    ],
)
def test_a_row_that_may_or_may_not_have_lasted_is_reckoned_with_both_ways(
    *, rows: Mapping[str, tuple[bool, bool]], fails: bool
) -> None:  # fmt: skip
    text = small({"x": X, "p": P}, rule("x < 2 for 10 s"))
    assert violated(text, asked(for_held=rows)) == ({"r"} if fails else set())
    contrary = small({"x": X, "p": P}, rule("not ((x < 2) for 10 s)"))
    may = rows.get("m/x < 2 for 10 s", rows.get("m/x < 2", (False, True)))[1]
    assert violated(contrary, asked(for_held=rows)) == ({"r"} if may else set())


def test_what_holds_not_now_has_not_held_until_now() -> None:
    text = small({"x": X, "p": P}, rule("not (x < 2 for 10 s)"))
    assert violated(text, asked(x=("2", "3"), for_held={"m/x < 2": (True, True)})) == set()


def test_s15_an_unusable_reading_is_anywhere_where_asked_about_and_undetermined_elsewhere() -> None:
    asking = small({"x": X, "p": P}, rule("x <= 9 or not good(x)"), rule("age(x) < 5", "fresh"))
    bad = asked(good={"X": False}, age_s={"X": F(5)})
    assert violated(asking, bad) == {"fresh"}
    assert violated(asking.replace("not good(x)", "good(x)"), bad) == {"r", "fresh"}
    deaf = small({"x": X, "p": P}, rule("x <= 99"))
    assert recheck([deaf], bad).undetermined == ("`X` is not usable",)
    assert recheck([asking, deaf.replace('"m"', '"n"')], bad).undetermined == ("`X` is not usable",)
    with pytest.raises(LanguageError, match="age"):
        recheck([asking], asked())


# ---- declarations ----


@pytest.mark.parametrize(
    ("old", "new", "held", "found"),
    [
        (0, 1, 59, {"h.min_off"}), (0, 1, 60, set()), (1, 0, 29, {"h.min_on"}), (1, 0, 30, set()),
        (1, 1, 0, set()), (0, 0, 0, set()), (1, 2, 99, {"h.range"}),
    ],
)  # fmt: skip
def test_s12_minimum_times_and_ranges_are_rules(old: int, new: int, held: int, found: set[str]) -> None:
    text = small({"h": H}, rule("h or not h"))
    question = Question(inputs={}, previous={"H": [F(old)]}, proposal={"H": F(new)}, held_s={"H": F(held)})
    assert violated(text, question) == found
    assert violated(text, replace(question, held_s={})) == found - {"h.min_on", "h.min_off"}


STATES = [
    {"state": "idle"},
    {"state": "load", "min": "10 s", "max": "60 s", "next": ["run", "idle"]},
    {"state": "run"},
]
ORDER = {"id": "s", "variable": "e", "states": STATES}


@pytest.mark.parametrize(
    ("old", "new", "held", "cyclic", "found"),
    [
        (0, 2, 0, False, set()),  # idle -> load, the following
        (0, 5, 0, False, {"s.order"}),
        (2, 5, 10, False, set()),
        (2, 0, 10, False, set()),
        (2, 0, 9, False, {"s.min"}),
        (5, 0, 0, False, {"s.order"}),
        (5, 0, 0, True, set()),
        (2, 2, 59, False, set()),
        (2, 2, 60, False, {"s.max"}),
        (6, 6, 0, False, set()),  # not listed: may stay
        (6, 0, 0, True, {"s.order"}),
        (5, 6, 0, True, {"s.order"}),
        (2, 6, 5, False, {"s.order", "s.min"}),
        (2, 3, 50, False, {"s.order", "e.range"}),  # 3 is no register value of it
    ],
)
def test_sequences_keep_their_order_and_their_times(
    *, old: int, new: int, held: int, cyclic: bool, found: set[str]
) -> None:  # fmt: skip
    text = small({"e": E}, rule("e != run or e == run"), sequences=[{**ORDER, "cyclic": cyclic}])
    question = Question(inputs={}, previous={"E": [F(old)]}, proposal={"E": F(new)}, held_s={"E": F(held)})
    assert violated(text, question) == found


def test_s18_every_value_that_may_be_in_force_is_judged() -> None:
    text = small({"e": E}, rule("e != run or e == run"), sequences=[ORDER])
    question = Question(inputs={}, previous={"E": [F(2), F(0)]}, proposal={"E": F(5)}, held_s={"E": F(10)})
    assert violated(text, question) == {"s.order"}


# ---- the backup: more in `test_recheck_backup` ----

DRAIN = {
    "dynamics": {"x": "x + p - 1"},
    "backup": [{"when": "x > 2", "p": 0}, {"p": "hold"}],
    "terminal": ["x <= 2.2"],
    "horizon": 3,
}


def test_long_horizons_take_out_common_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    text = small(
        {"x": X, "p": P}, rule("x <= 1.0000001", always=True), dynamics={"x": "0.987654321*x + 0.012345679"},
        backup=[{"p": 0}], terminal=["x >= 0"], horizon=60,
    )  # fmt: skip
    assert violated(text, asked(x=("0", "1"))) == set()
    monkeypatch.setattr(walk, "_LONGEST", 64)
    assert violated(text, asked(x=("0", "1"))) == set()
    assert violated(text.replace("1.0000001", "0.9999999"), asked(x=("0", "1"))) == {"r"}


# ---- cases ----


def judged(case: Mapping[str, object], *rules: Mapping[str, object], **more: object) -> list[str]:
    variables = {"x": X, "p": P, "h": H, "e": E}
    told = json.loads(small(variables, *rules, sequences=[ORDER], **more))
    given = {"x": "1", "p": "1", "h": True, "e": "load"}
    told["cases"] = [{"given": given, **case}]
    return misjudged_cases(json.dumps(told))


@pytest.mark.parametrize(
    ("case", "text", "violated_ids"),
    [
        ({}, "x > 0 for 10 s", []),
        ({"held": {"x": "9 s"}}, "x > 0 for 10 s", ["r"]),
        ({"held": {"x": "10 s"}}, "x > 0 for 10 s", []),
        ({"previous": {"h": True, "h_for": "9 s"}}, "prev(h) for 10 s", ["r"]),
        ({"previous": {"h": True, "h_for": "10 s"}}, "prev(h) for 10 s", []),
        ({"previous": {"h": False}}, "prev(h)", ["r"]),
        ({"previous": {"h": False, "h_for": "59 s"}}, "h", ["h.min_off"]),
        ({"previous": {"p": "3"}}, "rate(p) >= -1", ["r"]),
        ({"previous": {"x": "0.5"}}, "rate(x) <= 0.5", []),
        ({"previous": {"x": "0.4"}}, "rate(x) <= 0.5", ["r"]),
        ({"age": {"x": "3 s"}}, "age(x) < 3", ["r"]),
        ({}, "age(x) <= 0", []),
        ({"bad": ["x"]}, "good(x)", ["r"]),
        ({}, "good(x)", []),
        ({"previous": {"e": "load", "e_for": "60 s"}}, "e == load", ["s.max"]),
        ({"previous": {"e": "run", "e_for": "60 s"}}, "e == run", ["r", "s.order"]),
        ({"previous": {"e": "idle"}}, "prev(e) == idle", []),
    ],
)
def test_cases_know_ages_bad_readings_and_how_long(
    case: Mapping[str, object], text: str, violated_ids: list[str]
) -> None:  # fmt: skip
    # A state that may last 60 s and has lasted for ever has lasted too long: most cases say how long.
    told = {**case}
    if "e" not in told.get("previous", {}):  # type: ignore[operator]
        told["previous"] = {"e": "idle", **told.get("previous", {})}  # type: ignore[dict-item]
    expect = {"violated": violated_ids} if violated_ids else "permitted"
    assert judged({**told, "expect": expect}, rule(text)) == []
    assert judged({**told, "expect": {"violated": [*violated_ids, "x"]}}, rule(text)) != []


def test_cases_that_say_too_little_or_what_nobody_knows_are_refused() -> None:
    with pytest.raises(LanguageError, match="says nothing of `h`"):
        judged({"given": {"x": "1", "p": "1", "e": "load"}, "expect": "permitted"}, rule("x > 0"))
    with pytest.raises(LanguageError, match="knows no `hold`"):
        judged({"hold": {}, "expect": "permitted"}, rule("x > 0"))


# ---- what cannot be judged ----


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"dynamics": {"x": "x*x"}}, "not affine"),
        ({"dynamics": {"x": "x / p"}}, "not affine"),
        ({"constraints": [{"id": "r", "kind": "critical", "require": "x"}]}, "where a condition is needed"),
        ({"safe_set": ["x + 1"]}, "where a condition is needed"),
        ({"dynamics": {"x": "x > 1"}}, "where a number is needed"),
        ({"step": "0 s"}, "a step takes time"),
        ({"sequences": [{"id": "s", "variable": "p", "states": [{"state": "idle"}]}]}, "cannot be read"),
    ],
)
def test_modules_that_mean_nothing_are_refused(changes: Mapping[str, object], told: str) -> None:
    with pytest.raises(LanguageError, match=told):
        recheck([module(**changes)], asked())


def test_modules_of_unlike_steps_are_refused() -> None:
    with pytest.raises(LanguageError, match="share one step"):
        recheck([module(), module(id="n", step="2 s")], asked())


def test_a_question_that_leaves_out_an_action_is_refused() -> None:
    with pytest.raises(LanguageError, match="the action `P`"):
        recheck([small({"x": X, "p": P}, rule("x + p < 9"))], asked(previous={}, proposal={}))

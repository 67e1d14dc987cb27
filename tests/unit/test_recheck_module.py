import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from gateway.recheck.check import Question, backup_action, misjudged_cases, recheck, widened
from gateway.recheck.language import LanguageError, read
from gateway.solver.language.evaluate import number as solver_number
from gateway.solver.language.evaluate import truth as solver_truth
from gateway.solver.language.parse import parse

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(p for p in (ROOT / "constraints").glob("*.json") if p.name != "proofs.json")

TANK = (ROOT / "tests" / "data" / "recheck_tank.json").read_text()


def ask(
    level: tuple[str, str], pump: tuple[str, str], heater: tuple[int, int] = (0, 0), inflow: str = "12"
) -> Question:
    return Question(
        inputs={
            "LT": (Fraction(level[0]), Fraction(level[1])),
            "FT": (Fraction(inflow) - Fraction("0.3"), Fraction(inflow) + Fraction("0.3")),
        },
        previous={"P": [Fraction(pump[0])], "H": [Fraction(heater[0])]},
        proposal={"P": Fraction(pump[1]), "H": Fraction(heater[1])},
    )


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_modules_judge_their_cases_alike(path: Path) -> None:
    assert misjudged_cases(path.read_text()) == []


def test_cases_are_judged_and_a_wrong_expectation_is_found() -> None:
    assert misjudged_cases(TANK) == []
    wrong = TANK.replace('["no-overflow"]', '["no-dry-run"]')
    assert misjudged_cases(wrong) == ["case 0: expected ['no-dry-run'], found ['no-overflow']"]


def test_quiet_step_in_the_middle_breaks_nothing() -> None:
    report = recheck([TANK], ask(("1.99", "2.01"), ("40", "45")))
    assert report.violated == frozenset()
    assert report.runs > 100


# S7: a checker that dropped the sensor error would call the middle of the interval fine.
def test_breach_at_the_edge_of_the_sensor_error_is_found() -> None:
    assert recheck([TANK], ask(("3.55", "3.5975"), ("60", "60"), inflow="36")).violated == {
        "tank/no-overflow",
        "tank/safe_set[1]",
    }
    assert recheck([TANK], ask(("3.55", "3.5600"), ("60", "60"), inflow="36")).violated == frozenset()


# S1: refusal must come before the corner, while the backup can still ramp up.
def test_state_the_backup_cannot_hold_leaves_the_safe_set() -> None:
    assert "tank/safe_set[1]" in recheck([TANK], ask(("3.55", "3.56"), ("0", "0"))).violated


def test_old_values_count_until_the_new_ones_act() -> None:
    found = recheck([TANK], ask(("0.2995", "0.3200"), ("5", "0")))
    assert "tank/no-dry-run" in found.violated
    assert found.breaches[0].witness["P"] == 5


def test_ramp_is_per_time_against_every_value_that_may_be_in_force() -> None:
    assert recheck([TANK], ask(("2", "2"), ("40", "50"))).violated == frozenset()
    assert recheck([TANK], ask(("2", "2"), ("40", "50.1"))).violated == {"tank/pump-ramp"}
    both = ask(("2", "2"), ("40", "50"))
    unsure = Question(inputs=both.inputs, previous={**both.previous, "P": [Fraction(39), Fraction(40)]},
                      proposal=both.proposal)  # fmt: skip
    assert recheck([TANK], unsure).violated == {"tank/pump-ramp"}


def test_minimum_on_time_is_kept() -> None:
    question = ask(("2", "2"), ("40", "40"), heater=(1, 0))
    soon = Question(inputs=question.inputs, previous=question.previous, proposal=question.proposal,
                    held_s={"H": Fraction(29)})  # fmt: skip
    assert recheck([TANK], soon).violated == {"tank/heater.min_on"}


def test_informational_requirements_are_told_apart() -> None:
    report = recheck([TANK], ask(("2", "2"), ("80", "85")))
    assert [b.constraint for b in report.breaches] == ["prefer-slow"]
    assert report.violated == frozenset()


def test_added_module_adds_its_requirements() -> None:
    height = {"tag": "LT", "type": "real", "unit": "m", "range": ["-0.1", "5"], "error": "0.02"}
    lower = {
        "id": "lower", "revision": 1, "language": 1, "step": "1 s", "variables": {"h": height},
        "constraints": [{"id": "limit", "kind": "critical", "require": "h <= 2", "always": True}],
    }  # fmt: skip
    question = ask(("1.99", "2.01"), ("40", "40"))
    assert recheck([TANK, json.dumps(lower)], question).violated == {"lower/limit"}
    spread = widened([TANK, json.dumps(lower)], {"LT": Fraction(2)}, {})
    assert spread == {"LT": (Fraction("1.98"), Fraction("2.02"))}


def test_readings_widen_by_age_and_stay_physical() -> None:
    assert widened([TANK], {"FT": Fraction("0.1")}, {"FT": Fraction("0.5")}) == {
        "FT": (Fraction(0), Fraction("1.4"))
    }


def test_empty_rule_set_permits_nothing() -> None:
    with pytest.raises(LanguageError, match="permits nothing"):
        recheck([], ask(("2", "2"), ("40", "40")))


# S1: from every corner of the safe set the backup keeps every critical constraint, here for ten minutes.
@pytest.mark.parametrize("leak", ["-0.0005", "0.0005"])
@pytest.mark.parametrize(("level", "pump", "inflow"), [("3.54", 0, 36), ("3.6", 100, 36), ("0.317", 10, 0)])
def test_backup_keeps_the_tank_from_the_edge_of_its_safe_set(
    level: str, pump: int, inflow: int, leak: str
) -> None:
    state = {"LT": Fraction(level), "FT": Fraction(inflow)}
    acting = {"P": Fraction(pump), "H": Fraction(0)}
    for _ in range(600):
        acting = backup_action([TANK], state, acting, Fraction(1))
        change = Fraction("0.000138889") * inflow - Fraction("0.0000625") * acting["P"] + Fraction(leak)
        state["LT"] += change
        assert state["LT"] <= Fraction("3.6")
        assert acting["P"] == 0 or state["LT"] >= Fraction("0.3")


VALUES: Mapping[str, Fraction] = {"a": Fraction(3), "b": Fraction(-7, 2), "c": Fraction(1), "d": Fraction(0)}


@pytest.mark.parametrize(
    "text",
    [
        "a + b * 2 - -a / 4", "abs(b) - max(a, b, 2) * min(a, b)", "-a * b", "a - b - c", "a / 2 / 3",
        "2 - (a - 4) * -b",
    ],
)  # fmt: skip
def test_both_readers_agree_on_numbers(text: str) -> None:
    ours = read(text, {name: name for name in VALUES})(VALUES)
    assert ours == solver_number(parse(text), VALUES)


@pytest.mark.parametrize(
    "text",
    [
        "c and d or c", "c or d and d", "not d and c", "not (c and d)", "d implies d implies d",
        "c implies d or d", "c iff d iff d", "1 < a <= 3 < 4", "a != 3 or b == -3.5", "a in (1, 3)",
        "b in (-3, 2)", "not a < 2 and c", "c and a + 1 >= 4", "d implies a > 5 iff c", "true and not false",
    ],
)  # fmt: skip
@pytest.mark.parametrize("flipped", [False, True])
def test_both_readers_agree_on_conditions(text: str, flipped: bool) -> None:  # noqa: FBT001  a parameter
    values = {**VALUES, "c": VALUES["d"], "d": VALUES["c"]} if flipped else VALUES
    ours = bool(read(text, {name: name for name in VALUES})(values))
    assert ours == solver_truth(parse(text), values)


@pytest.mark.parametrize(
    "text", ["", "a +", "(a", "a b", "e > 1", "abs(a, b)", "a in (b)", "a $ b", "(" * 99]
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read(text, {"a": "a", "b": "b"})


def test_a_module_that_cannot_be_read_is_refused() -> None:
    for broken in ("{", '{"id": "x"}', TANK.replace('"step": "1 s"', '"step": "1"'), '{"id": 1, "id": 2}'):
        with pytest.raises(LanguageError):
            recheck([broken], ask(("2", "2"), ("40", "40")))

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.solver.errors import ModuleRefusedError
from gateway.solver.proofs.safeset import main, prove, read_proofs
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_demo import (
    BUFFER_TANK,
    HEATER,
    LEVEL,
    LOWER_LEVEL,
    MIXER,
    PUMP,
    ROOT,
    module,
    rule_set,
)
from tests.unit.solver_heaters import OUTPUTS as HEATERS
from tests.unit.solver_heaters import TERMINAL, heaters
from tests.unit.solver_small import rule, small

PROOFS = ROOT / "constraints" / "proofs.json"
OUTPUTS = (PUMP, HEATER, MIXER)
LONG_S = 900.0  # no machine is too slow for what can be proved


# S1: the committed digest is worth only what a fresh proof says.
@pytest.mark.parametrize(
    "paths", [(BUFFER_TANK,), (BUFFER_TANK, LOWER_LEVEL)], ids=["tank", "tank and lower level"]
)
def test_s1_the_committed_proofs_are_proved_again(paths: tuple[Path, ...]) -> None:
    rules = rule_set(*(module(path) for path in paths))

    proof = prove(rules, budget_s=LONG_S)

    assert proof.escape == ""
    assert proof.digest in read_proofs(PROOFS)
    assert rules.armable(OUTPUTS, read_proofs(PROOFS)) == ""


# S1: a set that is only a little too large is told with a state that escapes.
@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ('"heater implies temp <= 74.04"', '"heater implies temp <= 74.2"', "max-temperature"),
        ("0.05184 - 0.0008498*pump", "0.03 - 0.0008498*pump", "no-overflow"),
        (
            '"heater implies level >= 0.50255 + 0.0003125*pump"',
            '"heater implies level >= 0.5"',
            "no-dry-fire",
        ),
        ('"heater implies mixer >= 1",\n', '"mixer >= 0",\n', "heater-needs-mixing"),
        ('"drift": ["-1.1", "0.001"]', '"drift": ["-1.1", "0.02"]', "temp"),
    ],
)
def test_s1_a_set_that_is_not_invariant_shows_the_escaping_state(old: str, new: str, names: str) -> None:
    proof = prove(rule_set(module(BUFFER_TANK, (old, new))), budget_s=LONG_S)

    assert not proof.holds
    assert names in proof.escape
    assert "is not kept from level " in proof.escape


ALWAYS_RAMPED = ('"require": "abs(rate(pump)) <= 10"}', '"require": "abs(rate(pump)) <= 10", "always": true}')


# A ramp that holds at every moment binds the backup as one of the snapshot does: else the check refuses it.
def test_s1_a_backup_that_breaks_a_ramp_with_always_is_not_proved() -> None:
    kept = rule_set(module(BUFFER_TANK, ALWAYS_RAMPED))
    broken = rule_set(module(BUFFER_TANK, ALWAYS_RAMPED, ('"ramp(100, 10)"', '"ramp(100, 12)"')))

    found = prove(broken, budget_s=LONG_S)

    assert "`pump-ramp` by the backup's own action is not kept from " in found.escape
    assert prove(kept, budget_s=LONG_S).holds
    assert kept.proof_digest != rule_set().proof_digest


def test_s1_a_spent_budget_proves_nothing() -> None:
    assert not prove(rule_set(), budget_s=0.0).holds


def test_s1_an_empty_safe_set_proves_nothing() -> None:
    proof = prove(
        rule_set(
            module(BUFFER_TANK, ('"temp <= 75",\n    "heater', '"temp <= 75", "temp >= 80",\n    "heater'))
        )
    )

    assert not proof.holds


# S5, S11, S24: why a point cannot be armed is said.
def test_a_set_without_proof_dynamics_or_modules_cannot_be_armed() -> None:
    proved = read_proofs(PROOFS)

    assert "not proved" in rule_set().armable(OUTPUTS, frozenset())
    assert "snapshot only" in rule_set(module(LOWER_LEVEL)).armable((PUMP,), proved)
    assert "permits nothing" in RuleSet.of((), 1).armable(OUTPUTS, proved)
    assert f"governs `{LEVEL}.X`" in rule_set().armable((PUMP, type(PUMP)(f"{LEVEL}.X")), proved)


def test_a_change_of_wording_or_margin_display_needs_no_new_proof_and_a_change_of_a_limit_does() -> None:
    wording = rule_set(module(BUFFER_TANK, ("tank would overflow", "overflow ahead")))
    limit = rule_set(module(BUFFER_TANK, ('"require": "level <= 3.6"', '"require": "level <= 3.601"')))

    assert wording.proof_digest == rule_set().proof_digest
    assert limit.proof_digest != rule_set().proof_digest


def test_the_command_notes_a_proof_and_refuses_what_is_not_invariant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = ["--tags", str(ROOT / "packaging" / "demo" / "tk1.csv"), "--proofs", str(tmp_path / "proofs.json")]
    broken = tmp_path / "broken.json"
    broken.write_text(BUFFER_TANK.read_text().replace("temp <= 74.04", "temp <= 74.9"))

    assert main([str(BUFFER_TANK), *tags]) == 0
    assert read_proofs(tmp_path / "proofs.json") == {rule_set().proof_digest}
    assert main([str(broken), *tags]) == 1
    assert "not invariant" in capsys.readouterr().err


# S1, S11: a terminal set is proved invariant, and the horizon must outlast the longest silence.
def test_s1_s11_a_terminal_set_that_the_backup_never_leaves_arms_where_the_horizon_is_long_enough() -> None:
    rules = RuleSet.of((heaters(terminal=list(TERMINAL), horizon=8),), 1)

    proof = prove(rules, budget_s=LONG_S)

    assert proof.escape == ""
    assert rules.armable(HEATERS, (proof.digest,), silence_s=79.0) == ""
    assert "terminal set of the modules in force is not proved" in rules.armable(HEATERS, ())
    assert rules.armable(HEATERS, (proof.digest,), silence_s=81.0) == (
        "the horizon covers 80 s and the last values may act for 81 s: raise `horizon` to 9"
    )


# Planted faults, each told with its course of events.
@pytest.mark.parametrize(
    ("terminal", "backup", "names"),
    [
        (("t1 <= 60", "t2 <= 60"), "ramp(0, 2)", "`hot1` 2.5 s later"),
        (("t1 <= 60", "t2 <= 60", "q1 <= 50", "q2 <= 0"), "hold", "`hot1` "),
        (("t1 <= 61", "t2 <= 60", "q1 <= 0", "q2 <= 0"), "ramp(0, 2)", "`hot1` already in the set"),
        (("20 <= t1 <= 60", "t2 <= 60", "q1 <= 0", "q2 <= 0"), "ramp(0, 2)", "`terminal[1]` a step later"),
        (("t1 <= 60", "t2 <= 60", "q1 <= 0", "q2 <= 0"), "ramp(50, 2)", "`terminal[3]` a step later"),
    ],
)
def test_s1_a_terminal_set_that_is_left_shows_how(terminal: tuple[str, ...], backup: str, names: str) -> None:
    module = heaters(terminal=list(terminal), horizon=8, backup=[{"q1": backup}, {"q2": "ramp(0, 2)"}])

    proof = prove(RuleSet.of((module,), 1), budget_s=LONG_S)

    assert names in proof.escape
    assert proof.course[0].startswith("already in the set: t1 ")
    assert "q1 " in proof.course[-1]


def test_s1_a_proof_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []

    prove(RuleSet.of((heaters(terminal=list(TERMINAL), horizon=8),), 1), progress=lambda *at: told.append(at))

    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert told[-1][0] == told[-1][1]


MOVING: dict[str, Any] = {
    "dynamics": {"l": "l + 0.01*p", "t": "t - 0.5*p"},
    "backup": [{"p": "0", "h": False, "s": "hold"}],
}


# S1: the plant leaves such a set between two instants though it is in it at both; a decision may come then.
@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (["l <= 3 or t <= 50"], True),
        (["h implies l <= 3 or t <= 50"], True),
        (["l <= 3 or l >= 4"], True),
        (["l + 0.1*(t - 0) <= 3 or l + 0.2*(t - 0) <= 4"], True),
        (["l <= 3", "t <= 50"], False),
        (["h implies l <= 3", "p > 20 implies t <= 50"], False),
        (["l <= 3 - 0.01*p or l <= 2 + 0.01*p"], False),
        (["l <= 2 - max(0.01*p, 0.1) or l <= 3 - 0.01*q"], False),
        (["2*l + 0.2*(t - 0) <= 3 or l + 0.1*(t - 0) <= 2 - 0.01*p"], False),
    ],
)
def test_s1_a_safe_set_that_the_plant_may_leave_between_instants_is_refused(
    lines: list[str],
    refused: bool,  # noqa: FBT001  from the table
) -> None:
    def compiled() -> RuleSet:
        return RuleSet.of([small("l <= 4", safe_set=lines, **MOVING)], 1)

    if not refused:
        assert compiled().safe_set
        return
    with pytest.raises(ModuleRefusedError, match="a `safe_set` is judged step by step, and while `l`"):
        compiled()


def test_s1_so_is_one_whose_second_variable_moves_by_another_module() -> None:
    first = small(
        "l <= 4", safe_set=["l <= 3 or t <= 50"], dynamics={"l": "l + 0.01*p"}, backup=MOVING["backup"]
    )
    other = small("t <= 90", id="other", dynamics={"t": "t - 0.5*p"})
    assert RuleSet.of([first], 1).safe_set
    with pytest.raises(ModuleRefusedError, match="while `l` and `t` change"):
        RuleSet.of([first, other], 1)


FALLING: dict[str, Any] = {
    "dynamics": {"l": "l + 0.01*p - 0.05"},
    "terminal": ["l <= 4", "p <= 0"],
    "horizon": 12,
}


# S1: else a proposal is permitted from which nothing may be written any more.
@pytest.mark.parametrize(
    ("move", "rules", "stands_against_it"),
    [
        ("0", ["abs(rate(p)) <= 10"], "`r`"),
        ("ramp(0, 20)", ["abs(rate(p)) <= 10"], "`r`"),
        ("ramp(0, 10)", ["abs(rate(p)) <= 10"], ""),
        ("0", ["p <= 90", "h implies p >= 20"], ""),
        ("0", ["h implies prev(p) <= 50 or p >= 5"], ""),
        ("0", ["prev(h) implies p >= 20"], "`r`"),
        ("0", ["l >= 3 implies abs(rate(p)) <= 10"], ""),
    ],
)
def test_s1_a_backup_that_a_ramp_forbids_to_begin_brings_nothing_to_a_terminal_set(
    move: str, rules: list[str], stands_against_it: str
) -> None:
    named = [
        rule(text, "r" if number == len(rules) - 1 else f"r{number}") for number, text in enumerate(rules)
    ]
    module = small(
        *named, rule("l <= 4", "high", always=True), backup=[{"p": move, "h": False, "s": "hold"}], **FALLING
    )
    proof = prove(RuleSet.of([module], 1), budget_s=LONG_S)
    assert proof.holds is (not stands_against_it), proof.escape
    assert stands_against_it in proof.escape

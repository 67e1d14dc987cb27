"""S12, `repair = "nearest"`: under shipped modules, in records, certificates, settings and workers."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.config.load import load
from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import (
    CheckRequest,
    Permitted,
    Proposal,
    Refused,
    RegisterValue,
    Repaired,
    Undetermined,
    Verdict,
)
from gateway.daemon.points import point_settings
from gateway.solver.modules.module import Case, Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from gateway.storage.codec import decode_record, encode_record
from tests.unit.certificate_demo import REPAIRED, decided, kept, wrong
from tests.unit.solver_demo import PATIENT, ROOT, Situation, rule_set
from tests.unit.solver_demo import proposal as demo_proposal
from tests.unit.solver_modules import NAMES, request, shipped
from tests.unit.solver_pools import PatientPool

DISPATCH = shipped("three-unit-dispatch")
DEMO = ROOT / "packaging" / "demo"


def dispatch(load: str, wanted: str, before: str) -> CheckRequest:
    """Both big units run; megawatts of all three units as `220 150 0`."""
    first = DISPATCH.cases[0]
    powers = dict(zip(("p1", "p2", "p3"), map(Fraction, wanted.split()), strict=True))
    given = {**first.given, **powers, "load": Fraction(load)}
    old = dict(zip(("p1", "p2", "p3"), map(Fraction, before.split()), strict=True))
    asked = request(DISPATCH, replace(first, given=given, previous=old))
    return replace(asked, may_repair=True, repair="nearest")


def megawatts(verdict: Verdict) -> dict[str, float]:
    assert isinstance(verdict, Repaired), verdict
    return {str(v.tag): float(v.value) for v in verdict.setpoints if ".P." in v.tag}


# The load has risen and the model asks for what is in force: there is no way to go along.
def test_s12_the_worked_example_follows_a_load_that_the_model_forgot() -> None:
    checks = Checks(RuleSet.of([DISPATCH], 1), PATIENT)
    asked = dispatch("372", "220 150 0", "220 150 0")

    plain = checks.check(replace(asked, repair="segment"))[0].verdict
    there = checks.check(asked)[0].verdict

    assert isinstance(plain, Refused)
    assert megawatts(there) == {"PP.U1.P.SP": 229.52, "PP.U2.P.SP": 150.0, "PP.U3.P.SP": 0.0}
    assert isinstance(there, Repaired)
    assert there.said == (
        "`PP.U1.P.SP` asked 220 MW, permitted from 229.52 MW, while `GRID.LOAD` = 372 MW, "
        "`GRID.LOSSES` = 8 MW, because of `balance` (three-unit-dispatch.json:14)"
    )


# The unit with the widest range takes up the least share of it.
def test_s12_the_worked_example_moves_one_unit_where_the_way_moves_both() -> None:
    checks = Checks(RuleSet.of([DISPATCH], 1), PATIENT)
    asked = dispatch("431", "300 190 0", "220 150 0")

    plain = megawatts(checks.check(replace(asked, repair="segment"))[0].verdict)
    there = megawatts(checks.check(asked)[0].verdict)

    assert plain["PP.U2.P.SP"] < 190
    assert there["PP.U2.P.SP"] == 190
    assert there["PP.U1.P.SP"] < plain["PP.U1.P.SP"]


# The line of the demo's settings that is commented out does what the page says.
def test_s12_the_demos_line_is_read_and_starts_the_mixer_for_a_heater(tmp_path: Path) -> None:
    for file in DEMO.iterdir():
        shutil.copy(file, tmp_path)
    told = tmp_path / "gateway.toml"
    text = told.read_text(encoding="utf-8")
    page = " ".join((ROOT / "docs" / "repair.md").read_text(encoding="utf-8").split())
    asked = Situation().request(demo_proposal("82.5", heater=1, mixer=0))
    found: list[str] = []

    for line in (text, text.replace('\n# repair = "nearest"', '\nrepair = "nearest"')):
        told.write_text(line, encoding="utf-8")
        config = load(told)
        way = point_settings(config, config.point("buffer-tank")).repair
        verdict = Checks(rule_set(), PATIENT).check(replace(asked, repair=way))[0].verdict
        assert isinstance(verdict, Repaired)
        pump, heater, mixer = (float(v.value) for v in verdict.setpoints)
        found.append(f"| `{way}` | {pump:g} % | {'on' if heater else 'off'} | {mixer:g} |")
        assert " ".join(verdict.said.split()) in page

    assert found == ["| `segment` | 50 % | off | 0 |", "| `nearest` | 50 % | on | 1 |"]
    assert all(row in page for row in found)


@pytest.mark.parametrize("name", NAMES)
def test_s12_under_a_shipped_module_a_repair_anywhere_is_permitted_and_never_farther(name: str) -> None:
    module = shipped(name)
    checks = Checks(RuleSet.of([module], 1), PATIENT)
    chance = random.Random(name)  # noqa: S311  repeatable on purpose
    for asked in (_elsewhere(module, case, chance) for case in module.cases[:4] for _ in range(6)):
        verdicts = [
            checks.check(replace(asked, may_repair=True, repair=way))[0].verdict
            for way in ("segment", "nearest")
        ]
        plain, there = verdicts
        if isinstance(plain, Undetermined | Permitted):
            assert type(there) is type(plain)
            continue
        assert isinstance(there, Refused | Repaired), there
        if isinstance(there, Repaired):
            again = replace(asked, proposal=Proposal(values=there.setpoints, by="again"), may_repair=False)
            assert isinstance(checks.check(again)[0].verdict, Permitted)
        if isinstance(plain, Repaired):
            assert isinstance(there, Repaired)
            assert _far(checks.rules, asked, there) <= _far(checks.rules, asked, plain)


def _elsewhere(module: Module, case: Case, chance: random.Random) -> CheckRequest:
    """A case in which something else is proposed."""
    found = request(module, case)
    values: list[RegisterValue] = []
    for v in module.variables.values():
        if v.action:
            low, high = v.range
            choice = chance.choice(v.whole) if v.whole else low + (high - low) * chance.randrange(101) / 100
            raw = v.definition.counts(Fraction(choice))
            values.append(RegisterValue(v.tag, raw, v.definition.engineering(raw)))
    return replace(found, proposal=Proposal(values=tuple(values), by="test"))


def _far(rules: RuleSet, asked: CheckRequest, verdict: Repaired) -> tuple[int, Fraction]:
    """Switches turned, then shares of ranges."""
    assert asked.proposal is not None
    wanted = asked.proposal.engineering()
    turned, far = 0, Fraction(0)
    for v in verdict.setpoints:
        variable = rules.variables[v.tag]
        if variable.sort in {"bool", "enum"}:
            turned += v.value != wanted[v.tag]
        else:
            far += abs(v.value - wanted[v.tag]) / (variable.range[1] - variable.range[0])
    return turned, far


NEAREST = replace(REPAIRED, repair="nearest")


def test_a_record_keeps_where_a_repair_was_looked_for_and_another_one_is_as_it_was() -> None:
    rules = rule_set()
    there, plain = decided(rules, NEAREST, "there"), decided(rules, REPAIRED, "plain")

    assert decode_record(encode_record(there)) == there
    examined = json.loads(encode_record(there))["examined"]
    assert examined["repair"] == "nearest"
    assert "said" in json.dumps(json.loads(encode_record(there))["outcome"])
    assert "repair" not in json.loads(encode_record(plain))["examined"]
    assert "said" not in json.loads(encode_record(plain))["outcome"]


async def test_s12_the_certificate_of_a_repair_anywhere_stands_up_to_every_look(tmp_path: Path) -> None:
    rules = rule_set()
    record = decided(rules, NEAREST, "there")
    state = await kept(tmp_path, rules, [record])
    assert isinstance(record.outcome, Repaired)

    made = export(tmp_path, "there")
    done = verify(made.data, Wanted(solvers=(), audit=state.audit))

    assert wrong(done) == []
    assert record.outcome.said
    assert record.outcome.said in made.words
    assert made.words.endswith("repaired values permitted by rule set 1 under its assumptions")


async def test_s12_a_worker_repairs_as_this_process_does() -> None:
    clock = SystemClock()
    pool = PatientPool(1, clock, warm=[(1.2, 0.3)], nearest=True)
    await pool.start()
    try:
        await pool.load(rule_set())
        asked = replace(Situation().request(demo_proposal("82.5", heater=1, mixer=0)), repair="nearest")
        found, _ = await pool.check(asked, Deadline.after(120.0, clock))
        another, _ = await pool.check(asked, Deadline.after(120.0, clock))
    finally:
        await pool.aclose()

    here = Checks(rule_set(), PATIENT).check(asked)[0]
    assert found.verdict == another.verdict == here.verdict
    assert isinstance(found.verdict, Repaired)
    assert found.verdict.said


def test_s12_the_same_question_has_the_same_repair_whatever_was_asked_before() -> None:
    asked = [
        dispatch(load, wanted, "220 150 0")
        for load in ("372", "390", "431")
        for wanted in ("220 150 0", "300 190 0", "250 100 40")
    ]
    rules = RuleSet.of([DISPATCH], 1)
    once, again = Checks(rules, PATIENT), Checks(rules, PATIENT)

    forwards = [once.check(one)[0].verdict for one in asked]
    backwards = [again.check(one)[0].verdict for one in reversed(asked)]

    assert forwards == backwards[::-1]

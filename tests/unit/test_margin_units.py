"""A margin says in what unit it is, wherever it is told; a record from before it did still reads."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.cli.told.show import decision_line
from gateway.core.decision import CheckResult, Holds, Refused, Violated
from gateway.daemon.views import decision_view
from gateway.solver.certificates.basis import Basis
from gateway.solver.checking.shadow import Trial
from gateway.solver.rules.margin_unit import margin_units
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.wire import answers, checked, encoder, result
from gateway.solver.workers.check import Checks
from gateway.storage.codec import canonical, decode_record, encode_record
from gateway.storage.coverage import CoverageBook
from gateway.web.views import decision_view as web_view
from tests.unit.certificate_demo import PERMITTED, REPAIRED, decided, kept, sealed, wrong
from tests.unit.solver_demo import LOWER_LEVEL, PATIENT, TAGS, Situation, module, proposal, rule_set
from tests.unit.solver_modules import shipped
from tests.unit.solver_small import Plant, rule, small

# Every kind of comparison: what it measures, and what nobody can tell.
UNITS = [
    ("l <= 3", "m"),
    ("3 >= l", "m"),
    ("t <= 75", "K"),  # a distance between temperatures
    ("rate(p) <= 10", "%/s"),
    ("abs(l - prev(l)) <= 2", "m"),
    ("max(l, 1) - 0.5*l <= 3", "m"),
    ("l <= 3 - 0.01*p", "m"),
    ("l*p <= 200", ""),
    ("200*p + 3*q <= 9000", ""),
    ("q / l <= 30", ""),
    ("l / 2 <= 1", ""),  # a factor takes whatever unit it needs
    ("not h", ""),
    ("n <= 7", ""),
]


@pytest.mark.parametrize(("text", "unit"), UNITS)
def test_a_rules_distance_is_in_the_unit_of_what_it_compares(text: str, unit: str) -> None:
    rules = RuleSet.of((small(rule(text, "r"), variables={"l": {"range": ["0.1", "5"]}}),), 1)
    (found,) = [r for r in rules.rules if r.constraint.id == "r"]

    assert margin_units(found, rules.variables).only == unit


def test_of_comparisons_in_unlike_units_the_one_that_decides_tells_it() -> None:
    checks = Checks(RuleSet.of((small(rule("l <= 3 and t <= 75", "r")),), 1), PATIENT)

    def margin(level: float, temp: float, pump: str = "10") -> tuple[Fraction | None, str]:
        plant = Plant(l=level, t=temp, old={"P": "10"}, new={"P": pump})
        (found,) = [f for f in checks.check(plant.request())[0].findings if f.constraint == "r"]
        assert isinstance(found, Holds | Violated)
        return found.margin, found.unit

    assert margin(2.9, 20)[1] == "m"
    assert margin(1, 74.99)[1] == "K"
    assert margin(3.5, 20)[1] == "m"
    assert margin(3.5, 80)[1] == "K"
    assert margin(1, 80)[1] == "K"


def told(verdict: str) -> CheckResult:
    situation, pump = {"permitted": (Situation(), "40"), "refused": (Situation(level=3.5), "0")}[verdict]
    asked = replace(situation.request(proposal(pump)), may_repair=False)
    return Checks(rule_set(), PATIENT).check(asked)[0]


@pytest.mark.parametrize("verdict", ["permitted", "refused"])
def test_units_survive_the_wire_to_the_daemon_and_the_record(verdict: str) -> None:
    found = told(verdict)
    units = {f.constraint: f.unit for f in found.findings if isinstance(f, Holds | Violated)}

    assert units["no-overflow"] == units["safe_set[1]"] == "m"
    assert units["max-temperature"] == "K"
    assert units["pump-ramp"] == "%/s"
    assert units["heater-needs-mixing"] == ""
    assert result(answers.decode(encoder.encode(checked(found, None))))[0] == found  # type: ignore[arg-type]
    record = decided(rule_set(), PERMITTED, "d-1")
    assert decode_record(encode_record(record)) == record
    if isinstance(found.verdict, Refused):
        assert found.verdict.counterexample.unit in {"m", "%/s"}


def stripped(packed: bytes) -> bytes:
    """The record as it was written before margins had a unit."""

    def without(value: Any) -> Any:  # noqa: ANN401  plain data
        if isinstance(value, dict):
            return {k: without(v) for k, v in value.items() if k != "unit" or "margin" not in value}
        return [without(part) for part in value] if isinstance(value, list) else value

    return canonical(without(json.loads(packed)))


def test_a_record_from_before_margins_had_a_unit_reads_and_stays_as_it_was() -> None:
    record = decided(rule_set(), REPAIRED, "d-1")
    before = stripped(encode_record(record))

    old = decode_record(before)

    assert b'"unit"' not in before
    assert {f.unit for f in old.findings if isinstance(f, Holds | Violated)} == {""}
    assert [f.constraint for f in old.findings] == [f.constraint for f in record.findings]
    assert json.loads(encode_record(old)) == json.loads(before)


async def test_a_certificate_tells_units_and_one_without_them_still_stands(tmp_path: Path) -> None:
    rules = rule_set()
    record = decided(rules, REPAIRED, "new")
    before = decode_record(stripped(encode_record(decided(rules, REPAIRED, "old"))))
    before = sealed(replace(before, certificate_digest=""), Basis.of(rules))
    state = await kept(tmp_path, rules, [record, before])

    for name, has in (("new", True), ("old", False)):
        made = export(tmp_path, name)
        done = verify(made.data, Wanted(solvers=(), audit=state.audit))
        assert wrong(done) == []
        assert (made.data != stripped(made.data)) is has


def test_people_and_programs_are_told_the_unit() -> None:
    view = decision_view(decided(rule_set(), PERMITTED, "d-1"), "", TAGS)
    units = {name.partition("/")[2]: unit for name, _, unit in view.margins}

    assert units["no-overflow"] == "m"
    assert units["pump-ramp"] == "%/s"
    nearest = view.margins[0]
    assert f"margin {nearest[1]} {nearest[2]} to {nearest[0]}" in decision_line(view).plain
    shown = {m["constraint"].partition("/")[2]: m["unit"] for m in web_view(view)["margins"]}
    assert shown == units


def test_a_counterexample_for_programs_tells_it_as_well() -> None:
    view = decision_view(decided(rule_set(), REPAIRED, "d-1"), "", TAGS)
    said = json.loads(view.counterexample_json)

    assert said["unit"] == next(u for n, _, u in view.margins if n.endswith(said["constraint"])) != ""


def test_what_would_have_refused_in_shadow_says_by_how_much_of_what() -> None:
    tighter = module(LOWER_LEVEL)
    trial = Trial(RuleSet.of((module(), tighter), 2), rule_set())
    asked = Situation(level=3.4).request(proposal("60"))

    found = trial.findings(asked, proposal("60").engineering(), Fraction(3, 10), Fraction(12, 10))

    assert {f.unit for f in found if isinstance(f, Violated)} == {"m"}


def test_coverage_keeps_the_unit_of_the_least_margin(tmp_path: Path) -> None:
    book = CoverageBook(tmp_path / "coverage.json")
    book.note(decided(rule_set(), PERMITTED, "d-1"), lambda _generation, _module: 7)

    assert {c.constraint: c.unit for c in book.rows()}["no-overflow"] == "m"


def test_every_shipped_rule_that_compares_tags_in_one_unit_says_it() -> None:
    rules = RuleSet.of([shipped("tclab-twin")], 1)
    every = (*rules.rules, *rules.terminal)
    units = {r.constraint.id: margin_units(r, rules.variables).only for r in every}

    assert units["hot1"] == units["terminal[1]"] == units["wide-apart"] == "K"
    assert units["q1.range"] == units["terminal[5]"] == "%"
    assert units["power"] == ""

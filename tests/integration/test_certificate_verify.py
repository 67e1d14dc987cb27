"""z3 and cvc5, each as a program of its own, repeat the gateway's decisions from their scripts alone."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.core.decision import CheckRequest, DecisionRecord, Permitted, outcome_name
from gateway.link.messages import DecisionView
from gateway.solver.certificates.claims import claims_of, scene_of
from gateway.solver.certificates.smtlib import script
from gateway.solver.certificates.solvers import SolverName, ask, command_of, expected_answers
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.integration.house import House
from tests.unit.certificate_demo import (
    BACKUP,
    FALLEN,
    PERMITTED,
    REFUSED,
    REPAIRED,
    decided,
    kept,
    with_fallback,
)
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL, PATIENT, Situation, module, proposal, rule_set

pytestmark = pytest.mark.integration

needs_cvc5 = pytest.mark.skipif(
    not command_of("cvc5"), reason="cvc5 is not installed: pip install 'o3-gateway[verify]'"
)
_EXPECTED = {"unsat": "sat", "sat": "unsat"}
SOLVER_S = 600.0  # for one script: no machine is too slow


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return rule_set(module(), module(LOWER_LEVEL))


def wishes(seed: int) -> Iterator[Situation]:
    """Situations all over the plant, and for each the two neighbouring levels between yes and no."""
    chance = random.Random(seed)  # noqa: S311  # a repeatable sample
    while True:
        yield Situation(
            level=chance.randrange(200, 3700) / 1000,
            inflow=chance.randrange(0, 3600) / 100,
            temp=chance.randrange(2000, 7600) / 100,
            pump=str(chance.randrange(0, 101)),
            heater=chance.randrange(2),
            mixer=chance.randrange(4),
            held_s=chance.choice([5.0, 45.0, 1_000.0]),
            hold_s=chance.choice([1.2, 2.2]),
            effect_delay_s=chance.choice([0.3, 0.7]),
            may_repair=chance.random() < 0.75,
        )


def requests(checks: Checks, count: int, seed: int) -> Iterator[CheckRequest]:
    """As many decisions: every second pair lies on either side of a boundary, one count apart."""
    chance, made = random.Random(seed + 1), 0  # noqa: S311  # a repeatable sample
    for situation in wishes(seed):
        pump = min(100, max(0, int(situation.pump) + chance.randrange(-12, 13)))
        wanted = proposal(str(pump), chance.randrange(2), chance.randrange(4))
        found = [situation.request(wanted)]
        if made % 4 >= 2:
            found = [replace(s.request(wanted), may_repair=False) for s in boundary(checks, situation, pump)]
        for request in found[: count - made]:
            made += 1
            yield request
        if made >= count:
            return


def boundary(checks: Checks, situation: Situation, pump: int) -> list[Situation]:
    """Two levels one count apart, one of them permitted and the other not; none where all are alike."""

    def permitted(millimetres: int) -> bool:
        asked = replace(situation, level=millimetres / 1000, heater=0, may_repair=False)
        result, _ = checks.check(asked.request(proposal(str(pump))))
        return isinstance(result.verdict, Permitted)

    low, high = (1500, 3700) if situation.level > 1 else (1500, 200)
    if not permitted(low) or permitted(high):
        return []
    while abs(high - low) > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if permitted(middle) else (low, middle)
    return [replace(situation, level=n / 1000, heater=0) for n in (low, high)]


def records(rules: RuleSet, count: int, seed: int) -> list[DecisionRecord]:
    checks = Checks(rules, PATIENT)
    made = [decided(rules, r, f"d-{i}", checks=checks) for i, r in enumerate(requests(checks, count, seed))]
    assert len(made) == count
    return made


def text_of(rules: RuleSet, record: DecisionRecord) -> str:
    return script([record.id], [scene_of(claim, rules) for claim in claims_of(record)])


def repeated(rules: RuleSet, count: int, seed: int) -> Counter[str]:
    """Both solvers on every decision: each must say what the gateway said."""
    outcomes: Counter[str] = Counter()
    for record in records(rules, count, seed):
        text = text_of(rules, record)
        expected = expected_answers(text)
        outcomes[outcome_name(record.outcome)] += 1
        for solver in ("z3", "cvc5"):
            answers = ask(solver, text, within_s=SOLVER_S)
            assert answers.said == expected, (record, answers)
    return outcomes


@needs_cvc5
@pytest.mark.timeout(1200)
def test_z3_and_cvc5_repeat_a_hundred_decisions_half_of_them_at_a_boundary(rules: RuleSet) -> None:
    outcomes = repeated(rules, 100, seed=20)

    assert min(outcomes[name] for name in ("permitted", "refused", "repaired")) >= 8, outcomes


@needs_cvc5
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.timeout(3600)
def test_z3_and_cvc5_repeat_many_more_decisions(rules: RuleSet, seed: int) -> None:
    repeated(rules, 300, seed=100 + seed)


def judged(view: DecisionView | None) -> bool:
    """A busy machine has no time for some."""
    return view is not None and view.outcome in {"permitted", "repaired", "refused"}


@pytest.mark.parametrize("solver", ["z3", pytest.param("cvc5", marks=needs_cvc5)])
def test_a_mutant_with_a_smaller_sensor_error_is_contradicted(solver: SolverName) -> None:
    """Boundary decisions of a rule set that trusts its level too much, in the scripts of the true one."""
    forgetful = rule_set(module(BUFFER_TANK, ('"error": "0.01"', '"error": "0.0001"')))
    true = rule_set()
    checks = Checks(forgetful, PATIENT)
    contradicted = 0
    for situation in (Situation(level=level, pump="0") for level in (3.05, 3.3)):
        for near in boundary(checks, situation, 0)[:1]:
            record = decided(forgetful, near.request(proposal("0")), "d", checks=checks)
            assert isinstance(record.outcome, Permitted)
            contradicted += ask(solver, text_of(true, record), within_s=SOLVER_S).said == ("sat",)

    assert contradicted == 2


@pytest.mark.parametrize("solver", ["z3", pytest.param("cvc5", marks=needs_cvc5)])
def test_certificates_of_every_kind_stand_up_to_a_solver_alone(
    rules: RuleSet, tmp_path: Path, solver: SolverName
) -> None:
    made = [decided(rules, r, f"d-{i}") for i, r in enumerate((PERMITTED, REPAIRED, REFUSED))]
    made.append(with_fallback(rules, decided(rules, FALLEN, "d-3"), BACKUP))
    state = asyncio.run(kept(tmp_path, rules, made))

    for record in made:
        wanted = Wanted(solvers=(solver,), solver_named=True, audit=state.audit)
        done = verify(export(state.folder, record.id).data, wanted)
        assert done.good, done
        assert any(look.name == f"solver {solver}" and look.good for look in done.looks)


@pytest.mark.parametrize("solver", ["z3", pytest.param("cvc5", marks=needs_cvc5)])
def test_a_script_whose_status_is_turned_round_is_never_confirmed(rules: RuleSet, solver: SolverName) -> None:
    text = text_of(rules, decided(rules, REPAIRED, "d"))
    turned = re.sub(r"(?<=:status )\w+", lambda m: _EXPECTED[m[0]], text)

    answers = ask(solver, turned, within_s=SOLVER_S)

    assert answers.said == ("sat", "unsat")
    assert not answers.confirms(expected_answers(turned))


@pytest.mark.timeout(900)
async def test_decisions_of_the_running_gateway_are_certified_before_and_after_a_swap(tmp_path: Path) -> None:
    """From the audit log and the evidence alone: while the gateway runs, and when its rules are others."""
    async with House(tmp_path) as house:
        await house.until(lambda p: len(p.decisions) >= 5 and judged(p.last), 30, "five decisions")
        before = house.picture.last
        assert before is not None
        shutil.copyfile(LOWER_LEVEL, house.watched / LOWER_LEVEL.name)
        swapped = before.generation + 1
        await house.until(
            lambda p: judged(p.last) and p.last is not None and p.last.generation >= swapped,
            30,
            "a decision under both modules",
        )
        after = house.picture.last
        assert after is not None
        running = await asyncio.to_thread(export, house.state, before.id)
        await house.close()

        for view in (before, after):
            made = await asyncio.to_thread(export, house.state, view.id)
            wanted = Wanted(solvers=("z3",), audit=house.state / "audit.sqlite")
            done = await asyncio.to_thread(verify, made.data, wanted)
            assert done.good, done
            assert made.digest == view.certificate_digest
        assert running.data == (await asyncio.to_thread(export, house.state, before.id)).data

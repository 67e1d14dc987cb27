"""The closed-loop harness sees what it claims to see."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise

import pytest

from gateway.core.decision import CheckResult, Counterexample, Refused
from gateway.core.ports import CheckRequest, StateSet
from gateway.plantsim.tank import Outputs, TankState
from gateway.solver.checking.terms import Budget
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers import check
from gateway.solver.workers.check import Checks
from tests.bench import __main__ as command
from tests.bench.closed_loop import (
    MODULE,
    Job,
    execute,
    figures,
    jobs,
    no_action_percent,
    safe_permitted_percent,
)
from tests.bench.policies import FillAndHeat, policy
from tests.bench.report import Figure
from tests.bench.simulator import demo, simulate
from tests.bench.vertices import Known, unsafe_because
from tests.unit.solver_demo import PATIENT

NEAR_THE_BRIM = TankState(3.5, 45.0)
CALM = Known(
    level_m=(1.99, 2.01),
    inflow_m3h=(11.7, 12.3),
    temperature_c=(44.9, 45.1),
    before=Outputs(27.0, heater=False, mixer=1),
    heater_held_s=100.0,
    pump_history=[(27.0, 0.0)],
    delay_s=0.17,
    hold_s=1.15,
)


@dataclass
class RefusesEverything:
    """A checker that is never wrong and never of use."""

    calls: int = 0

    def check(self, request: CheckRequest) -> tuple[CheckResult, StateSet | None]:
        self.calls += 1
        counterexample = Counterexample(
            module="none", constraint="everything", margin=Fraction(-1), assignment={}, text="no"
        )
        result = CheckResult(
            verdict=Refused(counterexample),
            findings=(),
            generation=request.generation,
            rule_set_digest="",
        )
        return result, None


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that pauses makes no verdict unknown: a run is the same on all of them."""
    monkeypatch.setattr(check, "Budget", partial(Budget, timeout_ms=PATIENT.timeout_ms))


def checks() -> Checks:
    _, definitions = demo()
    return Checks(RuleSet.of([compile_module(MODULE.read_bytes(), MODULE.name, definitions)], 1))


async def test_filling_the_tank_behind_the_check_breaks_nothing_and_something_is_always_permitted() -> None:
    run = await simulate(FillAndHeat(), seed=1, steps=60, check=checks(), start=NEAR_THE_BRIM)
    assert run.violated_steps == 0
    assert len(run.cycles) == len(run.moments) == 60
    assert no_action_percent(run.cycles) == 0
    assert any(c.written_by == "backup" for c in run.cycles)


async def test_filling_the_tank_without_the_check_overflows_it() -> None:
    run = await simulate(FillAndHeat(), seed=1, steps=120, check=None, start=NEAR_THE_BRIM)
    assert run.violated["no-overflow"] > 0
    assert run.violated_steps > 0


async def test_the_reference_model_is_let_pass_where_it_is_safe() -> None:
    run = await simulate(policy("reference", 2), seed=2, steps=40, check=checks())
    assert run.violated_steps == 0
    assert safe_permitted_percent(run.cycles) >= 99.0
    assert sum(not c.unsafe for c in run.cycles) > 30


async def test_refusing_everything_fails_the_permitted_share_and_leaves_the_plant_to_the_plc() -> None:
    check = RefusesEverything()
    run = await simulate(policy("reference", 2), seed=2, steps=20, check=check)
    assert check.calls == 3 * 20  # proposal, backup, value in force
    assert safe_permitted_percent(run.cycles) == 0
    assert no_action_percent(run.cycles) == 100
    assert run.moments[-1].outputs != run.moments[0].outputs  # the PLC's own fallback ramps


async def test_a_run_is_the_same_every_time() -> None:
    one, other = [await simulate(policy("wandering", 5), seed=5, steps=15, check=checks()) for _ in range(2)]
    assert one.moments == other.moments
    assert one.cycles == other.cycles


@pytest.mark.parametrize(
    ("known", "wanted", "broken"),
    [
        (CALM, Outputs(30.0, heater=False, mixer=1), ""),
        (CALM, Outputs(37.0, heater=True, mixer=1), ""),
        (CALM, Outputs(37.1, heater=False, mixer=1), "pump-ramp"),
        (CALM, Outputs(27.0, heater=True, mixer=0), "heater-needs-mixing"),
        (replace(CALM, heater_held_s=59.9), Outputs(27.0, heater=True, mixer=1), "minimum-times"),
        (replace(CALM, level_m=(3.59, 3.599)), Outputs(17.0, heater=False, mixer=1), "no-overflow"),
        (replace(CALM, level_m=(0.30, 0.31)), Outputs(37.0, heater=False, mixer=1), "no-dry-run"),
        (replace(CALM, level_m=(0.50, 0.51)), Outputs(27.0, heater=True, mixer=1), "no-dry-fire"),
        (replace(CALM, temperature_c=(74.8, 74.9)), Outputs(27.0, heater=True, mixer=1), "max-temperature"),
    ],
)
def test_vertices_name_the_constraint_that_breaks(known: Known, wanted: Outputs, broken: str) -> None:
    assert unsafe_because(known, wanted) == broken


def test_the_backup_afterwards_counts_too() -> None:
    """One step is harmless; what the step leads to is not: 100 % is ten seconds of ramp away."""
    near = replace(CALM, level_m=(3.56, 3.58), inflow_m3h=(35.0, 36.0), pump_history=[(5.0, 0.0)])
    near = replace(near, before=Outputs(5.0, heater=False, mixer=1))
    assert unsafe_because(near, Outputs(0.0, heater=False, mixer=1)) == "no-overflow"
    assert unsafe_because(replace(near, level_m=(3.0, 3.02)), Outputs(0.0, heater=False, mixer=1)) == ""


def test_every_figure_of_a_small_run_has_a_number() -> None:
    ran = [execute(job) for job in jobs(seed=3, steps=4)]
    found = {f.name: f.value for f in figures(ran)}
    assert found["reckless_unchecked_violations"] == 4
    assert found["reckless_checked_violations"] == 0
    assert found["unsafe_permitted"] == 0
    assert found["reference_no_action_percent"] == 0
    assert ran[0].job == Job("reference", 3, 4, checked=True)


def test_a_missed_bar_is_a_figure_and_a_broken_benchmark_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missed(*_args: object) -> list[Figure]:
        return [Figure("closed_loop", "safe_permitted_percent", 12.0)]

    monkeypatch.setattr(command, "_run", missed)
    assert command.main(["closed_loop", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["value"], row["verdict"]) == (12.0, "missed")

    def broke(*_args: object) -> list[Figure]:
        problem = "no such bundle"
        raise FileNotFoundError(problem)

    monkeypatch.setattr(command, "_run", broke)
    assert command.main(["closed_loop", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == []


async def test_s12_a_margin_before_release_ends_most_reversals_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings, definitions = demo()

    async def reversals(margin: Fraction) -> int:
        with_margin = replace(settings, release_margin=margin)
        monkeypatch.setattr("tests.bench.simulator.demo", lambda: (with_margin, definitions))
        run = await simulate(FillAndHeat(), seed=1, steps=120, check=checks(), start=TankState(3.55, 45.0))
        assert run.violated_steps == 0
        assert no_action_percent(run.cycles) == 0
        moves = [b - a for a, b in pairwise(m.outputs.pump_pct for m in run.moments) if a != b]
        return sum(one * other < 0 for one, other in pairwise(moves))

    at_once, with_room = await reversals(Fraction(0)), await reversals(Fraction(1, 10))
    assert at_once > 20
    assert with_room < at_once / 3

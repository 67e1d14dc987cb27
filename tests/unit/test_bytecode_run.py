"""The stack machines judge as `evaluate` does: exactly one point at a time, and a million at once."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.tag import exact
from gateway.solver.bytecode import run
from gateway.solver.bytecode.many import run_many
from gateway.solver.bytecode.program import Program
from gateway.solver.language.evaluate import number, truth
from gateway.solver.language.parse import parse
from gateway.solver.language.syntax import Connective, Expr
from gateway.solver.modules import cases
from gateway.solver.modules.module import Module
from tests.property.test_solver_judges import LASTED, conditions, points
from tests.unit.bytecode_modules import ALL, program, program_of, source_module


def rule_trees(module: Module) -> dict[str, Expr]:
    return {
        r.id: r.require if r.when is None else Connective(0, "implies", r.when, r.require)
        for r in module.rules
    }


def random_point(found: Program, rng: random.Random) -> dict[str, Fraction]:
    """Values near the numbers the rules speak of, where judgements differ."""
    limits = [*found.constants, Fraction(0), Fraction(1)]
    point: dict[str, Fraction] = {}
    for slot in found.slots:
        if slot.form in {"good", "kept_on", "may_rise", "timer"}:
            point[slot.key] = Fraction(rng.randint(0, 1))
        elif slot.form != "disturbance" and found.variables[slot.index].sort != "real":
            labels = found.variables[slot.index].labels or (("", 0), ("", 1))
            point[slot.key] = Fraction(rng.choice(labels)[1] + rng.choice((0, 0, 0, 1)))
        else:
            point[slot.key] = rng.choice(limits) + Fraction(rng.choice((-1, 0, 0, 1)), 1000)
    return point


@pytest.mark.parametrize("name", ALL)
def test_the_exact_machine_judges_every_case_and_random_points_as_evaluate_does(name: str) -> None:
    module, found = source_module(name), program(name)
    trees, rng = rule_trees(module), random.Random(7)  # noqa: S311  # repeatable
    for case in module.cases:
        assert run.case_point(found, case) == cases.case_point(module, case)
        assert run.violations(found, case) == case.violated
    given_points = [cases.case_point(module, case) for case in module.cases]
    for point in [*given_points, *(random_point(found, rng) for _ in range(60))]:
        everything = {**dict.fromkeys((s.key for s in found.slots), Fraction(0)), **point}
        assert run.judge(found, everything) == {r: truth(t, everything) for r, t in trees.items()}
        for which, rules in ((found.safe_set, module.safe_set), (found.terminal, module.terminal)):
            for block, rule in zip(which, rules, strict=True):
                assert run.truth(found, found.blocks[block], everything) is truth(rule.require, everything)
        for moved, block in found.dynamics:
            assert run.number(found, found.blocks[block], everything) == number(
                module.dynamics[moved], everything
            )
        for entry, code in zip(module.backup, found.backup, strict=True):
            if entry.when is not None:
                assert code.guard is not None
                assert run.truth(found, found.blocks[code.guard], everything) is truth(entry.when, everything)


@pytest.mark.parametrize("name", ALL)
def test_the_machine_for_many_finds_exactly_what_each_case_violates(name: str) -> None:
    module, found = source_module(name), program(name)
    given_points = [cases.case_point(module, case) for case in module.cases]
    columns = {s.key: np.array([float(p.get(s.key, 0)) for p in given_points]) for s in found.slots}
    verdicts = run_many(found, columns)
    binding = [rule.id for rule in module.rules if rule.kind != "informational"]
    for row, case in enumerate(module.cases):
        assert {rule for rule in binding if not verdicts.holds[rule][row]} == case.violated
        assert not any(verdicts.unknown[rule][row] for rule in binding)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conditions(), st.lists(points, min_size=1, max_size=4))
def test_any_expression_means_the_same_to_both_machines_and_to_evaluate(
    tree: Expr, many: list[dict[str, Fraction]]
) -> None:
    found = program_of(tree)
    expected = [truth(tree, point) for point in many]
    block = found.blocks[found.rules[0].block]
    assert [run.truth(found, block, point) for point in many] == expected
    columns = {key: np.array([float(point[key]) for point in many]) for key in many[0]}
    columns |= {s.key: np.array([float(p[LASTED]) for p in many]) for s in found.slots if s.form == "timer"}
    assert run_many(found, columns).holds["rule"].tolist() == expected


def one(text: str, **columns: list[float]) -> tuple[list[bool], list[bool]]:
    """What holds and what was in doubt."""
    arrays = {key: np.array(values) for key, values in columns.items()}
    found = run_many(program_of(parse(text)), arrays)
    return found.holds["rule"].tolist(), found.doubtful["rule"].tolist()


def test_decimals_on_a_limit_are_exact_and_in_no_doubt() -> None:
    assert 0.1 + 0.2 != 0.3  # what floats would say
    assert one("a + b == c", a=[0.1, 0.1], b=[0.2, 0.2], c=[0.3, 0.30001]) == ([True, False], [False] * 2)
    assert one("3 * a <= 0.3", a=[0.1, 0.11]) == ([True, False], [False, False])
    assert one("a / 3 <= 0.1", a=[0.3, 0.31]) == ([True, False], [False, False])


def test_what_is_within_rounding_of_a_limit_is_in_doubt_and_judged_again_exactly() -> None:
    third = 1 / 3  # its decimal is 0.3333333333333333
    held, doubt = one("3 * a < 1", a=[third, 0.5, 0.1])
    assert (held, doubt) == ([True, False, True], [True, False, False])
    assert one("a / b <= 0.1", a=[0.3, 0.3], b=[3.0, 2.0]) == ([True, False], [True, False])


def test_a_comparison_that_divides_by_0_is_false_in_every_machine() -> None:
    held, doubt = one("a / b != 1", a=[1.0, 2.0], b=[0.0, 1.0])
    assert held == [False, True]
    assert doubt == [True, False]
    assert one("if on then a / b > 0 else a > 0", a=[1.0, 1.0], b=[0.0, 0.0], on=[0.0, 1.0])[0] == [
        True,
        False,
    ]


def test_a_value_that_is_not_there_makes_its_rules_unknown_and_not_hold() -> None:
    found = program_of(parse("a <= 1 or b <= 1"))
    columns = {"a": np.array([0.0, np.nan, np.inf]), "b": np.array([0, 0, 0])}
    verdicts = run_many(found, columns)
    assert verdicts.holds["rule"].tolist() == [True, False, False]
    assert verdicts.unknown["rule"].tolist() == [False, True, True]


def test_columns_of_unlike_length_missing_ones_and_numbers_beyond_floats_are_refused() -> None:
    found = program_of(parse("a <= b"))
    with pytest.raises(ValueError, match="unlike length"):
        run_many(found, {"a": np.zeros(2), "b": np.zeros(3)})
    with pytest.raises(KeyError):
        run_many(found, {"a": np.zeros(2)})
    with pytest.raises(ValueError, match="whole numbers"):
        run_many(found, {"a": np.array([2**60]), "b": np.array([0])})


def demo_columns(count: int, seed: int) -> dict[str, npt.NDArray[Any]]:
    """Recorded decisions of the demo plant: readings by their registers, some of them smoothed."""
    rng = np.random.default_rng(seed)
    pump = np.round(rng.uniform(0, 100, count), 1)
    level = np.round(rng.uniform(-0.1, 4.2, count), 3)
    level[::7] += rng.normal(0, 0.01, len(level[::7]))
    flags = {k: rng.integers(0, 2, count) for k in ("heater", "kept_on(heater)", "may_rise(heater)")}
    before = np.round(np.clip(pump + rng.choice([-10, -10.1, 0, 5, 10, 10.1], count), 0, 100), 1)
    return {
        "level": level,
        "temp": np.round(rng.uniform(0, 90, count), 2),
        "pump": pump,
        "prev(pump)": before,
        "mixer": rng.integers(0, 4, count),
        **flags,
    }


def test_many_recorded_decisions_of_the_demo_are_judged_as_one_by_one() -> None:
    found, columns = program("buffer-tank"), demo_columns(70_000, seed=1)
    verdicts = run_many(found, columns)
    for row in [*range(0, 70_000, 331), 65_535, 65_536, 69_999]:
        point = {key: exact(values[row].item()) for key, values in columns.items()}
        point["rate(pump)"] = (point["pump"] - point["prev(pump)"]) / found.step
        expected = run.judge(found, point)
        assert {rule: bool(held[row]) for rule, held in verdicts.holds.items()} == expected
    assert not any(unknown.any() for unknown in verdicts.unknown.values())
    assert verdicts.holds["pump-ramp"].any()
    assert not verdicts.holds["pump-ramp"].all()


def test_a_chain_of_bounds_covers_every_rounding_of_long_arithmetic() -> None:
    """Long products and quotients of odd floats: wherever the machine is certain it is right."""
    rng = random.Random(3)  # noqa: S311  # repeatable
    texts = ("a*b - c/3", "a/b + b/c - 1.1", "abs(a - b)*c", "min(a, b/c, c*a)")
    columns = {k: np.array([rng.uniform(0.01, 2) for _ in range(300)]) for k in "abc"}
    for text in texts:
        tree = parse(f"{text} <= 0.7")
        found = program_of(tree)
        verdicts = run_many(found, columns)
        points: list[Mapping[str, Fraction]] = [
            {k: exact(float(values[row])) for k, values in columns.items()} for row in range(300)
        ]
        assert verdicts.holds["rule"].tolist() == [truth(tree, point) for point in points]
        assert not verdicts.doubtful["rule"].any()


def test_a_million_recorded_decisions_of_the_demo_are_judged_within_the_bar_of_back_tests() -> None:
    columns = demo_columns(1_000_000, seed=2)
    begin = time.process_time()
    verdicts = run_many(program("buffer-tank"), columns)
    assert time.process_time() - begin < 20.0  # CPU seconds; 0.2 to 0.5 when this was written
    assert 0 < verdicts.holds["no-overflow"].sum() < 1_000_000

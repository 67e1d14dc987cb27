"""Every shipped set of rules with worse sensors, drift and a horizon, judged as its vertices say."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.core.decision import Permitted, Undetermined, Violated
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import PATIENT
from tests.unit.solver_modules import NAMES, shipped
from tests.unit.solver_twins import STEPS, Twin, inside_ranges, request, samples, twin, violated

# That one has errors, disturbance and horizon of its own, and a benchmark.
PLANTS = tuple(name for name in NAMES if name != "tclab-twin")
TWINS: dict[str, Twin] = {}


def twin_of(name: str) -> Twin:
    if name not in TWINS:
        TWINS[name] = twin(name)
    return TWINS[name]


def compared(name: str, count: int, seed: int) -> Counter[str]:
    """How many points are safe by vertices, and how many of those permitted; what is unsafe must not be."""
    found = twin_of(name)
    binding = {rule.id for rule in found.source.requirements if rule.binding}
    checks = Checks(RuleSet.of((found.module,), 1), PATIENT)
    told: Counter[str] = Counter()
    for sample in samples(found, count, seed):
        result, _ = checks.check(request(found, sample))
        at_vertices = violated(found, sample)
        permitted = isinstance(result.verdict, Permitted)
        assert not (permitted and at_vertices), (at_vertices, sample)
        if not inside_ranges(found, sample):
            assert isinstance(result.verdict, Undetermined)
            continue
        told["safe"] += not at_vertices
        told["unsafe"] += bool(at_vertices)
        told["permitted"] += permitted
        said = {f.constraint for f in result.findings if isinstance(f, Violated)} & binding
        told["named alike"] += said == at_vertices
    return told


@pytest.mark.parametrize("name", PLANTS)
def test_a_robust_twin_permits_what_no_vertex_violates_and_nothing_else(name: str) -> None:
    told = compared(name, 60, seed=1)

    assert told["safe"] >= 4
    assert told["unsafe"] >= 4
    assert told["permitted"] >= 0.99 * told["safe"]
    assert told["named alike"] >= 0.99 * (told["safe"] + told["unsafe"])


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANTS)
def test_a_robust_twin_agrees_with_its_vertices_on_a_thousand_points(name: str) -> None:
    told = compared(name, 1_000, seed=2)

    assert told["safe"] >= 50
    assert told["unsafe"] >= 50
    assert told["permitted"] >= 0.99 * told["safe"]
    assert told["named alike"] >= 0.99 * (told["safe"] + told["unsafe"])


@pytest.mark.parametrize("name", PLANTS)
def test_a_twin_has_what_makes_it_robust(name: str) -> None:
    found, plain = twin_of(name), shipped(name)

    assert found.module.horizon == STEPS
    assert found.always
    for tag, error in found.errors.items():
        there = next(v for v in plain.variables.values() if v.tag == tag)
        assert error > there.error
        assert found.drifts[tag] > 0
    assert found.errors or name == "junction-interlocking"  # measures only switches and labels


# Without its errors, its drift or its steps a check would permit what they make unsafe: the vertices tell.
@pytest.mark.parametrize(
    "name", ["chlorination", "exothermic-batch-reactor", "pump-station", "three-unit-dispatch"]
)
def test_the_vertices_of_a_twin_refute_the_check_of_the_plain_module(name: str) -> None:
    found = twin_of(name)
    plain = Checks(RuleSet.of((shipped(name),), 1), PATIENT)

    refuted = [
        sample
        for sample in samples(found, 300, seed=3)
        if isinstance(plain.check(request(found, sample))[0].verdict, Permitted) and violated(found, sample)
    ]

    assert refuted

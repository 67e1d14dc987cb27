"""Certificates under rules that look back, ask for qualities, or name what cancels out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.file import derive, file_document
from gateway.cli.certificate.looks import Verification
from gateway.core.decision import CheckRequest, outcome_name
from gateway.core.quality import StatusCode
from gateway.solver.certificates.basis import Basis, canonical
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from gateway.storage.codec import certificate_document, parsed
from tests.unit.certificate_demo import decided, wrong
from tests.unit.solver_small import NOW, PATIENT, Plant, rule, small

Z3 = Wanted(solvers=("z3",), solver_named=True)


def verified(module: Module, request: CheckRequest) -> tuple[str, Verification]:
    """The outcome, and what every judge makes of its certificate."""
    rules = RuleSet.of([module], 1)
    basis, record = Basis.of(rules), decided(rules, request, "d", checks=Checks(rules, PATIENT))
    certificate = parsed(certificate_document(record, {1: basis.encoded}))
    texts = {module.digest: module.text}
    data = canonical(file_document(certificate, texts, derive(certificate, texts), None))
    return outcome_name(record.outcome), verify(data, Z3)


def carried(module: Module, plants: Sequence[Plant]) -> Plant:
    """The plant as it is now, with what checks before left behind."""
    checks, state = Checks(RuleSet.of([module], 1), PATIENT), None
    for plant in plants:
        _, state = checks.check(replace(plant, carried=state).request())
    return Plant(carried=state)


UP = Plant(old={"P": "5"}, new={"P": "40"})
BAD = Plant(status={"Q": StatusCode.BadNotConnected})
MOVING: Mapping[str, Any] = {"dynamics": {"l": "l + 0.001*p + w", "disturbance": {"w": ["-0.01", "0.01"]}}}
STEP_AGO = [Plant(at=NOW - 1)]
LONG = [Plant(at=NOW - back) for back in range(12, 0, -1)]


@pytest.mark.parametrize(
    ("module", "before", "plant", "outcome"),
    [
        (small("good(q) or p <= 10"), [], BAD, "refused"),
        (small("good(q) or p <= 50"), [], BAD, "permitted"),
        (small("age(q) <= 0.5"), [], Plant(ages={"Q": 1.0}), "refused"),
        (small("age(q) <= 1.5"), [], Plant(ages={"Q": 1.0}), "permitted"),
        (small("prev(p) > 50 for 10 s"), [], None, "refused"),
        (small("(prev(p) > 50 for 10 s) or p < 50"), [], None, "permitted"),
        (small("not (l > 1 for 10 s)"), LONG, None, "refused"),
        (small("(l > 1 and not b) for 10 s"), LONG, None, "permitted"),
        (small("l > 1 for 10 s implies p < 10"), [], None, "refused"),
        (small("rate(l) > 0.1"), STEP_AGO, None, "refused"),
        (small("l - prev(l) <= 0.1"), STEP_AGO, None, "permitted"),
        (small("p - 0*rate(p) <= 10"), [], None, "refused"),
        (small("p - 0*rate(p) <= 50 + 0*l"), [], None, "permitted"),
        (small(rule("p <= 10", always=True), **MOVING), [], UP, "refused"),
        (small(rule("h implies p <= 10", always=True), **MOVING), [], Plant(new={"H": "1"}), "refused"),
        (small("s != (if b then run else idle)"), [], None, "refused"),
        (small("(auto == m) iff (m == hand)"), [], None, "refused"),
    ],
)  # fmt: skip
def test_every_judge_reads_rules_about_the_past_and_about_qualities(
    module: Module, before: Sequence[Plant], plant: Plant | None, outcome: str
) -> None:
    request = (plant or carried(module, before)).request()

    found, done = verified(module, request)

    assert found == outcome
    assert wrong(done) == []
    assert done.good
    independent = [look for look in done.looks if look.name.startswith("independent")]
    assert all(look.good for look in independent), independent

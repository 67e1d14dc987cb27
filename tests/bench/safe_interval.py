"""Which counts of the next output can still lead to a permitted decision: what an answer costs, and is worth.

CPU time in one process. What is worked out once for a state is told apart from the answers; in a worker it is
done while the engine reads its inputs. Each block is decoded nearest to a seeded proposal, one by one, and
every block so made is put to the check, which has to permit it where the answers on its way were exact.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.table import Table

from gateway.core.decision import Permitted, Proposal, RegisterValue
from gateway.core.ports import CheckRequest
from gateway.core.tag import TagId
from gateway.solver.decoding.permitted_next import Exactly, NotKnown
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.bench.report import Figure, percentile
from tests.bench.synthetic import DELAY_S, HOLD_S, Family, requests, rule_set

STATES = 150
FAMILIES = (
    *(Family(rules=n) for n in (10, 50, 200)),
    Family(rules=50, products=True),
    Family(rules=50, horizon=5),
)


@dataclass(slots=True)
class Measured:
    """CPU in ms, and counts of answers and blocks."""

    ready_ms: list[float] = field(default_factory=list)  # premises, Z3's part of them included
    first_ms: list[float] = field(default_factory=list)  # the outlook on a state, with its first answer
    answer_ms: list[float] = field(default_factory=list)
    answers: int = 0
    exact: int = 0
    blocks: int = 0
    dead: int = 0  # states in which no block is permitted, which the first answer says
    refused: int = 0  # blocks decoded along the answers that the check does not permit


def run(console: Console) -> list[Figure]:
    """Every family."""
    found = {family: _measured(family) for family in FAMILIES}
    table = Table(
        "rules", "once a state p50", "p99", "an action p50", "p99", "exact", "blocks", "none", "refused"
    )
    for family, m in found.items():
        table.add_row(
            family.name,
            f"{percentile(m.first_ms, 0.5):.2f} ms",
            f"{percentile(m.first_ms, 0.99):.2f}",
            f"{percentile(m.answer_ms, 0.5):.3f} ms",
            f"{percentile(m.answer_ms, 0.99):.3f}",
            f"{100 * m.exact / m.answers:.1f} %",
            str(m.blocks),
            str(m.dead),
            str(m.refused),
        )
    console.print(table)
    fifty = found[Family(rules=50)]
    linear = [m for family, m in found.items() if not family.products and not family.horizon]
    return [
        Figure("safe_interval", "action_50_cpu_p50_ms", percentile(fifty.answer_ms, 0.5)),
        Figure("safe_interval", "action_50_cpu_p99_ms", percentile(fifty.answer_ms, 0.99)),
        Figure(
            "safe_interval",
            "action_200_cpu_p99_ms",
            percentile(found[Family(rules=200)].answer_ms, 0.99),
        ),
        Figure("safe_interval", "state_50_cpu_p50_ms", percentile(fifty.first_ms, 0.5)),
        Figure("safe_interval", "exact_50_percent", 100 * fifty.exact / fifty.answers),
        Figure("safe_interval", "refused_blocks", sum(m.refused for m in linear)),
    ]


def _measured(family: Family) -> Measured:
    found = Measured()
    rules = rule_set(family)
    checks = Checks(rules)
    checks.warm(HOLD_S, DELAY_S)
    order = [v.tag for v in rules.actions]
    for number, request in enumerate(requests(family, STATES, seed=3, may_repair=False)):
        started = time.process_time()
        checks.prepare(request)
        ready_ms = _since(started)
        started = time.process_time()
        checks.prepare(request, order)
        if number:  # the first one folds the rule set's formulas as well
            found.ready_ms.append(ready_ms)
            found.first_ms.append(_since(started))
        _decode(found, checks, rules, request, order)
    return found


def _decode(
    found: Measured, checks: Checks, rules: RuleSet, request: CheckRequest, order: Sequence[TagId]
) -> None:
    assert request.proposal is not None
    wanted = {v.tag: v.raw for v in request.proposal.values}
    fixed: list[int] = []
    exact = True
    for tag in order:
        started = time.process_time()
        answer = checks.permitted_next(request, order, fixed)
        found.answer_ms.append(_since(started))
        assert not isinstance(answer, NotKnown)
        found.answers += 1
        found.exact += isinstance(answer, Exactly)
        exact = exact and isinstance(answer, Exactly)
        if not answer.counts:
            found.dead += not fixed
            found.refused += exact and bool(fixed)  # an exact answer before led into a corner
            return
        near = (min(max(wanted[tag], low), high) for low, high in answer.counts)
        fixed.append(min((abs(raw - wanted[tag]), raw) for raw in near)[1])
    values = tuple(
        RegisterValue(tag, raw, rules.variables[tag].definition.engineering(raw))
        for tag, raw in zip(order, fixed, strict=True)
    )
    result, _ = checks.check(replace(request, proposal=Proposal(values=values, by="decoding")))
    found.blocks += 1
    found.refused += exact and not isinstance(result.verdict, Permitted)


def _since(started: float) -> float:
    return 1000 * (time.process_time() - started)

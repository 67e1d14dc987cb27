"""Plants whose states all move each other: rows of a hundred symbols with long factors are decided, too."""

from __future__ import annotations

import random
from fractions import Fraction

from gateway.core.decision import Permitted, Refused
from gateway.solver.checking.predict import observe
from gateway.solver.checking.simulate import Replay
from gateway.solver.rules.interval import SCALE
from gateway.solver.workers.check import Checks, millis_up
from tests.bench.synthetic import DELAY_S, HOLD_S
from tests.bench.train import Train, requests, rule_set
from tests.unit.solver_demo import PATIENT


# S8: a check that nobody can decide is undetermined; here it was every one.
def test_over_five_steps_every_check_has_a_verdict_and_no_corner_of_a_permitted_one_breaks_a_rule() -> None:
    rules = rule_set(Train(rules=28, horizon=5))
    checks = Checks(rules, PATIENT)
    prepared = checks._judge.prepare(millis_up(DELAY_S), millis_up(HOLD_S))
    replay, chance = Replay(rules, prepared.plan), random.Random(4)  # noqa: S311  a repeatable sample
    verdicts: list[type] = []
    for request in requests(12, seed=1):
        assert request.proposal is not None
        result, _ = checks.check(request)
        verdicts.append(type(result.verdict))
        if isinstance(result.verdict, Permitted) and verdicts.count(Permitted) <= 3:
            box = prepared.box(observe(rules, request), request.proposal.engineering())
            corner = {name: Fraction(chance.choice(ends), SCALE) for name, ends in box.items()}
            for duty in prepared.plan.duties:
                assert replay.violates(duty, corner) is None
    assert set(verdicts) == {Permitted, Refused}

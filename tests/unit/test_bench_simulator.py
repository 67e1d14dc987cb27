"""The simulator's parts keep the pipeline's contracts."""

from __future__ import annotations

import pytest

from gateway.core.clock import Deadline, FakeClock
from gateway.core.decision import WriteOutcome
from gateway.core.errors import InferenceError
from tests.bench.no_way_out import NoSink
from tests.bench.policies import policy
from tests.bench.simulator import _Proposer
from tests.unit.inference_demo import demo_definitions, in_force, snapshot

SOON = Deadline.after(1.0, FakeClock())


# S20: what a requester asks aside must leave no trace, and a policy's memory cannot be set back.
async def test_a_what_if_is_refused_in_the_ports_own_words_and_leaves_no_trace() -> None:
    asked, other = (_Proposer(policy("wandering", 3), demo_definitions()) for _ in range(2))
    for second in range(40):
        now = snapshot(float(second))
        with pytest.raises(InferenceError, match="answers no what-if"):
            await asked.propose_aside(now, in_force(), SOON)
        wanted = await asked.propose(now, in_force(), SOON)
        assert (await other.propose(now, in_force(), SOON)).values == wanted.values


async def test_nothing_leaves_the_simulated_pipeline_by_itself() -> None:
    outcome, why = await NoSink().write((), lambda: "", SOON)
    assert outcome is WriteOutcome.REFUSED
    assert "simulator" in why
    await NoSink().release(SOON)

"""Confidence in the pipeline: told, and never heeded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.decision import Permitted, Proposal, Refused
from tests.fakes.pipeline import House, ScriptedProposer
from tests.unit.test_pipeline_decide import decided


class Sure(ScriptedProposer):
    """A model with a confidence."""

    confidence: float | None = None

    def _listed(self, first: Proposal, most: int) -> Proposal:
        return super()._listed(replace(first, confidence=self.confidence), most)


@pytest.mark.parametrize("percent", [50, 90])
async def test_s29_confidence_never_changes_a_verdict(percent: int) -> None:
    found = []
    for confidence in (None, 0.0, 0.2, 1.0):
        house = House()
        house.point.proposer = house.proposer = sure = Sure(percent=percent)
        sure.confidence = confidence
        record = await decided(house)
        assert record.proposal is not None
        assert record.proposal.confidence == confidence
        looks = len(house.checker.requests)
        found.append((record.outcome, record.written, record.written_by, house.sink.written, looks))
    assert found == [found[0]] * 4
    assert isinstance(found[0][0], Permitted if percent == 50 else Refused)

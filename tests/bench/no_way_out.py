"""The pipeline's ways out, closed: records are kept at most, and nothing is written."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.clock import Deadline
from gateway.core.decision import DecisionRecord, RegisterValue, WriteOutcome
from gateway.core.ports import CheckRequest, Gate
from gateway.core.tag import TagId, TagValue


class KeptRecords:
    """An audit log that keeps records where somebody wants them."""

    def __init__(self, records: list[DecisionRecord] | None) -> None:
        self._records = records

    def expect(self, request: CheckRequest, inputs: Mapping[TagId, TagValue]) -> None:
        """Nothing is worked out ahead."""

    async def append(self, record: DecisionRecord) -> None:
        """Kept where somebody wants it."""
        if self._records is not None:
            self._records.append(record)


class NoSink:
    """The simulated plant takes setpoints from the record: the pipeline's own way out is closed."""

    async def write(
        self, values: tuple[RegisterValue, ...], gate: Gate, deadline: Deadline
    ) -> tuple[WriteOutcome, str]:
        """Nothing leaves."""
        del values, gate, deadline
        return WriteOutcome.REFUSED, "the simulator gives setpoints to its plant itself"

    async def release(self, deadline: Deadline) -> None:
        """Nothing was held."""

"""Setpoints into one PLC's hand-over block: written once, read back, never repeated (S18, S21, S22).

Lease (S11): a block carries the successor of the lease word that the PLC holds, as it was last confirmed or,
after anything else than a confirmed write and in a new session, read back. So the word moves once per
confirmed decision; a block whose fate is unknown is never followed by one that would leave the word standing
still, which the PLC could not tell from a dead gateway.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from gateway.core.clock import Clock, Deadline
from gateway.core.decision import RegisterValue, WriteOutcome
from gateway.core.errors import LinkBrokenError, LinkBusyError, LinkError
from gateway.core.ports import Gate
from gateway.core.tag import TagId
from gateway.protocols.modbus.block import (
    BlockHead,
    HandOverLayout,
    PlcAnswer,
    compose,
    difference,
    is_later,
    outputs_of,
    parse_answer,
    parse_head,
    successor,
)
from gateway.protocols.modbus.link import Departure, GateClosedError, ModbusExceptionError, ModbusLink

_NOT_CARRIED_OUT = frozenset({1, 2, 3, 6, 10})  # exceptions after which the device surely has nothing
_SCANS_TO_SETTLE = 2  # the scan under way at the write, and one whole scan after it
_READ_BACK_PAUSE_S = 0.004


class LinkSource(Protocol):
    """Whoever owns the link and renews it."""

    @property
    def link(self) -> ModbusLink | None:
        """The link now, None between two."""
        ...

    @property
    def session(self) -> int:
        """Rises with every connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingState:
    """What the PLC really works with, by its own word (S22, S23)."""

    values: Mapping[TagId, RegisterValue]
    remote: bool
    in_control: bool
    fallback: bool
    accepted: int
    owner: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverStatistics:
    """Writes since start by outcome, and read-backs they took."""

    confirmed: int
    mismatch: int
    unconfirmed: int
    failed: int
    refused: int
    releases: int
    read_backs: int
    last_sequence: int | None


@dataclass(frozen=True, slots=True)
class _Position:
    """What the next block continues from: true for one session, until a write is not confirmed."""

    session: int
    accepted: int
    lease: int


class HandOver:
    """The only writer of one hand-over block. Implements `SetpointSink`."""

    def __init__(
        self, source: LinkSource, layout: HandOverLayout, *, owner: int, epoch: int, clock: Clock
    ) -> None:
        self.layout, self.owner, self.epoch = layout, owner, epoch
        self._source, self._clock = source, clock
        self._turn = asyncio.Lock()
        self._position: _Position | None = None
        self._last_sequence: int | None = None  # never used again, whatever became of it
        self._outcomes: Counter[WriteOutcome] = Counter()
        self._releases = self._read_backs = 0
        self._log = structlog.get_logger().bind(component="hand_over", unit=layout.unit_id)

    async def write(
        self, values: tuple[RegisterValue, ...], gate: Gate, deadline: Deadline
    ) -> tuple[WriteOutcome, str]:
        """Write the whole block once, read the PLC's working values back; outcome and, if not confirmed, why.

        The gate is asked synchronously directly before the bytes. FAILED: surely nothing was carried out.
        UNCONFIRMED: bytes may have left and the PLC did not say in time what it works with.
        """
        departure = Departure(gate)
        try:
            words = self._output_words(values)
        except ValueError as exc:
            self._outcomes[WriteOutcome.FAILED] += 1
            return WriteOutcome.FAILED, str(exc)
        try:
            async with self._my_turn(deadline):
                outcome, why = await self._write_once(values, words, departure, deadline)
        except GateClosedError as exc:
            outcome, why = WriteOutcome.REFUSED, exc.problem
        except LinkError as exc:
            outcome = WriteOutcome.UNCONFIRMED if departure.may_have_left else WriteOutcome.FAILED
            why = exc.problem
        self._outcomes[outcome] += 1
        return outcome, why

    async def release(self, deadline: Deadline) -> None:
        """Clear control-valid so that the PLC owns the plant at once (S10). The lease word stays as it is.

        A block of another owner is left alone (S21). Where the link does not let us, that is logged and the
        lease's end does the same a little later: the PLC needs nobody for it (S11).
        """
        try:
            async with self._my_turn(deadline):
                await self._release(deadline)
        except LinkError as exc:
            self._log.warning("release_failed", reason=exc.problem)
        else:
            self._releases += 1

    async def read_working(self, deadline: Deadline) -> WorkingState:
        """What the PLC works with now; raises LinkError."""
        answer = await self._read_answer(self._link(), deadline)
        return WorkingState(
            values=answer.working,
            remote=answer.remote,
            in_control=answer.in_control and not answer.fallback,
            fallback=answer.fallback,
            accepted=answer.accepted,
            owner=answer.owner,
            epoch=answer.epoch,
        )

    def statistics(self) -> HandOverStatistics:
        """Writes since start by outcome."""
        return HandOverStatistics(
            confirmed=self._outcomes[WriteOutcome.CONFIRMED],
            mismatch=self._outcomes[WriteOutcome.MISMATCH],
            unconfirmed=self._outcomes[WriteOutcome.UNCONFIRMED],
            failed=self._outcomes[WriteOutcome.FAILED],
            refused=self._outcomes[WriteOutcome.REFUSED],
            releases=self._releases,
            read_backs=self._read_backs,
            last_sequence=self._last_sequence,
        )

    async def _write_once(
        self,
        values: tuple[RegisterValue, ...],
        words: tuple[int, ...],
        departure: Departure,
        deadline: Deadline,
    ) -> tuple[WriteOutcome, str]:
        link = self._link()
        position = await self._current_position(link, deadline)
        self._position = None  # known again only when this write is confirmed
        head = BlockHead(
            sequence=self._fresh_sequence(position.accepted),
            owner=self.owner,
            epoch=self.epoch,
            lease=successor(position.lease),
            control_valid=True,
        )
        self._last_sequence = head.sequence
        try:
            await self._send(link, compose(head, words), deadline, departure)
        except ModbusExceptionError as exc:
            if exc.code in _NOT_CARRIED_OUT:
                return WriteOutcome.FAILED, exc.problem
            raise
        outcome, why = await self._read_back(link, head, values, deadline)
        if outcome is WriteOutcome.CONFIRMED:
            self._position = _Position(position.session, head.sequence, head.lease)
        return outcome, why

    async def _read_back(
        self, link: ModbusLink, head: BlockHead, values: tuple[RegisterValue, ...], deadline: Deadline
    ) -> tuple[WriteOutcome, str]:
        """Reads until the PLC works with the block, has surely looked at it and does not, or time is up.

        A reject code may be an old one until the PLC has scanned since the write.
        """
        written_at, scans_before = self._clock.monotonic(), None
        while True:
            answer = await self._read_answer(link, deadline)
            why = difference(answer, head, values)
            if not why:
                return WriteOutcome.CONFIRMED, ""
            if scans_before is None:
                scans_before = answer.scans
            told = answer.accepted == head.sequence or answer.reject != 0
            if told and self._settled(scans_before, answer.scans, written_at):
                return WriteOutcome.MISMATCH, why
            if deadline.remaining(self._clock) <= 2 * _READ_BACK_PAUSE_S:
                return WriteOutcome.UNCONFIRMED, f"not confirmed by the deadline: {why}"
            await asyncio.sleep(_READ_BACK_PAUSE_S)

    def _settled(self, scans_before: int | None, scans_now: int | None, written_at: float) -> bool:
        if scans_before is None or scans_now is None:
            return self._clock.monotonic() - written_at >= self.layout.settle_s
        return (scans_now - scans_before) & 0xFFFF >= _SCANS_TO_SETTLE

    async def _release(self, deadline: Deadline) -> None:
        link = self._link()
        reply = await link.read(
            self.layout.unit_id, "holding", self.layout.block_address, self.layout.block_count, deadline
        )
        held = parse_head(reply.words)
        if held.owner != self.owner or not held.control_valid:
            return
        self._position = None
        head = replace(held, sequence=self._fresh_sequence(held.sequence), control_valid=False)
        self._last_sequence = head.sequence
        await self._send(link, compose(head, outputs_of(reply.words)), deadline, Departure())

    async def _send(
        self, link: ModbusLink, block: tuple[int, ...], deadline: Deadline, departure: Departure
    ) -> None:
        await link.write_registers(self.layout.unit_id, self.layout.block_address, block, deadline, departure)

    async def _read_answer(self, link: ModbusLink, deadline: Deadline) -> PlcAnswer:
        first, count = self.layout.answer_span()
        reply = await link.read(self.layout.unit_id, self.layout.answer_table, first, count, deadline)
        self._read_backs += 1
        return parse_answer(self.layout, reply.words)

    async def _current_position(self, link: ModbusLink, deadline: Deadline) -> _Position:
        """Where the PLC stands: remembered from the last confirmed write of this session, else read."""
        session = self._source.session
        if self._position is not None and self._position.session == session:
            return self._position
        answer = await self._read_answer(link, deadline)
        block = await link.read(
            self.layout.unit_id, "holding", self.layout.block_address, self.layout.block_count, deadline
        )
        return _Position(session, answer.accepted, parse_head(block.words).lease)

    def _fresh_sequence(self, accepted: int) -> int:
        """The one after our last, or after the PLC's: it may have begun anew, or taken another's."""
        fresh = successor(accepted if self._last_sequence is None else self._last_sequence)
        return fresh if is_later(fresh, accepted) else successor(accepted)

    def _link(self) -> ModbusLink:
        link = self._source.link
        if link is None:
            raise LinkBrokenError("hand-over", "there is no connection to the PLC")
        return link

    def _output_words(self, values: tuple[RegisterValue, ...]) -> tuple[int, ...]:
        """Registers in the block's order; ValueError unless the values are exactly the block's outputs."""
        given = {value.tag: value for value in values}
        wanted = [output.definition.id for output in self.layout.outputs]
        if len(given) != len(values) or set(given) != set(wanted):
            raise ValueError(f"the block takes exactly {', '.join(wanted)}")
        for output in self.layout.outputs:
            value = given[output.definition.id]
            if output.definition.protected:
                raise ValueError(f"`{value.tag}` is protected")
            if output.definition.engineering(value.raw) != value.value:
                raise ValueError(
                    f"`{value.tag}`: {value.raw} counts are not {value.value}, which was checked"
                )
        return tuple(output.word(given[output.definition.id].raw) for output in self.layout.outputs)

    @asynccontextmanager
    async def _my_turn(self, deadline: Deadline) -> AsyncIterator[None]:
        """One hand-over at a time; LinkBusyError when the deadline comes first."""
        try:
            async with asyncio.timeout(deadline.remaining(self._clock)):
                await self._turn.acquire()
        except TimeoutError as exc:
            raise LinkBusyError("hand-over", "another write held the block until the deadline") from exc
        try:
            yield
        finally:
            self._turn.release()

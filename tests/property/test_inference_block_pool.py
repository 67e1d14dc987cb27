"""The pool's laws: no page is lost, everybody reads what was written for it, and the figures add up."""

from __future__ import annotations

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core.errors import InferenceError
from gateway.inference.kv.block_pool import BlockPool, PoolExhaustedError, Sequence
from gateway.inference.kv.prefix import Settled

PAGES, BLOCK, MOST = 14, 4, 5
ANY = st.integers(0, 60)  # of those there are: a draw that means nothing would be a step lost
with_sequences = precondition(lambda self: bool(self.sequences))
with_room = precondition(lambda self: len(self.sequences) < MOST)


class PoolLaws(RuleBasedStateMachine):
    """A pool beside a model that keeps what each sequence should read, slot by slot."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(PAGES, BLOCK)
        self.memory: dict[int, int] = {}
        self.sequences: list[tuple[Sequence, dict[int, int]]] = []
        self.stamp = 0
        self.named: list[list[bytes]] = []  # runs of page names, each made of what stands in the page

    def picked(self, which: int) -> tuple[Sequence, dict[int, int]]:
        return self.sequences[which % len(self.sequences)]

    @with_sequences
    @rule(which=ANY)
    def publish(self, which: int) -> None:
        """What is published is never cut away by its owner: a cut after it copies before it writes."""
        sequence, expected = self.picked(which)
        if sequence.first:
            return
        names = []
        for position in range(0, sequence.end - BLOCK + 1, BLOCK):
            names.append(repr([expected[position + slot] for slot in range(BLOCK)]).encode())
            before = names[-2] if position else b""
            self.pool.publish(sequence, Settled(position, names[-1], before))
        if names:
            self.named.append(names)

    @with_room
    @precondition(lambda self: bool(self.named))
    @rule(which=ANY)
    def share(self, which: int) -> None:
        names = self.named[which % len(self.named)]
        sequence = self.pool.share(names)
        stamps = [stamp for name in names for stamp in json.loads(name)]
        self.sequences.append((sequence, dict(enumerate(stamps[: sequence.end]))))

    @with_room
    @rule()
    def open(self) -> None:
        self.sequences.append((Sequence(), {}))

    @with_sequences
    @rule(which=ANY, tokens=st.integers(0, 20))
    def append(self, which: int, tokens: int) -> None:
        sequence, expected = self.picked(which)
        before = (list(sequence.pages), sequence.first, sequence.end, self.pool.statistics().free)
        try:
            appended = self.pool.append(sequence, tokens)
        except PoolExhaustedError:
            after = (list(sequence.pages), sequence.first, sequence.end, self.pool.statistics().free)
            assert after == before, "a refused append changes nothing"
            return
        for source, target in appended.copies:
            for slot in range(BLOCK):
                self.memory[target * BLOCK + slot] = self.memory.get(source * BLOCK + slot, -1)
        assert len(set(appended.slots)) == tokens
        for position, slot in enumerate(appended.slots, start=sequence.end - tokens):
            self.stamp += 1
            self.memory[slot] = expected[position] = self.stamp

    @with_sequences
    @rule(which=ANY, back=st.integers(0, 9))
    def truncate(self, which: int, back: int) -> None:
        sequence, expected = self.picked(which)
        end = max(sequence.first, sequence.end - back)
        self.pool.truncate(sequence, end)
        for position in [p for p in expected if p >= end]:
            del expected[position]

    @with_sequences
    @rule(which=ANY, back=st.integers(0, 12))
    def drop(self, which: int, back: int) -> None:
        sequence, expected = self.picked(which)
        self.pool.drop_before(sequence, sequence.end - back)
        assert sequence.first <= max(sequence.end - back, sequence.first)
        for position in [p for p in expected if p < sequence.first]:
            del expected[position]

    @with_room
    @with_sequences
    @rule(which=ANY)
    def fork(self, which: int) -> None:
        sequence, expected = self.picked(which)
        self.sequences.append((self.pool.fork(sequence), dict(expected)))

    @precondition(lambda self: len(self.sequences) > MOST // 2)
    @rule(which=ANY)
    def close(self, which: int) -> None:
        self.pool.close(self.sequences.pop(which % len(self.sequences))[0])

    @invariant()
    def every_page_is_free_or_counted_once_for_each_table(self) -> None:
        counted = [0] * PAGES
        for sequence, _ in self.sequences:
            for page in sequence.pages:
                counted[page] += 1
        for page in self.pool.index._names:
            counted[page] += 1
        assert self.pool._count == counted
        assert sorted(self.pool._free) == [page for page in range(PAGES) if counted[page] == 0]

    @invariant()
    def every_sequence_reads_what_it_wrote(self) -> None:
        for sequence, expected in self.sequences:
            for position, stamp in expected.items():
                at = position - sequence.first
                assert self.memory[sequence.pages[at // BLOCK] * BLOCK + at % BLOCK] == stamp

    @invariant()
    def statistics_agree_with_the_pages(self) -> None:
        report = self.pool.statistics()
        assert report.pages == PAGES
        assert report.free == len(self.pool._free)
        assert report.peak_used >= PAGES - report.free
        open_ones = self.pool.statistics(sequence for sequence, _ in self.sequences)
        used = {page for sequence, _ in self.sequences for page in sequence.pages}
        read = {
            sequence.pages[at // BLOCK] * BLOCK + at % BLOCK
            for sequence, _ in self.sequences
            for at in range(sequence.end - sequence.first)
        }
        assert open_ones.in_tables == len(used)
        assert open_ones.unfilled_slots == len(used) * BLOCK - len(read)
        assert open_ones.internal_fragmentation == pytest.approx(
            1 - len(read) / (len(used) * BLOCK) if used else 0.0
        )


TestPoolLaws = PoolLaws.TestCase
TestPoolLaws.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


def test_a_cut_outside_the_sequence_is_refused() -> None:
    pool, sequence = BlockPool(4, 4), Sequence()
    pool.append(sequence, 5)

    with pytest.raises(InferenceError, match="cannot cut"):
        pool.truncate(sequence, 6)

"""Which slots of the KV pool belong to which sequence: pages, reference counts, no tensors.

INVARIANT: every page is either free with count 0 or counted once for each sequence table it stands in, and
once more while the prefix index holds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Values
from dataclasses import dataclass, field

from gateway.core.errors import InferenceError
from gateway.inference.kv.backend import PoolExhaustedError, PoolStatistics
from gateway.inference.kv.prefix import PrefixIndex, Settled
from gateway.inference.kv.recency import Recency

_AHEAD = 16  # of the pool is made free at once, so that not every page costs a look at all of them


@dataclass(slots=True)
class Sequence:
    """One sequence's table. Positions grow for ever; `first` is the position of slot 0 of `pages[0]`."""

    pages: list[int] = field(default_factory=list)
    first: int = 0
    end: int = 0  # position after the last token


@dataclass(frozen=True, slots=True)
class Appended:
    """Where new tokens go, and what must be done first: pages that others read are copied (from, to).

    What stands in `fresh` ones is somebody else's, and no business of the new owner.
    """

    slots: tuple[int, ...]
    copies: tuple[tuple[int, int], ...]
    fresh: tuple[int, ...] = ()


class BlockPool:
    """Pages of `block` slots, handed out by reference count; O(pages touched) unless room lacks."""

    def __init__(self, pages: int, block: int, index: PrefixIndex | None = None) -> None:
        self.block = block
        self.index = index if index is not None else PrefixIndex(Recency())
        self._count = [0] * pages
        self._free = list(range(pages - 1, -1, -1))
        self._peak_used = self._allocations = self._copies = self._refused = self._made_room = 0

    def append(self, sequence: Sequence, tokens: int) -> Appended:
        """Slots for `tokens` more tokens; raises `PoolExhaustedError`, changing nothing, when pages lack."""
        if tokens == 0:
            return Appended((), ())
        needed, last_shared = self._needed(sequence, tokens)
        self._require(needed + last_shared)
        used = sequence.end - sequence.first
        copies: tuple[tuple[int, int], ...] = ()
        if last_shared:
            shared, own = sequence.pages[-1], self._take()
            self._count[shared] -= 1
            sequence.pages[-1] = own
            self._copies += 1
            copies = ((shared, own),)
        fresh = tuple(self._take() for _ in range(needed))
        sequence.pages.extend(fresh)
        slots = tuple(
            sequence.pages[at // self.block] * self.block + at % self.block
            for at in range(used, used + tokens)
        )
        sequence.end += tokens
        return Appended(slots, copies, fresh)

    def require(self, rows: Iterable[tuple[Sequence, int]]) -> None:
        """Raise `PoolExhaustedError`, changing nothing, unless all these appends find their pages."""
        self._require(sum(sum(self._needed(sequence, tokens)) for sequence, tokens in rows))

    def truncate(self, sequence: Sequence, end: int) -> None:
        """Forget every token at position `end` and after it."""
        if not sequence.first <= end <= sequence.end:
            message = f"cannot cut to position {end}: the sequence holds {sequence.first} to {sequence.end}"
            raise InferenceError(message)
        keep = -(-(end - sequence.first) // self.block)
        self._release(sequence.pages[keep:])
        del sequence.pages[keep:]
        sequence.end = end

    def drop_before(self, sequence: Sequence, position: int) -> None:
        """Give back whole pages that end at or before `position`: no later query can see them."""
        pages = min(max(0, position - sequence.first) // self.block, len(sequence.pages))
        self._release(sequence.pages[:pages])
        del sequence.pages[:pages]
        sequence.first += pages * self.block

    def fork(self, sequence: Sequence) -> Sequence:
        """A second sequence over the same pages; the first write to the shared last page copies it."""
        for page in sequence.pages:
            self._count[page] += 1
        return Sequence(list(sequence.pages), sequence.first, sequence.end)

    def close(self, sequence: Sequence) -> None:
        """Give every page back; the sequence is empty and may be used again."""
        self._release(sequence.pages)
        sequence.pages.clear()
        sequence.first = sequence.end = 0

    def share(self, names: Values[bytes]) -> Sequence:
        """A sequence that begins with the longest held run of pages of these names."""
        pages = self.index.find(names)
        for page in pages:
            self._count[page] += 1
        return Sequence(pages, 0, len(pages) * self.block)

    def publish(self, sequence: Sequence, settled: Settled) -> None:
        """Let others find a full page by its name; its owner never writes to it again."""
        if settled.position < sequence.first:
            return
        page = sequence.pages[(settled.position - sequence.first) // self.block]
        if self.index.add(settled, page):
            self._count[page] += 1

    def statistics(self, sequences: Iterable[Sequence] = ()) -> PoolStatistics:
        """A frozen report; `sequences` are those that are open."""
        unfilled: dict[int, int] = {}  # slots without a token, by page
        for sequence in sequences:
            if sequence.pages:
                last, rest = sequence.pages[-1], -(sequence.end - sequence.first) % self.block
                rest = min(rest, unfilled.get(last, rest))  # whoever reads most of a page fills it
                unfilled |= dict.fromkeys(sequence.pages, 0) | {last: rest}
        return PoolStatistics(
            pages=len(self._count),
            free=len(self._free),
            shared=sum(count > 1 for count in self._count),
            found_again=len(self.index),
            in_tables=len(unfilled),
            unfilled_slots=sum(unfilled.values()),
            slots_a_page=self.block,
            peak_used=self._peak_used,
            allocations=self._allocations,
            copies=self._copies,
            made_room=self._made_room,
            refused=self._refused,
            prefix_lookups=self.index.lookups,
            prefix_found=self.index.found,
        )

    def _needed(self, sequence: Sequence, tokens: int) -> tuple[int, bool]:
        """New pages, and whether the last one must be copied first because others read it."""
        used = sequence.end - sequence.first
        last_shared = bool(used % self.block) and self._count[sequence.pages[-1]] > 1
        return -(-(used + tokens) // self.block) - len(sequence.pages), last_shared

    def _require(self, pages: int) -> None:
        """Make room among pages that only the index holds: for this, and for some that will come."""
        missing = pages - len(self._free)
        if missing <= 0:
            return
        most = missing + len(self._count) // _AHEAD
        removable, first = self.index.removable(self._count.__getitem__, most)
        if missing > removable:
            self._refused += 1
            raise PoolExhaustedError(pages, len(self._free) + removable)
        for page in first:
            self.index.remove(page)
            self._release((page,))
            self._made_room += 1

    def _take(self) -> int:
        page = self._free.pop()
        self._count[page] = 1
        self._allocations += 1
        self._peak_used = max(self._peak_used, len(self._count) - len(self._free))
        return page

    def _release(self, pages: Iterable[int]) -> None:
        for page in pages:
            self._count[page] -= 1
            if self._count[page] == 0:
                self._free.append(page)

"""What the engine needs of a model that keeps keys and values: one port, an adapter for each kind of export.

A cache is one sequence's keys and values, named by a number. Its positions grow for ever; what stands before
its first one is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence as Values
from dataclasses import dataclass
from typing import NamedTuple, NewType, Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.tokenizer import Token

CacheId = NewType("CacheId", int)


@dataclass(frozen=True, slots=True)
class ProviderTruth:
    """What was asked for and what really runs."""

    requested: str
    actual: str
    runtime: str  # onnxruntime's version
    expected: str = ""  # what the session was to be made with, by the devices that are there


class PoolExhaustedError(InferenceError):
    """Too little free memory for keys and values: close caches or load the bundle with a larger pool."""

    def __init__(self, wanted: int, free: int) -> None:
        super().__init__(
            f"the KV pool has {free} free pages, {wanted} are needed: let fewer points ask this model "
            "at once, or load a bundle with a shorter window"
        )
        self.wanted, self.free = wanted, free


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """The pool at one moment, and counters since it was made. Counts are pages unless they say otherwise."""

    pages: int
    free: int
    shared: int  # more than one reader
    found_again: int  # settled, and held for whoever begins alike
    in_tables: int  # of sequences that are open, each page once
    unfilled_slots: int  # of those pages
    slots_a_page: int
    peak_used: int
    allocations: int
    copies: int  # before a write, because others read them
    made_room: int  # held for whoever begins alike, until room lacked
    refused: int  # requests
    prefix_lookups: int
    prefix_found: int
    cold: int = 0  # caches whose content stands outside the pool
    offloaded: int = 0
    returned: int = 0
    stranded: int = 0  # free, and too few for another cache; none where any page serves any sequence
    standing: int = 0  # tokens that every session begins with, held once

    @property
    def internal_fragmentation(self) -> float:
        """(allocated - used slots) / allocated, of the pages of open sequences; 0 where there are none."""
        slots = self.in_tables * self.slots_a_page
        return self.unfilled_slots / slots if slots else 0.0

    @property
    def external_fragmentation(self) -> float:
        """Share of free pages that no cache can take, as they are less than it takes at once."""
        return self.stranded / self.free if self.free else 0.0


class Span(NamedTuple):
    """The positions a cache holds: from `first` up to, not including, `end`."""

    first: int
    end: int


class KvBackend(Protocol):
    """A model and the memory of its caches, used from one thread."""

    @property
    def truth(self) -> ProviderTruth:
        """Where it runs."""
        ...

    @property
    def aliased(self) -> bool:
        """Whether new keys and values are written where the old ones stand, shown by a test at the start."""
        ...

    def open(self) -> CacheId:
        """An empty cache."""
        ...

    def adopt(self, cache: CacheId, tokens: Values[Token]) -> int:
        """Let an empty cache begin with as many of `tokens` as are held already; how many that is."""
        ...

    def settle(self, cache: CacheId, position: int) -> None:
        """Tokens before `position` stay until the cache is closed: others that begin alike may read them."""
        ...

    def fork(self, cache: CacheId) -> CacheId:
        """A second cache with the same content; what is written to one, the other never reads."""
        ...

    def close(self, cache: CacheId) -> None:
        """Give its memory back; its number is never used again."""
        ...

    def span(self, cache: CacheId) -> Span:
        """The positions it holds."""
        ...

    def truncate(self, cache: CacheId, end: int) -> None:
        """Forget every token at position `end` and after it."""
        ...

    def forget_before(self, cache: CacheId, position: int) -> None:
        """No later query sees tokens before `position`: their memory may be given back."""
        ...

    def resident(self, cache: CacheId) -> bool:
        """Whether it takes memory that `offload` would give back."""
        ...

    def offload(self, cache: CacheId) -> bool:
        """Move its content out of the pool until `restore`; False, changing nothing, without room."""
        ...

    def restore(self, cache: CacheId) -> None:
        """Bring back, bit for bit, what `offload` moved out; raises `PoolExhaustedError` without room."""
        ...

    def even_out(self) -> bool:
        """From now on compute one row of one token as several are; False where there is no other way."""
        ...

    def forward(self, rows: Values[tuple[CacheId, Values[Token]]]) -> NDArray[np.float32]:
        """Append to each cache its tokens, equally many; logits after the last of them, `[rows, vocabulary]`.

        Raises `PoolExhaustedError`, changing nothing, where memory lacks.
        """
        ...

    def statistics(self) -> PoolStatistics:
        """The memory now."""
        ...

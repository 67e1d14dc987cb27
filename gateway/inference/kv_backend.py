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
from gateway.inference.tokenizer import Token

CacheId = NewType("CacheId", int)


@dataclass(frozen=True, slots=True)
class ProviderTruth:
    """What was asked for and what really runs."""

    requested: str
    actual: str
    runtime: str  # onnxruntime's version


class PoolExhaustedError(InferenceError):
    """Too little free memory for keys and values: close caches or load the bundle with a larger pool."""

    def __init__(self, wanted: int, free: int) -> None:
        super().__init__(f"the KV pool has {free} free pages, {wanted} are needed")
        self.wanted, self.free = wanted, free


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """The pool at one moment, and counters since it was made."""

    pages: int
    free: int
    shared: int  # pages that stand in more than one table
    peak_used: int
    allocations: int
    copies: int  # pages copied before a write because they were shared
    refused: int


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

    def forward(self, rows: Values[tuple[CacheId, Values[Token]]]) -> NDArray[np.float32]:
        """Append to each cache its tokens, equally many; logits after the last of them, `[rows, vocabulary]`.

        Raises `PoolExhaustedError`, changing nothing, where memory lacks.
        """
        ...

    def statistics(self) -> PoolStatistics:
        """The memory now."""
        ...

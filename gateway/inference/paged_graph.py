"""The portable paged decoder: pages handed out by the pool, written and read by the graph itself."""

from __future__ import annotations

import itertools
from collections.abc import Sequence as Values
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.inference.block_pool import BlockPool, Sequence
from gateway.inference.bundle import Architecture
from gateway.inference.kv_backend import CacheId, PoolStatistics, ProviderTruth, Span
from gateway.inference.ort_session import PagedSession, Provider, Row
from gateway.inference.tokenizer import Token


class PagedGraph:
    """A `KvBackend` over one pool of pages."""

    def __init__(
        self, model: Path, architecture: Architecture, *, pages: int, block: int, provider: Provider
    ) -> None:
        self._session = PagedSession(model, architecture, pages=pages, block=block, provider=provider)
        self._pool = BlockPool(pages - 1, block)  # the last page is the aliasing probe's
        self._sequences: dict[CacheId, Sequence] = {}
        self._numbers = itertools.count(1)

    @property
    def truth(self) -> ProviderTruth:
        """See `KvBackend`."""
        return self._session.truth

    @property
    def aliased(self) -> bool:
        """See `KvBackend`."""
        return self._session.aliased

    def open(self) -> CacheId:
        """See `KvBackend`."""
        return self._named(Sequence())

    def fork(self, cache: CacheId) -> CacheId:
        """See `KvBackend`: the pages are shared until one of both writes."""
        return self._named(self._pool.fork(self._sequences[cache]))

    def close(self, cache: CacheId) -> None:
        """See `KvBackend`."""
        self._pool.close(self._sequences.pop(cache))

    def span(self, cache: CacheId) -> Span:
        """See `KvBackend`."""
        sequence = self._sequences[cache]
        return Span(sequence.first, sequence.end)

    def truncate(self, cache: CacheId, end: int) -> None:
        """See `KvBackend`."""
        self._pool.truncate(self._sequences[cache], end)

    def forget_before(self, cache: CacheId, position: int) -> None:
        """See `KvBackend`: whole pages only."""
        self._pool.drop_before(self._sequences[cache], position)

    def forward(self, rows: Values[tuple[CacheId, Values[Token]]]) -> NDArray[np.float32]:
        """See `KvBackend`."""
        sequences = [self._sequences[cache] for cache, _ in rows]
        self._pool.require((sequence, len(row[1])) for sequence, row in zip(sequences, rows, strict=True))
        placed = [
            Row(sequence, tokens, self._pool.append(sequence, len(tokens)))
            for sequence, (_, tokens) in zip(sequences, rows, strict=True)
        ]
        logits: NDArray[np.float32] = self._session.run_rows(placed)[:, -1]
        return logits

    def statistics(self) -> PoolStatistics:
        """See `KvBackend`."""
        return self._pool.statistics()

    def _named(self, sequence: Sequence) -> CacheId:
        number = CacheId(next(self._numbers))
        self._sequences[number] = sequence
        return number

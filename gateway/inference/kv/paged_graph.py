"""The portable paged decoder: pages handed out by the pool, written and read by the graph itself."""

from __future__ import annotations

import itertools
from collections.abc import Sequence as Values
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.inference.bundle.manifest import Architecture
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.backend import CacheId, PoolStatistics, ProviderTruth, Span
from gateway.inference.kv.block_pool import Appended, BlockPool, Sequence
from gateway.inference.kv.cold_tier import ColdTier
from gateway.inference.kv.ort_session import PagedSession, Provider
from gateway.inference.kv.prefix import Chain, Identity, PrefixIndex, page_names
from gateway.inference.kv.recency import Recency
from gateway.inference.kv.rows import Row


@dataclass(slots=True)
class _Held:
    """A cache: its pages, and the names of those that are settled. A cold one has none until it returns."""

    sequence: Sequence
    chain: Chain
    cold_pages: int = 0


class Session(Protocol):
    """A decoder and the tensors its pages stand in."""

    truth: ProviderTruth
    digest: str
    aliased: bool

    @property
    def page_bytes(self) -> int:
        """Bytes that one page takes in all tensors."""
        ...

    def run_rows(self, rows: Values[Row]) -> NDArray[np.float32]:
        """Logits `[B, T, vocabulary]` of B sequences' tokens, of all T of each or of the last one only."""
        ...

    def read_pages(self, pages: Values[int]) -> NDArray[np.uint8]:
        """Content of pages, `[pages, page_bytes]`."""
        ...

    def write_pages(self, pages: Values[int], content: NDArray[np.uint8]) -> None:
        """Set the content of pages to what `read_pages` gave."""
        ...


class Paged:
    """A `KvBackend` over one pool of pages and a cold tier beside it, whatever runs the model."""

    def __init__(
        self, session: Session, *, pages: int, block: int, bundle: str, cold_pages: int, uses: int
    ) -> None:
        """See `PagedGraph`. The session's last page belongs to nobody."""
        self._session = session
        self._pool = BlockPool(pages - 1, block, PrefixIndex(Recency(uses)))
        truth = session.truth
        self._seed = Identity(session.digest, bundle, block, truth.actual, truth.runtime).seed()
        self._cold = ColdTier(cold_pages, session.page_bytes)
        self._caches: dict[CacheId, _Held] = {}
        self._numbers = itertools.count(1)
        self._offloaded = self._returned = 0
        self._probe = Sequence([pages - 1], 0, 1)
        self._evened_out = False

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
        return self._named(_Held(Sequence(), Chain(self._pool.block, self._seed)))

    def adopt(self, cache: CacheId, tokens: Values[Token]) -> int:
        """See `KvBackend`: whole pages that stood behind the same tokens from the first on."""
        held = self._caches[cache]
        names = page_names(self._seed, tokens, self._pool.block)
        held.sequence = self._pool.share(names)
        taken = held.sequence.end
        if taken:
            held.chain = Chain(self._pool.block, names[taken // self._pool.block - 1], taken)
        return taken

    def settle(self, cache: CacheId, position: int) -> None:
        """See `KvBackend`."""
        held = self._caches[cache]
        for settled in held.chain.settle(position):
            self._pool.publish(held.sequence, settled)

    def fork(self, cache: CacheId) -> CacheId:
        """See `KvBackend`: the pages are shared until one of both writes."""
        held = self._caches[cache]
        return self._named(_Held(self._pool.fork(held.sequence), held.chain.copy()))

    def close(self, cache: CacheId) -> None:
        """See `KvBackend`."""
        held = self._caches.pop(cache)
        self._pool.close(held.sequence)
        self._cold.drop(cache)

    def span(self, cache: CacheId) -> Span:
        """See `KvBackend`."""
        sequence = self._caches[cache].sequence
        return Span(sequence.first, sequence.end)

    def truncate(self, cache: CacheId, end: int) -> None:
        """See `KvBackend`."""
        held = self._caches[cache]
        self._pool.truncate(held.sequence, end)
        held.chain.truncate(end)

    def forget_before(self, cache: CacheId, position: int) -> None:
        """See `KvBackend`: whole pages only."""
        self._pool.drop_before(self._caches[cache].sequence, position)

    def resident(self, cache: CacheId) -> bool:
        """See `KvBackend`."""
        return bool(self._caches[cache].sequence.pages)

    def offload(self, cache: CacheId) -> bool:
        """See `KvBackend`."""
        held = self._caches[cache]
        pages = held.sequence.pages
        if not pages or not self._cold.put(cache, self._session.read_pages(pages)):
            return False
        first, end = held.sequence.first, held.sequence.end
        held.cold_pages = len(pages)
        self._pool.close(held.sequence)
        held.sequence = Sequence([], first, end)
        self._offloaded += 1
        return True

    def restore(self, cache: CacheId) -> None:
        """See `KvBackend`."""
        held = self._caches[cache]
        if not held.cold_pages:
            return
        back = Sequence()
        self._pool.append(back, held.cold_pages * self._pool.block)
        self._session.write_pages(back.pages, self._cold.take(cache))
        held.sequence.pages, held.cold_pages = back.pages, 0
        self._returned += 1

    def even_out(self) -> bool:
        """See `KvBackend`: a lone token gets a row of the probe's page beside it, so it is never a vector."""
        self._evened_out = True
        return True

    def forward(self, rows: Values[tuple[CacheId, Values[Token]]]) -> NDArray[np.float32]:
        """See `KvBackend`."""
        caches = [self._caches[cache] for cache, _ in rows]
        if len(rows) > 1:  # one append changes nothing where it fails
            self._pool.require((held.sequence, len(row[1])) for held, row in zip(caches, rows, strict=True))
        placed = []
        for held, (_, tokens) in zip(caches, rows, strict=True):
            placed.append(Row(held.sequence, tokens, self._pool.append(held.sequence, len(tokens))))
            held.chain.tokens.extend(tokens)
        if self._evened_out and len(rows) == 1 and len(rows[0][1]) == 1:
            slot = self._probe.pages[0] * self._pool.block
            placed.append(Row(self._probe, rows[0][1], Appended((slot,), ())))
        logits: NDArray[np.float32] = self._session.run_rows(placed)[: len(rows), -1]
        return logits

    def statistics(self) -> PoolStatistics:
        """See `KvBackend`."""
        return replace(
            self._pool.statistics(held.sequence for held in self._caches.values()),
            cold=len(self._cold),
            offloaded=self._offloaded,
            returned=self._returned,
        )

    def _named(self, held: _Held) -> CacheId:
        number = CacheId(next(self._numbers))
        self._caches[number] = held
        return number


class PagedGraph(Paged):
    """The portable graph: pages are written and read by standard operators."""

    def __init__(
        self,
        model: Path,
        architecture: Architecture,
        *,
        pages: int,
        block: int,
        provider: Provider,
        bundle: str = "",
        cold_pages: int = 0,
        uses: int = 2,
    ) -> None:
        """`bundle` is the bundle's digest; `uses` is the K of LRU-K for pages that are found again."""
        session = PagedSession(model, architecture, pages=pages, block=block, provider=provider)
        super().__init__(session, pages=pages, block=block, bundle=bundle, cold_pages=cold_pages, uses=uses)

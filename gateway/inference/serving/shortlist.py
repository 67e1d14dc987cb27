"""The rest of a request's n best answers: decoded together, a forward an output, on copies of its cache."""

from __future__ import annotations

from collections.abc import Generator

from gateway.core.spans import Spans
from gateway.inference.bundle.tokenizer import Tokenizer
from gateway.inference.decoding.decode import Distribution, Option, OutputMask
from gateway.inference.decoding.guided import Awaited
from gateway.inference.decoding.nbest import Line, grown, least_share
from gateway.inference.kv.backend import CacheId, KvBackend, PoolExhaustedError
from gateway.inference.serving.work import Logits, Row, Rows, Want


class Shortlist:
    """Makes lists for one bundle."""

    def __init__(self, tokenizer: Tokenizer, masks: tuple[OutputMask, ...], backend: KvBackend) -> None:
        self._codecs, self._masks, self._backend = tokenizer.outputs, masks, backend

    def lines(self, row: Row, awaited: Awaited | None, most: int) -> Generator[Rows, Logits, list[Line]]:
        """`most` lines at the most, first the row's own; that alone where the pool lacks room for others.

        What the row holds, in its cache too, stays as it is.
        """
        lines, reads = [Line()], [row.read[0]]
        held: list[CacheId] = []  # of the lines after the first
        try:
            for at in range(len(self._masks)):
                found = grown(self._level(row, awaited, lines, reads, most), most)
                lines = [each.line for each in found]
                if at + 1 == len(self._masks):
                    break
                forked: list[CacheId] = []
                parents, held = held, forked
                try:
                    for parent, _ in found[1:]:
                        forked.append(self._fork(row, at, parents[parent - 1] if parent else None))
                finally:
                    self._close(parents)
                reads = [row.read[at + 1]]
                if len(lines) > 1:
                    logits = yield Rows(tuple(map(self._want, forked, lines[1:])))
                    reads += [self._masks[at + 1].read(each) for each in logits]
        except PoolExhaustedError:
            return [Line(tuple(row.decoded))]
        finally:
            self._close(held)
        return lines

    def _level(
        self,
        row: Row,
        awaited: Awaited | None,
        lines: list[Line],
        reads: list[Distribution],
        most: int,
    ) -> list[tuple[Line, list[Option]]]:
        """What each line's next output may be; of the first, the row's own, what it is comes first."""
        level: list[tuple[Line, list[Option]]] = []
        shares: list[float] = []
        at = len(lines[0].outputs)
        for line, read in zip(lines, reads, strict=True):
            permitted = self._permitted(row, awaited, line)
            options: list[Option] = []
            if line is lines[0] or permitted != ():
                mask = self._masks[at]
                answer = row.decoded[at] if line is lines[0] else mask.answer(read, permitted)
                options = mask.options(read, answer, permitted, most, least_share(shares, most, line))
            shares += [line.share * option.share for option in options[not level :]]
            level.append((line, options))
        return level

    def _permitted(self, row: Row, awaited: Awaited | None, line: Line) -> Spans | None:
        at = len(line.outputs)
        if awaited is None:
            return row.reach[at]
        return awaited.left(line.raws, self._masks[at].limits, row.reach[at])

    def _fork(self, row: Row, at: int, parent: CacheId | None) -> CacheId:
        """A copy of the cache of a line's outputs before `at`; None: the row's own line."""
        forked = self._backend.fork(row.cache if parent is None else parent)
        if parent is None:
            self._backend.truncate(forked, row.start + at)
        return forked

    def _want(self, cache: CacheId, line: Line) -> Want:
        newest = line.outputs[-1]
        return Want(cache, [self._codecs[len(line.outputs) - 1].encode(float(newest.value))], prefill=False)

    def _close(self, caches: list[CacheId]) -> None:
        for cache in caches:
            self._backend.close(cache)
        caches.clear()

"""Decisions from a bundle: keeps KV between cycles, appends what is new, decodes the outputs."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence as Values
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.block_pool import BlockPool, PoolExhaustedError, PoolStatistics, Sequence
from gateway.inference.bundle import Bundle
from gateway.inference.confidence import calibrated, concentration
from gateway.inference.decode import DecodedOutput, OutputRange, RangeMask
from gateway.inference.messages import Answer, Cycle, NeedHistory, Propose
from gateway.inference.ort_session import PagedSession, Provider
from gateway.inference.tokenizer import Token, Tokenizer

_PREFILL_CHUNK = 48  # tokens; bounds the pages a rebuild needs at once


@dataclass(slots=True)
class _Session:
    """INVARIANT: the pool holds, for positions from `base`, the finished cycles; then this cycle's `tail`."""

    sequence: Sequence = field(default_factory=Sequence)
    cycle: int = -1
    base: int = 0  # position after the last finished cycle
    tail: list[Token] = field(default_factory=list)  # this cycle's tokens that are cached
    first_logits: NDArray[np.float32] | None = None  # those of the first output, for self-tests


class Engine:
    """One model and its sessions, used from one thread."""

    def __init__(
        self,
        bundle: Bundle,
        outputs: tuple[OutputRange, ...],
        *,
        provider: Provider = "cpu",
        pages: int = 256,
    ) -> None:
        manifest = bundle.manifest
        self._bundle = bundle
        self.tokenizer = Tokenizer(manifest)
        self._masks = tuple(
            RangeMask(codec, limits, spec.decoding)
            for codec, limits, spec in zip(self.tokenizer.outputs, outputs, manifest.outputs, strict=True)
        )
        self.paged = PagedSession(
            bundle.model_path, manifest.architecture, pages=pages, block=manifest.block, provider=provider
        )
        # The last page is the aliasing probe's; no sequence ever owns it.
        self._pool = BlockPool(pages - 1, manifest.block)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self.decisions = self.rebuilt = self.evicted = 0

    def propose(self, request: Propose) -> Answer | NeedHistory:
        """The model's register counts for a request, or `NeedHistory` when its last cycle is not held."""
        began = time.perf_counter()
        held = self._sessions.get(request.session)
        if request.history is None and (held is None or request.cycle - held.cycle not in (0, 1)):
            return NeedHistory()
        name = f"{request.session} aside" if request.aside else request.session
        try:
            if request.history is not None or held is None:
                session = self._rebuilt(name, request.history or ())
            else:
                session = self._copied(name, held) if request.aside else held
            self._sessions.move_to_end(name)
            answer = self._answered(session, request, began)
        except InferenceError:
            self.release(name)  # half done: its next request brings the history
            raise
        if request.aside:
            self.release(name)
        return answer

    def _answered(self, session: _Session, request: Propose, began: float) -> Answer:
        pending = self._open_cycle(session, request)
        values = _numbers(request.inputs)
        observed = self.tokenizer.observe(values)
        reused = session.sequence.end - session.sequence.first
        decoded = self._decode(session, pending, observed)
        session.cycle = request.cycle
        self.decisions += 1
        return Answer(
            raws=tuple(output.raw for output in decoded),
            confidence=calibrated(self._bundle.manifest, values, decoded),
            concentration=concentration(decoded),
            masked_out=tuple(output.masked_out for output in decoded),
            clamped=sum(
                not codec.knots[0] <= value <= codec.knots[-1]
                for codec, value in zip(self.tokenizer.inputs, values, strict=True)
            ),
            reused_tokens=reused,
            computed_tokens=session.sequence.end - session.sequence.first - reused,
            engine_ms=(time.perf_counter() - began) * 1e3,
        )

    def _copied(self, name: str, held: _Session) -> _Session:
        """A session over the same pages; what it writes, the held one never reads."""
        copy = replace(held, sequence=self._pool.fork(held.sequence), tail=list(held.tail))
        self._sessions[name] = copy
        return copy

    def release(self, name: str) -> None:
        """Forget a session; unknown names are fine."""
        session = self._sessions.pop(name, None)
        if session is not None:
            self._pool.close(session.sequence)

    def first_logits(self, name: str) -> NDArray[np.float32]:
        """Logits of a session's first output in its newest answer."""
        logits = self._sessions[name].first_logits
        assert logits is not None, "a held session has answered once"  # noqa: S101 - an invariant
        return logits

    def pool_statistics(self) -> PoolStatistics:
        """The KV pool now."""
        return self._pool.statistics()

    @property
    def sessions(self) -> int:
        """Sessions held now."""
        return len(self._sessions)

    def _rebuilt(self, name: str, history: tuple[Cycle, ...]) -> _Session:
        """A session that holds exactly `history`, computed from nothing."""
        self.release(name)
        session = self._sessions[name] = _Session()
        tokens = [self.tokenizer.begin]
        for cycle in history[-self._bundle.history_cycles :]:
            if cycle.inputs:
                tokens += self.tokenizer.observe(_numbers(cycle.inputs))
            tokens += self.tokenizer.in_force(_numbers(cycle.in_force))
        for start in range(0, len(tokens), _PREFILL_CHUNK):
            self._forget_unseen(session)
            self._run(session, tokens[start : start + _PREFILL_CHUNK])
        session.base = session.sequence.end
        self.rebuilt += 1
        return session

    def _open_cycle(self, session: _Session, request: Propose) -> list[Token]:
        """Cut back to where the request's cycle begins; tokens that must come before its measurements."""
        pending: list[Token] = []
        if request.history is None and request.cycle == session.cycle + 1:
            inputs = len(self.tokenizer.inputs)
            cached, actual = session.tail[inputs:], self.tokenizer.in_force(_numbers(request.in_force))
            same = 0
            while same < min(len(cached), len(actual)) and cached[same] == actual[same]:
                same += 1
            keep = session.base + inputs + same
            pending = actual[same:]
            session.base = keep + len(pending)
        else:
            keep = session.base
        self._pool.truncate(session.sequence, keep)
        return pending

    def _decode(self, session: _Session, pending: list[Token], observed: list[Token]) -> list[DecodedOutput]:
        """Append and decode; each output is rounded to its register value before the next one sees it."""
        self._forget_unseen(session)
        logits = session.first_logits = self._run(session, pending + observed)
        session.tail = list(observed)
        decoded: list[DecodedOutput] = []
        for at, (mask, codec) in enumerate(zip(self._masks, self.tokenizer.outputs, strict=True)):
            output = mask.decode(logits)
            decoded.append(output)
            if at + 1 < len(self._masks):
                token = codec.encode(float(output.value))
                logits = self._run(session, [token])
                session.tail.append(token)
        return decoded

    def _run(self, session: _Session, tokens: Values[Token]) -> NDArray[np.float32]:
        """Logits after the last of `tokens`."""
        sequence = session.sequence
        try:
            appended = self._pool.append(sequence, len(tokens))
        except PoolExhaustedError:
            self._evict_others(session)
            appended = self._pool.append(sequence, len(tokens))
        row: NDArray[np.float32] = self.paged.run(sequence, tokens, appended)[-1]
        return row

    def _forget_unseen(self, session: _Session) -> None:
        """Give back pages no query from here on can see.

        Only where a cycle begins: a cycle that is replaced starts again from `base`, never before it.
        """
        sequence = session.sequence
        self._pool.drop_before(sequence, sequence.end - self._bundle.manifest.window.length + 1)

    def _evict_others(self, session: _Session) -> None:
        """Give back the least recently used session but this one; its next request brings its history."""
        for name, other in self._sessions.items():
            if other is not session:
                self.release(name)
                self.evicted += 1
                return


def _numbers(texts: tuple[str, ...]) -> tuple[float, ...]:
    return tuple(float(Fraction(text)) for text in texts)

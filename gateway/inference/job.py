"""One request as a row of forwards: what it wants to append next, and what it makes of the logits.

A job never touches the model: it yields tokens and is sent the logits after the last of them, so that whoever
runs it decides when, and together with whom.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle import Bundle
from gateway.inference.confidence import calibrated, concentration
from gateway.inference.decode import DecodedOutput, RangeMask
from gateway.inference.kv_backend import CacheId, KvBackend
from gateway.inference.messages import Answer, Propose
from gateway.inference.tokenizer import Token, Tokenizer

PREFILL_CHUNK = 48  # tokens; whoever decides waits for one chunk at the most

Logits = NDArray[np.float32]  # [vocabulary]


class Want(NamedTuple):
    """Tokens to append now."""

    tokens: list[Token]
    prefill: bool


Work = Generator[Want, Logits, Answer]


@dataclass(slots=True)
class Session:
    """INVARIANT: the cache holds the finished cycles up to position `base`, then this cycle's `tail`."""

    cache: CacheId
    cycle: int = -1
    base: int = 0  # position after the last finished cycle
    tail: list[Token] = field(default_factory=list)  # this cycle's tokens that are cached
    first_logits: Logits | None = None  # those of the first output, for self-tests


class Writer:
    """Turns requests into work for one bundle."""

    def __init__(
        self, bundle: Bundle, tokenizer: Tokenizer, masks: tuple[RangeMask, ...], backend: KvBackend
    ) -> None:
        self._bundle, self._tokenizer, self._masks, self._backend = bundle, tokenizer, masks, backend

    def history(self, request: Propose) -> list[Token]:
        """Tokens of a request's finished cycles, as far back as they can still influence an answer."""
        tokens = [self._tokenizer.begin]
        for cycle in (request.history or ())[-self._bundle.history_cycles :]:
            if cycle.inputs:
                tokens += self._tokenizer.observe(_numbers(cycle.inputs))
            tokens += self._tokenizer.in_force(_numbers(cycle.in_force))
        return tokens

    def work(self, session: Session, request: Propose) -> Work:
        """The answer to a request, step by step."""
        began = time.perf_counter()
        if request.history is not None:
            yield from self._prefill(session, request)
        pending = self._open_cycle(session, request)
        values = _numbers(request.inputs)
        observed = self._tokenizer.observe(values)
        span = self._backend.span(session.cache)
        reused = span.end - span.first
        self._forget_unseen(session)
        decoded = yield from self._decode(session, pending, observed)
        self._backend.settle(session.cache, session.base)
        session.cycle = request.cycle
        span = self._backend.span(session.cache)
        return Answer(
            raws=tuple(output.raw for output in decoded),
            confidence=calibrated(self._bundle.manifest, values, decoded),
            concentration=concentration(decoded),
            masked_out=tuple(output.masked_out for output in decoded),
            clamped=sum(
                not codec.knots[0] <= value <= codec.knots[-1]
                for codec, value in zip(self._tokenizer.inputs, values, strict=True)
            ),
            reused_tokens=reused,
            computed_tokens=max(0, span.end - span.first - reused),
            engine_ms=(time.perf_counter() - began) * 1e3,
        )

    def _prefill(self, session: Session, request: Propose) -> Generator[Want, Logits]:
        """Fill an empty cache with a request's history."""
        tokens = self.history(request)
        for start in range(self._backend.adopt(session.cache, tokens), len(tokens), PREFILL_CHUNK):
            self._forget_unseen(session)
            yield Want(tokens[start : start + PREFILL_CHUNK], prefill=True)
        session.base = self._backend.span(session.cache).end

    def _open_cycle(self, session: Session, request: Propose) -> list[Token]:
        """Cut back to where the request's cycle begins; tokens that must come before its measurements."""
        pending: list[Token] = []
        if request.history is None and request.cycle == session.cycle + 1:
            inputs = len(self._tokenizer.inputs)
            cached = session.tail[inputs:]
            actual = self._tokenizer.in_force(_numbers(request.in_force))
            same = 0
            while same < min(len(cached), len(actual)) and cached[same] == actual[same]:
                same += 1
            keep = session.base + inputs + same
            pending = actual[same:]
            session.base = keep + len(pending)
        else:
            keep = session.base
        self._backend.truncate(session.cache, keep)
        return pending

    def _decode(
        self, session: Session, pending: list[Token], observed: list[Token]
    ) -> Generator[Want, Logits, list[DecodedOutput]]:
        """Append and decode; each output is rounded to its register value before the next one sees it."""
        logits = session.first_logits = yield Want(pending + observed, prefill=False)
        session.tail = list(observed)
        decoded: list[DecodedOutput] = []
        for at, (mask, codec) in enumerate(zip(self._masks, self._tokenizer.outputs, strict=True)):
            output = mask.decode(logits)
            decoded.append(output)
            if at + 1 < len(self._masks):
                token = codec.encode(float(output.value))
                logits = yield Want([token], prefill=False)
                session.tail.append(token)
        return decoded

    def _forget_unseen(self, session: Session) -> None:
        """Give back memory no query from here on can see.

        Only where a cycle begins: a cycle that is replaced starts again from `base`, never before it.
        """
        end = self._backend.span(session.cache).end
        self._backend.forget_before(session.cache, end - self._bundle.manifest.window.length + 1)


def chunks(tokens: int) -> int:
    """Forwards that prefill so many tokens."""
    return -(-tokens // PREFILL_CHUNK)


def _numbers(texts: tuple[str, ...]) -> tuple[float, ...]:
    try:
        return tuple(float(Fraction(text)) for text in texts)
    except (ValueError, ZeroDivisionError, OverflowError) as exc:
        message = f"a value of {texts} is not a number"
        raise InferenceError(message) from exc

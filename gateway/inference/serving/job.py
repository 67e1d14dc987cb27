"""One request as a row of forwards: its history, its cycle, its outputs, and then the rest of its list."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable

from gateway.core.spans import Spans
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.bundle.tokenizer import Token, Tokenizer
from gateway.inference.decoding.confidence import calibrated, concentration
from gateway.inference.decoding.decode import OutputMask
from gateway.inference.decoding.guided import Awaited
from gateway.inference.decoding.nbest import MOST_PROPOSALS, Line
from gateway.inference.kv.backend import KvBackend, PoolExhaustedError
from gateway.inference.messages import Answer, Cycle, Other, Propose
from gateway.inference.serving.numbers import exact_numbers, numbers
from gateway.inference.serving.sessions import Ahead, Session
from gateway.inference.serving.shortlist import Shortlist
from gateway.inference.serving.standing import Standing
from gateway.inference.serving.work import Hold, Logits, Row, Rows, Want, Work

_LIST_SHARE = 0.25  # of a request's time must be left for others than the first answer
PREFILL_CHUNK = 48  # tokens; whoever decides waits for one chunk at the most


class Writer:
    """Turns requests into work for one bundle."""

    def __init__(
        self, bundle: Bundle, tokenizer: Tokenizer, masks: tuple[OutputMask, ...], backend: KvBackend
    ) -> None:
        self._bundle, self._tokenizer, self._masks, self._backend = bundle, tokenizer, masks, backend
        self.standing = Standing(backend, tokenizer.opening)
        self._shortlist = Shortlist(tokenizer, masks, backend)
        self._hop = bundle.hop_cycles if bundle.manifest.window.mode == "hop" else 0

    def history(self, request: Propose) -> list[Token]:
        """Tokens of a request's finished cycles, as far back as they can still influence an answer.

        A `hop` window's beginning depends on the number of the cycle alone, so that a session that is rebuilt
        answers like the one that was lost.
        """
        cycles = self._bundle.history_cycles
        if self._hop:
            cycles = request.cycle % self._hop + (self._hop if request.cycle >= self._hop else 0)
        return self._tokens(request, cycles)

    def before(self, request: Propose, held: Session | None) -> int:
        """Tokens that have to be computed before a request's own, most of them at the worst."""
        if request.history is not None:
            return len(self.history(request))
        return len(held.missed(request)) * self._bundle.tokens_per_cycle if held is not None else 0

    def _tokens(self, request: Propose, cycles: int) -> list[Token]:
        """What every request begins with, and the newest finished cycles of its history."""
        tokens = list(self._tokenizer.opening)
        history = request.history or ()
        for cycle in history[max(0, len(history) - cycles) :]:
            tokens += self._cycle(cycle)
        return tokens

    def _cycle(self, cycle: Cycle) -> list[Token]:
        inputs = self._tokenizer.observe(numbers(cycle.inputs)) if cycle.inputs else []
        return inputs + self._tokenizer.in_force(numbers(cycle.in_force))

    def idle(self, session: Session) -> Want | None:
        """A chunk of what the session will need later, for when there is nothing else to do."""
        if session.ahead is None or len(session.ahead.tokens) < PREFILL_CHUNK:
            return None
        return Want(session.ahead.cache, session.ahead.tokens[:PREFILL_CHUNK], prefill=True)

    def first_idle(self, sessions: Iterable[Session]) -> tuple[Session, Want] | None:
        """Such a chunk, of the first session that has one and is not moved out."""
        for session in sessions:
            want = self.idle(session)
            if want is not None and (
                self._backend.resident(want.cache) or not self._backend.span(want.cache).end
            ):
                return session, want
        return None

    def work_ahead(self, sessions: Iterable[Session]) -> bool:
        """Compute such a chunk where there is one; False without room for it."""
        found = self.first_idle(sessions)
        if found is None:
            return True
        session, want = found
        try:
            self._backend.forward([(want.cache, want.tokens)])
        except PoolExhaustedError:
            return False
        assert session.ahead is not None, "asked for a moment ago"  # noqa: S101 - an invariant
        del session.ahead.tokens[:PREFILL_CHUNK]
        return True

    def work(self, session: Session, request: Propose, awaited: Awaited | None = None) -> Work:
        """The answer to a request, step by step; decoded along guidance where that is `awaited` and comes."""
        began, arrived = time.perf_counter(), time.monotonic()
        if request.history is not None:
            yield from self._prefill(session, request)
        pending = yield from self._up_to(session, request)
        values = numbers(request.inputs)
        before = session.seen_before(request)
        observed = self._tokenizer.observe(values)
        span = self._backend.span(session.cache)
        reused = span.end - span.first
        self._forget_unseen(session)
        if request.warm:
            yield Want(session.cache, pending + observed, prefill=True)
            session.tail, lines = observed, [Line()]
        else:
            row = yield from self._decode(session, pending + observed, self._reach(request), awaited)
            lines = yield from self._listed(row, request, awaited, arrived)
        self._backend.settle(session.cache, session.base)
        session.cycle, session.seen, session.before = request.cycle, values, before
        span = self._backend.span(session.cache)
        decoded = lines[0].outputs
        sure = [
            calibrated(self._bundle.manifest, values, numbers(request.in_force), before, line.outputs)
            for line in lines
            if line.outputs
        ]
        return Answer(
            raws=tuple(output.raw for output in decoded),
            confidence=sure[0] if sure else 0.0,
            concentration=concentration(decoded) if decoded else 0.0,
            masked_out=tuple(output.masked_out for output in decoded),
            clamped=sum(
                not codec.knots[0] <= value <= codec.knots[-1]
                for codec, value in zip(self._tokenizer.inputs, values, strict=True)
            ),
            reused_tokens=reused,
            computed_tokens=max(0, span.end - span.first - reused),
            engine_ms=(time.perf_counter() - began) * 1e3,
            guided=awaited is not None and awaited.guidance is not None,
            because=awaited.because if awaited is not None else "",
            others=tuple(_other(line, confidence) for line, confidence in zip(lines, sure, strict=False))[1:],
        )

    def _prefill(self, session: Session, request: Propose) -> Generator[Want, Logits]:
        """Fill an empty cache with a request's history."""
        tokens = self.history(request)
        found = self._backend.adopt(session.cache, tokens)
        if found < self.standing.tokens:
            self._backend.close(session.cache)
            session.cache, opening = self.standing.open()
            found = self.standing.tokens - len(opening)
        for start in range(found, len(tokens), PREFILL_CHUNK):
            self._forget_unseen(session)
            yield Want(session.cache, tokens[start : start + PREFILL_CHUNK], prefill=True)
        session.base = self._backend.span(session.cache).end
        if self._hop:
            newest = self._tokens(request, request.cycle % self._hop)
            cache, opening = self.standing.open()
            session.ahead = Ahead(cache, opening + newest[len(self._tokenizer.opening) :])

    def _open_cycle(self, session: Session, request: Propose) -> list[Token]:
        """Close the cycle before with what was in force; tokens that must come before the measurements."""
        inputs = len(self._tokenizer.inputs)
        cached = session.tail[inputs:]
        actual = self._tokenizer.in_force(numbers(request.in_force))
        same = 0
        while same < min(len(cached), len(actual)) and cached[same] == actual[same]:
            same += 1
        if session.ahead is not None:
            session.ahead.tokens += session.tail[:inputs] + actual
        keep = session.base + inputs + same
        session.base = keep + len(actual) - same
        self._backend.truncate(session.cache, keep)
        return actual[same:]

    def _up_to(self, session: Session, request: Propose) -> Generator[Want, Logits, list[Token]]:
        """Leave behind what is finished; tokens that must come before the measurements."""
        if session.missed(request):
            return (yield from self._caught_up(session, request))
        if request.history is not None or request.cycle != session.cycle + 1:
            self._backend.truncate(session.cache, session.base)
            return []
        pending = self._open_cycle(session, request)
        if self._hop:
            yield from self._hopped(session, request.cycle)
            pending = pending if request.cycle % self._hop else []
        return pending

    def _caught_up(self, session: Session, request: Propose) -> Generator[Want, Logits, list[Token]]:
        """Append the cycles that were missed; the one that was answered on, too, as it ended.

        What fits into a chunk with the measurements is left to go with them.
        """
        self._backend.truncate(session.cache, session.base)
        missed, pending = session.missed(request), list[Token]()
        for at, cycle in enumerate(missed, request.cycle - len(missed) + 1):
            tokens = self._cycle(cycle)
            pending += tokens
            if session.ahead is not None:
                session.ahead.tokens += tokens
                yield from self._hopped(session, at)
                pending = pending if at % self._hop else []
        while pending and len(pending) + len(self._tokenizer.inputs) > PREFILL_CHUNK:
            self._forget_unseen(session)
            yield Want(session.cache, pending[:PREFILL_CHUNK], prefill=True)
            pending = pending[PREFILL_CHUNK:]
        session.base = self._backend.span(session.cache).end + len(pending)
        return pending

    def _hopped(self, session: Session, cycle: int) -> Generator[Want, Logits]:
        """Go on from the newest half where the window is full; most of it is computed already."""
        ahead = session.ahead
        if ahead is None or cycle % self._hop:
            return
        for start in range(0, len(ahead.tokens), PREFILL_CHUNK):
            yield Want(ahead.cache, ahead.tokens[start : start + PREFILL_CHUNK], prefill=True)
        self._backend.close(session.cache)
        session.cache, session.base = ahead.cache, self._backend.span(ahead.cache).end
        session.ahead = Ahead(*self.standing.open())

    def _decode(
        self, session: Session, tokens: list[Token], reach: list[Spans | None], awaited: Awaited | None
    ) -> Generator[Want | Hold, Logits, Row]:
        """Append and decode; each output is rounded to its register value before the next one sees it.

        While guidance is on its way all outputs are decoded without. Those that it changes nothing of stay.
        """
        logits = session.first_logits = yield Want(session.cache, tokens, prefill=False)
        session.tail = tokens[-len(self._tokenizer.inputs) :]
        row = Row(session.cache, self._backend.span(session.cache).end, reach, [logits])
        if awaited is not None and awaited.open:
            yield from self._decode_row(session, row, None)
            if awaited.open:
                yield Hold(awaited)
        yield from self._decode_row(session, row, awaited)
        return row

    def _listed(
        self, row: Row, request: Propose, awaited: Awaited | None, arrived: float
    ) -> Generator[Rows, Logits, list[Line]]:
        """The answer, and behind it as many others as are wanted; none where little time is left."""
        late = request.due is not None and time.monotonic() > request.due - _LIST_SHARE * (
            request.due - arrived
        )
        if request.most <= 1 or late:
            return [Line(tuple(row.decoded))]
        return (yield from self._shortlist.lines(row, awaited, min(request.most, MOST_PROPOSALS)))

    def _decode_row(self, session: Session, row: Row, awaited: Awaited | None) -> Generator[Want, Logits]:
        """Decode all outputs, again from the first on that what is `awaited` would have otherwise."""
        for at, (mask, codec) in enumerate(zip(self._masks, self._tokenizer.outputs, strict=True)):
            permitted = row.reach[at]
            if awaited is not None:
                fixed = [each.raw for each in row.decoded[:at]]
                permitted = awaited.counts(fixed, mask.limits, len(self._masks), permitted)
            if len(row.read) == at:
                row.read.append(mask.read(row.logits[at]))
            output = mask.answer(row.read[at], permitted)
            if at < len(row.decoded) and row.decoded[at].raw == output.raw:
                row.decoded[at] = output
                continue
            if len(row.logits) > at + 1:
                self._backend.truncate(session.cache, row.start + at)
                del row.logits[at + 1 :], row.read[at + 1 :], session.tail[len(self._tokenizer.inputs) + at :]
            row.decoded[at:] = [output]
            if at + 1 < len(self._masks):
                token = codec.encode(float(output.value))
                row.logits.append((yield Want(session.cache, [token], prefill=False)))
                session.tail.append(token)

    def _reach(self, request: Propose) -> list[Spans | None]:
        """By output, what a most change leaves around the value in force."""
        if all(mask.limits.most is None for mask in self._masks):
            return [None] * len(self._masks)
        acting = exact_numbers(request.in_force)
        return [mask.limits.reach(value) for mask, value in zip(self._masks, acting, strict=True)]

    def _forget_unseen(self, session: Session) -> None:
        """Give back memory no query from here on can see.

        Only where a cycle begins: a cycle that is replaced starts again from `base`, never before it.
        """
        if self._hop:
            return
        end = self._backend.span(session.cache).end
        self._backend.forget_before(session.cache, end - self._bundle.manifest.window.length + 1)


def _other(line: Line, confidence: float | None) -> Other:
    return Other(
        raws=tuple(line.raws),
        confidence=confidence,
        masked_out=tuple(output.masked_out for output in line.outputs),
        share=line.share,
    )


def chunks(tokens: int) -> int:
    """Forwards that prefill so many tokens."""
    return -(-tokens // PREFILL_CHUNK)

"""What each output has been, on the monotonic clock: ramps, minimum times and `prev` rest on it."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.ports import InForce

_KEEP_S = 30.0  # a ramp kept over every window up to this is exceeded by one step in 30 s over longer ones
_EXACT_S = 1.0  # younger values are listed one by one
_BUCKET_S = 0.5  # older ones as the lowest and highest of each bucket, at the bucket's youngest age


@dataclass(slots=True)
class _Stretch:
    value: Fraction
    since: float
    until: float


@dataclass(slots=True)
class _Attempt:
    """A write that may have arrived. While it is under way, a read-back of an older value proves nothing."""

    value: Fraction
    left_at: float
    under_way: bool = True


class OutputHistory:
    """The record of one output. Unknown history is the worst history (S23): empty until the PLC was read."""

    def __init__(self) -> None:
        # INVARIANT: newest first; only the newest stretch is open (its `until` moves with each confirmation).
        self._stretches: deque[_Stretch] = deque()
        # INVARIANT: oldest first; only the newest may be under way.
        self._pending: list[_Attempt] = []
        self._written_at = float("-inf")

    @property
    def known(self) -> bool:
        """True once a value in force has been read back."""
        return bool(self._stretches)

    @property
    def current(self) -> Fraction | None:
        """The value in force, None while unknown or while a write is unconfirmed."""
        return self._stretches[0].value if self._stretches and not self._pending else None

    def confirm(self, value: Fraction, at: float) -> None:
        """The PLC's working value is `value`, by our own confirmed write."""
        self._written_at = at
        if any(attempt.under_way for attempt in self._pending):
            self._pending.pop()  # the one that is confirmed
        self._settle(value, at)
        self._extend(value, at, restart_hold=False)

    def cancel(self) -> None:
        """The attempt under way surely never left; what was unconfirmed before it still is (S18)."""
        if self._pending and self._pending[-1].under_way:
            self._pending.pop()

    def unconfirmed(self, value: Fraction, at: float) -> None:
        """A write of `value` may or may not have arrived: `prev` is {before, after} until read back (S18)."""
        if self._stretches:
            self._stretches[0].until = at
        self._pending.append(_Attempt(value, at))

    def ended(self, at: float) -> None:
        """The attempt under way ended without an answer: a read-back taken from now on settles it."""
        if self._pending and self._pending[-1].under_way:
            self._pending[-1].under_way = False
            self._pending[-1].left_at = at

    def observe(self, value: Fraction, at: float) -> bool:
        """A read-back taken at `at`; True when it is a change nobody requested (S19)."""
        if at < self._written_at or (self._pending and at < self._pending[-1].left_at):
            return False
        first = not self._stretches
        older = {attempt.value for attempt in self._pending if not attempt.under_way}
        older.add(value if first else self._stretches[0].value)
        if self._pending and self._pending[-1].under_way and value in older:
            return False  # the newest attempt may still arrive
        unrequested = value not in older | {attempt.value for attempt in self._pending}
        if first or value != self._stretches[0].value:
            self._settle(value, at)
        self._pending.clear()  # where the value before is read back, none of them arrived
        self._extend(value, at, restart_hold=first or unrequested)
        return unrequested

    def in_force(self, now: float) -> tuple[InForce, ...]:
        """Values newest first with seconds since each last held; `ceased_s_ago` 0 may be in force now.

        Values older than a second are thinned to what bounds a ramp: never less strict, and twenty decisions
        a second do not make every check carry hundreds of values.
        """
        entries = [InForce(value, 0.0) for value in self.now()]
        bucket, lowest, highest, youngest = -1, Fraction(0), Fraction(0), 0.0
        for stretch in itertools.islice(self._stretches, 1, None):
            ceased = now - stretch.until
            if ceased > _KEEP_S:
                break
            if ceased <= _EXACT_S:
                entries.append(InForce(stretch.value, ceased))
                continue
            if (this := int(ceased / _BUCKET_S)) != bucket:
                entries += _bounds(bucket, lowest, highest, youngest)
                bucket, lowest, highest, youngest = this, stretch.value, stretch.value, ceased
            elif stretch.value < lowest:
                lowest = stretch.value
            elif stretch.value > highest:
                highest = stretch.value
            youngest = min(youngest, ceased)
        return (*entries, *_bounds(bucket, lowest, highest, youngest))

    def now(self) -> tuple[Fraction, ...]:
        """The values that may be in force now, newest first: one, or several while writes are unconfirmed."""
        newest = (self._stretches[0].value,) if self._stretches else ()
        return (*(attempt.value for attempt in reversed(self._pending)), *newest)

    def held_s(self, now: float) -> float:
        """Seconds the output surely has had its present value; 0 when nobody can tell."""
        if not self._stretches or self._pending:
            return 0.0
        return max(0.0, now - self._stretches[0].since)

    def _settle(self, value: Fraction, at: float) -> None:
        """Values that may have been in force until now become the past: ramps count from them too (S6)."""
        for attempt in self._pending:
            if attempt.value != value:
                if self._stretches:
                    self._stretches[0].until = max(self._stretches[0].until, at)
                self._stretches.appendleft(_Stretch(attempt.value, attempt.left_at, at))
        self._pending.clear()

    def _extend(self, value: Fraction, at: float, *, restart_hold: bool) -> None:
        newest = self._stretches[0] if self._stretches else None
        if newest is not None and newest.value == value and not restart_hold:
            newest.until = at
            return
        if newest is not None:
            newest.until = max(newest.until, at)
        self._stretches.appendleft(_Stretch(value, at, at))
        while len(self._stretches) > 1 and at - self._stretches[-1].until > _KEEP_S:
            self._stretches.pop()


def _bounds(bucket: int, lowest: Fraction, highest: Fraction, youngest: float) -> list[InForce]:
    """What a bucket of old values amounts to for a ramp; nothing where there is no bucket."""
    if bucket < 0:
        return []
    if lowest == highest:
        return [InForce(lowest, youngest)]
    return [InForce(highest, youngest), InForce(lowest, youngest)]

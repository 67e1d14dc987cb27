"""What each output has been, on the monotonic clock: ramps, minimum times and `prev` rest on it."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.ports import InForce

_KEEP_S = 120.0  # a full-span ramp of 1 %/s
_EXACT_S = 1.0  # younger values are listed one by one
_TIDY_EVERY = 16  # new stretches


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
        self._out_of_sight_since: float | None = None
        self._in_sight_since = float("-inf")
        self._untidy = 0  # stretches since the last `_tidy`

    @property
    def known(self) -> bool:
        """True once a value in force has been read back, and while the PLC's word on it can be heard."""
        return bool(self._stretches) and self._out_of_sight_since is None

    @property
    def in_sight_since(self) -> float:
        """Since when the values in force have been known without interruption, monotonic s."""
        return self._in_sight_since

    @property
    def current(self) -> Fraction | None:
        """The value in force, None while unknown or while a write is unconfirmed."""
        return self._stretches[0].value if self.known and not self._pending else None

    def out_of_sight(self, at: float) -> None:
        """The PLC's working value cannot be read any more: unknown until it is read back after `at` (S18)."""
        if self._out_of_sight_since is None:
            self._out_of_sight_since = at

    def confirm(self, value: Fraction, at: float) -> None:
        """The PLC's working value is `value`, by our own confirmed write."""
        self._written_at = at
        self._seen(at)
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
        unseen = self._out_of_sight_since is not None
        if self._out_of_sight_since is not None and at < self._out_of_sight_since:
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
        self._seen(at)
        self._extend(value, at, restart_hold=first or unrequested or unseen)
        return unrequested

    def in_force(self, now: float) -> tuple[InForce, ...]:
        """Values newest first with seconds since each last held; `ceased_s_ago` 0 may be in force now.

        Of values older than a second only those are listed that lie outside the range of all younger ones: a
        younger value that is no lower bounds a fall at least as strictly, one that is no higher a rise. So
        nothing that bounds a rate is lost, and twenty decisions a second do not burden every check.
        """
        entries = [InForce(value, 0.0) for value in self.now()]
        if not entries:
            return ()
        lowest, highest = min(self.now()), max(self.now())
        for stretch in itertools.islice(self._stretches, 1, None):
            ceased, value = now - stretch.until, stretch.value
            if ceased > _KEEP_S:
                break
            if ceased <= _EXACT_S or not lowest <= value <= highest:
                entries.append(InForce(value, ceased))
                lowest, highest = min(lowest, value), max(highest, value)
        return tuple(entries)

    def now(self) -> tuple[Fraction, ...]:
        """The values that may be in force now, newest first: one, or several while writes are unconfirmed.

        None at all while nobody can tell.
        """
        if self._out_of_sight_since is not None:
            return ()
        newest = (self._stretches[0].value,) if self._stretches else ()
        return (*(attempt.value for attempt in reversed(self._pending)), *newest)

    def held_s(self, now: float) -> float:
        """Seconds the output surely has had its present value; 0 when nobody can tell."""
        if not self.known or self._pending:
            return 0.0
        return max(0.0, now - self._stretches[0].since)

    def _seen(self, at: float) -> None:
        if self._out_of_sight_since is not None or not self._stretches:
            self._in_sight_since = at
        self._out_of_sight_since = None

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
        self._untidy += 1
        if self._untidy >= _TIDY_EVERY:
            self._tidy(at)

    def _tidy(self, at: float) -> None:
        """Forget what `in_force` never lists again: it lies in the range of younger values, which last."""
        self._untidy = 0
        kept: list[_Stretch] = []
        lowest = highest = self._stretches[0].value
        for stretch in self._stretches:
            value = stretch.value
            if not kept or at - stretch.until <= _EXACT_S or not lowest <= value <= highest:
                kept.append(stretch)
                lowest, highest = min(lowest, value), max(highest, value)
        self._stretches = deque(kept)

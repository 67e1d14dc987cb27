"""What each symbol of a certificate may be, worked out again from the facts and the module's own words (S7).

Whatever is told here is possible, so a premise that leaves a part of it out is too narrow. Of the backup's
actions in later segments nothing is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.recheck.question import Question
from gateway.recheck.source import Range, Source
from gateway.recheck.unknowns import cut, physical_of, range_of, rate_of

_ROUNDED = Fraction(1, 1_000_000)  # seconds: a question tells of times that are up to so much too long


@dataclass(frozen=True, slots=True)
class Possible:
    """What a question leaves possible, by symbol; the first `acting` segments of `cuts` are the hold."""

    sources: Sequence[Source]
    asked: Question
    cuts: Sequence[Fraction]
    acting: int
    step: Fraction

    def too_narrow(self, premises: Mapping[str, Range]) -> Iterator[str]:
        """Premises that leave out what their symbol may be."""
        for name, (low, high) in premises.items():
            reach = self.of(name)
            if reach is not None and not (low <= reach[0] and reach[1] <= high):
                yield f"the premise of `{name}` leaves out values that it may have"

    def of(self, name: str) -> Range | None:
        """Where a symbol may be for certain; None where nothing is known here."""
        kind, _, tag = name.partition(":")
        asked = self.asked
        found: Mapping[str, Sequence[Fraction]] = {
            "x": self._now(tag),
            "new": [asked.proposal[tag]] if tag in asked.proposal else [],
            "old": asked.previous.get(tag, ()),
            "was": asked.previous_inputs.get(tag, ()),
            "rate": self._rates(tag),
            "good": [Fraction(tag not in asked.unseen)],
            "age": [asked.age_s[tag]] if tag in asked.age_s else [],
            "kept_on": self._kept_on(tag),
            "may_rise": self._may_rise(tag),
        }
        values = found[kind] if kind in found else self._of_a_segment(kind[:1], kind[1:], tag)
        return (min(values), max(values)) if values else None

    def _of_a_segment(self, kind: str, number: str, tag: str) -> Sequence[Fraction]:
        if not number.isdigit():
            return ()
        k, asked = int(number), self.asked
        new = [asked.proposal[tag]] if tag in asked.proposal else []
        if kind == "d":
            known = (s.disturbances.get(f"{s.id}.{tag}", ()) for s in self.sources)
            return [end for ends in known for end in ends]
        if kind == "p":
            return self._roaming(tag, self.cuts[k]) if k < len(self.cuts) else ()
        if kind == "m":
            return self._roaming(tag, (self.cuts[k] + self.cuts[k + 1]) / 2) if k + 1 < len(self.cuts) else ()
        if kind == "b":
            return new if k < self.acting else ()
        return [*new, *asked.previous.get(tag, ())] if kind in {"c", "e"} else ()

    def _now(self, tag: str) -> Sequence[Fraction]:
        return self.asked.inputs.get(tag, self.asked.unseen.get(tag, ()))

    def _roaming(self, tag: str, seconds: Fraction) -> Sequence[Fraction]:
        """A variable without dynamics so many seconds after acquisition."""
        now = self._now(tag)
        if not now or any(tag in source.dynamics for source in self.sources) or not seconds:
            return now
        rate, limits = rate_of(self.sources, tag), physical_of(self.sources, tag)
        if rate is not None:
            return cut((now[0] - rate * seconds, now[1] + rate * seconds), limits)
        anywhere = range_of(self.sources, tag) or (now[0], now[1])
        return cut((min(now[0], anywhere[0]), max(now[1], anywhere[1])), limits)

    def _rates(self, tag: str) -> Sequence[Fraction]:
        """Against everything that was in force (S6)."""
        if tag not in self.asked.proposal:
            return ()
        new, past = self.asked.proposal[tag], self.asked.history.get(tag, ())
        found = [(new - old) / self.step for old in self.asked.previous.get(tag, ())]
        since = ((old, max(ago - _ROUNDED, Fraction(0)) + self.step) for old, ago in past if ago > 0)
        return [*found, *((new - old) / seconds for old, seconds in since)]

    def _kept_on(self, tag: str) -> Sequence[Fraction]:
        """On, and not for long enough: 1 where that is certain."""
        held, on = self.asked.held_s.get(tag), [v >= 1 for v in self.asked.previous.get(tag, ())]
        least = max(
            (s.quantities[tag].min_on for s in self.sources if tag in s.quantities), default=Fraction(0)
        )
        return [Fraction(1)] if held is not None and any(on) and held < least else ()

    def _may_rise(self, tag: str) -> Sequence[Fraction]:
        """Off, and not for long enough: 0 where that is certain."""
        held, on = self.asked.held_s.get(tag), [v >= 1 for v in self.asked.previous.get(tag, ())]
        least = max(
            (s.quantities[tag].min_off for s in self.sources if tag in s.quantities), default=Fraction(0)
        )
        return [Fraction(0)] if held is not None and on and not all(on) and held < least else ()

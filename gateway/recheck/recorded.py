"""A recorded decision as the independent checker sees it: its premises worked out again (S7).

Whatever is computed here lies inside what the assumptions allow: readings without rounding, corners instead
of hulls. So a breach found in it is one, and a state set that leaves a part of it out is wrong.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.book import History
from gateway.recheck.check import Question, widened
from gateway.recheck.language import number
from gateway.recheck.source import Range, Source, read_source

_MOST_CORNERS = 2048
_MOMENT = Fraction(1, 1_000_000)  # times are rounded down to it
_LONGEST_GAP_STEPS = 10  # an older set is forgotten (S2)
Box = dict[str, Range]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded of one decision, by tag, in engineering units and seconds.

    `history` lists values in force, newest first, each with the seconds since it ceased (0: may be in force).
    `carried` is the state set of the decision before, `gap_s` older than this one; `kept` is the one that
    this decision left behind. `written` is what was let out; `held_s` is empty where minimum times do not
    count.
    """

    readings: Mapping[str, Fraction]
    age_s: Mapping[str, Fraction]
    history: Mapping[str, Sequence[tuple[Fraction, Fraction]]]
    held_s: Mapping[str, Fraction]
    written: Mapping[str, Fraction]
    hold_s: Fraction
    effect_delay_s: Fraction
    carried: Mapping[str, Range] | None = None
    gap_s: Fraction = Fraction(0)
    kept: Mapping[str, Range] | None = None


@dataclass(frozen=True, slots=True)
class Premises:
    """The state the decision stood on, and where the recorded state set left a part of it out."""

    state: Mapping[str, Range]
    left_out: tuple[str, ...] = field(default=())

    @property
    def contradict(self) -> str:
        """A tag whose reading and prediction have nothing in common; empty when none has."""
        return next((tag for tag, (low, high) in self.state.items() if low > high), "")


def premises(texts: Sequence[str], recorded: Recorded) -> Premises:
    """Reading and prediction met, as S2 has it. Raises `LanguageError` for a module it cannot read."""
    sources = [read_source(text) for text in texts]
    moving = {tag for source in sources for tag in source.next_state}
    ages = {tag: Fraction(0) if tag in moving else age for tag, age in recorded.age_s.items()}
    measured: Box = widened(texts, recorded.readings, ages)
    measured |= {
        tag: quantity.physical
        for source in sources
        for tag, quantity in source.quantities.items()
        if quantity.hidden and quantity.physical is not None
    }
    state = {
        tag: _later(sources, measured, recorded.history, recorded.age_s.get(tag, Fraction(0)))[tag]
        if tag in moving
        else reach
        for tag, reach in measured.items()
    }
    if recorded.carried is not None and recorded.carried.keys() == state.keys():
        longest = _LONGEST_GAP_STEPS * min(source.step for source in sources)
        if 0 <= recorded.gap_s <= longest:
            before = _later(sources, dict(recorded.carried), recorded.history, recorded.gap_s)
            state = {
                tag: (max(low, before[tag][0]), min(high, before[tag][1]))
                for tag, (low, high) in state.items()
            }
    return Premises(state, _left_out(state, recorded.kept))


def question(recorded: Recorded, found: Premises) -> Question:
    """What is asked of the checker: whether the setpoints that went out were permitted."""
    return Question(
        inputs=found.state,
        previous={tag: _values(entries, Fraction(0)) for tag, entries in recorded.history.items()},
        proposal=recorded.written,
        held_s=recorded.held_s,
        hold_s=recorded.hold_s,
        effect_delay_s=recorded.effect_delay_s,
        history={
            tag: [(value, ceased + _MOMENT if ceased else ceased) for value, ceased in entries]
            for tag, entries in recorded.history.items()
        },
    )


def _left_out(state: Mapping[str, Range], kept: Mapping[str, Range] | None) -> tuple[str, ...]:
    if kept is None:
        return ()
    return tuple(
        tag
        for tag, (low, high) in state.items()
        if low <= high and tag in kept and not kept[tag][0] <= low <= high <= kept[tag][1]
    )


def _values(entries: Sequence[tuple[Fraction, Fraction]], since_s: Fraction) -> list[Fraction]:
    return list(dict.fromkeys(value for value, ceased in entries if ceased <= since_s))


def _later(sources: Sequence[Source], start: Box, history: History, seconds: Fraction) -> Box:
    """Where the state may be now, so many seconds later, from the corners of everything unknown."""
    state, left = dict(start), seconds
    while left > 0:
        part = min(left, *(source.step for source in sources))
        acting = {tag: _acting(entries, left, left - part) for tag, entries in history.items()}
        left -= part
        after = {tag: _grown(sources, tag, reach, part) for tag, reach in state.items()}
        for source in sources:
            for tag, step_on in source.next_state.items():
                if tag not in state:
                    continue
                ends = [
                    env[tag] + part / source.step * (number(step_on(env)) - env[tag])
                    for env in _corners(source, state, acting)
                ]
                after[tag] = min(ends), max(ends)
        state = after
    return state


def _acting(entries: Sequence[tuple[Fraction, Fraction]], begins: Fraction, ends: Fraction) -> list[Fraction]:
    """What a value may have been on average between two moments, in seconds ago: one acts until it ceased."""
    throughout = [value for value, ceased in entries if ceased <= ends]
    found = list(throughout)
    for value, ceased in entries:
        if ends < ceased <= begins:
            share = (begins - ceased) / (begins - ends)
            found += [share * value + (1 - share) * other for other in throughout]
    return found


def _corners(
    source: Source, state: Box, acting: Mapping[str, Sequence[Fraction]]
) -> list[dict[str, Fraction]]:
    spread: dict[str, Sequence[Fraction]] = {
        **source.disturbances,
        **{tag: (min(values), max(values)) for tag, values in acting.items() if values},
        **state,
    }
    choices = [tuple(dict.fromkeys(values)) for values in spread.values()]
    total = 1
    for values in choices:
        total *= len(values)
    if total <= _MOST_CORNERS:
        picked = list(itertools.product(*choices))
    else:
        chance = random.Random(0)  # noqa: S311  sampling, repeatable on purpose
        picked = [tuple(chance.choice(values) for values in choices) for _ in range(_MOST_CORNERS)]
    return [dict(zip(spread, corner, strict=True)) for corner in picked]


def _grown(sources: Sequence[Source], tag: str, reach: Range, seconds: Fraction) -> Range:
    """A tag without dynamics, moved by its rate and kept within its physical bounds."""
    low, high = reach
    known = [source.quantities[tag] for source in sources if tag in source.quantities]
    rates = [q.max_rate for q in known if q.max_rate is not None]
    if rates:
        low, high = low - max(rates) * seconds, high + max(rates) * seconds
    for quantity in known:
        if quantity.physical is not None:
            low, high = max(low, quantity.physical[0]), min(high, quantity.physical[1])
        elif not rates and quantity.range is not None:  # it may be anywhere at once (S4)
            low, high = min(low, quantity.range[0]), max(high, quantity.range[1])
    return low, high

"""A recorded decision as the independent checker sees it: its premises worked out again (S7).

Whatever is computed here lies inside what the assumptions allow: readings without rounding, corners instead
of hulls. So a breach found in it is one, and a state set that leaves a part of it out is wrong.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.book import History
from gateway.recheck.check import Question, widened
from gateway.recheck.language import number
from gateway.recheck.past import for_held, one_step_ago
from gateway.recheck.source import Range, Source, read_source
from gateway.recheck.tree import reads
from gateway.recheck.unknowns import cut, physical_of, range_of, rate_of

_MOST_CORNERS = 2048
_MOMENT = Fraction(1, 1_000_000)  # times are rounded down to it
_LONGEST_GAP_STEPS = 10  # an older set is forgotten (S2)
_MOST_CHANGES = 7  # of outputs that are told apart
_TOLD_S = Fraction(120)  # a history goes back so far
EVER = Fraction(10**9)  # seconds: how old what never came is, and how long what may have held for ever
Box = dict[str, Range]
Row = tuple[Fraction | None, Fraction | None]  # since how many seconds surely, possibly; None: not


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded of one decision, by tag, in engineering units and seconds.

    `history` lists values in force, newest first, each with the seconds since it ceased (0: may be in force).
    `quality` names StatusCodes, Good where it names none. `carried` is the state set of the decision before,
    `gap_s` older than this one; `rows` by `MODULE/condition` and `earlier`, sets with their ages, newest
    first, were carried with it. `kept` is the set that this decision left behind. `written` is what was let
    out; `held_s` is empty where minimum times do not count.
    """

    readings: Mapping[str, Fraction]
    quality: Mapping[str, str] = field(default_factory=dict)
    age_s: Mapping[str, Fraction]
    history: Mapping[str, Sequence[tuple[Fraction, Fraction]]]
    held_s: Mapping[str, Fraction]
    written: Mapping[str, Fraction]
    hold_s: Fraction
    effect_delay_s: Fraction
    carried: Mapping[str, Range] | None = None
    gap_s: Fraction = Fraction(0)
    rows: Mapping[str, Row] = field(default_factory=dict)
    earlier: Sequence[tuple[Fraction, Mapping[str, Range]]] = ()
    kept: Mapping[str, Range] | None = None


@dataclass(frozen=True, slots=True)
class Premises:
    """The state the decision stood on, and where the recorded state set left a part of it out.

    `unusable`: why nothing may be permitted on these readings, whatever the rules say; empty when nothing
    stands against it. `unseen` are tags without a usable reading under rules that ask for that.
    """

    state: Mapping[str, Range]
    left_out: tuple[str, ...] = field(default=())
    unusable: tuple[str, ...] = ()
    unseen: frozenset[str] = frozenset()
    previous: Mapping[str, Range] = field(default_factory=dict)  # one step ago
    rows: Mapping[str, tuple[bool, bool]] = field(default_factory=dict)  # surely, possibly long enough

    @property
    def contradict(self) -> str:
        """A tag whose reading and prediction have nothing in common; empty when none has."""
        return next((tag for tag, (low, high) in self.state.items() if low > high), "")


def premises(texts: Sequence[str], recorded: Recorded) -> Premises:
    """Reading and prediction met, as S2 has it. Raises `LanguageError` for a module it cannot read."""
    sources = [read_source(text) for text in texts]
    moving = {tag for source in sources for tag in source.next_state}
    reported = _reported(sources)
    wrong = dict(_unusable(sources, recorded))
    asked = {tag for source in sources for op, tag in reads(source.trees) if op in {"good", "age"}}
    unseen = {tag for tag in wrong if tag in asked and _all_ask(sources, tag)}
    readings = {tag: value for tag, value in recorded.readings.items() if tag in reported}
    beyond = dict(_beyond(sources, {tag: value for tag, value in readings.items() if tag not in wrong}))
    ages = {tag: Fraction(0) if tag in unseen else age for tag, age in recorded.age_s.items()}
    still = {tag: Fraction(0) if tag in moving else age for tag, age in ages.items()}
    seen = {tag: value for tag, value in readings.items() if tag not in unseen}
    measured: Box = widened(texts, seen, still)
    measured |= {tag: reach for tag in unseen if (reach := range_of(sources, tag)) is not None}
    measured |= {
        tag: quantity.physical
        for source in sources
        for tag, quantity in source.quantities.items()
        if quantity.hidden and quantity.physical is not None
    }
    state = {
        tag: _later(sources, measured, recorded.history, ages.get(tag, Fraction(0)))[tag]
        if tag in moving
        else reach
        for tag, reach in measured.items()
    }
    carried = _carried(sources, recorded, state)
    if carried is not None:
        before = _later(sources, dict(carried), recorded.history, recorded.gap_s)
        state = {
            tag: (max(low, before[tag][0]), min(high, before[tag][1])) for tag, (low, high) in state.items()
        }
    return Premises(
        state,
        _left_out(state, recorded.kept),
        unusable=(*(why for tag, why in wrong.items() if tag not in unseen), *beyond.values()),
        unseen=frozenset(unseen),
        previous=one_step_ago(recorded.earlier if carried is not None else (), sources[0].step),
        rows=for_held(sources, recorded.rows if carried is not None else {}),
    )


def _reported(sources: Sequence[Source]) -> frozenset[str]:
    """Tags that the plant reports to some module. A point may have other inputs: no rule asks for them."""
    known = [quantity for source in sources for quantity in source.quantities.values()]
    others = {quantity.tag for quantity in known if quantity.action or quantity.hidden}
    return frozenset(quantity.tag for quantity in known) - others


def _carried(sources: Sequence[Source], recorded: Recorded, state: Box) -> Mapping[str, Range] | None:
    """The set of the decision before, where it still counts."""
    longest = _LONGEST_GAP_STEPS * min(source.step for source in sources)
    if recorded.carried is None or recorded.carried.keys() != state.keys():
        return None
    return recorded.carried if 0 <= recorded.gap_s <= longest else None


def _unusable(sources: Sequence[Source], recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Tags whose reading may not be used, and why."""
    for tag in sorted(_reported(sources)):
        known = [source.quantities[tag] for source in sources if tag in source.quantities]
        quality = recorded.quality.get(tag, "Good")
        oldest = min((q.max_age for q in known if q.max_age is not None), default=EVER)
        if tag not in recorded.readings:
            yield tag, f"`{tag}` has no value"
        elif quality != "Good" and any(quality not in quantity.accepted for quantity in known):
            yield tag, f"`{tag}` is {quality}"
        elif recorded.age_s.get(tag, Fraction(0)) > oldest:
            yield tag, f"`{tag}` is older than the {float(oldest):g} s allowed"


def _beyond(sources: Sequence[Source], readings: Mapping[str, Fraction]) -> Iterator[tuple[str, str]]:
    """Tags that read what no variable of theirs may (S3)."""
    for tag, value in readings.items():
        known = [source.quantities[tag] for source in sources if tag in source.quantities]
        error = max((quantity.error for quantity in known), default=Fraction(0))
        for quantity in known:
            low, high = quantity.range or (value - error, value + error)
            inside = low <= value - error <= value + error <= high
            listed = quantity.listed(value, value)
            if not inside or (listed is not None and value not in listed):
                yield tag, f"`{tag}` reads {float(value):g}, which is beyond what it can be"


def _all_ask(sources: Sequence[Source], tag: str) -> bool:
    """Whether every module that knows a tag accepts that it is not usable."""
    using = [source for source in sources if tag in source.quantities]
    return all({("good", tag), ("age", tag)} & reads(source.trees) for source in using)


def question(recorded: Recorded, found: Premises) -> Question:
    """What is asked of the checker: whether the setpoints that went out were permitted."""
    return Question(
        inputs={tag: reach for tag, reach in found.state.items() if tag not in found.unseen},
        previous={tag: _values(entries, Fraction(0)) for tag, entries in recorded.history.items()},
        proposal=recorded.written,
        held_s=recorded.held_s,
        hold_s=recorded.hold_s,
        effect_delay_s=recorded.effect_delay_s,
        good={tag: tag not in found.unseen for tag in found.state},
        unseen={tag: found.state[tag] for tag in found.unseen if tag in found.state},
        age_s={tag: recorded.age_s.get(tag, EVER) for tag in found.state},
        previous_inputs=found.previous,
        for_held=found.rows,
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
    """Where the state may be now, so many seconds later, from the corners of everything unknown.

    A part of a step is a straight line from its start, so where the parts begin counts: at what is told of
    outputs, and a step after that.
    """
    state = dict(start)
    for begins, ends in itertools.pairwise(_moments(history, seconds)):
        state = _through(sources, state, history, begins, ends)
    return state


def _moments(history: History, seconds: Fraction) -> list[Fraction]:
    """When outputs changed, in seconds ago; of many changes the latest are looked at together."""
    told = {ceased for entries in history.values() for _, ceased in entries if 0 < ceased < seconds}
    changes = sorted(told, reverse=True)[:_MOST_CHANGES]
    if seconds > _TOLD_S:
        changes = [_TOLD_S, *(at for at in changes if at <= _TOLD_S)]
    return [seconds, *changes, Fraction(0)]


def _through(
    sources: Sequence[Source], start: Box, history: History, begins: Fraction, until: Fraction
) -> Box:
    state, left = dict(start), begins
    while left > until:
        part = min(left - until, *(source.step for source in sources))
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
    rate, limits = rate_of(sources, tag), physical_of(sources, tag)
    if rate is not None:
        return cut((reach[0] - rate * seconds, reach[1] + rate * seconds), limits)
    anywhere = range_of(sources, tag) or reach  # it may be anywhere at once (S4)
    return cut((min(reach[0], anywhere[0]), max(reach[1], anywhere[1])), limits)

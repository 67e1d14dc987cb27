"""The register counts that a repair may give each output, and the combinations of turned switches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor

from gateway.core.decision import RegisterValue
from gateway.core.errors import RegisterRangeError
from gateway.core.restraint import Restraint
from gateway.core.spans import Span, Spans, join, meet
from gateway.core.tag import TagId
from gateway.solver.checking.backup import register, toward
from gateway.solver.checking.predict import Facts
from gateway.solver.checking.restrain import Registers
from gateway.solver.decoding.counts import Condition, all_of, line, one_of
from gateway.solver.modules.module import Variable
from gateway.solver.rules.ruleset import RuleSet

_MOST_TOLD_APART = 1_024  # values of a whole number whose registers do not follow each other
SWITCHES = ("bool", "enum")


def domains(rules: RuleSet, facts: Facts, wanted: Registers, restraint: Restraint) -> tuple[Spans, ...]:
    """By place in `RuleSet.actions`. Reals may go anywhere in their range, others where `repair` names them.

    What is not worth writing (`least_change`) is left out: it would be held at the value in force. A switch
    has what is proposed and the values it may be turned to.
    """
    found: list[Spans] = []
    for variable in rules.actions:
        mine = wanted[variable.tag]
        if variable.sort == "real":
            spans = _worth_writing(variable, facts, _in_range(variable), restraint)
        elif variable.tag in rules.repairable:
            spans = join([*_whole(variable), (mine.raw, mine.raw)])
            if variable.sort == "int":
                spans = _worth_writing(variable, facts, spans, restraint)
        else:
            spans = ((mine.raw, mine.raw),)
        found.append(spans)
    return tuple(found)


def turned(rules: RuleSet, allowed: Sequence[Spans], wanted: Registers) -> Iterator[tuple[int, list[Spans]]]:
    """The domains with every switch at one value, and how many are turned; the fewest first."""
    switches = [k for k, v in enumerate(rules.actions) if v.sort in SWITCHES]
    others = {k: _others(allowed[k], wanted[rules.actions[k].tag]) for k in switches}
    able = [k for k in switches if others[k]]
    for many in range(len(able) + 1):
        for places in itertools.combinations(able, many):
            for values in itertools.product(*(others[k] for k in places)):
                here = list(allowed)
                for k in switches:
                    raw = wanted[rules.actions[k].tag].raw
                    here[k] = ((raw, raw),)
                for k, raw in zip(places, values, strict=True):
                    here[k] = ((raw, raw),)
                yield many, here


def within(allowed: Sequence[Spans]) -> tuple[list[Span], list[Condition]]:
    """Domains as a box, and conditions that leave out what lies between their spans."""
    box = [(spans[0][0], spans[-1][1]) for spans in allowed]
    gaps = [
        one_of(all_of((line({k: 1}, high), line({k: -1}, -low))) for low, high in spans)
        for k, spans in enumerate(allowed)
        if len(spans) > 1
    ]
    return box, gaps


def registers(rules: RuleSet, counts: Sequence[int]) -> dict[TagId, RegisterValue]:
    """Counts as register values."""
    return {
        v.tag: RegisterValue(v.tag, raw, v.definition.engineering(raw))
        for v, raw in zip(rules.actions, counts, strict=True)
    }


def held(
    rules: RuleSet, facts: Facts, allowed: Sequence[Spans], tags: Mapping[TagId, Fraction]
) -> list[Spans]:
    """The domains with some outputs at their values in force."""
    return [
        ((_in_force(v, facts),) * 2,) if v.tag in tags else spans
        for v, spans in zip(rules.actions, allowed, strict=True)
    ]


def _others(spans: Spans, wanted: RegisterValue) -> list[int]:
    return [raw for low, high in spans for raw in range(low, high + 1) if raw != wanted.raw]


def _in_range(variable: Variable) -> Spans:
    definition = variable.definition
    ends = sorted((end - definition.offset) / definition.scale for end in variable.range)
    span = ceil(ends[0]), floor(ends[1])
    spans = (span,) if span[0] <= span[1] else ()
    return spans if definition.raw_range is None else meet(spans, (definition.raw_range,))


def _whole(variable: Variable) -> Spans:
    """The registers of the values a switch or a whole number can have."""
    values = variable.whole or ()
    if variable.sort == "int" and abs(variable.definition.scale) == 1 and not variable.definition.offset % 1:
        return _in_range(variable)
    found: list[Span] = []
    for value in values[:_MOST_TOLD_APART]:
        try:
            raw = register(variable, Fraction(value)).raw
        except RegisterRangeError:
            continue
        found.append((raw, raw))
    return join(found)


def _worth_writing(variable: Variable, facts: Facts, spans: Spans, restraint: Restraint) -> Spans:
    """Without changes below the least one; the value in force stays."""
    least, old = restraint.least_change.get(variable.tag), facts.old[variable.tag]
    if least is None or len(old) > 1 or not spans:
        return spans
    definition = variable.definition
    before, reach = (old[0] - definition.offset) / definition.scale, least / abs(definition.scale)
    below, above = floor(before - reach), ceil(before + reach)
    ends = spans[0][0], spans[-1][1]
    sides = [(ends[0], below), (above, ends[1])]
    present = _in_force(variable, facts)
    return join([*meet(spans, tuple(s for s in sides if s[0] <= s[1])), (present, present)])


def _in_force(variable: Variable, facts: Facts) -> int:
    value = facts.old[variable.tag][0]
    return toward(variable, value, value).raw

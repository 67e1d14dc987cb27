"""Lines of a safe set: conditions of the state, tightened by chords over the values in force; and as text."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.tag import TagId, decimal_text
from gateway.solver.analysis.courses import lines
from gateway.solver.language.affine import Affine, Atom, Every, Formula, Some, symbol
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet

_DIGITS = 10**9
_GRID = 100

Chords = tuple[tuple[Fraction, Fraction], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a safe set: `row x + the greatest chord of each action + constant <= 0`, unless a guard."""

    row: Mapping[str, Fraction]
    chords: Mapping[str, Chords]
    constant: Fraction
    guards: tuple[Atom, ...]
    base: Fraction = Fraction(0)  # the rule's own limit, that chords are told against

    def formula(self) -> Formula:
        """Over tags."""
        state = Affine(self.constant, dict(self.row))
        ways = itertools.product(*([(tag, line) for line in c] for tag, c in self.chords.items()))
        parts: list[Formula] = []
        for way in ways:
            total = state
            for tag, (slope, constant) in way:
                total = total.plus(symbol(tag).times(slope)).plus(Affine(constant))
            parts.append(Atom(total))
        return Some((Every(tuple(parts)), *self.guards))


def joined(rules: RuleSet, entries: Sequence[Entry], knots: int) -> list[Entry]:
    """Entries over the same state and one action as one, without the chords that are nowhere the greatest."""
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        tags = tuple(entry.chords)
        alone = () if len(tags) <= 1 else (id(entry),)
        groups.setdefault((tuple(sorted(entry.row.items())), alone), []).append(entry)
    found: list[Entry] = []
    for group in groups.values():
        first = group[0]
        tags_of = {tag for entry in group for tag in entry.chords}
        if len(tags_of) != 1 or len(group) == 1:
            found += group
            continue
        (tag,) = tags_of
        level = ((Fraction(0), Fraction(0)),)
        every = [(s, c + entry.constant) for entry in group for s, c in entry.chords.get(tag, level)]
        low, high = rules.variables[TagId(tag)].range
        chords = {tag: _envelope(every, low, high, knots)}
        found.append(Entry(first.row, chords, Fraction(0), first.guards, first.base))
    return found


def _envelope(
    every: Sequence[tuple[Fraction, Fraction]], low: Fraction, high: Fraction, most_lines: int
) -> Chords:
    """The lines that are the greatest somewhere, or few chords above them."""

    def most(at: Fraction) -> Fraction:
        return max(slope * at + constant for slope, constant in every)

    grid = [low + (high - low) * k / _GRID for k in range(_GRID + 1)]
    kept = {max(every, key=lambda line: line[0] * at + line[1]) for at in grid}
    if len(kept) <= most_lines and _covers(kept, every, low, high):
        return tuple(sorted(kept))
    few = [low + (high - low) * k / most_lines for k in range(most_lines + 1)]
    return tuple(lines(most, few))


def _covers(
    kept: Collection[tuple[Fraction, Fraction]],
    every: Sequence[tuple[Fraction, Fraction]],
    low: Fraction,
    high: Fraction,
) -> bool:
    """Whether the greatest of some lines is the greatest of all: it is so where any two of them cross."""
    lines_of = sorted(kept)
    crossings = {low, high}
    for (s, c), (t, d) in itertools.combinations(lines_of, 2):
        if s != t and low < (c - d) / (t - s) < high:
            crossings.add((c - d) / (t - s))
    return all(max(s * at + c for s, c in every) <= max(s * at + c for s, c in lines_of) for at in crossings)


class Words:
    """Entries as the language writes them, with numbers rounded so that the set only becomes smaller."""

    def __init__(self, rules: RuleSet, module: Module) -> None:
        self._rules = rules
        self._names = {str(tag): name for name, tag in module.tags.items()}

    def entry(self, entry: Entry) -> str:
        """The whole line, as an upper or a lower limit of the state."""
        self._extra = Fraction(0)
        turned = all(factor < 0 for factor in entry.row.values())
        sign = -1 if turned else 1
        left = [self._term(tag, sign * factor) for tag, factor in sorted(entry.row.items())]
        constant, worst = entry.constant, []
        for tag, chords in entry.chords.items():
            if len(chords) == 1:
                ((slope, more),) = chords
                left.append(self._term(tag, sign * slope))
                constant += more
            else:
                base = min(c for _, c in chords) if len(entry.chords) > 1 else entry.base - constant
                constant += base
                lines_of = ", ".join(self._line(tag, slope, c - base) for slope, c in chords)
                worst.append(f"max({lines_of})")
        limit = _up(constant + self._extra) if turned else _down(-(constant + self._extra))
        more_or_less = " + " if turned else " - "
        text = f"{_summed(left)} {'>=' if turned else '<='} {more_or_less.join([limit, *worst])}"
        if not entry.guards:
            return text
        return f"{' and '.join(self._guard(atom) for atom in entry.guards)} implies {text}"

    def _term(self, tag: str, factor: Fraction) -> str:
        rounded = Fraction(round(factor * _DIGITS), _DIGITS)
        low, high = self._rules.variables[TagId(tag)].range
        self._extra += abs(rounded - factor) * max(abs(low), abs(high))
        return self._times(tag, rounded)

    def _times(self, tag: str, factor: Fraction) -> str:
        name = self._names.get(tag, tag)
        if factor == 1:
            return name
        point = self._rules.variables[TagId(tag)].unit in {"degC", "°C"}
        return f"{decimal_text(factor)}*{f'({name} - 0)' if point else name}" if factor else ""

    def _line(self, tag: str, slope: Fraction, constant: Fraction) -> str:
        rounded = Fraction(round(slope * _DIGITS), _DIGITS)
        low, high = self._rules.variables[TagId(tag)].range
        extra = abs(rounded - slope) * max(abs(low), abs(high))
        total = constant + extra
        return _summed([_up(total) if total else "", self._times(tag, rounded)])

    def _guard(self, atom: Atom) -> str:
        """The guard's opposite: where the state condition is asked."""
        assert isinstance(atom.form, Affine)  # noqa: S101  guards are affine
        ((tag, factor),) = atom.form.terms.items()
        limit = -atom.form.constant / factor
        relation = (">=" if factor > 0 else "<=") if atom.strict else (">" if factor > 0 else "<")
        variable = self._rules.variables[TagId(tag)]
        if variable.sort == "bool":
            return self._names[tag] if factor > 0 else f"not {self._names[tag]}"
        return f"{self._names[tag]} {relation} {decimal_text(limit)}"


def _summed(terms: Sequence[str]) -> str:
    text = " + ".join(term for term in terms if term) or "0"
    return text.replace("+ -", "- ")


def _up(value: Fraction) -> str:
    return decimal_text(Fraction(-(-value.numerator * _DIGITS // value.denominator), _DIGITS))


def _down(value: Fraction) -> str:
    return decimal_text(Fraction(value.numerator * _DIGITS // value.denominator, _DIGITS))

"""A safe set by template, for affine dynamics: every rule, made tighter by the worst that can happen to it
until the backup has done its work. What is offered was proved; nothing else is offered.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.tag import TagId, decimal_text
from gateway.solver.affine import Affine, Atom, Every, Formula, Some, negated, symbol, symbols
from gateway.solver.analysis.asking import Allowance, Asking
from gateway.solver.analysis.courses import Bound, Clause, Course, UnboundedError, clause, clauses, lines
from gateway.solver.analysis.findings import NOT_KNOWN, Finding
from gateway.solver.analysis.world import World, between
from gateway.solver.compile import compile_module
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.module import Module, Move
from gateway.solver.ruleset import Rule, RuleSet
from gateway.solver.safeset import UNANSWERED, prove
from gateway.solver.terms import Answer

_MARGINS = (Fraction(1, 10**6), Fraction(1, 10**4), Fraction(1, 10**3))  # of a rule, for each step
_MOST_STEPS = 150
_MOST_KNOTS = 9
_DIGITS = 10**9
_CLOSED = 2  # steps in a row that add nothing

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


def examine(
    rules: RuleSet, module: Module, allowance: Allowance, progress: Callable[[int, int], None]
) -> Finding:
    """A proved safe set for `module` among `rules`, as JSON to paste; or why there is none to offer."""
    if not rules.forms or not rules.backup:
        lacks = "`dynamics`" if not rules.forms else "a `backup`"
        return _none(f"a safe set needs {lacks}", "declare it first")
    why = ""
    for number, margin in enumerate(_MARGINS):
        progress(number, len(_MARGINS))
        try:
            texts = _texts(rules, module, margin, allowance)
        except UnboundedError as exc:
            return _none(str(exc), "then ask again")
        try:
            changed = _with(module, texts)
            proof = prove(
                RuleSet.of([*(m for m in rules.modules if m.id != module.id), changed], 0),
                budget_s=allowance.left_s,
            )
        except ModuleRefusedError as exc:
            return _none(f"the set that was found is no valid module: {exc}", "write one by hand")
        if proof.holds:
            return Finding(
                question="suggestion",
                level="note",
                said=f"a safe set of {len(texts)} lines was found and proved; paste it into the module",
                lines=tuple(_pasted(texts)),
            )
        why = proof.escape
    if why.startswith(UNANSWERED):
        return Finding(
            question="suggestion", level="unknown", said=f"whether the set found is safe: {NOT_KNOWN} ({why})"
        )
    return _none(
        f"no safe set of this kind: {why}", "give the backup more to do, or the limits more distance"
    )


def _none(said: str, todo: str) -> Finding:
    return Finding(
        question="suggestion", level="warning", said=f"no safe set is suggested: {said}", todo=todo
    )


def _pasted(texts: Sequence[str]) -> Iterator[str]:
    yield '"safe_set": ['
    for number, text in enumerate(texts, start=1):
        yield f"  {json.dumps(text)}{',' if number < len(texts) else ''}"
    yield "],"


def _with(module: Module, texts: Sequence[str]) -> Module:
    """The module with this safe set in place of its own; raises `ModuleRefusedError`."""
    document = json.loads(module.text)
    document.pop("terminal", None)
    document.pop("horizon", None)
    document["safe_set"] = list(texts)
    tags = {v.tag: v.definition for v in module.variables.values()}
    return compile_module(json.dumps(document).encode(), module.source, tags)


def _texts(rules: RuleSet, module: Module, margin: Fraction, allowance: Allowance) -> list[str]:
    """The lines of the set for the rules of one module; raises `UnboundedError`."""
    verbatim: list[str] = []
    parts: list[Clause] = []
    for rule in rules.rules:
        looks_back = any("(" in name for name in symbols(rule.formula))
        if rule.module != module.id or not rule.binding or "." in rule.constraint.id or looks_back:
            continue
        found = clauses(rule.formula)
        for part in [clause(atoms, rules) for atoms in found] if found is not None else [None]:
            if part is None or not set(part.form.terms) & rules.forms.keys():
                verbatim.append(rule.constraint.text)
            else:
                parts.append(part)
    words = _Words(rules, module)
    entries = _entries(rules, parts, margin, allowance)
    return list(dict.fromkeys([*(words.entry(entry) for entry in entries), *verbatim]))


def _entries(rules: RuleSet, parts: Sequence[Clause], margin: Fraction, allowance: Allowance) -> list[Entry]:
    """Step after step for all clauses together, until what another step asks follows from what is asked."""
    courses = [Course(rules, part.form, _moves(rules, part, allowance)) for part in parts]
    found: list[list[Entry]] = [[] for _ in parts]
    nothing_new = [0] * len(parts)
    asking = Asking(allowance, _premises(rules))
    for steps in range(_MOST_STEPS):
        if all(count >= _CLOSED for count in nothing_new):
            return [entry for group in found for entry in _joined(rules, group)]
        for index, (part, course) in enumerate(zip(parts, courses, strict=True)):
            entry = _entry(course, course.bound(steps), part, steps, margin)
            if entry is None:  # its guards hold by then, whatever was in force
                nothing_new[index] = _CLOSED
                continue
            answer = asking.possible(negated(entry.formula()))
            if answer is Answer.UNSAT and steps:
                nothing_new[index] += steps > course.settled
                continue
            if answer is Answer.UNKNOWN and not allowance.left_s:
                raise UnboundedError(NOT_KNOWN)
            nothing_new[index] = 0
            asking.add(entry.formula())
            found[index].append(entry)
    msg = "after many steps the worst case still grows: the backup does not bring the plant to rest"
    raise UnboundedError(msg)


def _premises(rules: RuleSet) -> list[Formula]:
    tags = [str(v.tag) for v in (*rules.actions, *(m for m in rules.measured if m.physical is not None))]
    return list(World(rules).premises(*(Atom(symbol(tag)) for tag in tags)))


def _moves(rules: RuleSet, part: Clause, allowance: Allowance) -> dict[str, list[Move]]:
    """What the backup may do with each action where the clause is at its limit."""
    world = World(rules)
    limit = between(part.form, Fraction(0), Fraction(0))
    found: dict[str, list[Move]] = {}
    for variable in rules.actions:
        earlier: list[Formula] = []
        moves: list[Move] = []
        for step in rules.backup:
            move = step.entry.moves.get(str(variable.tag))
            if move is None:
                continue
            guard = [] if step.formula is None else [step.formula]
            asking = Asking(allowance, [*world.premises(limit, *guard, *earlier), limit, *guard, *earlier])
            if asking.ask() is not Answer.UNSAT:
                moves.append(move)
            earlier += [negated(g) for g in guard]
        found[str(variable.tag)] = moves
    return found


def _entry(course: Course, bound: Bound, part: Clause, steps: int, margin: Fraction) -> Entry | None:
    """The bound as chords; None where a guard surely holds after so many steps."""
    knots = {tag: course.knots(tag, _MOST_KNOTS) for tag in bound.actions}
    for guard in part.guards:
        if len(guard.form.symbols) != 1:
            continue
        edge = course.until(guard, steps)
        if edge is None:
            return None
        (tag,) = guard.form.symbols
        assert isinstance(guard.form, Affine)  # noqa: S101  guards are affine
        if tag in knots:
            upward = guard.form.terms[tag] > 0
            inside = tuple(k for k in knots[tag] if (k >= edge if upward else k <= edge))
            knots[tag] = tuple(sorted({edge, *inside}))
    chords: dict[str, Chords] = {}
    for tag, function in bound.actions.items():
        chords[tag] = tuple(dict.fromkeys(lines(function, knots[tag])))
    constant = bound.constant + margin * (steps + 1)
    return Entry(bound.row, chords, constant, part.guards, part.form.constant)


def _joined(rules: RuleSet, entries: Sequence[Entry]) -> list[Entry]:
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
        chords = {tag: _envelope(every, low, high)}
        found.append(Entry(first.row, chords, Fraction(0), first.guards, first.base))
    return found


def _envelope(every: Sequence[tuple[Fraction, Fraction]], low: Fraction, high: Fraction) -> Chords:
    """The lines that are the greatest somewhere, or few chords above them."""

    def most(at: Fraction) -> Fraction:
        return max(slope * at + constant for slope, constant in every)

    count = 10 * _MOST_KNOTS
    grid = [low + (high - low) * k / count for k in range(count + 1)]
    kept = {max(every, key=lambda line: line[0] * at + line[1]) for at in grid}
    if len(kept) <= _MOST_KNOTS and all(most(at) == max(s * at + c for s, c in kept) for at in grid):
        missed = max(most(at) - max(s * at + c for s, c in kept) for at in grid)
        if not missed:
            return tuple(sorted(kept))
    few = [low + (high - low) * k / _MOST_KNOTS for k in range(_MOST_KNOTS + 1)]
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


class _Words:
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
        return _summed([_up(constant + extra), self._times(tag, rounded)])

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

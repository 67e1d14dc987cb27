"""A safe set by template, for affine dynamics: each rule made tighter by its worst case under the backup.

What is offered was proved; nothing else is offered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from gateway.solver.analysis.asking import Allowance, Asking
from gateway.solver.analysis.courses import Clause, Course, UnboundedError, clause, clauses, lines
from gateway.solver.analysis.entries import Chords, Entry, Words, joined
from gateway.solver.analysis.findings import NOT_KNOWN, Finding
from gateway.solver.analysis.world import World, between
from gateway.solver.checking.terms import Answer
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language.affine import Affine, Atom, Formula, negated, symbol, symbols
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module, Move
from gateway.solver.proofs.safeset import UNANSWERED, prove
from gateway.solver.rules.ruleset import RuleSet

_MARGINS = (Fraction(1, 10**6), Fraction(1, 10**4), Fraction(1, 10**3))  # of a rule, for each step
_MOST_STEPS = 150
_KNOTS = (2, 4, 9)  # of an action's part of a line: chords ever nearer to the worst case
_LONGER = 2  # how many times longer the next finer set may take at least
_CLOSED = 2  # steps in a row that add nothing


class _OverBudgetError(Exception):
    """The time is spent before a set was found."""


def examine(
    rules: RuleSet, module: Module, allowance: Allowance, progress: Callable[[int, int], None]
) -> Finding:
    """A proved safe set for `module` among `rules`, as JSON to paste; or why there is none to offer."""
    if not rules.forms or not rules.backup:
        lacks = "`dynamics`" if not rules.forms else "a `backup`"
        return _none(f"a safe set needs {lacks}", "declare it first")
    best: list[str] = []
    why = ""
    for number, knots in enumerate(_KNOTS):
        progress(number, len(_KNOTS))
        left_s = allowance.left_s
        try:
            found, why_not = _found(rules, module, knots, allowance)
        except UnboundedError as exc:
            return _none(str(exc), "mend that, and ask again")
        except _OverBudgetError:
            why = why or f"{UNANSWERED}: no set was found yet"
            break
        best, why = found or best, why or why_not
        if best and allowance.left_s < _LONGER * (left_s - allowance.left_s):
            break  # a finer set takes longer, and would not be done
    return _offered(best, why)


def _found(rules: RuleSet, module: Module, knots: int, allowance: Allowance) -> tuple[list[str], str]:
    """A proved set of so many chords, or why there is none; raises `UnboundedError`."""
    why = ""
    for margin in _MARGINS:
        texts = _texts(rules, module, knots, margin, allowance)
        try:
            others = [m for m in rules.modules if m.id != module.id]
            proof = prove(RuleSet.of([*others, _with(module, texts)], 0), budget_s=allowance.left_s)
        except ModuleRefusedError as exc:
            return [], f"the set that was found is no valid module: {exc}"
        if proof.holds:
            return texts, ""
        why = proof.escape
        if why.startswith(UNANSWERED):
            break
    return [], why


def _offered(texts: Sequence[str], why: str) -> Finding:
    if texts:
        return Finding(
            question="suggestion",
            level="note",
            said=f"a safe set of {len(texts)} lines was found and proved; paste it into the module",
            lines=tuple(_pasted(texts)),
        )
    if why.startswith(UNANSWERED):
        said = f"whether there is a safe set of this kind: {NOT_KNOWN} ({why})"
        return Finding(question="suggestion", level="unknown", said=said)
    return _none(
        f"there is none of this kind: {why}", "give the backup more to do, or the limits more distance"
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
    document = json.loads(module.text.removeprefix("\ufeff"))  # a mark of the byte order, as it may have
    document.pop("terminal", None)
    document.pop("horizon", None)
    document["safe_set"] = list(texts)
    tags = {v.tag: v.definition for v in module.variables.values()}
    return compile_module(json.dumps(document).encode(), module.source, tags)


def _texts(rules: RuleSet, module: Module, knots: int, margin: Fraction, allowance: Allowance) -> list[str]:
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
    words = Words(rules, module)
    entries = _entries(rules, parts, knots, margin, allowance)
    return list(dict.fromkeys([*(words.entry(entry) for entry in entries), *verbatim]))


def _entries(
    rules: RuleSet, parts: Sequence[Clause], knots: int, margin: Fraction, allowance: Allowance
) -> list[Entry]:
    """Step after step for all clauses together, until what another step asks follows from what is asked."""
    courses = [Course(rules, part.form, _moves(rules, part, allowance)) for part in parts]
    found: list[list[Entry]] = [[] for _ in parts]
    nothing_new = [0] * len(parts)
    asking = Asking(allowance, _premises(rules))
    for steps in range(_MOST_STEPS):
        if all(count >= _CLOSED for count in nothing_new):
            return [entry for group in found for entry in joined(rules, group, knots)]
        for index, (part, course) in enumerate(zip(parts, courses, strict=True)):
            entry = _entry(course, part, steps, knots, margin)
            if entry is None:  # its guards hold by then, whatever was in force
                nothing_new[index] = _CLOSED
                continue
            answer = asking.possible(negated(entry.formula()))
            if answer is Answer.UNSAT and steps:
                nothing_new[index] += steps > course.settled
                continue
            if answer is Answer.UNKNOWN and not allowance.left_s:
                raise _OverBudgetError
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


def _entry(course: Course, part: Clause, steps: int, most: int, margin: Fraction) -> Entry | None:
    """The bound as chords; None where a guard surely holds after so many steps."""
    bound = course.bound(steps)
    knots = {tag: course.knots(tag, most) for tag in bound.actions}
    for guard in part.guards:
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

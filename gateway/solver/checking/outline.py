"""Each rule over the few symbols that carry it, whatever the others may be: what Z3 is asked first.

Most symbols of a condensed rule hardly move it: the inflow, the leak and the pump of one second against the
level itself. In a rule's outline they stand at their worst of everything the rule set allows them, which is
one number. What is left is a handful of short rows, and of a rule's many instants only the worst remains.

An outline is only ever stronger than its rule. That is not taken on trust: when a plan is prepared Z3 is
asked of every rule whether a point within those limits keeps the outline and misses the rule. A rule of which
it does not say no, for whatever reason, has no outline. So when Z3 then finds no point of a check's box that
misses an outline, no point of it misses the rule, and nothing but Z3 has added up anything. Where a check's
box goes beyond the limits, or may miss an outline, the hull and then the exact rows are asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from math import gcd

import z3

from gateway.core.tag import TagId
from gateway.solver.checking.condense import Plan
from gateway.solver.checking.motion import grown
from gateway.solver.checking.query import Query
from gateway.solver.checking.shelf import Outlined, Part, Shelf
from gateway.solver.checking.table import Table
from gateway.solver.checking.terms import Answer, Bounds, Budget, asked, leaned_on, solver, state
from gateway.solver.language.affine import Affine, Atom, Every, Form, Formula, Some, atoms, symbols
from gateway.solver.modules.module import Interval
from gateway.solver.rules.interval import SCALE, Box, Row, Rows, inward, outward, scaled
from gateway.solver.rules.ruleset import RuleSet

UNIT = 10**6  # symbols of an outline are in units of 1 / `UNIT`: most numbers fit Z3's short ones
_COARSER = SCALE // UNIT
_LONGEST_FACTOR = 2**31  # beyond it Z3's whole numbers are long, and a row costs tens of milliseconds
_MOST_FOLDED = Fraction(1, 32)  # of what moves a row most: how much may stand at its worst
_MOST_WORK = 200_000  # units of one question; a hundred times what bounds take, and some ten milliseconds
_FACTS = ("rate", "held", "age", "kept_on", "may_rise", "good", "for")

Limits = Mapping[str, Interval]  # by symbol; what has none is never folded
Ends = Mapping[str, tuple[int, int]]  # the same in units of 1 / `SCALE`, rounded outward

_Shape = tuple[bool, tuple[tuple[str, int], ...]] | tuple[str, tuple["_Shape", ...]]


def limits(rules: RuleSet, plan: Plan) -> dict[str, Interval]:
    """Where the rule set says that a symbol lies: disturbances, and ranges as far as they can be left."""
    found: dict[str, Interval] = {}
    for name in plan.symbols:
        kind, _, rest = name.partition(":")
        if rest in rules.disturbances:
            found[name] = rules.disturbances[rest]
            continue
        variable = rules.variables.get(TagId(rest))
        if variable is None or kind in _FACTS:
            continue
        low, high = variable.range if variable.action else variable.roams
        if kind[0] in "mp":
            low, high = grown(variable, variable.roams, plan.instant(len(plan.segments)))
        if variable.physical is not None:
            low, high = min(low, variable.physical[0]), max(high, variable.physical[1])
        found[name] = low, high
    return found


def outlined(part: Part, within: Ends) -> Formula | None:
    """A formula that is nowhere true within the limits where the rule is not.

    None for products, nor where a row has factors that are not short: the hull rounds them.
    """
    if part.products:
        return None
    found: dict[_Shape, list[Fraction]] = {}
    for whole in part.scaled:
        constants: list[Fraction] = []
        shape = _shape(whole.formula, within, constants)
        known = found.get(shape)
        found[shape] = constants if known is None else list(map(max, known, constants))
    made = Every(tuple(_formula(shape, iter(constants)) for shape, constants in found.items()))
    return made if _short(made) else None


def _short(formula: Formula) -> bool:
    forms = (atom.form for atom in atoms(formula))
    return all(
        abs(factor) <= _LONGEST_FACTOR
        for form in forms
        if isinstance(form, Affine)
        for factor in form.terms.values()
    )


def _shape(formula: Row | Rows, within: Ends, constants: list[Fraction]) -> _Shape:
    """What is left of a formula but the constants of its rows, which are added to `constants`."""
    if isinstance(formula, Row):
        constant, factors = _folded(formula, within)
        constants.append(constant)
        return formula.strict, factors
    name = "every" if formula.every else "some"
    return name, tuple(_shape(part, within, constants) for part in formula.parts)


def _formula(shape: _Shape, constants: Iterator[Fraction]) -> Formula:
    kind, parts = shape
    if isinstance(kind, bool):
        terms = {name: Fraction(factor) for name, factor in parts}  # type: ignore[arg-type]
        return Atom(Affine(next(constants), terms), kind)  # type: ignore[arg-type]
    made = tuple(_formula(part, constants) for part in parts)  # type: ignore[arg-type]
    return Every(made) if kind == "every" else Some(made)


def _folded(row: Row, within: Ends) -> tuple[Fraction, tuple[tuple[str, int], ...]]:
    """Constant, rounded up, and whole factors of the row with what hardly moves it at its worst."""
    known = ((n, f, within[n]) for n, f in row.terms if n in within)
    weights = sorted((abs(factor) * (high - low), n) for n, factor, (low, high) in known)
    left = weights[-1][0] if weights else 0
    left *= _MOST_FOLDED.numerator
    constant, kept = row.constant, dict(row.terms)
    for weight, name in weights:
        left -= weight * _MOST_FOLDED.denominator
        if left < 0:
            break
        factor = kept.pop(name)
        constant += factor * within[name][factor > 0]
    size = gcd(*kept.values()) or 1
    upward = -(-constant // (size * _COARSER))
    return Fraction(upward, UNIT), tuple(sorted((n, f // size) for n, f in kept.items()))


class _Prover:
    """Asks Z3 whether outlines keep their rules within the limits."""

    def __init__(self, within: Limits, exact: Query, budget: Budget) -> None:
        self.within, self._exact, self._terms = within, exact, exact.terms
        self._solver = solver(exact.terms.context, budget)

    def keeps(self, rule: int, formula: Formula, names: Iterable[str]) -> bool | None:
        """True when Z3 says that no point misses the rule and keeps the outline; None when it does not say.

        `names` are the rule's symbols.
        """
        self._solver.push()
        try:
            for name in sorted(self.within.keys() & names):
                low, high = self.within[name]
                symbol = self._terms.name(name)
                self._solver.add(symbol >= self._terms.number(low), symbol <= self._terms.number(high))
            state(self._solver, self._terms.formula(formula))
            state(self._solver, self._terms.opposite(self._exact.kept[rule]))
            said = asked(self._solver, [])
            return None if said is Answer.UNKNOWN else said is Answer.UNSAT
        finally:
            self._solver.pop()


class Outline:
    """The outlines of a plan in one solver. What no proposal changes is stated before the others."""

    def __init__(self, rules: RuleSet, plan: Plan, shelf: Shelf, exact: Query, budget: Budget) -> None:
        """`exact` has the plan's rules in full: what an outline must keep."""
        self._terms, self._context = shelf.terms, shelf.context
        self._names: dict[str, z3.ArithRef] = {}
        within = limits(rules, plan)
        self._outline(exact.parts, shelf.kept, _Prover(within, exact, budget))
        found = {
            index: part.outline
            for index, part in enumerate(exact.parts)
            if part.outline is not None and part.outline.formula is not None
        }
        self._solver = solver(self._context, Budget(min(_MOST_WORK, budget.rlimit), timeout_ms=None))
        for name in sorted(
            frozenset[str]().union(*(symbols(o.formula) for o in found.values() if o.formula))
        ):
            self._named(name)
        self._bounds = Bounds(self._context, self._solver, whole=True)
        self._goals = {index: z3.Bool(f"outline misses {index}", self._context) for index in found}
        for index, goal in self._goals.items():
            term = found[index].term
            assert term is not None, "a formula has its term"  # noqa: S101  an invariant
            state(self._solver, self._terms.only_if(goal, self._terms.opposite(term)))
        self._others = {index: self._terms.opposite(goal) for index, goal in self._goals.items()}
        self._any = z3.Bool("outline misses any", self._context)
        state(self._solver, self._terms.only_if(self._any, self._terms.some([*self._goals.values()])))
        self._table = Table([[o.scaled] for o in found.values() if o.scaled is not None])
        self._limits = [(name, *inward(*interval)) for name, interval in within.items()]
        self._solver.push()  # Z3 takes the outlines in now, and not in the first check
        self._solver.pop()
        self._common: dict[str, tuple[int, int]] = {}
        self._box: dict[str, tuple[int, int]] = {}

    def _outline(self, parts: Sequence[Part], known: Mapping[str, bool], prover: _Prover) -> None:
        """See to it that every part has its outline, or is known to have none."""
        fresh = [index for index, part in enumerate(parts) if part.outline is None]
        within = {name: outward(*interval) for name, interval in prover.within.items()}
        for index in fresh:
            part = parts[index]
            if part.outline is not None:
                continue  # another rule says the same
            formula = outlined(part, within)
            keeps: bool | None = False
            if formula is not None:
                keeps = known.get(part.key)
                keeps = prover.keeps(index, formula, part.symbols) if keeps is None else keeps
            if formula is not None and keeps:
                part.outline = Outlined(formula, scaled(formula), self._terms.said(formula, self._row))
            elif keeps is not None:
                part.outline = Outlined()  # else the next set asks again

    def stage(self, box: Box) -> None:
        """State premises that hold for every proposal, in place of all that was stated before."""
        self._solver.pop(self._solver.num_scopes())
        self._common = {}
        self._solver.push()
        self._common = self._stated(box)
        self._solver.push()  # here, so that no proposal waits for it

    def open(self, box: Box) -> None:
        """State the premises of one proposal beside those."""
        self._box = {**self._common, **self._stated(box)}

    def close(self) -> None:
        """Take the proposal's premises away."""
        self._solver.pop()
        self._solver.push()

    def unsettled(self, rules: Collection[int], box: Box) -> list[int]:
        """Those of `rules` of which Z3 was not heard to say that all of the box keeps them.

        `box` is all of the premises that are stated. Where some outline may be missed, intervals choose what
        is asked about; the rest is left to a closer question.
        """
        if not all(low <= box[name][0] and box[name][1] <= high for name, low, high in self._limits):
            return list(rules)
        every = self._goals.keys() & rules
        if self._keeps(every):
            return [index for index in rules if index not in every]
        nearest = self._table.nearest(self._box)
        far = {
            index
            for index, near in zip(self._goals, nearest, strict=True)
            if near is not None and near[1] >= 0 and index in every
        }
        settled = far if far < every and self._keeps(far) else frozenset[int]()
        return [index for index in rules if index not in settled]

    def _keeps(self, rules: AbstractSet[int]) -> bool:
        """True when Z3 says that no point of what is stated misses the outline of any of `rules`."""
        others = [other for index, other in self._others.items() if index not in rules]
        if not rules or asked(self._solver, [self._any, *others]) is not Answer.UNSAT:
            return False
        # premises that contradict each other say nothing of any rule (S3)
        return leaned_on(self._solver, self._any)

    def _stated(self, box: Box) -> dict[str, tuple[int, int]]:
        """State the bounds of the symbols that outlines have, and tell what was stated."""
        found: dict[str, tuple[int, int]] = {}
        for name in box.keys() & self._names.keys():
            low, high = box[name]
            least, most = low // _COARSER, -(-high // _COARSER)
            found[name] = least * _COARSER, most * _COARSER
            self._bounds.state(self._names[name], least, most)
        return found

    def _named(self, name: str) -> z3.ArithRef:
        if name not in self._names:
            self._names[name] = self._terms.name(f"{name} in 1e-6")
        return self._names[name]

    def _row(self, form: Form) -> z3.ArithRef:
        assert isinstance(form, Affine), "products have no outline"  # noqa: S101  an invariant
        parts = ((factor, self._named(name)) for name, factor in form.terms.items())
        return self._terms.total(form.constant * UNIT, parts)

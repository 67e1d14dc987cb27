"""What is prepared of each rule, kept for the next rule set that has the same rule in the same surroundings.

A change of one module leaves the others' rules as they were. Everything that a plan prepares of a rule - its
duties, its terms, its outline and what Z3 said of that - follows from the rule and from what `condense.keys`
puts into the rule's key, and from nothing else of the set. So it is made once for a key, and whoever holds a
plan with that key holds it; with the last such plan it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import z3

from gateway.solver.checking.condense import Duty, Plan
from gateway.solver.checking.terms import Terms
from gateway.solver.language.affine import Affine, Formula, atoms, symbols
from gateway.solver.rules.interval import Row, Rows, Scaled, scaled
from gateway.solver.rules.margin_unit import MarginUnits, margin_units
from gateway.solver.rules.ruleset import Rule, RuleSet

_MOST_NUMBERS = 5_000  # kept by a shelf's terms for the next ones
_MOST_MARGINS = 5_000


@dataclass(slots=True, eq=False, weakref_slot=True)
class Part:
    """One rule of a plan. The terms are made by whoever needs them first, in the shelf's context."""

    # INVARIANT: never changed once it is there; the same key would make the same again.
    key: str
    duties: tuple[Duty, ...]  # of whatever plan it was made for: `Duty.rule` is that plan's
    scaled: tuple[Scaled, ...]
    demands: tuple[Formula, ...]  # the duties' formulas, each once: many instants ask the same
    demand_of: tuple[int, ...]  # by duty
    symbols: frozenset[str]
    products: bool
    exact: tuple[z3.BoolRef, ...] = ()  # by demand, as each is
    hull: z3.BoolRef | None = None
    outline: Outlined | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Outlined:
    """A rule's outline once Z3 was asked of it; all None where there is none, or it may not keep the rule."""

    formula: Formula | None = None
    scaled: Scaled | None = None
    term: z3.BoolRef | None = None


class Shelf:
    """The parts of all plans that live in one Z3 context."""

    def __init__(self) -> None:
        self.context = z3.Context()
        self.terms = Terms(self.context)
        self.kept: dict[str, bool] = {}  # by key, what Z3 said elsewhere of an outline: it keeps its rule
        self._margins: dict[tuple[str, str], MarginUnits] = {}
        self._parts: WeakValueDictionary[str, Part] = WeakValueDictionary()

    def duties(self, key: str) -> tuple[Duty, ...] | None:
        """What a rule demands, where a living plan has it."""
        part = self._parts.get(key)
        return part.duties if part is not None else None

    def margins(self, rules: RuleSet, every: Sequence[Rule]) -> tuple[MarginUnits, ...]:
        """What the margins of some rules measure; of a rule in a file that was there before it is known."""
        if len(self._margins) > _MOST_MARGINS:
            self._margins.clear()
        digests = {module.id: module.digest for module in rules.modules}
        found: list[MarginUnits] = []
        for rule in every:
            key = digests[rule.module], rule.constraint.id
            if key not in self._margins:
                self._margins[key] = margin_units(rule, rules.variables)
            found.append(self._margins[key])
        return tuple(found)

    def parts(self, plan: Plan) -> tuple[Part, ...]:
        """Each rule of a plan, in its order."""
        self.terms.forget(_MOST_NUMBERS)
        mine: list[list[Duty]] = [[] for _ in plan.rules]
        for duty in plan.duties:
            mine[duty.rule].append(duty)
        return tuple(self._part(key, duties) for key, duties in zip(plan.keys, mine, strict=True))

    def _part(self, key: str, duties: Iterable[Duty]) -> Part:
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = _made(key, tuple(duties))
        return found


def _made(key: str, duties: tuple[Duty, ...]) -> Part:
    whole = tuple(scaled(duty.formula) for duty in duties)
    demands: list[Formula] = []
    demand_of: list[int] = []
    known: dict[tuple[Row | Rows, int], int] = {}
    for duty, said in zip(duties, whole, strict=True):
        number = known.setdefault((said.formula, said.unit), len(demands))
        if number == len(demands):
            demands.append(duty.formula)
        demand_of.append(number)
    return Part(
        key,
        duties,
        whole,
        tuple(demands),
        tuple(demand_of),
        frozenset[str]().union(*map(symbols, demands)),
        not all(isinstance(atom.form, Affine) for formula in demands for atom in atoms(formula)),
    )

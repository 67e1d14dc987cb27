"""What a new revision permits that the one in force does not, and the other way round; or a proof of nothing.

The proof is about every state, not only about those in range: what a new revision demands at an instant
implies what the old one demands there. Where `weakening` sees that assumptions narrowed, no proof helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.solver.analysis.asking import Allowance, Asking, has_products, listed
from gateway.solver.analysis.findings import NOT_KNOWN, Finding
from gateway.solver.analysis.world import World, between, holds_at, split_key
from gateway.solver.checking.terms import Answer
from gateway.solver.language.affine import (
    Affine,
    Atom,
    Every,
    Formula,
    Quadratic,
    Some,
    mapped,
    negated,
    symbol,
    symbols,
)
from gateway.solver.modules.module import Module
from gateway.solver.rules.around import Around
from gateway.solver.rules.canonical import formula_text
from gateway.solver.rules.ruleset import Rule, RuleSet

_ALONE = Around()
_RANK = {"informational": 0, "standard": 1, "critical": 2}


@dataclass(frozen=True, slots=True)
class Demand:
    """A rule of the old revision, and those of the new one that are asked wherever it is."""

    rule: Rule
    by: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class NotKept:
    """A demand of the old revision that the new one is not known to make."""

    rule: Rule
    unknown: bool  # no answer in the budget
    example: Mapping[str, str] = field(default_factory=dict)


def not_kept(old: RuleSet, new: RuleSet, allowance: Allowance) -> Iterator[NotKept]:
    """Every demand of `old` that `new` does not make at each instant where `old` does."""
    for demand in _demands(old, new):
        world = World(new, anywhere=True)
        wanted = world.said(demand.rule)
        given = [world.said(rule) for rule in demand.by]
        premises = (*world.premises(wanted, *given), *World(old, anywhere=True).premises(wanted))
        asking = Asking(allowance, [*premises, *given], products=has_products([wanted, *given]))
        asking.add(negated(wanted))
        answer = asking.ask()
        if answer is not Answer.UNSAT:
            same = [r for r in demand.by if r.constraint.id == demand.rule.constraint.id]
            named = symbols(wanted).union(*(symbols(world.said(r)) for r in same))
            point = asking.point(sorted(named)) if answer is Answer.SAT else {}
            yield NotKept(demand.rule, answer is Answer.UNKNOWN, World(new).told(point))


def _demands(old: RuleSet, new: RuleSet) -> Iterator[Demand]:
    """Rules that are there word for word need no proof."""
    kept = {_exactly(rule) for rule in new.rules if rule.binding}
    for rule in old.rules:
        if rule.binding and _exactly(rule) not in kept:
            yield Demand(rule, tuple(r for r in new.rules if _stands_for(new, r, rule)))
    safe = {formula_text(r.formula) for r in new.safe_set}
    moments = tuple(r for r in new.rules if r.binding and _plain_always(r))
    for rule in old.safe_set:
        if formula_text(rule.formula) not in safe:
            yield Demand(rule, (*new.safe_set, *moments))
    ends = {formula_text(r.formula) for r in new.terminal}
    for rule in old.terminal:
        if formula_text(rule.formula) not in ends:
            yield Demand(rule, new.terminal)


def _exactly(rule: Rule) -> tuple[int, bool, str]:
    return _RANK[rule.constraint.kind], rule.constraint.always, formula_text(rule.formula)


def _stands_for(rules: RuleSet, new: Rule, old: Rule) -> bool:
    """Whether a new rule is asked wherever an old one is, of no smaller a state set, and weighs no less."""
    if not new.binding or _RANK[new.constraint.kind] < _RANK[old.constraint.kind]:
        return False
    if not old.constraint.always:
        return True
    if not new.constraint.always or (_looks_back(new) and not _looks_back(old)):
        return False
    return _mixed(rules, new) or not _mixed(rules, old) or not _drifts(rules, new)


def _plain_always(rule: Rule) -> bool:
    return rule.constraint.always and not _looks_back(rule)


def _looks_back(rule: Rule) -> bool:
    return any("(" in name for name in symbols(rule.formula))


def _mixed(rules: RuleSet, rule: Rule) -> bool:
    """Whether variables without dynamics are looked at an instant later, because others move (`condense`)."""
    named = symbols(rule.formula) & {str(v.tag) for v in rules.measured}
    moves = named & rules.forms.keys()
    return bool(moves) and moves != named


def _drifts(rules: RuleSet, rule: Rule) -> bool:
    return any(str(v.tag) in symbols(rule.formula) and str(v.tag) not in rules.forms for v in rules.measured)


@dataclass(frozen=True, slots=True)
class Side:
    """The rules of one revision as they judge a reading."""

    rules: RuleSet
    names: tuple[str, ...]
    permitted: tuple[Formula, ...]  # over the reading: for every state within its error
    violated: tuple[Formula, ...]  # over a state: each negated


def examine(old: Module, new: Module, weaker: Sequence[str], allowance: Allowance) -> Iterator[Finding]:
    """One example newly permitted and one newly refused, or that there is none.

    `weaker` are the reasons why the change may weaken the rules; empty: it is a tightening.
    """
    before, after = RuleSet.of([old], 0), RuleSet.of([new], 0)
    was = f"revision {old.revision}"
    for said in weaker:
        yield Finding(
            question="difference",
            level="warning",
            said=f"against {was} in force: {said}: a weakening, which a person approves",
        )
    permitted = _example(before, after, allowance)
    refused = _example(after, before, allowance)
    yield _told(permitted, f"newly permitted against {was}", weaker=bool(weaker))
    if not weaker:
        yield Finding(
            question="difference",
            level="fine",
            said=f"proved: what this revision permits {was} permits too: a tightening, in force at once",
        )
    yield _told(refused, f"newly refused against {was}", weaker=True)


@dataclass(frozen=True, slots=True)
class Example:
    """A snapshot and the rule that tells the two revisions apart; no rule: there is none, or nobody knows."""

    answer: Answer
    rule: Rule | None = None
    point: Mapping[str, str] = field(default_factory=dict)


def _told(found: Example, what: str, *, weaker: bool) -> Finding:
    if found.answer is Answer.SAT and found.rule is not None:
        rule = found.rule
        return Finding(
            question="difference",
            level="note" if weaker else "unknown",
            subject=rule.constraint.id,
            where=rule.where,
            said=f"{what}: {listed(found.point)} (`{rule.constraint.id}`: `{rule.constraint.text}`)",
            example=found.point,
        )
    if found.answer is Answer.UNSAT:
        return Finding(question="difference", level="fine", said=f"{what}: no snapshot in range")
    return Finding(question="difference", level="unknown", said=f"{what}: {NOT_KNOWN}")


def _example(strict: RuleSet, lax: RuleSet, allowance: Allowance) -> Example:
    """A reading that `lax` permits and `strict` does not."""
    ours, theirs = World(lax), World(strict)
    permits = [_robust(lax, ours.said(r)) for r in lax.rules if r.binding]
    refuses = [(r, theirs.said(r)) for r in strict.rules if r.binding]
    states = [(r, mapped(f, lambda form: form.substituted(_state))) for r, f in refuses]
    every = [*permits, *(f for _, f in refuses)]
    premises = [*ours.premises(*permits), *theirs.premises(*(f for _, f in refuses))]
    premises += [_near(strict, name) for name in sorted(frozenset().union(*map(symbols, every), frozenset()))]
    asking = Asking(allowance, [*premises, *permits], products=has_products(every))
    asking.name("violated", Some(tuple(negated(f) for _, f in states)))
    answer = asking.ask(["violated"])
    if answer is not Answer.SAT:
        return Example(answer)
    names = sorted(frozenset().union(*map(symbols, every)))
    point = asking.point([*names, *(f"state {n}" for n in names)])
    broken = next(r for r, f in states if not holds_at(f, point))
    shown = {n: point[n] for n in names}
    return Example(answer, broken, {**World(strict).told(shown), **_truth(strict, broken, point)})


def _truth(rules: RuleSet, rule: Rule, point: Mapping[str, Fraction]) -> dict[str, str]:
    """Where the true value must lie elsewhere than its reading for the rule to break."""
    found: dict[str, str] = {}
    for variable in rules.measured:
        tag = str(variable.tag)
        if tag in symbols(rule.formula) and point[f"state {tag}"] != point[tag]:
            found[f"true {variable.name}"] = variable.text(point[f"state {tag}"])
    return found


def _state(key: str) -> Affine:
    """A symbol of the true state."""
    return symbol(f"state {key}")


def _near(rules: RuleSet, key: str) -> Formula:
    """How far the state may be from the reading."""
    form, tag = split_key(key)
    error = Fraction(0)
    if form == "now":
        error = next((v.uncertainty for v in rules.measured if v.tag == tag and v.sort == "real"), error)
    return between(_state(key).plus(symbol(key).times(Fraction(-1))), -error, error)


def _robust(rules: RuleSet, formula: Formula) -> Formula:
    """Enough for a formula over the state to hold wherever the state may be around its reading.

    Products of a reading are taken at the reading.
    """
    errors = {str(v.tag): v.uncertainty for v in rules.measured if v.sort == "real"}
    match formula:
        case Atom(form, strict):
            linear = form.linear if isinstance(form, Quadratic) else form
            radius = sum((abs(c) * errors.get(n, Fraction(0)) for n, c in linear.terms.items()), Fraction(0))
            wider = linear.plus(Affine(radius))
            return Atom(Quadratic(wider, form.products) if isinstance(form, Quadratic) else wider, strict)
        case Every(parts):
            return Every(tuple(_robust(rules, part) for part in parts))
        case _:
            return Some(tuple(_robust(rules, part) for part in formula.parts))


def unkept(old: Module, new: Module, allowance: Allowance, around: Around = _ALONE) -> str:
    """Why `new` may not demand all that `old` does; empty where it is proved that it does.

    `around`: the modules in force, of which `old` is one.
    """
    for found in not_kept(around.seen(old), around.seen(new), allowance):
        name = found.rule.constraint.id
        if found.unknown:
            return f"whether `{name}` still demands all that it did is {NOT_KNOWN}"
        return f"`{name}` would permit {listed(found.example)}"
    return ""

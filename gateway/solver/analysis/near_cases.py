"""Cases to paste: permitted, and a little inside the limit of one rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from gateway.core.tag import TagId, decimal_text
from gateway.solver.analysis.asking import Allowance, Asking, has_products
from gateway.solver.analysis.world import World, at_least, at_most, between, split_key
from gateway.solver.checking.terms import Answer
from gateway.solver.language import normal
from gateway.solver.language.affine import Affine, Every, Formula, Some, mapped, negated, symbol, symbols
from gateway.solver.language.syntax import timed
from gateway.solver.modules.cases import violations
from gateway.solver.modules.module import Case, Module
from gateway.solver.rules.ruleset import Rule, RuleSet

Near = Callable[[str, Affine], Formula | None]  # of a key: how far `near_symbol` may be from the form

_MOST_DECIMALS = 7


def suggested(
    rules: RuleSet, rule: Rule, near: Near, just: Callable[[Case], Answer], allowance: Allowance
) -> str:
    """The JSON of a case, judged exactly and found just permitted; empty where none was found.

    `near` says how far a value may be changed; `just` whether a case is just permitted.
    """
    (module,) = rules.modules
    for kept in _kept(rules, rule, module):
        for steady in (True, False):  # first with everything as it was one step ago
            point = _point(rules, rule, near, kept, allowance, steady=steady)
            if point is None:
                continue
            for case in _rounded(module, point):
                if not violations(module, case) and just(case) is Answer.SAT:
                    return _text(module, case)
    return ""


def _kept(rules: RuleSet, rule: Rule, module: Module) -> Iterator[dict[str, Fraction]]:
    """What to leave as an example has it: all but one variable of the rule, all but those, nothing."""
    named = [str(v.tag) for v in rules.variables.values() if {str(v.tag)} & _tags(rule)]
    examples = [{str(module.tags[n]): x for n, x in c.given.items()} for c in module.cases if not c.violated]
    for one in named:
        yield from ({tag: x for tag, x in example.items() if tag != one} for example in examples)
    yield from ({tag: x for tag, x in example.items() if tag not in named} for example in examples)
    yield {}


def _tags(rule: Rule) -> frozenset[str]:
    return frozenset(split_key(key)[1] for key in symbols(rule.formula))


def _point(
    rules: RuleSet,
    rule: Rule,
    near: Near,
    kept: Mapping[str, Fraction],
    allowance: Allowance,
    *,
    steady: bool,
) -> dict[str, Fraction] | None:
    world = World(rules)
    bound = [world.said(r) for r in rules.rules if r.binding]
    wanted = world.said(rule)
    tags = [str(v.tag) for v in rules.variables.values()]
    names = sorted(frozenset(tags).union(*map(symbols, bound)))
    facts = [f for name in names for f in _facts(rules, world, name, steady=steady)]
    premises = world.premises(*(at_least(symbol(name), Fraction(0)) for name in names))
    beyond = [f for name in sorted(symbols(wanted)) if (f := near(name, symbol(name))) is not None]
    missed = mapped(negated(wanted), lambda form: form.substituted(near_symbol))
    held = [between(symbol(tag), value, value) for tag, value in kept.items()]
    every = [*premises, *held, *facts, *bound, *beyond, missed]
    asking = Asking(allowance, every, products=has_products(every))
    return asking.point(names) if asking.ask() is Answer.SAT else None


def near_symbol(key: str) -> Affine:
    """The value a little away from that of a case."""
    return symbol(f"near {key}")


def _facts(rules: RuleSet, world: World, key: str, *, steady: bool) -> Iterator[Formula]:
    """What holds of the past where a case says nothing of it: all was as it is, for ever, and is good."""
    form, tag = split_key(key)
    value = symbol(key)
    match form:
        case "prev" if steady or not rules.variables[TagId(tag)].action:
            yield between(value.plus(symbol(tag).times(Fraction(-1))), Fraction(0), Fraction(0))
        case "kept_on" | "age":
            yield at_most(value, Fraction(0))
        case "may_rise" | "good":
            yield at_least(value, Fraction(1))
        case "for":
            for rule in rules.rules:
                for node in timed(rule.tree):
                    if node.key == key:
                        lasting = mapped(normal.formula(node.operand), world.form)
                        held, not_held = at_least(value, Fraction(1)), at_most(value, Fraction(0))
                        yield Some((Every((lasting, held)), Every((negated(lasting), not_held))))


def _rounded(module: Module, point: Mapping[str, Fraction]) -> Iterator[Case]:
    """The point with ever more decimals; `previous` where an action was otherwise."""
    for places in range(_MOST_DECIMALS):
        given: dict[str, Fraction] = {}
        previous: dict[str, Fraction] = {}
        for name, tag in module.tags.items():
            given[name] = round(point[str(tag)] * 10**places) / Fraction(10**places)
            before = point.get(f"prev({tag})", point[str(tag)])
            if before != point[str(tag)]:
                previous[name] = round(before * 10**places) / Fraction(10**places)
        yield Case(given=given, previous=previous, held_s={}, violated=frozenset(), line=0)


def _text(module: Module, case: Case) -> str:
    told: dict[str, object] = {"given": _values(module, case.given)}
    if case.previous:
        told["previous"] = _values(module, case.previous)
    return json.dumps({**told, "expect": "permitted"}, ensure_ascii=False)


def _values(module: Module, values: Mapping[str, Fraction]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in values.items():
        variable = module.variables[name]
        if variable.sort == "bool":
            found[name] = value >= 1
        elif variable.labels is not None:
            found[name] = variable.text(value)
        else:
            found[name] = decimal_text(value)
    return found

"""S26: every critical constraint has a case that violates it, and one that is just permitted."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.solver.analysis.asking import Allowance, Asking, has_products
from gateway.solver.analysis.findings import NOT_KNOWN, Finding
from gateway.solver.analysis.near_cases import near_symbol, suggested
from gateway.solver.analysis.world import World, between, one_of, split_key
from gateway.solver.checking.terms import Answer
from gateway.solver.language.affine import Affine, Formula, mapped, negated, symbol, symbols
from gateway.solver.modules.cases import case_point
from gateway.solver.modules.module import Case, Module, Variable
from gateway.solver.rules.ruleset import Rule, RuleSet

_SHARE = Fraction(1, 50)  # of the range: how near to its limit a case must be to be just permitted


def examine(rules: RuleSet, allowance: Allowance) -> Iterator[Finding]:
    """One finding for each critical constraint that has a case too few, or one for all of them."""
    (module,) = rules.modules
    wanted = [r for r in rules.rules if r.constraint.kind == "critical" and "." not in r.constraint.id]
    troubles = 0
    for rule in wanted:
        for finding in _of(rules, module, rule, allowance):
            troubles += 1
            yield finding
    if not troubles and wanted:
        yield Finding(
            question="cases",
            level="fine",
            said=f"each critical constraint ({len(wanted)}) has a case that violates it and one that is "
            "just permitted",
        )


def _of(rules: RuleSet, module: Module, rule: Rule, allowance: Allowance) -> Iterator[Finding]:
    name = rule.constraint.id
    if not any(name in case.violated for case in module.cases):
        yield Finding(
            question="cases",
            level="refused",
            subject=name,
            where=rule.where,
            said=f"no case violates critical constraint `{name}`",
            todo="add a case that does, with every constraint it violates in `expect`",
        )
    answers = [_just(rules, module, rule, case, allowance) for case in module.cases if not case.violated]
    if Answer.SAT in answers:
        return
    if Answer.UNKNOWN in answers:
        yield Finding(
            question="cases",
            level="unknown",
            subject=name,
            where=rule.where,
            said=f"whether a case is just permitted by `{name}`: {NOT_KNOWN}",
        )
        return
    offered = suggested(
        rules,
        rule,
        lambda key, centre: _near(rules, key, centre),
        lambda case: _just(rules, module, rule, case, allowance),
        allowance,
    )
    todo = "add a case with `expect` permitted whose values lie at the limit or a little inside it"
    yield Finding(
        question="cases",
        level="refused",
        subject=name,
        where=rule.where,
        said=f"no permitted case lies just inside critical constraint `{name}`: within its error, or a "
        "fiftieth of the range, of its limit",
        todo=f"{todo}, such as:" if offered else todo,
        lines=(offered,) if offered else (),
    )


def _just(rules: RuleSet, module: Module, rule: Rule, case: Case, allowance: Allowance) -> Answer:
    """Whether a permitted case violates the rule once its values are changed by very little."""
    world = World(rules)
    formula = world.said(rule)
    point = {_over_tags(key, module): value for key, value in case_point(module, case).items()}
    near = [_near(rules, key, Affine(point[key])) for key in sorted(symbols(formula)) if key in point]
    asking = Asking(allowance, [f for f in near if f is not None], products=has_products([formula]))
    asking.name("violated", mapped(negated(formula), lambda form: form.substituted(near_symbol)))
    return asking.ask(["violated"])


def _near(rules: RuleSet, key: str, centre: Affine) -> Formula | None:
    """How far a value may be from that of a case, which is `centre`."""
    form, tag = split_key(key)
    variable = rules.variables.get(TagId(tag))
    away = symbol(f"near {key}").plus(centre.times(Fraction(-1)))
    if variable is None or form not in {"now", "prev"}:
        if form in {"age", "held"}:
            return between(away, Fraction(-1), Fraction(1))
        return one_of(symbol(f"near {key}"), (Fraction(0), Fraction(1)))
    if variable.whole is None:
        reach = _reach(variable)
        return between(away, -reach, reach)
    if variable.sort == "int":
        return one_of(away, map(Fraction, (-1, 0, 1)))
    return one_of(symbol(f"near {key}"), map(Fraction, variable.whole))


def _reach(variable: Variable) -> Fraction:
    low, high = variable.range
    return max(variable.uncertainty, abs(variable.definition.scale), (high - low) * _SHARE)


def _over_tags(key: str, module: Module) -> str:
    """`prev(level)` in the module's own names as `prev(TK1.LT101)`."""
    form, name = split_key(key)
    if form == "for" or name not in module.tags:
        return key
    tag = str(module.tags[name])
    return tag if form == "now" else f"{form}({tag})"

"""Whether rules can hold at all, each alone and all together, and whether each of them ever matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gateway.solver.analysis.asking import Allowance, Asking, has_products
from gateway.solver.analysis.findings import NOT_KNOWN, Finding, Level
from gateway.solver.analysis.world import World
from gateway.solver.checking.terms import Answer
from gateway.solver.language import normal
from gateway.solver.language.affine import Formula, mapped, negated
from gateway.solver.language.syntax import renamed
from gateway.solver.rules.ruleset import Rule, RuleSet

_RANK = {"informational": 0, "standard": 1, "critical": 2}


def examine(
    rules: RuleSet, allowance: Allowance, progress: Callable[[], None] = lambda: None
) -> Iterator[Finding]:
    """Findings about single rules, then about all together. `progress` is called once for each rule."""
    world = World(rules)
    judged = [_Judged(index, rule, world.said(rule)) for index, rule in enumerate(rules.rules)]
    guards = {j.index: guard for j in judged if (guard := _guard(rules, j.rule, world)) is not None}
    every = [j.formula for j in judged]
    premises = world.premises(*every, *guards.values())
    asking = Asking(allowance, premises, products=has_products(every))
    for j in judged:
        asking.name(f"+{j.index}", j.formula)
        asking.name(f"-{j.index}", negated(j.formula))
    for index, guard in guards.items():
        asking.name(f"when{index}", guard)
    beyond = _beyond(rules, allowance)
    alone: set[int] = set()
    for j in judged:
        wide = beyond if j.rule.constraint.always else asking
        finding = _alone(asking, wide, j, guarded=j.index in guards)
        if finding is not None:
            alone.add(j.index)
            yield finding
    yield from _together(asking, judged)
    for j in judged:
        progress()
        if j.index not in alone and "." not in j.rule.constraint.id and j.rule.binding:
            yield from _implied(beyond if j.rule.constraint.always else asking, j, judged)


def _beyond(rules: RuleSet, allowance: Allowance) -> Asking:
    """Rules with `always` over what may be predicted, too: no range ends that, only `physical` limits do."""
    world = World(rules, anywhere=True)
    said = {i: world.said(rule) for i, rule in enumerate(rules.rules) if rule.constraint.always}
    guards = {i: guard for i in said if (guard := _guard(rules, rules.rules[i], world)) is not None}
    premises = world.premises(*said.values(), *guards.values())
    asking = Asking(allowance, premises, products=has_products(said.values()))
    for index, guard in guards.items():
        asking.name(f"when{index}", guard)
    for index, formula in said.items():
        asking.name(f"+{index}", formula)
        asking.name(f"-{index}", negated(formula))
    return asking


class _Judged:
    def __init__(self, index: int, rule: Rule, formula: Formula) -> None:
        self.index, self.rule, self.formula = index, rule, formula

    @property
    def id(self) -> str:
        return self.rule.constraint.id


def _guard(rules: RuleSet, rule: Rule, world: World) -> Formula | None:
    when = rule.constraint.when
    if when is None:
        return None
    module = next(m for m in rules.modules if m.id == rule.module)
    formula = normal.formula(renamed(when, module.tags))
    return mapped(formula, world.form)


def _alone(asking: Asking, wide: Asking, j: _Judged, *, guarded: bool) -> Finding | None:
    """What is wrong with one rule by itself; None where nothing is. `wide`: of all states it is asked of."""
    if "." in j.id:
        return None
    holds, fails = asking.ask([f"+{j.index}"]), wide.ask([f"-{j.index}"])
    where = "physical limits" if j.rule.constraint.always else "ranges and physical limits"
    never = wide.ask([f"when{j.index}"]) if guarded else Answer.SAT
    if holds is Answer.UNSAT:
        return _about(
            j, "refused", f"`{j.id}` is violated in every state", "mend it: nothing would ever be permitted"
        )
    if never is Answer.UNSAT:
        return _about(
            j,
            "warning",
            f"`{j.id}` never applies: its `when` holds nowhere in the {where}",
            "mend `when`, or take the constraint out",
        )
    if fails is Answer.UNSAT:
        return _about(
            j,
            "warning",
            f"`{j.id}` forbids nothing: it holds everywhere in the {where}",
            "mend it, or take it out",
        )
    if Answer.UNKNOWN in (holds, fails, never):
        return _about(j, "unknown", f"whether `{j.id}` can hold and can be violated: {NOT_KNOWN}", "")
    return None


def _together(asking: Asking, judged: Sequence[_Judged]) -> Iterator[Finding]:
    names = [f"+{j.index}" for j in judged if j.rule.binding]
    answer = asking.ask(names)
    if answer is Answer.UNKNOWN:
        yield Finding(
            question="satisfiable", level="unknown", said=f"whether all rules can hold together: {NOT_KNOWN}"
        )
    elif answer is Answer.UNSAT:
        blamed = [judged[int(name[1:])] for name in asking.core(names)]
        listed = " and ".join(f"`{j.id}` ({j.rule.where})" for j in blamed)
        yield Finding(
            question="satisfiable",
            level="refused",
            subject=blamed[0].id,
            where=blamed[0].rule.where,
            said=f"{listed} can never hold together: nothing would ever be permitted",
            todo="mend one of them",
        )
    else:
        count = len(names)
        yield Finding(
            question="satisfiable", level="fine", said=f"all {count} rules can hold together on a snapshot"
        )


def _implied(asking: Asking, j: _Judged, judged: Sequence[_Judged]) -> Iterator[Finding]:
    """A rule that others make superfluous: those that are asked wherever it is, and weigh no less."""
    others = [
        o
        for o in judged
        if o.index != j.index
        and o.rule.binding
        and _RANK[o.rule.constraint.kind] >= _RANK[j.rule.constraint.kind]
        and (o.rule.constraint.always or not j.rule.constraint.always)
    ]
    names = [f"-{j.index}", *(f"+{o.index}" for o in others)]
    answer = asking.ask(names)
    if answer is Answer.UNKNOWN:
        yield _about(j, "unknown", f"whether others imply `{j.id}`: {NOT_KNOWN}", "")
    if answer is not Answer.UNSAT:
        return
    blamed = [judged[int(name[1:])] for name in asking.core(names) if name[0] == "+"]
    by = " and ".join(f"`{o.id}` ({o.rule.where})" for o in blamed)
    yield _about(j, "note", f"`{j.id}` is implied by {by}: it refuses nothing that they do not refuse", "")


def _about(j: _Judged, level: Level, said: str, todo: str) -> Finding:
    return Finding(
        question="satisfiable", level=level, subject=j.id, where=j.rule.where, said=said, todo=todo
    )

"""Whether a module fits with those in force: what differs, in words, and what can never hold together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.solver.analysis.asking import Allowance, Asking, decimal, has_products
from gateway.solver.analysis.findings import NOT_KNOWN, Finding
from gateway.solver.analysis.world import World, holds_at
from gateway.solver.checking.terms import Answer
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language.affine import Affine, Formula, symbols
from gateway.solver.modules.module import BackupEntry, Hold, Module, Ramp
from gateway.solver.rules.canonical import formula_text
from gateway.solver.rules.ruleset import Rule, RuleSet


def examine(module: Module, active: Sequence[Module], allowance: Allowance) -> Iterator[Finding]:
    """Findings about `module` in force together with `active`, of which one of the same id is replaced."""
    others = [m for m in active if m.id != module.id]
    if not others:
        return
    told = [finding for other in others for finding in _differs(module, other)]
    yield from told
    try:
        rules = RuleSet.of([*others, module], 0)
    except ModuleRefusedError as exc:
        if not told:
            for problem in exc.problems:
                yield Finding(
                    question="conflicts",
                    level="refused",
                    where=f"{problem.source}:{problem.line}",
                    said=problem.problem,
                )
        return
    yield from together(rules, allowance, only=module.id)


class Met:
    """A snapshot that a rule set permits. Where the next set permits it, too, Z3 need not look for one."""

    def __init__(self) -> None:
        self._point: Mapping[str, Fraction] = {}

    def answers(self, formulas: Iterable[Formula]) -> bool:
        """Whether all of it holds in that snapshot, in exact numbers; not where a symbol is unknown."""
        return all(symbols(f) <= self._point.keys() and holds_at(f, self._point) for f in formulas)

    def learn(self, asking: Asking, formulas: Iterable[Formula]) -> None:
        """Keep the snapshot behind the last `SAT` for what comes next."""
        self._point = asking.rational_point(frozenset[str]().union(*map(symbols, formulas)))


def together(
    rules: RuleSet, allowance: Allowance, only: str = "", met: Met | None = None
) -> Iterator[Finding]:
    """Whether the rules and safe sets of several modules leave any state at all.

    `only`: what is wrong without that module is not told. `met`: what was found for another set.
    """
    world = World(rules)
    bound = [r for r in (*rules.rules, *rules.invariant) if r.binding]
    formulas = [world.said(rule) for rule in bound]
    premises = world.premises(*formulas)
    modules = ", ".join(f"`{m.id}`" for m in rules.modules)
    can = Finding(
        question="conflicts", level="fine", said=f"the rules of {modules} can hold together on a snapshot"
    )
    if met is not None and met.answers((*premises, *formulas)):
        yield can
        return
    asking = Asking(allowance, premises, products=has_products(formulas))
    names = [str(index) for index in range(len(bound))]
    for name, formula in zip(names, formulas, strict=True):
        asking.name(name, formula)
    answer = asking.ask(names)
    if answer is Answer.UNKNOWN:
        yield Finding(
            question="conflicts",
            level="unknown",
            said=f"whether the rules of {modules} can hold together: {NOT_KNOWN}",
        )
        return
    if answer is Answer.SAT:
        if met is not None:
            met.learn(asking, (*premises, *formulas))
        yield can
        return
    blamed = [bound[int(name)] for name in asking.core(names)]
    if only and all(rule.module != only for rule in blamed):
        listed = " and ".join(map(_named, blamed))
        yield Finding(
            question="conflicts",
            level="warning",
            said=f"already without this module nothing is permitted: {listed} can never hold together",
        )
        return
    blamed.sort(key=lambda rule: rule.module != only)
    yield Finding(
        question="conflicts",
        level="refused",
        subject=blamed[0].constraint.id,
        where=blamed[0].where,
        said=f"{' and '.join(map(_named, blamed))} can never hold together: nothing would be permitted",
        todo="mend one of them, or take the other module out first",
    )


def _named(rule: Rule) -> str:
    return f"`{rule.constraint.id}` of module `{rule.module}` ({rule.where}: `{rule.constraint.text}`)"


def _differs(one: Module, other: Module) -> Iterator[Finding]:
    """What the two say differently of the plant and of the backup."""
    if one.step != other.step:
        yield _different(
            one,
            f"its step is {float(one.step):g} s and that of `{other.id}` ({other.source}) is "
            f"{float(other.step):g} s; modules in force together share one step",
            f'write `"step": "{float(other.step):g} s"` and the dynamics for it',
        )
    for name, form in one.forms.items():
        theirs = next((n for n, tag in other.tags.items() if tag == one.tags[name]), None)
        if theirs is None or theirs not in other.forms:
            continue
        said = _unlike(_over_tags(form, one), _over_tags(other.forms[theirs], other), one)
        if said:
            yield _different(
                one,
                f"a step later `{name}` is moved otherwise than in `{other.id}` ({other.source}): {said}; "
                "modules in force together share one dynamics",
                f"use the same dynamics of `{name}` in both, and cover what is not certain by `disturbance`",
            )
    for tag in one.actions:
        mine, others = _policy(one, tag), _policy(other, tag)
        if mine and others and mine != others:
            yield _different(
                one,
                f"its backup for `{tag}` is {_policy_words(one, tag)}, and that of `{other.id}` "
                f"({other.source}) is {_policy_words(other, tag)}; a shared action has one backup",
                "name the same backup in both",
            )


def _different(module: Module, said: str, todo: str) -> Finding:
    return Finding(question="conflicts", level="refused", where=module.source, said=said, todo=todo)


def _over_tags(form: Affine, module: Module) -> dict[str, Fraction]:
    found = {str(module.tags.get(name, TagId(name))): factor for name, factor in form.terms.items()}
    return {**found, "": form.constant} if form.constant else found


def _unlike(mine: dict[str, Fraction], theirs: dict[str, Fraction], module: Module) -> str:
    names = {str(tag): name for name, tag in module.tags.items()}
    parts: list[str] = []
    for tag in sorted(mine.keys() | theirs.keys()):
        here, there = mine.get(tag, Fraction(0)), theirs.get(tag, Fraction(0))
        if here != there:
            what = f"the factor of `{names.get(tag, tag)}`" if tag else "the constant"
            parts.append(f"{what} is {decimal(here)} here and {decimal(there)} there")
    return ", ".join(parts)


def _policy(module: Module, tag: TagId) -> list[tuple[str, str]]:
    name = next((n for n, t in module.tags.items() if t == tag), "")
    return [
        ("" if entry.when is None else _guard(entry, module), str(entry.moves[name]))
        for entry in module.backup
        if name in entry.moves
    ]


def _guard(entry: BackupEntry, module: Module) -> str:
    """A guard as a text that is the same for the same guard over tags."""
    text = "" if entry.formula is None else formula_text(entry.formula)
    for name in sorted(module.tags, key=len, reverse=True):
        text = text.replace(f"*{name}", f"*{module.tags[name]}")
    return text


def _policy_words(module: Module, tag: TagId) -> str:
    name = next(n for n, t in module.tags.items() if t == tag)
    parts: list[str] = []
    for entry in module.backup:
        if name not in entry.moves:
            continue
        move = entry.moves[name]
        match move:
            case Hold():
                said = "`hold`"
            case Ramp(target, rate):
                said = f"`ramp({decimal(target)}, {decimal(rate)})`"
            case _:
                said = f"`{module.variables[name].text(move)}`"
        parts.append(said if entry.when is None else f"{said} where its `when` holds")
    return ", else ".join(parts)

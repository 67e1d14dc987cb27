"""Modules combined into one system over tags: conjunction of rules, never of assumptions (S3)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from gateway.core.errors import ConstraintError
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.affine import Affine, Atom, Every, Formula, mapped, symbol
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.module import BackupEntry, Constraint, Interval, Module, Variable
from gateway.solver.syntax import Connective, Expr, renamed

_KEYED = ("prev", "rate", "kept_on", "may_rise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One constraint or part of a safe set, over tags; `tree` is the whole of it."""

    module: str
    source: str
    names: Mapping[str, str]  # tag to the module's own name, for people
    constraint: Constraint
    tree: Expr
    formula: Formula

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.source}:{self.constraint.line}"


@dataclass(frozen=True, slots=True)
class BackupStep:
    """One entry of the common backup, over tags."""

    tree: Expr | None
    formula: Formula | None
    entry: BackupEntry  # its moves are over tags


@dataclass(frozen=True, kw_only=True)
class RuleSet:
    """All modules in force together. Never changed; the next one has a higher generation."""

    generation: int
    digest: str
    modules: tuple[Module, ...]
    variables: Mapping[TagId, Variable]
    dynamics: Mapping[str, Expr]
    forms: Mapping[str, Affine]
    disturbances: Mapping[str, Interval]
    rules: tuple[Rule, ...]
    safe_set: tuple[Rule, ...]
    backup: tuple[BackupStep, ...]
    repairable: frozenset[TagId]

    @staticmethod
    def of(modules: Iterable[Module], generation: int) -> RuleSet:
        """The combination; raises `ModuleRefusedError` where modules contradict each other."""
        ordered = tuple(sorted(modules, key=lambda m: (-m.priority, m.id)))
        return _combined(ordered, generation)

    @cached_property
    def measured(self) -> tuple[Variable, ...]:
        """Variables the plant reports."""
        return tuple(v for v in self.variables.values() if not v.action)

    @cached_property
    def actions(self) -> tuple[Variable, ...]:
        """Variables the gateway writes."""
        return tuple(v for v in self.variables.values() if v.action)

    @cached_property
    def definitions(self) -> Mapping[TagId, TagDefinition]:
        """The tags the set reads or writes."""
        return {tag: v.definition for tag, v in self.variables.items()}

    @property
    def module_ids(self) -> frozenset[str]:
        """Ids of the modules in force."""
        return frozenset(m.id for m in self.modules)

    @cached_property
    def proof_digest(self) -> str:
        """Digest of everything the invariance of the safe set depends on, and of nothing else."""
        content = {
            "variables": {
                str(tag): [
                    v.sort,
                    v.action,
                    *map(str, v.range),
                    str(v.error),
                    str(v.max_rate),
                    str(v.physical),
                    str(v.definition.scale),
                ]
                for tag, v in sorted(self.variables.items())
            },
            "step": str(self.modules[0].step) if self.modules else "",
            "dynamics": {name: _form_text(form) for name, form in sorted(self.forms.items())},
            "disturbances": {
                n: [str(low), str(high)] for n, (low, high) in sorted(self.disturbances.items())
            },
            "rules": sorted(
                [r.constraint.kind, r.constraint.always, _formula_text(r.formula)]
                for r in self.rules
                if r.constraint.kind != "informational"
            ),
            "safe_set": sorted(_formula_text(r.formula) for r in self.safe_set),
            "backup": [
                [
                    _formula_text(s.formula) if s.formula is not None else "",
                    sorted(map(str, s.entry.moves.items())),
                ]
                for s in self.backup
            ],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def armable(self, actions: Iterable[TagId], proved: Collection[str]) -> str:
        """Why a point that writes `actions` may not be armed; empty when it may (S1, S5, S11).

        `proved` are the proof digests that are committed or were proved at load.
        """
        if not self.modules:
            return "no constraint module is in force, and an empty rule set permits nothing"
        for tag in actions:
            if tag not in self.variables:
                return f"no module in force governs `{tag}`"
        if not self.forms:
            return "no module in force has dynamics: its rules claim the snapshot only"
        if not self.backup or not self.safe_set:
            return "no module in force declares a `backup` and a `safe_set`"
        if self.proof_digest not in proved:
            return "the safe set of the modules in force is not proved invariant under their backup"
        return ""


def _combined(modules: tuple[Module, ...], generation: int) -> RuleSet:
    problems: list[ConstraintError] = []
    _distinct(modules, problems)
    variables: dict[TagId, Variable] = {}
    for module in modules:
        for variable in module.variables.values():
            known = variables.get(variable.tag)
            try:
                variables[variable.tag] = variable if known is None else _joined(known, variable)
            except ValueError as exc:
                problems.append(ConstraintError(module.source, 1, 1, str(exc)))
    dynamics, forms, disturbances = _dynamics(modules, problems)
    backup = _backup(modules, problems)
    if problems:
        raise ModuleRefusedError(tuple(problems))
    content = "".join(f"{m.id} {m.revision} {m.digest} {m.priority}\n" for m in modules)
    return RuleSet(
        generation=generation,
        digest=hashlib.sha256(content.encode()).hexdigest(),
        modules=modules,
        variables=variables,
        dynamics=dynamics,
        forms=forms,
        disturbances=disturbances,
        rules=tuple(_rule(m, c) for m in modules for c in m.rules),
        safe_set=tuple(_rule(m, c) for m in modules for c in m.safe_set),
        backup=backup,
        repairable=frozenset(m.tags[name] for m in modules for name in m.repair),
    )


def _distinct(modules: tuple[Module, ...], problems: list[ConstraintError]) -> None:
    seen: dict[str, Module] = {}
    for module in modules:
        if module.id in seen:
            problems.append(
                ConstraintError(
                    module.source, 1, 1, f"module `{module.id}` is already in `{seen[module.id].source}`"
                )
            )
        seen[module.id] = module
        if module.step != modules[0].step:
            problems.append(
                ConstraintError(
                    module.source,
                    1,
                    1,
                    f"its step of {float(module.step):g} s differs from {float(modules[0].step):g} s of "
                    f"`{modules[0].id}`; unlike steps are not built yet",
                )
            )


def _joined(one: Variable, other: Variable) -> Variable:
    """Both modules' view of a tag: the weaker of each assumption, the stronger of each demand."""
    if (one.sort, one.action) != (other.sort, other.action):
        msg = (
            f"`{other.name}` ({other.tag}) is declared otherwise than `{one.name}` of another module in force"
        )
        raise ValueError(msg)
    ages = [age for age in (one.max_age, other.max_age) if age is not None]
    physical = one.physical or other.physical
    if one.physical is not None and other.physical is not None:
        physical = (min(one.physical[0], other.physical[0]), max(one.physical[1], other.physical[1]))
    rates = [rate for rate in (one.max_rate, other.max_rate) if rate is not None]
    low, high = max(one.range[0], other.range[0]), min(one.range[1], other.range[1])
    if low > high:
        msg = f"the ranges of `{other.name}` ({other.tag}) have nothing in common"
        raise ValueError(msg)
    return replace(
        one,
        range=(low, high),
        error=max(one.error, other.error),
        max_age=min(ages, default=None),
        max_rate=max(rates, default=None),
        physical=physical,
        min_on=max(one.min_on, other.min_on),
        min_off=max(one.min_off, other.min_off),
        accept_quality=one.accept_quality & other.accept_quality,
    )


def _dynamics(
    modules: tuple[Module, ...], problems: list[ConstraintError]
) -> tuple[dict[str, Expr], dict[str, Affine], dict[str, Interval]]:
    trees: dict[str, Expr] = {}
    forms: dict[str, Affine] = {}
    bands: dict[str, Interval] = {}
    for module in modules:
        for name, form in module.forms.items():
            tag = module.tags[name]
            over_tags = form.substituted(lambda n, m=module: symbol(_renamed(n, m)))  # type: ignore[misc]
            if forms.setdefault(tag, over_tags) != over_tags:
                problems.append(
                    ConstraintError(
                        module.source,
                        1,
                        1,
                        f"its dynamics of `{name}` differ from those of another module in force; "
                        "differing dynamics are not built yet",
                    )
                )
            trees.setdefault(tag, renamed(module.dynamics[name], module.tags))
        for name, (low, high) in module.disturbances.items():
            known = bands.get(name, (low, high))
            bands[name] = (min(known[0], low), max(known[1], high))
    return trees, forms, bands


def _backup(modules: tuple[Module, ...], problems: list[ConstraintError]) -> tuple[BackupStep, ...]:
    """The backup of the first module that has one; the others must say the same for shared actions."""
    steps: list[BackupStep] = []
    policies: dict[TagId, list[tuple[str, str]]] = {}
    for module in modules:
        mine: dict[TagId, list[tuple[str, str]]] = {}
        found = [_step(module, entry) for entry in module.backup]
        for step in found:
            guard = _formula_text(step.formula) if step.formula is not None else ""
            for name, move in step.entry.moves.items():
                mine.setdefault(TagId(name), []).append((guard, str(move)))
        for tag, policy in mine.items():
            if policies.setdefault(tag, policy) != policy:
                problems.append(
                    ConstraintError(
                        module.source,
                        1,
                        1,
                        f"its backup for `{tag}` differs from that of another module in force",
                    )
                )
        fresh = {tag for tag in mine if all(tag not in s.entry.moves for s in steps)}
        for step in found:
            moves = {name: move for name, move in step.entry.moves.items() if name in fresh}
            if moves:
                steps.append(replace(step, entry=replace(step.entry, moves=moves)))
    return tuple(steps)


def _step(module: Module, entry: BackupEntry) -> BackupStep:
    moves = {str(module.tags[name]): move for name, move in entry.moves.items()}
    return BackupStep(
        None if entry.when is None else renamed(entry.when, module.tags),
        None if entry.formula is None else _over_tags(entry.formula, module),
        replace(entry, moves=moves),
    )


def _rule(module: Module, constraint: Constraint) -> Rule:
    whole = constraint.require
    if constraint.when is not None:
        whole = Connective(whole.at, "implies", constraint.when, whole)
    return Rule(
        module=module.id,
        source=module.source,
        names={str(tag): name for name, tag in module.tags.items()},
        constraint=constraint,
        tree=renamed(whole, module.tags),
        formula=_over_tags(constraint.formula, module),
    )


def _over_tags(formula: Formula, module: Module) -> Formula:
    return mapped(formula, lambda form: form.substituted(lambda name: symbol(_renamed(name, module))))


def _renamed(key: str, module: Module) -> str:
    """`level` or `prev(level)` with the tag in place of the module's name."""
    for form in _KEYED:
        if key.startswith(f"{form}("):
            name = key[len(form) + 1 : -1]
            return f"{form}({module.tags[name]})"
    return str(module.tags.get(key, TagId(key)))


def _form_text(form: Affine) -> str:
    terms = " + ".join(f"{factor}*{name}" for name, factor in sorted(form.terms.items()))
    return f"{form.constant} + {terms}"


def _formula_text(formula: Formula) -> str:
    return str(_plain(formula))


def _plain(formula: Formula) -> list[object]:
    if isinstance(formula, Atom):
        return [_form_text(formula.form), formula.strict]
    return ["every" if isinstance(formula, Every) else "some", [_plain(part) for part in formula.parts]]

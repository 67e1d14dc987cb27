"""Modules combined into one system over tags: conjunction of rules, never of assumptions (S3)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from gateway.core.errors import ConstraintError
from gateway.core.override import Override, plain
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language import normal, steady
from gateway.solver.language.affine import Affine, negated, symbols
from gateway.solver.language.syntax import Expr, references, renamed, timed
from gateway.solver.modules.module import Interval, Module, Ramp, Variable
from gateway.solver.rules.canonical import formula_text
from gateway.solver.rules.disturbing import mistaken
from gateway.solver.rules.interval import Scaled, scaled
from gateway.solver.rules.joining import joined
from gateway.solver.rules.proof_basis import proof_digest
from gateway.solver.rules.rule import BackupStep, Rule, form_of, rule_of, step_of
from gateway.solver.rules.setting_aside import set_aside
from gateway.solver.rules.steps import Steps

__all__ = ["BackupStep", "Rule", "RuleSet", "Timer"]


@dataclass(frozen=True, slots=True)
class Timer:
    """One `c for N s` of the set: its key in formulas, how long, and the row of checks that tells."""

    key: str
    seconds: Fraction
    row: str


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
    terminal: tuple[Rule, ...] = ()
    overrides: tuple[Override, ...] = ()  # by name

    @staticmethod
    def of(modules: Iterable[Module], generation: int, overrides: Iterable[Override] = ()) -> RuleSet:
        """The combination; raises `ModuleRefusedError` where modules contradict each other.

        Also where an override names anything but a standard constraint of theirs (S25).
        """
        ordered = tuple(sorted(modules, key=lambda m: (-m.priority, m.id)))
        return _combined(ordered, generation, tuple(sorted(overrides, key=lambda o: o.name)))

    @cached_property
    def measured(self) -> tuple[Variable, ...]:
        """Variables of the plant: what it reports, and states that nobody measures."""
        return tuple(v for v in self.variables.values() if not v.action)

    @cached_property
    def steps(self) -> Steps:
        """The dynamics in whole numbers."""
        return Steps(self.measured, self.forms, self.disturbances, self.modules[0].step)

    @cached_property
    def reported(self) -> tuple[Variable, ...]:
        """Variables the plant reports."""
        return tuple(v for v in self.measured if not v.hidden)

    @cached_property
    def actions(self) -> tuple[Variable, ...]:
        """Variables the gateway writes."""
        return tuple(v for v in self.variables.values() if v.action)

    @cached_property
    def definitions(self) -> Mapping[TagId, TagDefinition]:
        """The tags the set reads or writes."""
        return {tag: v.definition for tag, v in self.variables.items() if not v.hidden}

    @cached_property
    def horizon(self) -> int:
        """Steps that rules with `always` are shown over: the longest that a module asks for."""
        return max((m.horizon for m in self.modules), default=0)

    @cached_property
    def invariant(self) -> tuple[Rule, ...]:
        """What the backup never leaves once it is there."""
        return (*self.safe_set, *self.terminal)

    @cached_property
    def rules_of_outputs(self) -> tuple[Rule, ...]:
        """Rules that ask nothing of the plant: what is proposed, what was in force, and how long."""
        plant = {str(v.tag) for v in self.measured}

        def asked(rule: Rule) -> set[str]:
            return {name.partition("(")[2].removesuffix(")") or name for name in symbols(rule.formula)}

        return tuple(r for r in self.rules if r.binding and not asked(r) & plant)

    @cached_property
    def permitted_outputs(self) -> tuple[Rule, ...]:
        """Those of them that what is in force keeps by itself, however it came to be."""
        return tuple(r for r in self.rules_of_outputs if not any("(" in n for n in symbols(r.formula)))

    @cached_property
    def tolerated(self) -> frozenset[TagId]:
        """Measured tags that every module that knows them accepts bad, missing or old."""
        return frozenset(
            v.tag
            for v in self.measured
            if all(v.tag in m.tolerated for m in self.modules if v.tag in m.tags.values())
        )

    @cached_property
    def timers(self) -> tuple[Timer, ...]:
        """Every `for` of the set."""
        found = frozenset().union(*(timed(rule.tree) for rule in self.rules))
        return tuple(Timer(f.key, f.seconds, f.row) for f in sorted(found, key=lambda f: f.key))

    @cached_property
    def rows(self) -> Mapping[str, tuple[Scaled, Scaled]]:
        """By the name of its row, what each `for` asks about, over tags, and its opposite."""
        found = frozenset().union(*(timed(rule.tree) for rule in self.rules))
        asked = {f.row: normal.formula(f.operand) for f in found}
        return {row: (scaled(asked[row]), scaled(negated(asked[row]))) for row in sorted(asked)}

    @cached_property
    def asked(self) -> frozenset[str]:
        """Measured tags that `good` or `age` is asked of."""
        found = frozenset().union(*(references(rule.tree) for rule in self.rules))
        return frozenset(r.name for r in found if r.form in {"good", "age"})

    @cached_property
    def remembered(self) -> frozenset[str]:
        """Measured tags whose value one step ago is asked for."""
        measured = {str(v.tag) for v in self.measured}
        asked = frozenset().union(*(references(rule.tree) for rule in self.rules))
        return frozenset(r.name for r in asked if r.form in {"prev", "rate"} and r.name in measured)

    @cached_property
    def backup_goes_on(self) -> bool:
        """Whether the backup may do something else a step later: it ramps, or asks where the plant is."""
        moves = (move for step in self.backup for move in step.entry.moves.values())
        return any(step.formula is not None for step in self.backup) or any(
            isinstance(move, Ramp) for move in moves
        )

    @cached_property
    def _influenced(self) -> frozenset[str]:
        """Keys of formulas that depend on what is proposed."""
        forms = ("prev", "rate", "kept_on", "may_rise", "held")
        return self.moving | {f"{form}({tag})" for form in forms for tag in self.moving}

    @cached_property
    def _beyond_reach(self) -> Rule | None:
        """A rule that refuses although no action can do anything about it (S5)."""
        return next((r for r in self.rules if r.binding and not symbols(r.formula) & self._influenced), None)

    @cached_property
    def moving(self) -> frozenset[str]:
        """Actions, and measured tags that they move, at once or by way of others."""
        found = {str(v.tag) for v in self.actions}
        while True:
            more = {tag for tag, form in self.forms.items() if form.symbols & found} - found
            if not more:
                return frozenset(found)
            found |= more

    @property
    def module_ids(self) -> frozenset[str]:
        """Ids of the modules in force."""
        return frozenset(m.id for m in self.modules)

    @cached_property
    def proof_digest(self) -> str:
        """Digest of everything the invariance of the safe set depends on, and of nothing else."""
        return proof_digest(self, as_written=False)

    def proved_by(self, known: Container[str]) -> bool:
        """Whether one of these proof digests shows the set invariant; one without overrides shows more."""
        return self.proof_digest in known or self._written_digest in known

    @cached_property
    def _written_digest(self) -> str:
        return proof_digest(self, as_written=True) if self.overrides else self.proof_digest

    def armable(  # noqa: PLR0911  one return for each reason
        self, actions: Iterable[TagId], proved: Container[str], silence_s: float = 0.0
    ) -> str:
        """Why a point that writes `actions` may not be armed; empty when it may (S1, S5, S11).

        `proved` are the proof digests that are committed or were proved at load; `silence_s` the longest hold
        that a horizon must cover where a terminal set takes the place of a safe set (`lease_sum`).
        """
        if not self.modules:
            return "no constraint module is in force, and an empty rule set permits nothing"
        for tag in actions:
            if tag not in self.variables:
                return f"no module in force governs `{tag}`"
        if not self.forms:
            return "no module in force has dynamics: its rules claim the snapshot only"
        if not self.backup or not self.invariant:
            return "no module in force declares a `backup` and a `safe_set` or a `terminal` set"
        covers_s = float(self.horizon * self.modules[0].step)
        if self.terminal and covers_s < silence_s:
            return (
                f"the horizon covers {covers_s:g} s and the last values may act for {silence_s:g} s: "
                f"raise `horizon` to {math.ceil(silence_s / float(self.modules[0].step))}"
            )
        if self._beyond_reach is not None:
            return (
                f"no action can influence `{self._beyond_reach.constraint.id}` ({self._beyond_reach.where}); "
                "mark it `monitor`, and it is reported instead"
            )
        if not self.proved_by(proved):
            what = "terminal" if self.terminal and not self.safe_set else "safe"
            return f"the {what} set of the modules in force is not proved invariant under their backup"
        return ""


def _combined(modules: tuple[Module, ...], generation: int, overrides: tuple[Override, ...]) -> RuleSet:
    problems: list[ConstraintError] = []
    _distinct(modules, problems)
    variables: dict[TagId, Variable] = {}
    for module in modules:
        for variable in module.variables.values():
            known = variables.get(variable.tag)
            try:
                variables[variable.tag] = variable if known is None else joined(known, variable)
            except ValueError as exc:
                problems.append(ConstraintError(module.source, 1, 1, str(exc)))
    dynamics, forms, disturbances = _dynamics(modules, problems)
    problems += mistaken(modules)
    backup = _backup(modules, problems)
    rules = tuple(rule_of(m, c) for m in modules for c in m.rules)
    rules = set_aside(rules, modules, overrides, problems)
    for rule in rules:
        broken = steady.breaks_between(rule.formula, forms) if rule.constraint.always else ()
        if broken:
            named = [rule.names.get(tag, tag) for tag in broken]
            said = f"{steady.problem(named)}, in `{rule.constraint.text}`"
            problems.append(ConstraintError(rule.source, rule.constraint.line, 1, said))
    safe_set = tuple(rule_of(m, c) for m in modules for c in m.safe_set)
    for rule in safe_set:
        if left := steady.leaves_between(rule.formula, forms):
            said = steady.problem_of_set([rule.names.get(tag, tag) for tag in left])
            problems.append(ConstraintError(rule.source, rule.constraint.line, 1, said))
    if problems:
        raise ModuleRefusedError(tuple(problems))
    content = "".join(f"{m.id} {m.revision} {m.digest} {m.priority}\n" for m in modules)
    content += "".join(f"override {json.dumps(said, sort_keys=True)}\n" for said in plain(overrides))
    return RuleSet(
        generation=generation,
        digest=hashlib.sha256(content.encode()).hexdigest(),
        modules=modules,
        variables=variables,
        dynamics=dynamics,
        forms=forms,
        disturbances=disturbances,
        rules=rules,
        safe_set=safe_set,
        terminal=tuple(rule_of(m, c) for m in modules for c in m.terminal),
        backup=backup,
        repairable=frozenset(m.tags[name] for m in modules for name in m.repair),
        overrides=overrides,
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
                    f"`{modules[0].id}`; modules in force together share one step",
                )
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
            over_tags = form_of(module, form)
            if forms.setdefault(tag, over_tags) != over_tags:
                problems.append(
                    ConstraintError(
                        module.source,
                        1,
                        1,
                        f"its dynamics of `{name}` differ from those of another module in force; "
                        "modules in force together share one",
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
        found = [step_of(module, entry) for entry in module.backup]
        for step in found:
            guard = formula_text(step.formula) if step.formula is not None else ""
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

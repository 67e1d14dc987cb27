"""One rule, or one entry of a backup, of a module: over tags, in place of the module's own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gateway.core.tag import TagId
from gateway.solver.language.affine import Affine, Formula, mapped, symbol
from gateway.solver.language.syntax import Connective, Expr, renamed
from gateway.solver.modules.module import BackupEntry, Constraint, Module

_KEYED = ("prev", "rate", "kept_on", "may_rise", "held", "good", "age")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One constraint or part of a safe set, over tags; `tree` is the whole of it."""

    module: str
    source: str
    names: Mapping[str, str]  # tag to the module's own name, for people
    constraint: Constraint
    tree: Expr
    formula: Formula
    overridden: bool = False  # a standard one that two persons set aside: only reported (S25)

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.source}:{self.constraint.line}"

    @property
    def binding(self) -> bool:
        """Whether it refuses: not what is only reported, nor what no action can influence."""
        return self.constraint.kind != "informational" and not self.constraint.monitor


@dataclass(frozen=True, slots=True)
class BackupStep:
    """One entry of the common backup, over tags."""

    tree: Expr | None
    formula: Formula | None
    entry: BackupEntry  # its moves are over tags


def step_of(module: Module, entry: BackupEntry) -> BackupStep:
    """An entry of a module's backup, over tags."""
    moves = {str(module.tags[name]): move for name, move in entry.moves.items()}
    return BackupStep(
        None if entry.when is None else renamed(entry.when, module.tags),
        None if entry.formula is None else _over_tags(entry.formula, module),
        replace(entry, moves=moves),
    )


def rule_of(module: Module, constraint: Constraint) -> Rule:
    """A constraint of a module, or a part of its safe or terminal set, over tags."""
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


def form_of(module: Module, form: Affine) -> Affine:
    """A form of a module, over tags."""
    return form.substituted(lambda name: symbol(_renamed(name, module)))


def _renamed(key: str, module: Module) -> str:
    """`level` or `prev(level)` with the tag in place of the module's name."""
    for form in _KEYED:
        if key.startswith(f"{form}("):
            name = key[len(form) + 1 : -1]
            return f"{form}({module.tags[name]})"
    return str(module.tags.get(key, TagId(key)))

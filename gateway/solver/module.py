"""One compiled constraint module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gateway.core.tag import TagDefinition, TagId
from gateway.solver.affine import Affine, Formula
from gateway.solver.syntax import Expr

Kind = Literal["critical", "standard", "informational"]
Interval = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A tag as a module sees it."""

    name: str
    tag: TagId
    sort: Literal["real", "int", "bool"]
    unit: str
    action: bool
    range: Interval
    error: Fraction = Fraction(0)
    max_age: Fraction | None = None
    max_rate: Fraction | None = None  # per second
    physical: Interval | None = None
    min_on: Fraction = Fraction(0)
    min_off: Fraction = Fraction(0)
    accept_quality: frozenset[str] = frozenset()
    definition: TagDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A rule: where `when` holds, `require` must. `formula` is the whole of it over affine forms."""

    id: str
    kind: Kind
    when: Expr | None
    require: Expr
    always: bool
    message: str
    line: int
    text: str  # the user's words
    formula: Formula


@dataclass(frozen=True, slots=True)
class Ramp:
    """Towards `target` at most `rate` a second."""

    target: Fraction
    rate: Fraction


@dataclass(frozen=True, slots=True)
class Hold:
    """The value in force, written again."""


Move = Ramp | Hold | Fraction


@dataclass(frozen=True, slots=True)
class BackupEntry:
    """Moves of some actions while `when` holds."""

    when: Expr | None
    formula: Formula | None
    moves: Mapping[str, Move]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An example: the values, those in force before, and the critical and standard rules it violates."""

    given: Mapping[str, Fraction]
    previous: Mapping[str, Fraction]
    held_s: Mapping[str, Fraction]
    violated: frozenset[str]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module that passed every load-time check of its own. Never changed."""

    id: str
    revision: int
    digest: str  # sha256 of the file's bytes
    priority: int
    source: str
    text: str
    tags: Mapping[str, TagId]
    actions: tuple[TagId, ...]
    constraints: tuple[str, ...]
    critical: frozenset[str]
    step: Fraction
    variables: Mapping[str, Variable]
    dynamics: Mapping[str, Expr]
    forms: Mapping[str, Affine]
    disturbances: Mapping[str, Interval]
    rules: tuple[Constraint, ...]
    backup: tuple[BackupEntry, ...]
    safe_set: tuple[Constraint, ...]
    repair: frozenset[str]
    cases: tuple[Case, ...]

"""One compiled constraint module."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor
from typing import Literal

from gateway.core.tag import TagDefinition, TagId
from gateway.solver.language.affine import Affine, Formula
from gateway.solver.language.syntax import Expr

Kind = Literal["critical", "standard", "informational"]
Interval = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A tag as a module sees it."""

    name: str
    tag: TagId
    sort: Literal["real", "int", "bool", "enum"]
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
    labels: Mapping[str, int] | None = None  # of an enum: register values
    error_reason: str = ""  # why a real may claim an error of 0
    hidden: bool = False  # a state that is never measured; its tag is `MODULE.name`
    widest: Interval | None = None  # of several modules' ranges, where it is not `range`
    definition: TagDefinition

    @property
    def roams(self) -> Interval:
        """Where it may be while nobody knows: the widest range that a module in force declares (S3)."""
        return self.range if self.widest is None else self.widest

    @property
    def uncertainty(self) -> Fraction:
        """How far a fresh reading may be off: its error, the tag's deadband, half a count (S4)."""
        if self.sort != "real":
            return self.error
        counted = self.definition.raw_range is not None  # floating point has no counts
        half = abs(self.definition.scale) / 2 if counted else Fraction(0)
        return self.error + self.definition.deadband + half

    @property
    def whole(self) -> Sequence[int] | None:
        """The values it can have, None for a real."""
        if self.labels is not None:
            return tuple(sorted(self.labels.values()))
        if self.sort == "real":
            return None
        low, high = self.range
        return builtins.range(ceil(low), floor(high) + 1)

    def text(self, value: Fraction) -> str:
        """A value as people write it: the label of an enum, true or false, or number and unit."""
        for label, number in (self.labels or {}).items():
            if value == number:
                return label
        if self.sort == "bool" and value in {0, 1}:
            return "true" if value else "false"
        return f"{float(value):.4f}".rstrip("0").rstrip(".") + (f" {self.unit}" if self.unit else "")


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
    row: str = ""  # its id in an imported table
    monitor: bool = False  # no action can influence it: reported, and refuses nothing

    @property
    def told_as(self) -> str:
        """Its kind in a finding: `monitor` where it would refuse if an action could influence it (S5)."""
        return "monitor" if self.monitor and self.kind != "informational" else self.kind


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
    """An example: the values, those one step before, and the critical and standard rules it violates.

    `held_s`: how long each action had its previous value, and each measured variable its given one; those
    left out for ever.
    """

    given: Mapping[str, Fraction]
    previous: Mapping[str, Fraction]
    held_s: Mapping[str, Fraction]
    violated: frozenset[str]
    line: int
    age_s: Mapping[str, Fraction] = field(default_factory=dict)
    bad: frozenset[str] = frozenset()


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
    horizon: int = 1  # steps that the rules are shown over
    terminal: tuple[Constraint, ...] = ()
    tolerated: frozenset[TagId] = (
        frozenset()
    )  # tags it asks `good` or `age` of: they may be bad, missing, old
    signed_by: str = ""  # the trusted key that signed the file, in hex

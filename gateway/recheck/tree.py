"""What a text of the language stands for: a tree of few kinds of nodes, the same for whoever walks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction


class LanguageError(ValueError):
    """A text that this reader does not understand; nothing may be concluded from it."""


class Kind(Enum):
    """What a node may be used as; a boolean variable is either."""

    NUMBER = "a number"
    CONDITION = "a condition"
    BOOLEAN = "a boolean"
    ENUM = "an enum"
    LABEL = "a label"


@dataclass(frozen=True, slots=True)
class Sort:
    """What a variable is. `values` are the register values of an enum by label."""

    kind: Kind = Kind.BOOLEAN
    values: Mapping[str, Fraction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A condition that must have held for `seconds`, as it stands in a module's text."""

    module: str
    words: str  # tokens joined by single blanks, without parentheses around the whole
    seconds: Fraction
    told: str  # the time as it stands in the text

    @property
    def name(self) -> str:
        """What an environment calls the answer, behind `for `."""
        return f"{self.module}/{self.words} {self.seconds}"


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    `op` is what it does: `number`, `truth`, `now`, `prev`, `rate`, `good`, `age`, `for`, `if`, `iff`,
    `implies`, `or`, `and`, `not`, `compare` (`signs`), `in` (`among`), `+`, `-`, `*`, `/`, `neg`, `abs`,
    `min`, `max`, `median`, `sum`, `count`, `at_most`, `exactly` (`constant` holds their limit).
    """

    op: str
    kind: Kind
    parts: tuple[Node, ...] = ()
    name: str = ""  # of what is read: the tag, or the disturbance
    constant: Fraction = Fraction(0)
    signs: tuple[str, ...] = ()
    among: tuple[Fraction, ...] = ()
    sort: Sort = Sort()
    row: Row | None = None

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for part in self.parts:
            yield from part.walk()


READS = ("now", "prev", "rate", "good", "age")


def reads(trees: Sequence[Node]) -> set[tuple[str, str]]:
    """What trees read: `(op, name)`."""
    return {(node.op, node.name) for tree in trees for node in tree.walk() if node.op in READS}


def rows(trees: Sequence[Node]) -> dict[Row, Node]:
    """The conditions that must have held for a time, and what each says of now."""
    return {node.row: node.parts[0] for tree in trees for node in tree.walk() if node.row is not None}

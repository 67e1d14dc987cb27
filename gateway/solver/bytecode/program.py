"""A compiled module as data: what `assemble` makes, `encode` writes, `load` reads and the machines run."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gateway.solver.bytecode.opcodes import Op, Type
from gateway.solver.language.syntax import Form
from gateway.solver.modules.module import Case, Interval, Kind, Move

SlotForm = Form | Literal["disturbance", "timer"]
FORMS: tuple[SlotForm, ...] = (  # coded as 0 to 9
    "now", "prev", "rate", "good", "age", "kept_on", "may_rise", "held", "disturbance", "timer",
)  # fmt: skip
SORTS: tuple[Literal["real", "int", "bool", "enum"], ...] = ("real", "int", "bool", "enum")
KINDS: tuple[Kind, ...] = ("critical", "standard", "informational")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step. `operand`: a constant's or slot's index, or how many values are taken."""

    op: Op
    operand: int = 0
    comparisons: bytes = b""  # of a chain


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that blocks read. `index`: of the variable, disturbance or timer; `key` names it in points."""

    form: SlotForm
    index: int
    key: str


@dataclass(frozen=True, slots=True)
class Origin:
    """A text that was compiled and where its first character stands in the source."""

    line: int
    column: int
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """One expression. `places` holds for each instruction two u16: an origin and an offset in its text."""

    start: int  # offset of its first byte in the code section
    code: tuple[Instruction, ...]
    result: Type
    places: bytes

    def place(self, index: int) -> tuple[int, int]:
        """Origin and offset of the instruction at `index`."""
        at = 4 * index
        return int.from_bytes(self.places[at : at + 2]), int.from_bytes(self.places[at + 2 : at + 4])


@dataclass(frozen=True, slots=True)
class Timer:
    """`condition for seconds`; `block` is the condition."""

    seconds: Fraction
    row: str
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A variable as the source declares it. `range` None: that of its tag's register."""

    name: str
    tag: str
    sort: Literal["real", "int", "bool", "enum"]
    unit: str
    action: bool
    repair: bool
    hidden: bool  # a state that nobody measures
    range: Interval | None
    error: Fraction
    error_reason: str
    max_age: Fraction | None
    max_rate: Fraction | None
    physical: Interval | None
    min_on: Fraction
    min_off: Fraction
    accept_quality: tuple[str, ...]
    labels: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCode:
    """A rule; its block is true where the rule holds."""

    id: str
    kind: Kind
    always: bool
    monitor: bool
    message: str
    row: str
    block: int


@dataclass(frozen=True, slots=True)
class BackupCode:
    """Moves of some actions while the guard's block is true; None: always."""

    guard: int | None
    moves: tuple[tuple[str, Move], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A whole module. Block numbers index `blocks`, which tile the code section in order."""

    language: int
    digest: str  # sha256 of the source
    id: str
    revision: int
    priority: int
    horizon: int
    step: Fraction
    variables: tuple[Declaration, ...]
    disturbances: tuple[tuple[str, Fraction, Fraction], ...]
    constants: tuple[Fraction, ...]
    slots: tuple[Slot, ...]
    blocks: tuple[Block, ...]
    origins: tuple[Origin, ...]
    timers: tuple[Timer, ...]
    rules: tuple[RuleCode, ...]
    dynamics: tuple[tuple[str, int], ...]
    backup: tuple[BackupCode, ...]
    safe_set: tuple[int, ...]
    terminal: tuple[int, ...]
    cases: tuple[Case, ...]
    source: bytes

    def where(self, block: Block, index: int) -> tuple[int, int, str]:
        """Line and column in the source of one instruction, and the text it belongs to."""
        number, offset = block.place(index)
        origin = self.origins[number]
        return origin.line, origin.column + offset, origin.text


@dataclass(frozen=True, slots=True)
class Signature:
    """An Ed25519 signature over the file's bytes before it."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Compiled:
    """A whole `.o3c` file; `signed` are the bytes that a signature covers."""

    program: Program
    signature: Signature | None
    signed: bytes


def slot_key(form: SlotForm, name: str, seconds: Fraction = Fraction(0)) -> str:
    """How points name a slot: as the syntax tree does."""
    match form:
        case "now" | "disturbance":
            return name
        case "timer":
            return f"for({seconds} {name})"
        case _:
            return f"{form}({name})"

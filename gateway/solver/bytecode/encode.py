"""Program to bytes. Every number has one spelling, every list one order: the same program, the same bytes.

The file: magic (8), format u16, language u16, length of everything up to the checksum u32, sha256 of the
source (32), the sections (u8 number, u32 length, content; all of them, in order), sha256 of all bytes before
(32); then 0, or 1 with an Ed25519 key (32) and its signature (64) over `CONTEXT` and all bytes before the 1.
Integers are big-endian; a text is a u16 length and UTF-8; a ratio is u16 length (top bit: negative) and bytes
of the numerator, then length and bytes of the denominator, in lowest terms.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TypeVar

from gateway.core.errors import ConstraintError
from gateway.solver.bytecode.opcodes import (
    COUNTED,
    FORMAT,
    INDEXED,
    MAGIC,
    MAX_FILE,
    MAX_INSTRUCTIONS,
    MAX_RATIO,
    MAX_SOURCE,
    MAX_TEXT,
)
from gateway.solver.bytecode.program import (
    FORMS,
    KINDS,
    SORTS,
    BackupCode,
    Block,
    Declaration,
    Instruction,
    Program,
    RuleCode,
    Signature,
)
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.module import Case, Hold, Move, Ramp

T = TypeVar("T")


class Section(enum.IntEnum):
    """Parts of a file, in their order."""

    MODULE = 1
    VARIABLES = 2
    DISTURBANCES = 3
    CONSTANTS = 4
    SLOTS = 5
    CODE = 6
    BLOCKS = 7
    ORIGINS = 8
    MAP = 9
    TIMERS = 10
    RULES = 11
    DYNAMICS = 12
    BACKUP = 13
    SETS = 14
    CASES = 15
    SOURCE = 16


class _TooLargeError(Exception):
    """Something does not fit the format; what, as a sentence's end."""


def encode(program: Program, source: str) -> bytes:
    """The file up to where a signature begins; `source` names the module in problems.

    Raises `ModuleRefusedError` for a program that the format cannot carry.
    """
    try:
        sections = [(number, write(program)) for number, write in _SECTIONS.items()]
        content = b"".join(_u8(n) + _u32(len(data)) + data for n, data in sections)
        head = MAGIC + _u16(FORMAT) + _u16(program.language)
        length = len(head) + 4 + 32 + len(content)
        if length > MAX_FILE - 256:
            problem = f"compiled it has {length} bytes; at most {MAX_FILE} are read"
            raise _TooLargeError(problem)  # noqa: TRY301  one sentence for all that is too large
    except _TooLargeError as exc:
        raise ModuleRefusedError((ConstraintError(source, 1, 1, f"the module is too large: {exc}"),)) from exc
    body = head + _u32(length) + bytes.fromhex(program.digest) + content
    return body + hashlib.sha256(body).digest()


def sealed(encoded: bytes, signature: Signature | None) -> bytes:
    """The whole file."""
    return encoded + (b"\0" if signature is None else b"\1" + signature.key + signature.value)


def _u8(value: int) -> bytes:
    return value.to_bytes(1)


def _u16(value: int) -> bytes:
    if value >= 1 << 16:
        raise _TooLargeError(f"{value} of something is more than {(1 << 16) - 1}")
    return value.to_bytes(2)


def _u32(value: int) -> bytes:
    return value.to_bytes(4)


def _u64(value: int) -> bytes:
    if value >= 1 << 64:
        raise _TooLargeError(f"the number {value} does not fit 64 bits")
    return value.to_bytes(8)


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) > MAX_TEXT:
        raise _TooLargeError(f"a text of {len(data)} bytes is longer than {MAX_TEXT}")
    return _u16(len(data)) + data


def _ratio(value: Fraction) -> bytes:
    parts = []
    for number, negative in ((abs(value.numerator), value < 0), (value.denominator, False)):
        data = number.to_bytes((number.bit_length() + 7) // 8)
        if len(data) > MAX_RATIO:
            raise _TooLargeError("a number has too many digits")
        parts.append(_u16(len(data) | (negative << 15)) + data)
    return b"".join(parts)


def _maybe(value: T | None, write: Callable[[T], bytes]) -> bytes:
    return b"\0" if value is None else b"\1" + write(value)


def _many(items: Iterable[T], write: Callable[[T], bytes]) -> bytes:
    found = [write(item) for item in items]
    return _u16(len(found)) + b"".join(found)


def _pair(value: tuple[Fraction, Fraction]) -> bytes:
    return _ratio(value[0]) + _ratio(value[1])


def _module(p: Program) -> bytes:
    return _text(p.id) + _u64(p.revision) + _u8(p.priority) + _u16(p.horizon) + _ratio(p.step)


def _variable(v: Declaration) -> bytes:
    labels = _maybe(
        v.labels, lambda found: _many(found, lambda label: _text(label[0]) + _ratio(Fraction(label[1])))
    )
    return (
        _text(v.name)
        + _text(v.tag)
        + _u8(SORTS.index(v.sort))
        + _u8(v.action | v.repair << 1 | v.hidden << 2)
        + _text(v.unit)
        + _maybe(v.range, _pair)
        + _ratio(v.error)
        + _text(v.error_reason)
        + _maybe(v.max_age, _ratio)
        + _maybe(v.max_rate, _ratio)
        + _maybe(v.physical, _pair)
        + _ratio(v.min_on)
        + _ratio(v.min_off)
        + _many(v.accept_quality, _text)
        + labels
    )


def instruction_bytes(step: Instruction) -> bytes:
    """One instruction as it stands in the code."""
    operand = _u16(step.operand) if step.op in INDEXED | COUNTED else b""
    return _u8(step.op) + operand + step.comparisons


def _code(p: Program) -> bytes:
    count = sum(len(block.code) for block in p.blocks)
    if count > MAX_INSTRUCTIONS:
        raise _TooLargeError(f"its rules have {count} operations; at most {MAX_INSTRUCTIONS} are read")
    return b"".join(instruction_bytes(step) for block in p.blocks for step in block.code)


def _block(block: Block) -> bytes:
    size = sum(len(instruction_bytes(step)) for step in block.code)
    return _u32(size) + _u8(block.result == "truth")


def _rule(r: RuleCode) -> bytes:
    flags = r.always | r.monitor << 1
    return (
        _text(r.id) + _u8(KINDS.index(r.kind)) + _u8(flags) + _text(r.message) + _text(r.row) + _u16(r.block)
    )


def _move(named: tuple[str, Move]) -> bytes:
    name, move = named
    match move:
        case Hold():
            return _text(name) + b"\0"
        case Ramp(target, rate):
            return _text(name) + b"\2" + _ratio(target) + _ratio(rate)
        case Fraction():
            return _text(name) + b"\1" + _ratio(move)


def _backup(entry: BackupCode) -> bytes:
    return _maybe(entry.guard, _u16) + _many(entry.moves, _move)


def _values(found: Mapping[str, Fraction]) -> bytes:
    return _many(found.items(), lambda item: _text(item[0]) + _ratio(item[1]))


def _case(case: Case) -> bytes:
    return (
        _u32(case.line)
        + b"".join(map(_values, (case.given, case.previous, case.held_s, case.age_s)))
        + _many(sorted(case.bad), _text)
        + _many(sorted(case.violated), _text)
    )


def _source(p: Program) -> bytes:
    if len(p.source) > MAX_SOURCE:
        raise _TooLargeError(f"its source has {len(p.source)} bytes; at most {MAX_SOURCE} are compiled")
    return p.source


_SECTIONS: Mapping[Section, Callable[[Program], bytes]] = {
    Section.MODULE: _module,
    Section.VARIABLES: lambda p: _many(p.variables, _variable),
    Section.DISTURBANCES: lambda p: _many(p.disturbances, lambda d: _text(d[0]) + _pair((d[1], d[2]))),
    Section.CONSTANTS: lambda p: _many(p.constants, _ratio),
    Section.SLOTS: lambda p: _many(p.slots, lambda s: _u8(FORMS.index(s.form)) + _u16(s.index)),
    Section.CODE: _code,
    Section.BLOCKS: lambda p: _many(p.blocks, _block),
    Section.ORIGINS: lambda p: _many(p.origins, lambda o: _u32(o.line) + _u32(o.column) + _text(o.text)),
    Section.MAP: lambda p: b"".join(block.places for block in p.blocks),
    Section.TIMERS: lambda p: _many(p.timers, lambda t: _ratio(t.seconds) + _text(t.row) + _u16(t.block)),
    Section.RULES: lambda p: _many(p.rules, _rule),
    Section.DYNAMICS: lambda p: _many(p.dynamics, lambda d: _text(d[0]) + _u16(d[1])),
    Section.BACKUP: lambda p: _many(p.backup, _backup),
    Section.SETS: lambda p: _many(p.safe_set, _u16) + _many(p.terminal, _u16),
    Section.CASES: lambda p: _many(p.cases, _case),
    Section.SOURCE: _source,
}

"""A compiled module as people read it: each block with the text it came from and its instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gateway.core.tag import decimal_text
from gateway.solver.bytecode.encode import instruction_bytes
from gateway.solver.bytecode.opcodes import COMPARISONS, COUNTED, FORMAT, Op
from gateway.solver.bytecode.program import Compiled, Instruction, Program


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction: its offset in the code section, and where in the source it comes from."""

    offset: int
    instruction: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Listing:
    """One block: what it is for, the texts it was compiled from, its instructions."""

    title: str
    texts: tuple[str, ...]
    lines: tuple[Line, ...]


def listings(program: Program) -> Iterator[Listing]:
    """Every block, in the order of what it is for."""
    for rule in program.rules:
        words = [rule.kind, *(["always"] if rule.always else []), *(["monitor"] if rule.monitor else [])]
        yield _listing(program, f"rule {rule.id} ({', '.join(words)})", rule.block)
    for name, block in program.dynamics:
        yield _listing(program, f"dynamics of {name}", block)
    for number, entry in enumerate(program.backup, start=1):
        if entry.guard is not None:
            yield _listing(program, f"guard of backup entry {number}", entry.guard)
    for key, blocks in (("safe_set", program.safe_set), ("terminal", program.terminal)):
        for number, block in enumerate(blocks, start=1):
            yield _listing(program, f"{key}[{number}]", block)
    for timer in program.timers:
        yield _listing(program, f"condition held {decimal_text(timer.seconds)} s", timer.block)


def words(compiled: Compiled) -> Iterator[str]:
    """The listing for people, line by line; what is not printable in a foreign file is spelled out."""
    return map(_printable, _words_of(compiled))


def _words_of(compiled: Compiled) -> Iterator[str]:
    program = compiled.program
    yield f"module {program.id} revision {program.revision}, priority {program.priority}"
    yield f"format {FORMAT}, language {program.language}, source sha256 {program.digest}"
    signature = compiled.signature
    yield f"signed with key {signature.key.hex()}" if signature is not None else "not signed"
    for v in program.variables:
        role = "action" if v.action else "measured"
        yield f"variable {v.name}: {v.tag}, {v.sort}, {role} {v.unit}".rstrip()
    for listing in listings(program):
        yield ""
        yield listing.title
        yield from (f"    {text}" for text in listing.texts)
        for line in listing.lines:
            yield f"  {line.offset:6}  {line.instruction:<36} {line.line}:{line.column}"
    yield ""
    yield f"{len(program.blocks)} blocks, {len(program.constants)} constants, {len(program.cases)} cases"


def plain(compiled: Compiled) -> dict[str, Any]:
    """The listing for programs."""
    program, signature = compiled.program, compiled.signature
    return {
        "module": program.id,
        "revision": program.revision,
        "priority": program.priority,
        "format": FORMAT,
        "language": program.language,
        "source_sha256": program.digest,
        "signed_by": signature.key.hex() if signature is not None else "",
        "constants": [decimal_text(value) for value in program.constants],
        "slots": [slot.key for slot in program.slots],
        "blocks": [asdict(listing) for listing in listings(program)],
    }


def _listing(program: Program, title: str, number: int) -> Listing:
    block = program.blocks[number]
    texts: dict[str, None] = {}
    lines: list[Line] = []
    offset = block.start
    for index, step in enumerate(block.code):
        line, column, text = program.where(block, index)
        texts.setdefault(text)
        lines.append(Line(offset, _words(program, step), line, column))
        offset += len(instruction_bytes(step))
    return Listing(title, tuple(texts), tuple(lines))


def _printable(line: str) -> str:
    """No text of a file moves the cursor, hides a line or turns the order of what stands beside it."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _words(program: Program, step: Instruction) -> str:
    name = step.op.name.lower()
    match step.op:
        case Op.NUMBER:
            return f"{name} {decimal_text(program.constants[step.operand])}"
        case Op.LOAD | Op.TEST:
            return f"{name} {program.slots[step.operand].key}"
        case Op.CHAIN:
            return f"{name} {' '.join(COMPARISONS[code] for code in step.comparisons)}"
        case _:
            return f"{name} {step.operand}" if step.op in COUNTED else name

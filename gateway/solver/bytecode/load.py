"""Bytes to program. A hostile file is refused by one sentence; it never crashes, hangs or takes much memory.

What the loader answers for is that the file is well formed and that running it is harmless: every length,
count, index, opcode, stack type, stack depth and number is inside its bound, and the work of every block is
bounded before it runs. It does not compile the source again: a tool reads and runs a file without the
compiler and without the tags, and the loader's own safety never rests on a parser.

That the code means what the embedded source says is another question, and no check of bytes can answer it.
Where a module is put in force there is a compiler anyway, and `accept` asks it: the source must compile to
exactly these bytes. So the text that people read, that the independent checker judges by and that
certificates carry cannot differ from what was signed.
"""

from __future__ import annotations

import hashlib

from gateway.core.errors import ConstraintError
from gateway.solver.bytecode.encode import Section
from gateway.solver.bytecode.load_parts import Parts
from gateway.solver.bytecode.opcodes import FORMAT, MAGIC, MAX_FILE
from gateway.solver.bytecode.program import Compiled, Program, Signature
from gateway.solver.bytecode.reading import Allowance, BadBytesError, Reader
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language.schema import LANGUAGE

__all__ = ["is_compiled", "load", "whole"]

_FIXED = len(MAGIC) + 2 + 2 + 4 + 32  # before the sections
_CHECKSUM = 32
_SIGNATURE = 96


def is_compiled(data: bytes) -> bool:
    """Whether the bytes say of themselves that they are a compiled module."""
    return data.startswith(MAGIC[:4])


def whole(data: bytes) -> bool:
    """Whether a file that says it is a compiled module has all its bytes: a partial copy has not."""
    try:
        _framed(data)
    except BadBytesError:
        return False
    return True


def load(data: bytes, source: str) -> Compiled:
    """The module in `data`; `source` names the file in problems. Raises `ModuleRefusedError` and no other."""
    try:
        signed, signature = _framed(data)
        return Compiled(_program(data, len(signed) - _CHECKSUM), signature, signed)
    except BadBytesError as exc:
        problem = f"the compiled module is damaged or forged, at byte {exc.offset}: {exc.problem}"
        raise ModuleRefusedError((ConstraintError(source, 1, 1, problem),)) from exc
    except (ArithmeticError, ValueError, RecursionError) as exc:  # whatever a bound above forgot
        problem = f"the compiled module is damaged or forged: {exc}"
        raise ModuleRefusedError((ConstraintError(source, 1, 1, problem),)) from exc


def _framed(data: bytes) -> tuple[bytes, Signature | None]:
    """What a signature covers, and the signature."""
    if len(data) > MAX_FILE:
        raise BadBytesError(MAX_FILE, f"the file has {len(data)} bytes; at most {MAX_FILE} are read")
    reader = Reader(data, 0, len(data))
    if reader.take(min(len(MAGIC), len(data)), "the mark") != MAGIC:
        problem = "the file does not begin as a compiled module does; it may have been transferred as text"
        raise BadBytesError(0, problem)
    version = reader.number(2, "the format version")
    if version != FORMAT:
        problem = f"the format version is {version} and this gateway reads {FORMAT}; compile the source again"
        raise BadBytesError(reader.at - 2, problem)
    language = reader.number(2, "the language version")
    if language != LANGUAGE:
        problem = f"the language version is {language} and this gateway reads {LANGUAGE}"
        raise BadBytesError(reader.at - 2, problem)
    length = reader.number(4, "the length of the module", len(data) - _CHECKSUM - 1, _FIXED)
    end = length
    checksum = data[end : end + _CHECKSUM]
    tail = Reader(data, end + _CHECKSUM, len(data))
    has_signature = tail.flag("whether there is a signature")
    found = tail.take(_SIGNATURE, "the signature") if has_signature else b""
    tail.done("the file")
    if hashlib.sha256(data[:end]).digest() != checksum:
        raise BadBytesError(end, "the checksum does not fit the bytes before it")
    signature = Signature(found[:32], found[32:]) if has_signature else None
    return data[: end + _CHECKSUM], signature


def _program(data: bytes, end: int) -> Program:
    reader = Reader(data, _FIXED, end)
    sections: dict[Section, Reader] = {}
    allowance = Allowance()
    for section in Section:
        name = section.name.lower()
        if reader.number(1, "the number of a section") != section:
            raise BadBytesError(reader.at - 1, f"section {int(section)} ({name}) is expected here")
        size = reader.number(4, f"the length of section {name}")
        start = reader.at
        reader.take(size, f"section {name}")
        sections[section] = Reader(data, start, start + size, allowance)
    reader.done("the sections")
    program = Parts(sections, data[_FIXED - 32 : _FIXED].hex()).program()
    for section, part in sections.items():
        part.done(f"section {section.name.lower()}")
    return program

"""From a module file of either format to a module that may be put in force."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from gateway.core.errors import ConstraintError
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.bytecode import load as loader
from gateway.solver.bytecode.assemble import assemble
from gateway.solver.bytecode.encode import encode, sealed
from gateway.solver.bytecode.signing import Trust, sign
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module


def accepted(data: bytes, source: str, tags: Mapping[TagId, TagDefinition], trust: Trust) -> Module:
    """The module in a `.json` or `.o3c` file; `signed_by` names the trusted key that signed it.

    A compiled module is taken only if its embedded source compiles to its very bytes: what was signed is what
    people read and every judge reads. Raises `ModuleRefusedError`.
    """
    if not loader.is_compiled(data) and not source.endswith(".o3c"):
        if trust.signed_only:
            _refuse(
                source,
                "this gateway takes signed modules only (`signed_only`), and a source has no signature; "
                "o3ctl compile --input M.json --output M.o3c --sign KEY makes a signed one",
            )
        return compile_module(data, source, tags)
    compiled = loader.load(data, source)
    problem = trust.problem(compiled)
    if problem:
        _refuse(source, problem)
    module = compile_module(compiled.program.source, source, tags)
    if encode(assemble(module), source) != compiled.signed:
        _refuse(
            source,
            "the compiled module is not what its own source compiles to; it was altered or made by another "
            "version: compile the source again with o3ctl compile",
        )
    return replace(module, signed_by=trust.signer(compiled))


def source_of(data: bytes, source: str) -> bytes:
    """The source in a file of either format; raises `ModuleRefusedError`."""
    if not loader.is_compiled(data) and not source.endswith(".o3c"):
        return data
    return loader.load(data, source).program.source


def compiled_file(
    data: bytes, source: str, tags: Mapping[TagId, TagDefinition], key_file: Path | None
) -> tuple[bytes, str]:
    """A `.o3c` file of a source, signed where a private key is given, and the public key.

    The bytes depend on the source and the key only. Raises `ModuleRefusedError` or `KeyRefusedError`.
    """
    encoded = encode(assemble(compile_module(data, source, tags)), source)
    loader.load(sealed(encoded, None), source)  # nothing leaves here that would be refused elsewhere
    signature = sign(encoded, key_file) if key_file is not None else None
    return sealed(encoded, signature), signature.key.hex() if signature is not None else ""


def whole(data: bytes) -> bool:
    """Whether a file may be whole already: a partial copy neither parses nor fits its checksum."""
    if loader.is_compiled(data):
        return loader.whole(data)
    try:
        json.loads(data)
    except (ValueError, RecursionError):  # what is nested too deeply is refused where it is compiled
        return False
    return True


def _refuse(source: str, problem: str) -> NoReturn:
    raise ModuleRefusedError((ConstraintError(source, 1, 1, problem),))

"""Modules, compiled, for tests of the file format and of its machines."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.bytecode.assemble import assemble
from gateway.solver.bytecode.encode import encode, sealed
from gateway.solver.bytecode.program import Program
from gateway.solver.language import normal
from gateway.solver.language.syntax import Expr
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL, module
from tests.unit.solver_modules import NAMES, shipped

ALL = ("buffer-tank", "lower-level-limit", *NAMES)


@lru_cache
def source_module(name: str) -> Module:
    """A shipped module by name."""
    match name:
        case "buffer-tank":
            return module(BUFFER_TANK)
        case "lower-level-limit":
            return module(LOWER_LEVEL)
        case _:
            return shipped(name)


@lru_cache
def program(name: str) -> Program:
    return assemble(source_module(name))


@lru_cache
def file(name: str) -> bytes:
    """A shipped module as an unsigned `.o3c` file."""
    return sealed(encode(program(name), f"{name}.o3c"), None)


_REALS, _TRUTHS = ("a", "b", "c"), ("on", "off")
_KINDS = {**dict.fromkeys(_REALS, "real"), **dict.fromkeys(_TRUTHS, "bool"), "k": "int"}
_TAGS = {
    TagId(name): TagDefinition(
        id=TagId(name),
        kind={"real": TagKind.REAL, "bool": TagKind.BOOLEAN, "int": TagKind.INTEGER}[kind],
        raw_range=(0, 100),
    )
    for name, kind in _KINDS.items()
}


@lru_cache
def _letters() -> Module:
    error = {"real": {"error": "0.1"}, "bool": {}, "int": {}}
    variables = {
        name: {"tag": name, "type": kind, "max_age": "1 s", "range": ["0", "100"], **error[kind]}
        for name, kind in _KINDS.items()
    }
    for name in _TRUTHS:
        del variables[name]["range"]
    rule = {"id": "rule", "kind": "standard", "require": "a <= 100"}
    said = {"id": "m", "revision": 1, "language": 1, "step": "1 s", "variables": variables}
    return compile_module(json.dumps(said | {"constraints": [rule]}).encode(), "m.json", _TAGS)


def program_of(tree: Expr) -> Program:
    """The program whose only rule is `tree`, over a, b, c, k, on, off."""
    base = _letters()
    rule = replace(base.rules[0], require=tree, formula=normal.formula(base.rules[0].require))
    return assemble(replace(base, rules=(rule,)))


def numbers(*values: str) -> list[Fraction]:
    return [Fraction(v) for v in values]
